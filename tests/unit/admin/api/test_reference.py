"""The published descriptions of the HTTP routes follow from the routes, and are OpenAPI."""

import json

import pytest
from openapi_spec_validator import validate
from openapi_spec_validator.validation.exceptions import OpenAPIValidationError

from mailmend.admin import http_reference as reference


def test_the_descriptions_are_up_to_date() -> None:
    assert reference.main(["--check"]) == 0


def test_the_descriptions_are_openapi() -> None:
    """Of the files that are published, as their standard has it; a response without a description is refused."""
    for file in reference.FILES:
        published = json.loads(file.read_text())
        validate(published)

    del published["paths"]["/metrics"]["get"]["responses"]["200"]["description"]
    with pytest.raises(OpenAPIValidationError):
        validate(published)

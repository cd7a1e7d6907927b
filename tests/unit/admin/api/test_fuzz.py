"""Requests drawn from the description of the HTTP side, and against it: every answer is as described, none is 5xx."""

from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import negative_data_rejection

from admin.api.access import Access, parse_tokens
from admin.api.application import application
from admin.api.jobs.routes import JOBS
from tests.support.task_desk import TaskWorld

TOKEN = "w" * 32
EXAMPLES = 60


@pytest.mark.thorough
@pytest.mark.parametrize("mode", GenerationMode)
def test_every_answer_is_as_described(tmp_path: Path, mode: GenerationMode) -> None:
    """What fits the description is taken; whatever is sent is answered as described."""
    world = TaskWorld(tmp_path)
    app = application(JOBS, world.desk, Access(parse_tokens([f"all repair {TOKEN}"], "")))
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)

    for found in schema.get_all_operations():
        assert isinstance(found, Ok), found
        operation = found.ok()
        if mode is GenerationMode.NEGATIVE and operation.path in ("/healthcheck", "/metrics"):
            continue  # nothing can be wrong with it

        @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        @given(operation.as_strategy(generation_mode=mode))
        def each(case: Any) -> None:
            case.call_and_validate(
                headers={"Authorization": f"Bearer {TOKEN}"},
                excluded_checks=[negative_data_rejection],  # unknown parameters are ignored, as James does
            )

        each()

"""How a policy file declares attributes of mails as fields, and where it may name them. It needs no YAML."""

from typing import Final

from mailmend.delivery.policy.policy import CUSTOM_NAME
from mailmend.model.file_forms import FilePart, JsonSchema, list_schema, text_schema

CUSTOM_MAX: Final = 20
"""How many fields a file declares: each mail has a value of each of them."""

CUSTOM_FIELD: Final = text_schema(CUSTOM_NAME)

CUSTOM_PART: Final = FilePart(
    "fields",
    {**list_schema(CUSTOM_FIELD), "maxItems": CUSTOM_MAX, "uniqueItems": True},
    "Attributes of mails that policies and suspensions of this file name as fields; hooks and rules set them.",
    "custom",
)


def with_custom(schema: JsonSchema, value: JsonSchema) -> JsonSchema:
    """A mapping by field that may name fields of the file's own too: which ones, the reader alone knows."""
    return {**schema, "patternProperties": {f"^(?:{CUSTOM_NAME})$": value}}

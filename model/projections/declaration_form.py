"""The one description of a file of projections: its parts, how each is written, and what it means.

The reader, the JSON schema and the reference page follow from these forms. A form knows no live
schema: `repair.declared` alone knows which names are there.
"""

from collections.abc import Mapping
from typing import Final

from mailmend.model.file_forms import (
    FileForm,
    FilePart,
    JsonSchema,
    Scalar,
    by_name,
    defined,
    described,
    list_schema,
    text_schema,
)
from mailmend.model.projections.declarations import LEFT_OUT, MIRROR, RENAMED, TRUTH

NAME: Final = Scalar(
    r'[A-Za-z][A-Za-z0-9_]*|"(?:[^"]|"")+"',
    lambda found: found[0],
    "is not a name",
    "Write letters, digits and _; or a name in double quotes, as in CQL.",
    form=text_schema(r'[A-Za-z][A-Za-z0-9_]*|"(?:[^"]|"")+"'),
)
"""A name as CQL spells it. Without double quotes its case has no effect."""

_RENAMED: Final = FilePart(
    RENAMED,
    by_name(NAME.schema, NAME),
    "The truth's column behind a column of another name: { column_of_projection = "
    '"column_of_truth" }. Columns of the key too.',
)
MIRROR_FORM: Final = FileForm(
    what="a mirror",
    parts=(
        _RENAMED,
        FilePart(
            LEFT_OUT,
            {**list_schema(NAME.schema), "uniqueItems": True},
            "Columns of the projection that are neither compared nor written.",
        ),
    ),
    meaning="One row for each row of the truth, with the columns that both tables have.",
)
TRUTH_FORM: Final = FileForm(
    what="a truth",
    parts=(FilePart(MIRROR, by_name(defined(MIRROR), NAME), "Copies, by the name of the table."),),
    meaning="A table that is right by definition, and the tables that follow from it.",
)
FILE_FORM: Final = FileForm(
    what="a file of projections",
    parts=(FilePart(TRUTH, by_name(defined(TRUTH), NAME), "Truths, by the name of the table."),),
    required=(TRUTH,),
)

FORMS: Final[Mapping[str, FileForm]] = {TRUTH: TRUTH_FORM, MIRROR: MIRROR_FORM}
"""The forms of the tables of a file, by the words in their headers."""


def declaration_schema() -> JsonSchema:
    """The JSON schema of a file of projections as TOML reads it, of draft 2020-12."""
    forms = {word: form.schema for word, form in FORMS.items()}
    forms[TRUTH] = {**forms[TRUTH], "minProperties": 1}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Projections of mailmend",
        **described("Which tables follow from which truth.", FILE_FORM.schema),
        "$defs": forms,
    }

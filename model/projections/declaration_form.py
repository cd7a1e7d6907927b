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
    object_schema,
    text_schema,
)
from mailmend.model.projections.declarations import (
    COLUMN,
    COLUMNS,
    COMPUTED,
    CONTENT,
    COUNT,
    COUNTERS,
    ELEMENT,
    EXPLODE,
    FILTER,
    GENERATORS,
    LEFT_OUT,
    MAX,
    MIN,
    MIRROR,
    NEEDS,
    NUMBERED_BY,
    RENAMED,
    TRUTH,
    UNION,
    USED_WITH,
    VALUE,
    VIEW,
    WHEN,
)
from mailmend.model.projections.declared_conditions import NOT, NULL, STARTS, STARTS_NOT
from mailmend.model.projections.declared_mirrors import (
    FIELDS,
    FILLED,
    ONLY_REPORTED,
    REPORTED,
    REQUIRED,
)
from mailmend.model.projections.declared_nulls import NULL_IS
from mailmend.model.projections.declared_transforms import (
    BUCKETS,
    BUCKETS_MAX,
    CONSTANT,
    DEFAULT,
    DIGITS,
    FIELD,
    FORM,
    JOINED_COLUMNS,
    PATH,
    PREFIXES,
    RULES,
    SEPARATOR,
)

_NAME_PATTERN: Final = r'[A-Za-z][A-Za-z0-9_]*|"(?:[^"]|"")+"'
NAME: Final = Scalar(
    _NAME_PATTERN,
    lambda found: found[0],
    "is not a name",
    "Write letters, digits and _; or a name in double quotes, as in CQL.",
    form=text_schema(_NAME_PATTERN),
)
"""A name as CQL spells it. Without double quotes its case has no effect."""

CONDITION: Final = "condition"
TEST: Final = "test"
_CONSTANT: Final[JsonSchema] = {"type": ["boolean", "integer", "string"]}
_CONSTANTS: Final[JsonSchema] = {**list_schema(_CONSTANT), "minItems": 1, "uniqueItems": True}
_BEGINNING: Final[JsonSchema] = {"type": "string", "minLength": 1}
_BEGINNINGS: Final[JsonSchema] = {**list_schema(_BEGINNING), "minItems": 1, "uniqueItems": True}
TEST_FORM: Final = FileForm(
    what="a test",
    parts=(
        FilePart(
            NOT,
            {"anyOf": [_CONSTANT, _CONSTANTS]},
            "A constant, or several, to which the column is not equal.",
            attribute="excluded",
        ),
        FilePart(
            STARTS,
            {"anyOf": [_BEGINNING, _BEGINNINGS]},
            "A text, or several: the text of the column begins with one of them.",
        ),
        FilePart(
            STARTS_NOT,
            {"anyOf": [_BEGINNING, _BEGINNINGS]},
            "A text, or several: the text of the column begins with none of them.",
        ),
        FilePart(
            NULL,
            {"type": "boolean"},
            "Whether the column is null. `true` has no other key next to it.",
        ),
    ),
    meaning="What a column has to be, as a table in a condition. All of its keys have to hold.",
)
_TEST: Final[JsonSchema] = {"anyOf": [_CONSTANT, _CONSTANTS, defined(TEST)]}
_TESTS: Final = by_name(_TEST, NAME)
_CONDITION: Final[JsonSchema] = {"anyOf": [_TESTS, {**list_schema(_TESTS), "minItems": 1}]}

_RENAMED: Final = FilePart(
    RENAMED,
    by_name(NAME.schema, NAME),
    "The truth's column behind a column of another name: "
    '`{ column_of_projection = "column_of_truth" }`. Columns of the key too.',
)
_PARTS: Final[Mapping[str, JsonSchema]] = {
    BUCKETS: {"type": "integer", "minimum": 1, "maximum": BUCKETS_MAX},
    PATH: text_schema(r"[^.]+(?:\.[^.]+)*"),
    FIELD: NAME.schema,
    DEFAULT: _CONSTANT,
    FORM: {"const": DIGITS},
    SEPARATOR: {"type": "string"},
    PREFIXES: {**list_schema(_BEGINNING), "minItems": 1, "uniqueItems": True},
}
_SEVERAL_NAMES: Final[JsonSchema] = {**list_schema(NAME.schema), "minItems": 2, "uniqueItems": True}
TRANSFORM: Final = "transform"


def _transforms() -> JsonSchema:
    """One of the words of the list, with what it needs."""
    forms = []
    for rule in RULES:
        parts: dict[str, JsonSchema] = {rule.word: NAME.schema}
        if rule.word == CONSTANT:
            parts[rule.word] = _CONSTANT
        else:
            parts[DEFAULT] = _CONSTANT
        if rule.part:
            parts[rule.part] = _PARTS[rule.part]
        if rule.word == JOINED_COLUMNS:
            parts |= {JOINED_COLUMNS: _SEVERAL_NAMES, SEPARATOR: _BEGINNING}
        needed = [rule.word, *filter(None, [rule.needs])]
        forms.append(described(rule.meaning, {**object_schema(parts), "required": needed}))
    return {"anyOf": forms}


_COMPUTED: Final = FilePart(
    COMPUTED,
    by_name(defined(TRANSFORM), NAME),
    "Columns that are computed, each by one transform of a closed list: "
    '`{ day = { day_of = "created_at" }, region = { constant = "eu" } }`. Columns of the key too.',
)
_WHEN: Final = FilePart(
    WHEN,
    defined(CONDITION),
    "Which rows of the truth have a row in the table; without it each row has one.",
)
_NEEDS: Final = FilePart(
    NEEDS,
    {**list_schema(NAME.schema), "uniqueItems": True},
    "Columns of the truth. A row of the truth that lacks one cannot say what its row is: "
    "it demands none, and its row is left as it is.",
)
_LEFT_OUT: Final = FilePart(
    LEFT_OUT,
    {**list_schema(NAME.schema), "uniqueItems": True},
    "Columns of the projection that are neither compared nor written.",
)
_REQUIRED: Final = FilePart(
    REQUIRED,
    {**list_schema(NAME.schema), "uniqueItems": True},
    "Columns of the truth that every insert writes. A row of the truth that lacks one is TORN.",
)
_REASON: Final[JsonSchema] = {"type": "string", "pattern": r"^.*\S.*$"}
REPORTED_FORM: Final = FileForm(
    what="a list of verdicts",
    parts=tuple([FilePart(verdict, _REASON, f"Why a {verdict} is left.") for verdict in REPORTED]),
    meaning="Verdicts that a repair leaves, each with the reason that a person reads.",
)
_ONLY_REPORTED: Final = FilePart(
    ONLY_REPORTED,
    defined(ONLY_REPORTED),
    'Verdicts that a repair leaves, each with the reason: `{ WITHDRAW = "a person decides" }`.',
)
MIRROR_FORM: Final = FileForm(
    what="a mirror",
    parts=(
        _RENAMED,
        _COMPUTED,
        _WHEN,
        _NEEDS,
        _LEFT_OUT,
        _REQUIRED,
        FilePart(
            FILLED,
            {**list_schema(NAME.schema), "uniqueItems": True},
            "Required columns that the truth's content has too: `--torn fill` writes them into a "
            "row of the truth that lacks them.",
        ),
        FilePart(
            FIELDS,
            by_name({**by_name(NAME.schema, NAME), "minProperties": 1}, NAME),
            "Of a column of a frozen user type, the truth's column behind each field: "
            '`{ address = { city = "city", street = "street" } }`.',
        ),
        _ONLY_REPORTED,
    ),
    meaning="One row for each row of the truth, with the columns that both tables have.",
)
EXPLODE_FORM: Final = FileForm(
    what="an explode",
    parts=(
        FilePart(COLUMN, NAME, "The truth's set, list or map."),
        FilePart(ELEMENT, NAME, "The column that holds each element, or each key of a map."),
        FilePart(VALUE, NAME, "The column that holds each value of a map."),
        _RENAMED,
        FilePart(
            COMPUTED,
            by_name(defined(TRANSFORM), NAME),
            "Columns that are computed, as in a mirror. Of the column above, each element is "
            'computed: `{ tag = { lower = "tags" } }`.',
        ),
        _WHEN,
        _NEEDS,
        _LEFT_OUT,
        _REQUIRED,
        _ONLY_REPORTED,
    ),
    meaning="One row for each element of a collection of each row of the truth.",
    required=(COLUMN,),
)
FILTER_FORM: Final = FileForm(
    what="a filter",
    parts=(
        _RENAMED,
        _COMPUTED,
        FilePart(WHEN, defined(CONDITION), "Which rows of the truth have a row in the table."),
    ),
    meaning="A row that is a key alone, for each row of the truth where a condition holds.",
    required=(WHEN,),
)
UNION_FORM: Final = FileForm(
    what="a union",
    parts=(
        _RENAMED,
        _COMPUTED,
        FilePart(COLUMN, NAME, "The set column, which has the same name in both tables."),
    ),
    meaning="A row for each group, with all elements of its rows' sets; more elements are fine.",
    required=(COLUMN,),
)
COUNT_FORM: Final = FileForm(
    what="a count",
    parts=(
        _RENAMED,
        _COMPUTED,
        FilePart(
            COUNTERS,
            {**by_name(defined(CONDITION), NAME), "minProperties": 1},
            "Counters or columns of whole numbers, each with the rows that it counts; `{}` counts every row.",
        ),
        FilePart(
            GENERATORS,
            {**list_schema(NAME.schema), "uniqueItems": True},
            "Tables with the key of the counters. Their row of a group changes before a row of the "
            "truth is added to the group or changed there.",
        ),
        FilePart(
            NUMBERED_BY,
            {**by_name(NAME.schema, NAME), "minProperties": 1},
            "Columns of the truth, each with the generator that gave its numbers: "
            '`{ position = "last_event_of_user" }`. A generator that is behind is drift.',
        ),
        FilePart(
            USED_WITH,
            {**list_schema(NAME.schema), "uniqueItems": True},
            "Tables that have rows where generators are used. A generator without a row is behind "
            "only where one of them, or a generator, has a row.",
        ),
    ),
    meaning="A row for each group, with the number of the group's rows.",
    required=(COUNTERS,),
)
_COLUMNS: Final = FilePart(
    COLUMNS,
    {**by_name(NAME.schema, NAME), "minProperties": 1},
    'Columns, each with a column of the truth: `{ last_seen = "seen_at" }`.',
)
BOUNDS_FORMS: Final = {
    MAX: FileForm(
        what="a max",
        parts=(_RENAMED, _COMPUTED, _COLUMNS),
        meaning="A row for each group, with values at least as great as in each of its rows.",
        required=(COLUMNS,),
    ),
    MIN: FileForm(
        what="a min",
        parts=(_RENAMED, _COMPUTED, _COLUMNS),
        meaning="A row for each group, with values at least as small as in each of its rows.",
        required=(COLUMNS,),
    ),
}
CONTENT_FORM: Final = FileForm(
    what="a content",
    parts=(_RENAMED,),
    meaning="A row that each partition of the truth needs. A row that no truth names is a LEAK.",
)
VIEW_FORM: Final = FileForm(
    what="a view",
    meaning="A materialised view of the truth, as its schema says. The server writes its rows.",
)
NULL_FORM: Final = FileForm(
    what="another column",
    parts=(FilePart(COLUMN, NAME, "The column of the same row whose cell is read instead."),),
    meaning="What a null cell is read as, where it is no constant.",
    required=(COLUMN,),
)
TRUTH_FORM: Final = FileForm(
    what="a truth",
    parts=(
        FilePart(MIRROR, by_name(defined(MIRROR), NAME), "Copies, by table name."),
        FilePart(EXPLODE, by_name(defined(EXPLODE), NAME), "Rows of elements, by table name."),
        FilePart(FILTER, by_name(defined(FILTER), NAME), "Keys of some rows, by table name."),
        FilePart(UNION, by_name(defined(UNION), NAME), "Gathered sets, by table name."),
        FilePart(COUNT, by_name(defined(COUNT), NAME), "Numbers of rows, by table name."),
        FilePart(MAX, by_name(defined(MAX), NAME), "Greatest values, by table name."),
        FilePart(MIN, by_name(defined(MIN), NAME), "Smallest values, by table name."),
        FilePart(CONTENT, by_name(defined(CONTENT), NAME), "Needed rows, by table name."),
        FilePart(VIEW, by_name(defined(VIEW), NAME), "Materialised views, by name."),
        FilePart(
            NULL_IS,
            by_name({"anyOf": [_CONSTANT, defined(NULL_IS)]}, NAME),
            "What a null is read as, by column: `{ done = false, thread = { column = "
            '"message" } }`. Of the columns that follow from it too.',
        ),
    ),
    meaning="A table that is right by definition, and the tables that follow from it.",
)
FILE_FORM: Final = FileForm(
    what="a file of projections",
    parts=(FilePart(TRUTH, by_name(defined(TRUTH), NAME), "Truths, by table name."),),
    required=(TRUTH,),
)

FORMS: Final[Mapping[str, FileForm]] = {
    TRUTH: TRUTH_FORM,
    MIRROR: MIRROR_FORM,
    EXPLODE: EXPLODE_FORM,
    FILTER: FILTER_FORM,
    UNION: UNION_FORM,
    COUNT: COUNT_FORM,
    **BOUNDS_FORMS,
    CONTENT: CONTENT_FORM,
    VIEW: VIEW_FORM,
    TEST: TEST_FORM,
    NULL_IS: NULL_FORM,
    ONLY_REPORTED: REPORTED_FORM,
}
"""The forms of the tables of a file, by the words in their headers; a form of a value has none."""


def declaration_schema() -> JsonSchema:
    """The JSON schema of a file of projections as TOML reads it, of draft 2020-12."""
    forms: dict[str, JsonSchema] = {word: form.schema for word, form in FORMS.items()}
    nulls_alone = {"required": [NULL_IS], "maxProperties": 1}
    forms[TRUTH] = {**forms[TRUTH], "minProperties": 1, "not": nulls_alone}
    null_alone = {"anyOf": [{"properties": {NULL: {"const": False}}}, {"maxProperties": 1}]}
    forms[TEST] = {**forms[TEST], "minProperties": 1, **null_alone}
    forms[TRANSFORM] = described("What a column is computed by.", _transforms())
    forms[CONDITION] = described("All tests of a table hold, or all of one in a list.", _CONDITION)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Projections of mailmend",
        **described("Which tables follow from which truth.", FILE_FORM.schema),
        "$defs": forms,
    }

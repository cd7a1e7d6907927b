"""What a mirror may declare in addition to its columns, and what of it is refused. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

from mailmend.model.errors import WrongUse
from mailmend.model.projections.toml_values import cql_name, toml_key, toml_pairs, toml_text
from mailmend.model.projections.verdicts import DETECTED, MENDABLE

REQUIRED: Final = "required"
FILLED: Final = "filled_from_content"
FIELDS: Final = "fields"
ONLY_REPORTED: Final = "only_reported"
REPORTED: Final = tuple(verdict.value for verdict in DETECTED if verdict in MENDABLE)
"""The verdicts that a repair mends unless a declaration leaves them."""

REPORTED_MEND: Final = 'Write it like { WITHDRAW = "a person decides" }.'
FIELDS_MEND: Final = 'Write it like { address = { city = "city", street = "street" } }.'

FieldSources = tuple[tuple[str, str], ...]
"""FieldSources of a user type, each with the column of the truth behind it."""


def check_filled(required: Sequence[str], filled: Sequence[str]) -> None:
    """Refuse to fill a column that may be lacking.

    Raises:
        WrongUse: it is not required.
    """
    for name in filled:
        if name not in required:
            mend = f"Only a row that lacks a required column is filled: name it in {REQUIRED}."
            raise WrongUse(f"{name} is filled, and not required", mend=mend)


def check_reported(reported: Sequence[tuple[str, str]]) -> None:
    """Refuse what no repair mends, and a reason that is not one line of text.

    Raises:
        WrongUse: it says what can be written instead.
    """
    for verdict, reason in reported:
        if verdict not in REPORTED:
            mend = f"It may have: {', '.join(REPORTED)}."
            raise WrongUse(f"{ONLY_REPORTED} has no {verdict!r}", mend=mend)
        if not reason.strip() or not reason.isprintable():
            problem = f"the reason of {verdict} is not one line of text"
            raise WrongUse(problem, mend=REPORTED_MEND)


def checked_fields(
    declared: Sequence[tuple[str, FieldSources]],
) -> tuple[tuple[str, FieldSources], ...]:
    """The columns with their fields, each name as CQL spells it.

    Raises:
        WrongUse: a name is not a name, or a column has no fields.
    """
    found = []
    for column, fields in declared:
        if not fields:
            raise WrongUse(f"{column} has no {FIELDS}", mend=FIELDS_MEND)
        pairs = []
        for field, source in fields:
            pairs.append((cql_name(field, "field name"), cql_name(source, "column name")))
        found.append((cql_name(column, "column name"), tuple(pairs)))
    return tuple(found)


def mirror_lines(
    filled: Sequence[str],
    fields: Sequence[tuple[str, FieldSources]],
    reported: Sequence[tuple[str, str]],
) -> Iterator[str]:
    """Their lines of TOML."""
    if filled:
        yield f"{FILLED} = [{', '.join(map(toml_text, filled))}]"
    if fields:
        tables = []
        for column, pairs in fields:
            inner = toml_pairs((field, toml_text(source)) for field, source in pairs)
            tables.append(f"{toml_key(column)} = {inner}")
        yield f"{FIELDS} = {{ {', '.join(tables)} }}"
    if reported:
        reasons = toml_pairs((verdict, toml_text(reason)) for verdict, reason in reported)
        yield f"{ONLY_REPORTED} = {reasons}"

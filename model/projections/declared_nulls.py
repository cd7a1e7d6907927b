"""What a declaration says that a null is read as: a constant, or another column. Pure."""

from typing import Final

from mailmend.model.projections.toml_values import (
    Constant,
    cql_name,
    toml_constant,
    toml_pairs,
    toml_text,
)
from mailmend.model.table import OtherColumn

NULL_IS: Final = "null_is"
NULL_MEND: Final = 'Write it like { done = false, thread = { column = "message" } }.'

DeclaredNull = Constant | OtherColumn
"""What a null is read as; the name of another column is spelled as in CQL."""


def null_of(given: DeclaredNull) -> DeclaredNull:
    """The same, with the name of a column as CQL spells it.

    Raises:
        BadIdentifier: it is not a name of a column.
    """
    if isinstance(given, OtherColumn):
        return OtherColumn(cql_name(given.name, "column name"))
    return given


def null_text(given: DeclaredNull) -> str:
    """As TOML writes it behind its column."""
    if isinstance(given, OtherColumn):
        return toml_pairs([("column", toml_text(given.name))])
    return toml_constant(given)

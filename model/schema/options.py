"""Options of tables that the model keeps apart from the others: the comment, the compaction, compact storage."""

from collections.abc import Mapping
from dataclasses import replace

from model.schema.literals import map_literal, pairs_of, text_literal, text_of
from model.schema.table import Compaction, Table

COMPACT_STORAGE = "compact storage"
"""COMPACT STORAGE, kept among the options as `true`; Cassandra 4.0 and later refuse it."""


def compaction_option(compaction: Compaction | None) -> dict[str, str]:
    """The compaction as the option that it is, or nothing when the server's default serves."""
    if compaction is None:
        return {}
    return {"compaction": map_literal({"class": compaction.strategy, **compaction.options})}


def compaction_from(literal: str) -> Compaction | None:
    """The compaction that an option's literal says; None where it names no class."""
    pairs = pairs_of(literal)
    strategy = pairs.pop("class", "")
    return Compaction(strategy, pairs) if strategy else None


def options_of(table: Table) -> dict[str, str]:
    """Every option of a table as a literal, its comment and compaction among them."""
    comment = {"comment": text_literal(table.comment)} if table.comment else {}
    return {**comment, **compaction_option(table.compaction), **table.options}


def with_options(table: Table, literals: Mapping[str, str]) -> Table:
    """The table with these options instead of those of the same names."""
    rest = {name: literal for name, literal in literals.items() if name != "comment"}
    comment = text_of(literals["comment"]) if "comment" in literals else table.comment
    compaction = compaction_from(rest.get("compaction", ""))
    if compaction is not None:
        del rest["compaction"]
    return replace(table, comment=comment, compaction=compaction or table.compaction, options={**table.options, **rest})

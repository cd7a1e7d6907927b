"""The risks of schema statements on a live cluster; each kind of statement lists its own dangers.

A plan shows the risk of every statement before anything runs. Risks are judged by the live schema before the plan:
tables that the plan itself creates are empty, so changes of them are quick and lose nothing.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from mailmend.model.keyspace import Schema
from mailmend.model.names import Name


class Risk(Enum):
    """What a statement may do to a live cluster, mildest first; the value is its name in reports."""

    NONE = "none"
    LONG = "long"  # every row that is there is read, in the background
    REWRITE = "rewrite"  # every SSTable of the table is rewritten, sooner or later
    BREAKING = "breaking"  # running clients' statements begin to fail
    STALE = "stale"  # reads may miss what was written before
    RESURRECTION = "resurrection"  # what was deleted may come back
    DATA_LOSS = "data loss"  # rows, or cells of them, are gone for good

    @property
    def option(self) -> str:
        """The name of the risk in the command line option that allows it."""
        return self.value.replace(" ", "-")


@dataclass(frozen=True, slots=True)
class Assessment:
    """The risks of one statement, mildest first (NONE is the only one), and why, in a sentence."""

    risks: tuple[Risk, ...]
    why: str

    @property
    def worst(self) -> Risk:
        return self.risks[-1]

    @property
    def is_risky(self) -> bool:
        return self.worst is not Risk.NONE


Risky = tuple[str, Assessment]
"""A statement's place, and its risks."""


def allow_text(statements: Iterable[Risky]) -> str:
    """The names of all these risks for the command line that allows them, with commas between, the worst first."""
    found: set[Risk] = set()
    for _, assessment in statements:
        found.update(assessment.risks)
    return ",".join(risk.option for risk in reversed(Risk) if risk in found and risk is not Risk.NONE)


def risk_text(assessment: Assessment) -> str:
    return ", ".join(risk.value for risk in assessment.risks)


DroppedColumns = frozenset[tuple[str, str]]
"""Columns that were dropped once, as (table, column), as the server knows them."""

OPTION_DEFAULTS: Mapping[str, str] = {"gc_grace_seconds": "864000", "default_time_to_live": "0"}
"""Cassandra's defaults of table options, as literals."""


@dataclass(frozen=True, slots=True)
class Before:
    """The schema against which the risks of a statement are judged.

    Attributes:
        live: the keyspace before the plan begins; a table that is not in it is taken for one that the plan creates.
        dropped: columns that the plan itself drops before; the live tables know what was dropped long ago.
    """

    live: Schema
    dropped: DroppedColumns = frozenset()

    def holds(self, name: Name) -> bool:
        """Whether a table may hold rows: it is live, or in another keyspace, of which nothing is known."""
        return name.keyspace is not None or self.live.table(name.spelling) is not None

    def option(self, name: Name, option: str) -> str:
        """The live value of an option as a literal; "" where it is not known."""
        if name.keyspace:
            return ""
        table = self.live.table(name.spelling)
        if table is None:
            return ""
        return {**OPTION_DEFAULTS, **table.literals(comment=False)}.get(option, "")


def always(_: Any, __: Before) -> bool:
    return True


def table_is_live(statement: Any, before: Before) -> bool:
    return before.holds(statement.name)


@dataclass(frozen=True, slots=True)
class Danger:
    """One danger of a kind of statement.

    Attributes:
        why: a sentence in which {name} stands for what the statement names.
    """

    risk: Risk
    why: str
    holds: Callable[[Any, Before], bool] = table_is_live

"""Whether a keyspace can be adopted, and as what: decided from its schema and its history alone.

Adopting alters nothing in the mail keyspace. It is refused where its word would be wrong: a keyspace of another shape
is not James's, and one that James had not finished has nothing yet that could count as done.
"""

from dataclasses import dataclass
from enum import Enum

from model.catalog.generations import Recognition, holds_mail, recognise, was_made_here
from model.migrations.baselines import Baseline
from model.migrations.history import Entry, State
from model.migrations.upgrade_notes import OptionalMigration, due_migrations, note_adding
from model.schema.difference import Aspect, Difference
from model.schema.keyspace import Schema


class Standing(Enum):
    """How a keyspace stands to its adoption; the value is its name in reports."""

    ADOPTABLE = "adoptable"
    ADOPTED = "adopted"  # before now: nothing is left to do
    OURS = "made by mailmend"  # its history says how it came about; no baseline is needed
    EMPTY = "no mail"  # it holds none of the tables that mailmend reads
    HALF_MADE = "half made"  # tables are missing that every James creates at its start
    UNKNOWN = "unknown shape"  # it differs from every generation in what no upgrade explains


@dataclass(frozen=True, slots=True)
class Adoption:
    """What adopting a keyspace would do, or why it would not.

    Attributes:
        against: the differences that stand against it.
        optional: what James's upgrade notes left to the operator and is still to do.
    """

    standing: Standing
    recognition: Recognition
    against: tuple[Difference, ...]
    optional: tuple[OptionalMigration, ...]


def decide_adoption(live: Schema, baseline: Baseline | None, history: tuple[Entry, ...] = ()) -> Adoption:
    """What adopting the keyspace would do.

    Args:
        live: the mail keyspace.
        baseline: what the ledger holds of an adoption before.
        history: what the ledger holds of its migrations.
    """
    recognition = recognise(live)
    against = tuple(one for one in recognition.drift if not _adoptable(one))
    standing = _standing(live, baseline, history, against)
    return Adoption(standing, recognition, against, due_migrations(live))


def _standing(
    live: Schema, baseline: Baseline | None, history: tuple[Entry, ...], against: tuple[Difference, ...]
) -> Standing:
    if baseline is not None:
        return Standing.ADOPTED
    if any(one.state is not State.BASELINE for one in history):
        return Standing.OURS
    if not holds_mail(live):
        return Standing.EMPTY
    if was_made_here(live):
        return Standing.OURS
    if not against:
        return Standing.ADOPTABLE
    missing = all(one.aspect in (Aspect.MISSING_TABLE, Aspect.MISSING_TYPE) for one in against)
    return Standing.HALF_MADE if missing else Standing.UNKNOWN


def _adoptable(difference: Difference) -> bool:
    """Whether it stands in the way of nothing: somebody's own column, or one that an upgrade note would have added."""
    if difference.aspect is Aspect.MISSING_COLUMN:
        return note_adding(difference.owner, difference.subject) is not None
    return difference.aspect is Aspect.UNEXPECTED_COLUMN

"""Whether a keyspace can be adopted, and as what: decided from its schema and its history alone.

Adopting alters nothing in the mail keyspace. It is refused where it would record something wrong: a keyspace of another
form is not James's, and in one that James has not finished creating, no migration can count as applied.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from mailmend.cql.schema.difference import Aspect, Difference
from mailmend.cql.schema.generations import (
    AUGUST_2026,
    JAMES_3_8,
    JAMES_3_9,
    NEWEST,
    Generation,
    Recognition,
    holds_mail,
    recognise,
    was_made_here,
)
from mailmend.cql.schema.migrations.history import LedgerRecord, MigrationState
from mailmend.cql.schema.migrations.upgrade_notes import OptionalMigration, due_migrations, note_adding
from mailmend.model.errors import UnsafeRequest, WrongUse
from mailmend.model.keyspace import Schema


class Standing(Enum):
    """Whether a keyspace is adopted, can be, or why it cannot be; the value is its name in reports."""

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
        optional: the optional migrations (James's upgrade notes) that would still change something.
    """

    standing: Standing
    recognition: Recognition
    against: tuple[Difference, ...]
    optional: tuple[OptionalMigration, ...]


def decide_adoption(live: Schema, record: LedgerRecord) -> Adoption:
    recognition = recognise(live)
    against = tuple(difference for difference in recognition.drift if not _adoptable(difference))
    return Adoption(_standing(live, record, against), recognition, against, due_migrations(live))


def _standing(live: Schema, record: LedgerRecord, against: tuple[Difference, ...]) -> Standing:
    standing = Standing.UNKNOWN
    if record.baseline is not None:
        standing = Standing.ADOPTED
    elif any(entry.state is not MigrationState.BASELINE for entry in record.entries):
        standing = Standing.OURS
    elif not holds_mail(live):
        standing = Standing.EMPTY
    elif was_made_here(live):
        standing = Standing.OURS
    elif not against:
        standing = Standing.ADOPTABLE
    elif all(difference.aspect in (Aspect.MISSING_TABLE, Aspect.MISSING_TYPE) for difference in against):
        standing = Standing.HALF_MADE
    return standing


def _adoptable(difference: Difference) -> bool:
    """Whether it does not block adoption: options, a foreign column, a column that an upgrade note would have added."""
    if difference.aspect is Aspect.MISSING_COLUMN:
        return note_adding(difference.owner, difference.subject) is not None
    return difference.aspect in (Aspect.UNEXPECTED_COLUMN, Aspect.DIFFERENT_OPTION)


SUPPORTED: Mapping[str, tuple[int, int]] = {
    JAMES_3_8.name: (8, 12),
    JAMES_3_9.name: (12, 15),
    AUGUST_2026.name: (12, 15),
    NEWEST.name: (12, 16),
}
"""The oldest and the newest version that a James of each generation knows."""


@dataclass(frozen=True, slots=True)
class VersionStep:
    """A planned write of James's schema version.

    Attributes:
        before: the greatest version in the table; None where there is no row.
        assumed: the version that James assumes where there is no row.
        after: the version to be written.
    """

    before: int | None
    assumed: int
    after: int

    @property
    def changes(self) -> bool:
        return self.before != self.after

    @property
    def caution(self) -> str:
        """A warning about what the new version claims; "" where it claims no more than the present one."""
        if self.after <= self.assumed:
            return ""
        steps = ", ".join(f"{step} to {step + 1}" for step in range(self.assumed, self.after))
        return (
            f"James will take its own data migrations ({steps}) for done and never run them. Write it only when they "
            f"are, or have nothing to do."
        )


def decide_version(values: Iterable[int], generation: Generation, wanted: int) -> VersionStep:
    """Plan the write of a version.

    Raises:
        WrongUse: no James of this generation knows such a version.
        UnsafeRequest: the table has a greater version, so James would never read this one.
    """
    oldest, newest = SUPPORTED[generation.name]
    before = max(values, default=None)
    if not oldest <= wanted <= newest:
        raise WrongUse(
            f"a James of the generation {generation.name} knows the schema versions {oldest} to {newest}, not {wanted}",
            mend="Ask James itself: GET /cassandra/version/latest of its webadmin.",
        )
    if before is not None and wanted < before:
        raise UnsafeRequest(
            f"the keyspace has schema version {before}, and James reads the greatest: {wanted} would change nothing",
            mend="Leave it. A version that was written by mistake goes with its row: DELETE FROM schemaversion.",
        )
    assumed = oldest
    if before is not None:
        assumed = before
    return VersionStep(before, assumed, wanted)

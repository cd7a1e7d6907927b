"""James's own schema version: what stands in its table, and whether another may be written there.

James reads the greatest row of `schemaversion`, assumes its oldest version where there is none, and refuses to start
with one above its own. Writing a version does none of the work that leads to it: James's own migrations do.
Source: CassandraSchemaVersionManager of 3.8.1, 3.9.0 and August 2026; one step more with JAMES-4225.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from model.catalog.generations import AUGUST_2026, JAMES_3_8, JAMES_3_9, NEWEST, Generation
from model.errors import UnsafeRequest, WrongUse

SUPPORTED: Mapping[str, tuple[int, int]] = {
    JAMES_3_8.name: (8, 12),
    JAMES_3_9.name: (12, 15),
    AUGUST_2026.name: (12, 15),
    NEWEST.name: (12, 16),
}
"""The oldest and the newest version that a James of each generation knows."""


@dataclass(frozen=True, slots=True)
class VersionStep:
    """Writing a version.

    Attributes:
        before: the greatest that stands there; None where there is no row.
        assumed: what James takes for it then.
        after: what is wanted.
    """

    before: int | None
    assumed: int
    after: int

    @property
    def changes(self) -> bool:
        """Whether there is anything to write."""
        return self.before != self.after

    @property
    def caution(self) -> str:
        """What writing it would claim; "" where it claims no more than what stands there."""
        if self.after <= self.assumed:
            return ""
        steps = ", ".join(f"{step} to {step + 1}" for step in range(self.assumed, self.after))
        return (
            f"James will take its own data migrations ({steps}) for done and never run them. Write it only when they "
            f"are, or have nothing to do."
        )


def decide_version(values: Iterable[int], generation: Generation, wanted: int) -> VersionStep:
    """What writing a version would do.

    Args:
        values: those of the rows that stand there.
        generation: of the keyspace.
        wanted: the version.

    Raises:
        WrongUse: no James of this generation knows such a version.
        UnsafeRequest: a greater one stands there, so nobody would read it.
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
            f"schema version {before} stands there, and James reads the greatest: {wanted} would change nothing",
            mend="Leave it. A version that was written by mistake goes with its row: DELETE FROM schemaversion.",
        )
    return VersionStep(before, oldest if before is None else before, wanted)

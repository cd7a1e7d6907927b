"""The baseline of an adopted keyspace in the ledger: one row, written once and taken away as a whole."""

from dataclasses import dataclass
from typing import Any

from model.catalog.schema_history import SCHEMA_BASELINE
from model.errors import DoubtfulWrite, LeaseLost
from model.migrations.baselines import Baseline
from model.operations import Conditional, Level, PutIfAbsent, Read, RemoveIf
from model.ports import Tables
from model.schema.table import Row


@dataclass(frozen=True, slots=True)
class Baselines:
    """The baseline of one keyspace.

    Args:
        rows: the ledger keyspace.
        keyspace: the one that was adopted, or may be.
    """

    rows: Tables
    keyspace: str

    def get(self) -> Baseline | None:
        """The baseline, or None when the keyspace was not adopted."""
        seen = self.rows.read(Read(SCHEMA_BASELINE, (self.keyspace,), Level.SERIAL))
        return _baseline(seen[0].row) if seen else None

    def put(self, baseline: Baseline) -> None:
        """Write it down.

        Raises:
            LeaseLost: somebody else has adopted the keyspace meanwhile.
        """
        self._settle(PutIfAbsent(SCHEMA_BASELINE, self._row(baseline)), baseline)

    def remove(self, baseline: Baseline) -> None:
        """Take it away.

        Raises:
            LeaseLost: it is another by now.
        """
        expected = {"fingerprint": baseline.fingerprint, "adoptedat": baseline.adopted_at}
        self._settle(RemoveIf(SCHEMA_BASELINE, (self.keyspace,), expected), None)

    def _settle(self, write: Conditional, wanted: Baseline | None) -> None:
        """Carry out a conditional write; where its answer is lost, a SERIAL read tells."""
        try:
            applied = self.rows.attempt(write).applied
        except DoubtfulWrite:
            applied = self.get() == wanted
        if not applied:
            raise LeaseLost(
                f"somebody else has written the baseline of {self.keyspace} meanwhile",
                mend=f"See what stands there with: mailmend schema verify --keyspace {self.keyspace}",
            )

    def _row(self, baseline: Baseline) -> dict[str, Any]:
        return {
            "keyspacename": self.keyspace,
            "generation": baseline.generation,
            "fingerprint": baseline.fingerprint,
            "objects": dict(baseline.objects),
            "migrations": tuple(baseline.migrations),
            "adoptedat": baseline.adopted_at,
            "owner": baseline.owner,
            "toolversion": baseline.version,
        }


def _baseline(row: Row) -> Baseline:
    return Baseline(
        row["generation"],
        dict(row["objects"]),
        tuple(row["migrations"] or ()),
        row["adoptedat"],
        row["owner"],
        row["toolversion"],
    )

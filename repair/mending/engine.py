"""The interface of engines: scan a keyspace once, keep the suspects, and look at each of them again."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from model.ports import Progress
from model.projections.findings import Finding, RepairPolicy, Suspect
from model.projections.verdicts import Verdict
from model.schema.table import Table
from repair.mending.settings import RepairSettings


class Detection(Protocol):
    """The result of one scan, kept by its engine (on executors, on disk) until closed."""

    @property
    def scanned(self) -> Mapping[str, int]:
        """Rows read, per table in James's spelling."""
        ...

    @property
    def counts(self) -> Mapping[str, Mapping[Verdict, int]]:
        """Suspects per projection and verdict."""
        ...

    def suspects(self) -> Iterator[Suspect]:
        """Every suspect, streamed."""
        ...

    def revisit(self, policy: RepairPolicy, progress: Progress) -> Iterator[Finding]:
        """Look again at each row-wise suspect and mend what the policy allows; streams one finding for each.

        Counters are skipped: `repair.mending.counters` mends them one by one, outside of retried tasks.
        """
        ...

    def close(self) -> None:
        """Free files, memory and executors' storage."""
        ...


class Engine(Protocol):
    """A scanner: `spark_repair`, `repair.scanners`, or the journalled lags of `lag_repair`."""

    def detect(self, settings: RepairSettings, progress: Progress) -> Detection:
        """Read each table of the families once and find the suspects."""
        ...


class Scanned:
    """Rows read and suspects found so far: the figures of a Detection."""

    def __init__(self) -> None:
        self._scanned: Counter[str] = Counter()
        self._counts: dict[str, Counter[Verdict]] = {}

    @property
    def scanned(self) -> Mapping[str, int]:
        return self._scanned

    @property
    def counts(self) -> Mapping[str, Mapping[Verdict, int]]:
        return self._counts

    def saw(self, table: Table, rows: int) -> None:
        self._scanned[table.spelling] += rows


def with_progress(
    findings: Iterable[Finding], progress: Progress, counts: Mapping[str, Mapping[Verdict, int]]
) -> Iterator[Finding]:
    """The findings of a second look, with progress; `counts` gives the number of suspects."""
    progress.stage("look again", sum(sum(verdicts.values()) for verdicts in counts.values()))
    for finding in findings:
        progress.advance(1)
        yield finding

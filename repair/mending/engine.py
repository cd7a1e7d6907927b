"""What every engine does: scan a keyspace once, hold the suspects that it found, and look at each of them again."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from model.ports import Progress
from model.projections.findings import Finding, RepairPolicy, Suspect
from model.projections.verdicts import Verdict
from model.schema.table import Table
from repair.mending.settings import RepairSettings


class Detection(Protocol):
    """The result of one scan, held by the engine that made it (on executors, on disk) until closed."""

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
        """Look at every row-wise suspect again, and mend what the policy allows; streamed, one finding for each.

        Counters are not visited: they are mended one by one by `repair.mending.counters`, outside of retried tasks.
        """
        ...

    def close(self) -> None:
        """Let go of what is held."""
        ...


class Engine(Protocol):
    """Something that can scan: `spark_repair`, `repair.scanners`, and the journalled lags of `lag_repair`."""

    def detect(self, settings: RepairSettings, progress: Progress) -> Detection:
        """Read every table of the families once and find the suspects."""
        ...


class Scanned:
    """Rows read and suspects found, added up while a scan goes on: the figures of a Detection."""

    def __init__(self) -> None:
        self._scanned: Counter[str] = Counter()
        self._counts: dict[str, Counter[Verdict]] = {}

    @property
    def scanned(self) -> Mapping[str, int]:
        """Rows read, per table in James's spelling."""
        return self._scanned

    @property
    def counts(self) -> Mapping[str, Mapping[Verdict, int]]:
        """Suspects per projection and verdict."""
        return self._counts

    def saw(self, table: Table, rows: int) -> None:
        """So many more rows of a table were read."""
        self._scanned[table.spelling] += rows


def with_progress(
    findings: Iterable[Finding], progress: Progress, counts: Mapping[str, Mapping[Verdict, int]]
) -> Iterator[Finding]:
    """The findings of a second look as they come, and how far it is; `counts` says how many suspects there are."""
    progress.stage("look again", sum(sum(verdicts.values()) for verdicts in counts.values()))
    for finding in findings:
        progress.advance(1)
        yield finding

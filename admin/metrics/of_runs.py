"""What a run tells as metrics: its result by the names of `--json`, and how it ended; written for node_exporter.

A run that came to no result says how it ended, and leaves in its file what the run before it had found; when the last
success was stays there until the next one. So an alert does not end because a check cannot be carried out any more.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from json import dumps, loads
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from mailmend.admin.frame.cluster import this_clock
from mailmend.admin.frame.whole_files import refuse_unwritable, write_text
from mailmend.admin.metrics.declared import (
    FINDING_OLDEST,
    RUN_DURATION,
    RUN_END,
    RUN_EXIT_CODE,
    RUN_FAILED,
    RUN_FINDINGS,
    RUN_FIXED,
    RUN_LAST_SUCCESS,
    RUN_LEFT,
    RUN_MOVED,
    RUN_QUEUE_MARKS,
    RUN_ROWS_PER_SECOND,
    RUN_ROWS_READ,
    RUN_STAGE,
    RUNS,
)
from mailmend.mailqueue.prometheus import metrics_text, samples_in
from mailmend.model.errors import ExitCode, MailmendError, exit_code_of
from mailmend.model.instants import MICROS
from mailmend.model.metrics import MetricSample
from mailmend.repair.decisions.left_sample import FirstSeen, LeftKeys, first_seen, oldest

NONE_LEFT: Final[LeftKeys] = MappingProxyType({})
_FIRST_SEEN: Final = "# First seen: "
"""The line, a comment to Prometheus, in which the file keeps what the next run is to know again."""

SCANS: Final = ("scan", "queues")
"""Stages in which tables are read from end to end."""


class RunName(NamedTuple):
    """The run that metrics are about; `job` is "" for a run by hand."""

    keyspace: str
    command: str
    job: str = ""


def result_samples(name: RunName, json: Mapping[str, Any]) -> Iterator[MetricSample]:
    """What a result says, by the names of `--json`; the ledger keeps the same ones."""
    for metric, by in ((RUN_FIXED, "fixed"), (RUN_LEFT, "left"), (RUN_ROWS_READ, "scanned"), (RUN_STAGE, "seconds")):
        found = json.get(by)
        if isinstance(found, Mapping):
            for label, value in found.items():
                yield MetricSample(metric, (*name, label), value)
    for projection, verdicts in _by_projection(json.get("findings") or {}):
        for verdict, number in verdicts.items():
            yield MetricSample(RUN_FINDINGS, (*name, projection, verdict), number)
    for metric, field_name in ((RUN_MOVED, "moved"), (RUN_FAILED, "failed")):
        value = json.get(field_name)
        if isinstance(value, list):
            value = len(value)
        if value is not None:
            yield MetricSample(metric, name, value)
    yield from _pace_samples(name, json)
    for queue in json.get("queues") or ():
        yield MetricSample(RUN_QUEUE_MARKS, (*name, queue["queue"]), queue["marks"])


def _pace_samples(name: RunName, json: Mapping[str, Any]) -> Iterator[MetricSample]:
    """Rows a second while they were read, not while a run waits or mends."""
    rows = json.get("scanned")
    stages = json.get("seconds")
    if isinstance(rows, Mapping) and isinstance(stages, Mapping):
        seconds = sum(stages.get(stage, 0) for stage in SCANS)
        if seconds:
            yield MetricSample(RUN_ROWS_PER_SECOND, name, sum(rows.values()) / seconds)


def _by_projection(findings: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, int]]]:
    """Findings of blobs have no projection."""
    counts = {name: number for name, number in findings.items() if not isinstance(number, Mapping)}
    yield "blobs", counts
    yield from ((name, verdicts) for name, verdicts in findings.items() if name not in counts)


def ending_samples(name: RunName, exit_code: int, ended: float, seconds: float) -> Iterator[MetricSample]:
    """How a run ended, when (seconds since 1970), and how long it took."""
    yield MetricSample(RUN_EXIT_CODE, name, exit_code)
    yield MetricSample(RUN_END, name, ended)
    yield MetricSample(RUN_DURATION, name, seconds)
    if exit_code in (ExitCode.FINE, ExitCode.DRIFT):
        yield MetricSample(RUN_LAST_SUCCESS, name, ended)


def oldest_samples(name: RunName, seen: FirstSeen) -> Iterator[MetricSample]:
    return (MetricSample(FINDING_OLDEST, (*name, verdict), at) for verdict, at in oldest(seen).items())


@dataclass(slots=True)
class RunTextfile:
    """The file of one command; `json` is its result, once there is one.

    Attributes:
        began: in microseconds since 1970, as the ends of other runs are.
        began_monotonic: the same moment by the clock that is never set: the duration is measured by it.
    """

    file: Path
    name: RunName
    began: int = field(default_factory=lambda: this_clock().micros())
    began_monotonic: float = field(default_factory=lambda: this_clock().monotonic())

    def write(self, exit_code: int, json: Mapping[str, Any] | None = None, keys: LeftKeys = NONE_LEFT) -> None:
        """Say how the run ended, and what it found.

        Args:
            exit_code: of the command.
            json: its result; None where it came to none.
            keys: the sample of what it left.

        Raises:
            ResultUnwritten: the file cannot be written; what stood there stays.
        """
        ended = this_clock().micros() / MICROS
        seconds = this_clock().monotonic() - self.began_monotonic
        before, seen = self._before()
        ending = ending_samples(self.name, exit_code, ended, seconds)
        samples: Iterable[MetricSample] = before
        if json is not None:
            seen = first_seen(json.get("left") or (), keys, seen, self.began / MICROS)
            samples = [*oldest_samples(self.name, seen), *result_samples(self.name, json)]
        success = (sample for sample in before if sample.metric is RUN_LAST_SUCCESS)
        write_textfile(self.file, [*samples, *success, *ending], f"{_FIRST_SEEN}{dumps([*self.name, seen])}\n")

    def _before(self) -> tuple[list[MetricSample], FirstSeen]:
        """What the file says of earlier runs; nothing where it cannot be read."""
        with suppress(OSError, ValueError):
            if self.file.is_file():
                text = self.file.read_text(encoding="utf-8")
                found = [sample for sample in samples_in(text, RUNS) if sample.labels[:3] == self.name]
                for line in text.splitlines():
                    if line.startswith(_FIRST_SEEN):
                        *name, seen = loads(line.removeprefix(_FIRST_SEEN))
                        if tuple(name) == self.name:
                            return found, seen
                return found, {}
        return [], {}


def write_textfile(file: Path, samples: Iterable[MetricSample], comment: str = "") -> None:
    write_text(file, metrics_text(samples) + comment, masked=False)  # node_exporter is another user


@contextmanager
def textfile_of(file: Path, *name: str) -> Iterator[RunTextfile]:
    """The metrics file of a run; it is written here only where the block fails, else by the caller.

    Raises:
        WrongUse: the file cannot be written; the block was not entered.
    """
    refuse_unwritable(file)
    textfile = RunTextfile(file, RunName(*name))
    try:
        yield textfile
    except BaseException as error:
        with suppress(MailmendError):
            textfile.write(exit_code_of(error))
        raise


def unbegun(file: Path, *name: str) -> Callable[[int], None]:
    """A function that writes into the file, with an exit code, that a run could not begin."""
    textfile = RunTextfile(file, RunName(*name))

    def tell(exit_code: int) -> None:
        with suppress(MailmendError):
            textfile.write(exit_code)

    return tell

"""The tests in lanes: `make test` without ARGS, and `make test-all`, which gives `--all`.

Three run at once. Unit tests use a core; integration, conformance and fault tests mostly wait for servers of their own.
With `--all` those that face Cassandra follow, with ScyllaDB's driver, and those that face Spark, with Spark 4: each as
soon as an earlier lane has ended, in environments of their own that `make test-all` installs. The lanes with ScyllaDB's
driver try the wheel, as a user installs it: they run in a folder that has all of the checkout but the package. They
leave the long runs to the first three (docs/adr/0077). One lane is shown while it runs; what another one prints comes
at its end, in one piece. A lane whose process dies goes on with the rest of its tests; the last lines say what ran in
each, what failed, what did not run, and the command that runs the failures again (docs/adr/0054).

`make test-all LANES='Spark 4,faults'` runs the lanes whose titles have one of these words.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mailmend.model.errors import INTERRUPTED, ExitCode
from tests.support.installed import WHEEL_ONLY, all_but_the_package
from tests.support.lane_journal import VARIABLE, LaneJournal, read_journal
from tests.support.thorough import ALL, LEFT_TO_ALL


def files_of(kind: str, *names: str) -> tuple[str, ...]:
    """The test files of a kind in all packages: those of each name (`rabbitmq*`) in turn, or all by their names.

    A file that moves to the folder of another package keeps its place in a lane.
    """
    files: list[Path] = []
    for name in names or ("*",):
        found = sorted(Path("tests", kind).rglob(f"test_{name}.py"), key=lambda file: (file.name, file))
        if not found:
            raise FileNotFoundError(f"no folder of tests/{kind} has test_{name}.py: mend the lists in tests/lanes.py")
        files += found
    return tuple(map(str, files))


WITH_UNIT = files_of(
    "integration",
    *("airflow", "blob_files", "object_stor*", "postfix", "rabbitmq*", "s3_keys", "services", "wheel"),
)
"""What needs no Cassandra, or nodes of its own, goes with the unit tests, so that the lanes are of a length."""

WITH_FAULTS = files_of(
    "integration",
    *("queue_runbooks", "adoption", "advise", "migrations", "schema", "verify"),
    *("alerts", "local_[!e]*", "older_cassandra"),
    *("delivery_over_pulsar", "pulsar_check", "pulsar_logins", "pulsar_runbooks"),
    *("open_over_pulsar", "topic_references"),
)
"""What needs Cassandra, RabbitMQ and S3 at once goes where all of them are; with some more, for the lanes' length.

Pulsar runs in one lane only: it takes more of a processor than any other server.
"""

WITH_SPARK = ("tests/drills/test_column_was_dropped.py", "tests/faults/admin/test_check_writes_nothing.py")


@dataclass(frozen=True, slots=True)
class Lane:
    """Tests that run one after the other.

    Attributes:
        environment: how the name of the environment's folder differs from this one's.
        of_wheel: the environment has the wheel, and the tests import it from there.
        long_runs: `--all` is for this lane too; without them it takes what `make test` takes.
    """

    title: str
    arguments: tuple[str, ...]
    environment: str = ""
    of_wheel: bool = False
    long_runs: bool = True

    @property
    def python(self) -> str:
        return str(Path(f"{sys.prefix}{self.environment}", "bin", "python")) if self.environment else sys.executable


UNIT = "tests/unit"
UNIT_WITH_DRIVER = (
    "tests/unit/cql",
    "tests/unit/repair/snapshots/test_cells.py",
    "tests/unit/repair/test_client_timeouts.py",
    "tests/unit/admin/test_advise_story.py",
)
CONFORMANCE = files_of("conformance")
DRILLS = files_of("drills")
EQUIVALENCE = files_of("equivalence")
FAULTS = files_of("faults")
FUZZ = files_of("fuzz")
INTEGRATION = files_of("integration")
OWN_CLUSTER = files_of("integration", "spark_standalone")
OVER_TLS = files_of("integration", "spark_tls")
BUILDING = files_of("integration", "installed", "library_page", "wheel")
"""What builds the wheel itself needs the whole checkout."""

ALL_FILES = (*CONFORMANCE, *DRILLS, *EQUIVALENCE, *FAULTS, *FUZZ, *INTEGRATION, UNIT)


def _without(files: Sequence[str], *others: str) -> tuple[str, ...]:
    return tuple(file for file in files if file not in others)


LANES = (
    Lane("integration", (*_without(INTEGRATION, *WITH_UNIT, *WITH_FAULTS), *EQUIVALENCE, *WITH_SPARK)),
    Lane("faults", (*_without(FAULTS, *WITH_SPARK), *CONFORMANCE, *WITH_FAULTS)),
    Lane("unit, drills", (UNIT, *FUZZ, *WITH_UNIT, *_without(DRILLS, *WITH_SPARK))),
)
"""The last one is shown while it runs."""

WITH_DRIVER: Final = "-m", "cassandra"

OTHER_LANES = (
    Lane(
        "integration, ScyllaDB's driver, wheel",
        (*_without(INTEGRATION, *BUILDING), *EQUIVALENCE, *DRILLS, *WITH_DRIVER),
        "-scylla",
        of_wheel=True,
        long_runs=False,
    ),
    Lane(
        "faults, ScyllaDB's driver, wheel",
        (*FAULTS, *CONFORMANCE, *WITH_DRIVER),
        "-scylla",
        of_wheel=True,
        long_runs=False,
    ),
    Lane("Spark's own cluster, ScyllaDB's driver, wheel", OWN_CLUSTER, "-scylla", of_wheel=True),
    Lane("all with Spark, Spark 4", (*ALL_FILES, "-m", "spark"), "-spark4", long_runs=False),
    Lane("Spark's own cluster and TLS, Spark 4", (*OWN_CLUSTER, *OVER_TLS, "-m", "spark"), "-spark4"),
    Lane("unit, ScyllaDB's driver, wheel", UNIT_WITH_DRIVER, "-scylla", of_wheel=True, long_runs=False),
)
"""Long runs are one driver's and one Spark's: they add more of the same requests (docs/adr/0077)."""


CHOSEN: Final = "--lanes"
"""The option whose value has words of titles, with commas between them."""

LANES_AT_ONCE: Final = 3
"""Together their servers take some 14 GiB, and two cores are busy."""

DEATHS_MAX = 5
"""A lane whose process dies this often is given up."""


@dataclass(slots=True)
class LaneRun:
    """A lane at work, and what it said.

    Attributes:
        code: the exit code of its last process.
    """

    lane: Lane
    journal_file: Path
    code: int = 0
    lines: list[str] = field(default_factory=list)
    process: "subprocess.Popen[str] | None" = None

    @property
    def journal(self) -> LaneJournal:
        return read_journal(self.journal_file)

    @property
    def failed(self) -> list[str]:
        journal = self.journal
        return [*journal.failed, *journal.lost]

    def run(self, options: Sequence[str], *, shown: bool) -> None:
        """Run its tests; where the process dies in one of them, another process goes on with the rest."""
        for _ in range(DEATHS_MAX):
            before = len(self.journal.began)
            self.code = self._run_once(options, shown=shown)
            journal = self.journal
            if journal.is_complete or len(journal.began) == before:
                return
            self._say(
                f"\nLane {self.lane.title}: its process died ({self.code}) in {journal.lost[-1:]}.\n", shown=shown
            )

    def _run_once(self, options: Sequence[str], *, shown: bool) -> int:
        environment = os.environ | {VARIABLE: str(self.journal_file)}
        folder = Path()
        if self.lane.of_wheel:
            environment[WHEEL_ONLY] = "1"
            folder = all_but_the_package(self.journal_file.with_suffix(".folder"))
        command = command_of(self.lane, options)
        with subprocess.Popen(
            command,
            env=environment,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as self.process:
            for line in self.process.stdout or ():
                self._say(line, shown=shown)
        return self.process.returncode

    def _say(self, line: str, *, shown: bool) -> None:
        self.lines.append(line)
        if shown:
            sys.stdout.write(line)
            sys.stdout.flush()

    def end(self) -> None:
        """Have its process end in good order: what its fixtures started is ended too."""
        if self.process and self.process.poll() is None:
            self.process.terminate()


def main(options: list[str]) -> int:
    """0 where all lanes passed, else 1; 2 where no lane has such a title; 130 where somebody interrupted them."""
    lanes: tuple[Lane, ...] = LANES
    if ALL in options:
        lanes = (*LANES, *OTHER_LANES)
    if CHOSEN in options:
        place = options.index(CHOSEN)
        words = options[place + 1]
        options = options[:place] + options[place + 2 :]
        lanes = chosen(lanes, words)
        if not lanes:
            titles = "; ".join(lane.title for lane in LANES + OTHER_LANES)
            sys.stderr.write(f"No lane has a title with {words}. Titles: {titles}\n")
            return ExitCode.WRONG_USE
    missing = [lane.python for lane in lanes if not Path(lane.python).exists()]
    if missing:
        sys.stderr.write(f"There is no {missing[0]}: `make test-all` makes it.\n")
        return 1
    with tempfile.TemporaryDirectory(prefix="mailmend-lanes-") as folder:
        runs = [LaneRun(lane, Path(folder, str(place))) for place, lane in enumerate(lanes)]
        try:
            run_lanes(runs, options)
        except KeyboardInterrupt:
            sys.stdout.write(summary(runs))
            return INTERRUPTED
        sys.stdout.write(summary(runs))
        return int(any(run.code or run.failed or run.journal.unrun for run in runs))


def chosen(lanes: Sequence[Lane], words: str) -> tuple[Lane, ...]:
    """The lanes whose titles have one of the words."""
    wanted = [word.strip() for word in words.split(",")]
    return tuple(lane for lane in lanes if any(word in lane.title for word in wanted))


def summary(runs: Sequence[LaneRun]) -> str:
    """The last lines: what was left out, what ran in each lane, what failed or did not run, how to run it again."""
    left = sum(
        int(found)
        for run in runs
        if run.lane.long_runs
        for found in re.findall(rf"^(\d+) {re.escape(LEFT_TO_ALL)}", "".join(run.lines), re.MULTILINE)
    )
    lines = ["", f"In all lanes: {left} {LEFT_TO_ALL}"]
    lines += [f"{run.lane.title}: {_last_words(run)}" for run in runs]
    for run in runs:
        lines += [f"Did not run, {run.lane.title}: {file} ({tests} tests)" for file, tests in run.journal.unrun.items()]
    for run in runs:
        died = set(run.journal.lost)
        lines += [f"Failed, {run.lane.title}: {test}{' (its process died)' * (test in died)}" for test in run.failed]
    for python in dict.fromkeys(run.lane.python for run in runs if run.failed):
        tests = dict.fromkeys(test for run in runs if run.lane.python == python for test in run.failed)
        lines.append(f"To run them again: {shlex.join([python, '-m', 'pytest', *tests])}")
    return "\n".join(lines) + "\n"


def _last_words(run: LaneRun) -> str:
    """How pytest summed the lane up; threads that end late may print lines behind that."""
    said = "".join(run.lines).strip().splitlines() or ["no output"]
    sums = [line for line in said if re.match(r"=+ .*\bin [0-9.]+s\b", line)]
    return (sums or said)[-1].strip("= ")


def run_lanes(runs: Sequence[LaneRun], options: Sequence[str]) -> None:
    """Run the lanes, a few at once; one is shown while it runs, each other prints at its end what it said.

    Raises:
        KeyboardInterrupt: lanes that ran were ended, and no other one began.
    """
    *_, shown = runs[:LANES_AT_ONCE]
    with ThreadPoolExecutor(LANES_AT_ONCE) as threads:
        futures = {threads.submit(run.run, options, shown=run is shown): run for run in runs}
        try:
            for future in as_completed(futures):
                future.result()
                run = futures[future]
                if run is not shown:
                    sys.stdout.write("".join(run.lines))
        except KeyboardInterrupt:
            threads.shutdown(wait=False, cancel_futures=True)
            for run in runs:
                run.end()
            raise


def command_of(lane: Lane, options: Sequence[str]) -> list[str]:
    for_it = [option for option in options if lane.long_runs or option != ALL]
    return [lane.python, "-m", "pytest", "--durations=12", "-p", "no:cacheprovider", *for_it, *lane.arguments]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The tests in lanes: `make test` without ARGS, and `make test-all`, which gives `--all`.

The first three run at once. Unit tests use a core; integration, conformance and fault tests mostly wait for servers of
their own. With `--all` those that face Cassandra follow, with ScyllaDB's driver, and those that face Spark, with Spark
4: at once too, in environments of their own that `make test-all` installs. What the lanes beside the shown one print
comes at its end, each in one piece; the last lines say what ran in each.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.support.thorough import ALL, LEFT_TO_ALL

WITH_UNIT = sorted(
    str(file)
    for names in (
        *("rabbitmq*", "object_stor*", "s3_keys", "blob_files", "services"),
        *("local_[!e]*", "older_cassandra", "alerts", "wheel", "airflow", "postfix"),
    )
    for file in Path("tests/integration").glob(f"test_{names}.py")
)
"""What needs no Cassandra, or nodes of its own, goes with the unit tests, so that the lanes are of a length."""

WITH_FAULTS = tuple(
    f"tests/integration/test_{name}.py"
    for name in ("queue_runbooks", "adoption", "advise", "migrations", "schema", "verify")
)
"""What needs Cassandra, RabbitMQ and S3 at once goes where all of them are; with some more, for the lanes' length."""

WITH_SPARK = ("tests/drills/test_column_was_dropped.py", "tests/faults/test_check_writes_nothing.py")


@dataclass(frozen=True, slots=True)
class Lane:
    """Tests that run one after the other.

    Attributes:
        environment: how the name of the environment's folder differs from this one's.
    """

    title: str
    arguments: tuple[str, ...]
    environment: str = ""

    @property
    def python(self) -> str:
        return str(Path(f"{sys.prefix}{self.environment}", "bin", "python")) if self.environment else sys.executable


INTEGRATION = ("tests/integration", "tests/equivalence")
UNIT_WITH_DRIVER = (
    "tests/unit/cql",
    "tests/unit/repair/test_client_timeouts.py",
    "tests/unit/admin/test_advise_story.py",
)
DRILLS = "tests/drills"
FAULTS = ("tests/faults", "tests/conformance")


def _without(*files: str) -> tuple[str, ...]:
    return tuple(f"--ignore={file}" for file in files)


LANES = (
    Lane("integration", (*INTEGRATION, *_without(*WITH_UNIT, *WITH_FAULTS), *WITH_SPARK)),
    Lane("faults", (*FAULTS, *WITH_FAULTS, *_without(*WITH_SPARK))),
    Lane("unit, drills", ("tests/unit", *WITH_UNIT, DRILLS, *_without(*WITH_SPARK))),
)
"""The last one is shown while it runs."""

OTHER_LANES = (
    Lane("integration, ScyllaDB's driver", (*INTEGRATION, DRILLS, "-m", "cassandra"), "-scylla"),
    Lane("faults, ScyllaDB's driver", (*FAULTS, "-m", "cassandra"), "-scylla"),
    Lane("all with Spark, Spark 4", ("tests", "-m", "spark"), "-spark4"),
    Lane("unit, ScyllaDB's driver", UNIT_WITH_DRIVER, "-scylla"),
)


def main(options: list[str]) -> int:
    """0 where all lanes passed, else 1."""
    rounds = (LANES, OTHER_LANES) if ALL in options else (LANES,)
    missing = (
        [lane.python for lane in (*LANES, *OTHER_LANES) if not Path(lane.python).exists()] if ALL in options else []
    )
    if missing:
        sys.stderr.write(f"There is no {missing[0]}: `make test-all` makes it.\n")
        return 1
    ended = [one for lanes in rounds for one in _ended(lanes, options)]
    left = sum(
        int(found)
        for *_, text in ended
        for found in re.findall(rf"^(\d+) {re.escape(LEFT_TO_ALL)}", text, re.MULTILINE)
    )
    sys.stdout.write(f"\nIn all lanes: {left} {LEFT_TO_ALL}\n")
    for lane, _, text in ended:
        sys.stdout.write(f"{lane.title}: {text.strip().splitlines()[-1].strip('= ')}\n")
    return int(any(code for _, code, _ in ended))


def _ended(lanes: Sequence[Lane], options: Sequence[str]) -> list[tuple[Lane, int, str]]:
    """Each lane with its exit code and what it printed; they run at once."""
    *beside, shown = lanes
    with ExitStack() as stack:
        outputs = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in beside]
        running = [
            subprocess.Popen(_command(lane, options), stdout=output, stderr=output)
            for lane, output in zip(beside, outputs, strict=True)
        ]
        lines = []
        with subprocess.Popen(_command(shown, options), stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout or ():
                sys.stdout.write(line)
                sys.stdout.flush()
                lines.append(line)
        ended = [(shown, process.returncode, "".join(lines))]
        for lane, waited, output in zip(beside, running, outputs, strict=True):
            code = waited.wait()
            output.seek(0)
            ended.append((lane, code, output.read()))
            sys.stdout.write(ended[-1][-1])
    return ended


def _command(lane: Lane, options: Sequence[str]) -> list[str]:
    return [lane.python, "-m", "pytest", "--durations=12", "-p", "no:cacheprovider", *options, *lane.arguments]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The tests in three lanes at once: `make test` without ARGS, and `make test-all`, which gives `--all`.

Unit tests use a core; integration, conformance and fault tests mostly wait for servers of their own. What the lanes
beside the first print comes at the end, each in one piece, then in one line how many tests were left out.
"""

import re
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.support.thorough import LEFT_TO_ALL

WITHOUT_CASSANDRA = sorted(
    str(file)
    for names in ("rabbitmq*", "object_stor*", "blob_files", "services", "local_jars", "local_pieces", "wheel")
    for file in Path("tests/integration").glob(f"test_{names}.py")
)
"""What is quick to start goes with the unit tests, so that the lanes are of a length."""

LANES = (
    ("tests/integration", "tests/equivalence", "tests/drills", *(f"--ignore={file}" for file in WITHOUT_CASSANDRA)),
    ("tests/faults", "tests/conformance"),
    ("tests/unit", *WITHOUT_CASSANDRA),
)
"""The last one is shown while it runs."""


def main(options: list[str]) -> int:
    """0 where all lanes passed, else 1."""
    pytest = [sys.executable, "-m", "pytest", "--durations=12", "-p", "no:cacheprovider", *options]
    *beside, shown = LANES
    with ExitStack() as stack:
        outputs = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in beside]
        running = [
            subprocess.Popen([*pytest, *lane], stdout=output, stderr=output)
            for lane, output in zip(beside, outputs, strict=True)
        ]
        printed = ""
        with subprocess.Popen([*pytest, *shown], stdout=subprocess.PIPE, text=True) as unit:
            for line in unit.stdout or ():
                sys.stdout.write(line)
                sys.stdout.flush()
                printed += line
        failed = [unit.returncode, *(lane.wait() for lane in running)]
        for output in outputs:
            output.seek(0)
            text = output.read()
            sys.stdout.write(text)
            printed += text
    left = sum(map(int, re.findall(rf"^(\d+) {re.escape(LEFT_TO_ALL)}", printed, re.MULTILINE)))
    sys.stdout.write(f"\nIn all lanes: {left} {LEFT_TO_ALL}\n")
    return int(any(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

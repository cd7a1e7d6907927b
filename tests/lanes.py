"""Every test, in three lanes at once: `make test` without ARGS.

Unit tests use a core; integration, conformance and fault tests mostly wait for servers of their own. What the lanes
beside the first print comes at the end, each in one piece.
"""

import subprocess
import sys
import tempfile
from contextlib import ExitStack

LANES = (("tests/integration", "tests/equivalence"), ("tests/faults", "tests/conformance"), ("tests/unit",))
"""The last one is shown while it runs."""


def main() -> int:
    """0 where all lanes passed, else 1."""
    pytest = [sys.executable, "-m", "pytest", "--durations=12", "-p", "no:cacheprovider"]
    *beside, shown = LANES
    with ExitStack() as stack:
        outputs = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in beside]
        running = [
            subprocess.Popen([*pytest, *lane], stdout=output, stderr=output)
            for lane, output in zip(beside, outputs, strict=True)
        ]
        failed = [subprocess.call([*pytest, *shown]), *(lane.wait() for lane in running)]
        for output in outputs:
            output.seek(0)
            sys.stdout.write(output.read())
    return int(any(failed))


if __name__ == "__main__":
    sys.exit(main())

"""Every test, in two lanes at once: `make test` without ARGS.

Faults wait for servers to die and to come back, and conformance suites for answers: they run beside the rest, with
servers of their own, and leave half of the machine to it. What they print comes at the end, in one piece.
"""

import subprocess
import sys
import tempfile

BESIDE = ("tests/faults", "tests/conformance")


def main() -> int:
    """0 where both lanes passed, else 1."""
    pytest = [sys.executable, "-m", "pytest", "--durations=12"]
    with tempfile.TemporaryFile("w+") as printed:
        beside = subprocess.Popen([*pytest, "-p", "no:cacheprovider", *BESIDE], stdout=printed, stderr=printed)
        try:
            rest = subprocess.call([*pytest, *(f"--ignore={one}" for one in BESIDE)])
        finally:
            failed = beside.wait()
        printed.seek(0)
        sys.stdout.write(printed.read())
    return int(bool(rest or failed))


if __name__ == "__main__":
    sys.exit(main())

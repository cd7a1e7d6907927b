"""What a lane has: the parts that were asked for, all of them where none may be missing."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.servers import NO_SKIPS

NO_LIBRARY = "import pytest; pytest.importorskip('no_such_library')"
NO_SERVER = """
import pytest
@pytest.fixture
def server(): pytest.skip("no server")
def test_server(server): ...
@pytest.mark.skipif(True, reason="no Java")
def test_java(): ...
"""


@pytest.mark.parametrize(
    ("content", "told", "said"),
    [(NO_SERVER, "", "2 skipped"), (NO_SERVER, "1", "2 errors"), (NO_LIBRARY, "1", "1 error")],
)
def test_where_no_part_may_be_missing_nothing_is_skipped(tmp_path: Path, content: str, told: str, said: str) -> None:
    (tmp_path / "test_parts.py").write_text(content)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "-q", str(tmp_path)]
    told_so = os.environ | {NO_SKIPS: told}
    ended = subprocess.run(command, env=told_so, capture_output=True, text=True, check=False, timeout=120)
    assert ended.stdout.splitlines()[-1].startswith(said)


@pytest.mark.parametrize(
    ("other", "installed"),
    [
        ("DRIVER=cassandra", None),
        ("DRIVER=scylla", "--extra scylla --extra spark --extra queue"),
        ("SPARK=spark4", "--extra cassandra --extra spark4 --extra queue"),
        ("PYTHON={other_python}", "--python {other_python} --extra cassandra"),
    ],
)
def test_another_driver_spark_or_python_is_installed_anew(tmp_path: Path, other: str, installed: str | None) -> None:
    (tmp_path / f".installed-cassandra-{platform.python_version()}").touch()
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 3.99.1\n")
    python.chmod(0o755)
    values = [f"VENV={tmp_path}", f"PYTHON={sys.executable}", "DRIVER=cassandra", "SPARK=spark"]
    ended = subprocess.run(
        ["make", "-n", "environment", *values, other.format(other_python=python)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert (" sync " in ended.stdout) == (installed is not None)
    assert (installed or "").format(other_python=python) in ended.stdout

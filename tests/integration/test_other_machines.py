"""Machines that are not like ours: what is started there starts, or says what it lacks."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.servers import unavailable

CHECKOUT = Path(__file__).parents[2]
NAMELESS = "no-such-host-of-ours"
COUNTS = """
from tests.support.spark import LOCAL
from spark_repair.session import open_session
session = open_session(LOCAL())
print(session.range(3).count())
session.stop()
"""


def _mailmend(*words: str, cwd: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    kept = {name: os.environ[name] for name in ("PATH", "JAVA_HOME") if name in os.environ}
    environment = {**kept, "HOME": str(cwd), "PYTHONPATH": str(CHECKOUT), "PYTHONDONTWRITEBYTECODE": "1"} | variables
    command = [sys.executable, "-m", "mailmend", *words]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("version", "--json"), 0, ""),
        (("doctor",), 0, ""),
        (("local", "status"), 4, ""),
        (("local", "up"), 2, "the folder /dev/null/home/.local/share/mailmend/local cannot be made"),
        (("demo",), 2, "the folder /dev/null/home/.local/share/mailmend/local cannot be made"),
    ],
)
def test_a_home_that_is_not_there_is_not_missed_or_named(
    words: tuple[str, ...], code: int, said: str, tmp_path: Path
) -> None:
    ended = _mailmend(*words, cwd=tmp_path, HOME="/dev/null/home")

    assert (ended.returncode, said in ended.stderr, "should not happen" in ended.stderr) == (code, True, False)
    assert bool(said) == ("XDG_DATA_HOME" in ended.stderr)


@pytest.mark.parametrize(
    "variables", [{"LANG": "C", "LC_ALL": "C"}, {"TZ": "Asia/Kathmandu"}, {"TZ": "UTC+12"}], ids=str
)
def test_a_folder_with_blanks_and_letters_beyond_ascii_serves_in_every_locale_and_zone(
    variables: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "mes données, d'été"
    folder.mkdir()

    ended = _mailmend("schema", "export", "--dir", str(folder), "--only", "page", cwd=folder, **variables)

    assert (ended.returncode, ended.stderr.count("Traceback")) == (0, 0), ended.stderr
    assert (folder / "schema.md").stat().st_size > 0


@pytest.mark.parametrize("limit", ["umask 077", "ulimit -n 1024"])
def test_a_narrow_umask_and_few_files_are_enough(limit: str, tmp_path: Path) -> None:
    program = f"{limit}; exec {sys.executable} -m mailmend version --json"
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(CHECKOUT)}

    said = subprocess.run(["bash", "-c", program], cwd=tmp_path, env=environment, capture_output=True, check=True)

    assert json.loads(said.stdout)["mailmend"]


@pytest.mark.spark
@pytest.mark.thorough
def test_spark_starts_on_a_host_whose_name_has_no_address(tmp_path: Path) -> None:
    own_name = ["unshare", "--uts", "--map-root-user", "sh", "-c"]
    try:
        possible = subprocess.run([*own_name, f"hostname {NAMELESS}"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        possible = False
    if not possible:
        unavailable("no namespace for the name of a host can be made here")
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_LOCAL_IP"}
    command = [*own_name, f'hostname {NAMELESS} && exec "$0" -c "$1"', sys.executable, COUNTS]

    ended = subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False)

    assert (ended.returncode, ended.stdout.strip()) == (0, "3"), ended.stderr

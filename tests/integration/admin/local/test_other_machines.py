"""Machines that are not like ours: what is started there starts, or says what it lacks."""

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from mailmend.admin.local.processes import free_port
from tests.support.checkout import CHECKOUT
from tests.support.servers import unavailable
from tests.support.thorough import first_of

NAMELESS = "no-such-host-of-ours"
COUNTS = """
from tests.support.spark import LOCAL
from mailmend.spark_repair.session import open_session
session = open_session(LOCAL())
print(session.range(3).count())
session.stop()
"""

SHUFFLES = """
from tests.support.spark import LOCAL
from mailmend.spark_repair.session import open_session
session = open_session(LOCAL(brief=True))
rows = session.range(20_000).selectExpr("id % 7 as k", "id", "cast(id as string) as t")
print(rows.groupBy("k").count().join(rows.limit(700).cache(), "k").count())
print(rows.mapInArrow(lambda batches: batches, rows.schema).sort("t").count())
session.stop()
"""


def _mailmend(*words: str, cwd: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    kept = {name: os.environ[name] for name in ("PATH", "JAVA_HOME") if name in os.environ}
    environment = {**kept, "HOME": str(cwd), "PYTHONPATH": str(CHECKOUT), "PYTHONDONTWRITEBYTECODE": "1"} | variables
    command = [sys.executable, "-m", "mailmend", *words]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    first_of(
        [
            (("doctor",), 0, ""),
            (("local", "up"), 2, "the folder /dev/null/home/.local/share/mailmend/local cannot be made"),
            (("version", "--json"), 0, ""),
            (("local", "status"), 4, ""),
            (("demo",), 2, "the folder /dev/null/home/.local/share/mailmend/local cannot be made"),
        ],
        quick=2,
    ),
)
def test_a_home_that_is_not_there_is_not_missed_or_named(
    words: tuple[str, ...], code: int, said: str, tmp_path: Path
) -> None:
    ended = _mailmend(*words, cwd=tmp_path, HOME="/dev/null/home")

    assert (ended.returncode, said in ended.stderr, "should not happen" in ended.stderr) == (code, True, False)
    assert bool(said) == ("XDG_DATA_HOME" in ended.stderr)


@pytest.mark.parametrize(
    "variables", first_of([{"LANG": "C", "LC_ALL": "C", "TZ": "Asia/Kathmandu"}, {"TZ": "UTC+12"}]), ids=str
)
def test_a_folder_with_blanks_and_letters_beyond_ascii_serves_in_every_locale_and_zone(
    variables: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "mes données, d'été"
    folder.mkdir()

    ended = _mailmend("schema", "export", "--dir", str(folder), "--only", "page", cwd=folder, **variables)

    assert (ended.returncode, ended.stderr.count("Traceback")) == (0, 0), ended.stderr
    assert (folder / "schema.md").stat().st_size > 0


def test_a_narrow_umask_and_few_files_are_enough(tmp_path: Path) -> None:
    program = f"umask 077; ulimit -n 1024; exec {sys.executable} -m mailmend version --json"
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(CHECKOUT)}

    said = subprocess.run(["bash", "-c", program], cwd=tmp_path, env=environment, capture_output=True, check=True)

    assert json.loads(said.stdout)["mailmend"]


def _first_possible(*commands: list[str]) -> list[str]:
    """The first of these commands that this machine allows to run another one."""
    for command in commands:
        with suppress(FileNotFoundError):
            if subprocess.run([*command, sys.executable, "-c", ""], capture_output=True, check=False).returncode == 0:
                return command
    raise AssertionError(f"none of these can be run here: {commands}")


def _without_root() -> list[str]:
    """What runs a command without root's rights: as it is for a user without them, else one of two ways."""
    if os.geteuid() != 0:
        return []
    return _first_possible(
        ["unshare", "--user", "--map-user=4711"],  # a user without a name, as in many containers
        ["setpriv", "--securebits=+noroot,+noroot_locked", "--inh-caps=-all", "--bounding-set=-all"],
    )


def _run_without_root(home: Path, *command: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    home.chmod(0o777)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "PYTHONPATH": str(CHECKOUT),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    run = [*_without_root(), sys.executable, *command]
    return subprocess.run(
        run, cwd=home, env=environment | variables, capture_output=True, text=True, check=False, timeout=300
    )


def test_what_runs_without_root_has_no_rights(tmp_path: Path) -> None:
    """Else the tests below would show nothing."""
    status = "print(next(line for line in open('/proc/self/status') if line.startswith('CapEff')))"

    ended = _run_without_root(tmp_path, "-c", status)

    assert int(ended.stdout.split()[1], 16) == 0, ended


def test_a_command_needs_no_root(tmp_path: Path) -> None:
    (tmp_path / "ours.cql").write_text("CREATE TABLE k.t (a int PRIMARY KEY, b text);\n")

    ended = _run_without_root(tmp_path, "-m", "mailmend", "schema", "lint", "ours.cql")

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "k: nothing found.\n", "")


@pytest.mark.thorough
def test_a_local_cassandra_needs_no_root(tmp_path: Path) -> None:
    """Its files belong to that user, and its jars are those of this one."""
    port = str(free_port(["127.0.0.1"]))
    folder = ("--dir", str(tmp_path / "cluster"))
    caches = {"XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")}

    up = _run_without_root(tmp_path, "-m", "mailmend", "local", "up", "--port", port, *folder, **caches)
    down = _run_without_root(tmp_path, "-m", "mailmend", "local", "down", *folder, **caches)

    assert (up.returncode, f"--port {port}" in up.stdout) == (0, True), up
    assert down.returncode == 0, down


NATIVE_LIBRARIES = ("org.xerial.snappy.tempdir", "ZstdTempFolder", "io.netty.native.workdir", "jna.tmpdir")
"""Where Java's libraries unpack native code: folders from which nothing can be loaded stand for a /tmp without exec."""


@pytest.mark.spark
@pytest.mark.thorough
def test_spark_needs_no_program_in_tmp() -> None:
    """On a /tmp of its own that is mounted without exec; where no such can be made, libraries cannot unpack theirs."""
    mounted = "mount -t tmpfs -o noexec,mode=1777 none /tmp && exec "
    ways = [[*way, "sh", "-c", f'{mounted}"$@"', "sh"] for way in (["unshare", "-m"], ["unshare", "-rm"])]
    way = _first_possible(
        *ways, ["env", "JAVA_TOOL_OPTIONS=" + " ".join(f"-D{name}=/proc" for name in NATIVE_LIBRARIES)]
    )

    command = [*way, sys.executable, "-c", SHUFFLES]
    ended = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)

    assert (ended.returncode, ended.stdout.split()[-2:]) == (0, ["700", "20000"]), ended.stderr


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

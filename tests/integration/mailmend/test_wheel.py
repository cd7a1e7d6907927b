"""The wheel as a person gets it: built, unpacked or installed somewhere else, and still able to do its work."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from zipfile import ZipFile

import pytest

from mailmend.admin.local.demo import MESSAGES_MIN
from tests.support.checkout import CHECKOUT
from tests.support.installed import HAS_UV, Installed, wheel_in, without_ours

pytestmark = [pytest.mark.skipif(not HAS_UV, reason="needs uv, which `make` installs")]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel_in(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    with ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def mailmend(installed: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    command = [sys.executable, "-c", "from mailmend.__main__ import main; main()", *arguments]
    ended = subprocess.run(command, cwd=installed, env=environment, capture_output=True, text=True, check=True)
    return ended.stdout


def test_runbooks_are_read_from_the_wheel(installed: Path) -> None:
    pages = {file.stem for file in (CHECKOUT / "runbooks").glob("*.md")} - {"README"}

    listed = mailmend(installed, "runbook", "list")

    assert pages
    assert all(page in listed for page in pages)
    page = mailmend(installed, "runbook", "show", "flags-differ")
    assert page == (CHECKOUT / "runbooks" / "flags-differ.md").read_text(encoding="utf-8")


def test_runbooks_are_read_out_of_a_zip_that_nobody_unpacks(wheel: Path, tmp_path: Path) -> None:
    """As `spark-submit --py-files` has it; without `site` no editable install is seen, the libraries are named."""
    program = "from mailmend.admin.main import run; run(['runbook', 'show', 'flags-differ']); run(['runbook', 'list'])"
    path = os.pathsep.join((str(wheel), sysconfig.get_path("purelib")))

    ended = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )

    page = (CHECKOUT / "runbooks" / "flags-differ.md").read_text(encoding="utf-8")
    assert ended.stdout.startswith(page)
    assert "flags-differ" in ended.stdout.removeprefix(page)


def test_what_is_no_python_came_along(installed: Path) -> None:
    """The report's page, the schema, the checksums of the embedded server, the marks of typed packages."""
    for name in ("admin/frame/report.html", "cql/schema.cql", "model/py.typed", "repair/py.typed"):
        assert (installed / "mailmend" / name).read_bytes() == (CHECKOUT / name).read_bytes()
    assert (installed / "mailmend" / "py.typed").is_file()
    assert list((installed / "mailmend" / "admin" / "local" / "pinned").glob("*.sha256"))
    ours = CHECKOUT / "cql" / "migrations"
    assert {file.name: file.read_bytes() for file in (installed / "mailmend" / "cql" / "migrations").iterdir()} == {
        file.name: file.read_bytes() for file in ours.iterdir()
    }
    names = {entry.name for entry in installed.iterdir() if not entry.name.endswith(".dist-info")}
    assert names == {"mailmend"}


def test_the_help_needs_nothing_else(installed: Path) -> None:
    shown = mailmend(installed, "--help")

    for command in ("check", "repair", "undo", "runs", "load", "schema", "runbook", "local", "demo"):
        assert f"  {command} " in shown


@pytest.mark.cassandra
@pytest.mark.thorough
@pytest.mark.parametrize("driver", ["cassandra", "scylla"])
def test_a_driver_is_the_only_extra_that_the_demo_needs(wheel: Path, tmp_path: Path, driver: str) -> None:
    """In an environment of its own: no Spark, no brokers, nothing of the checkout."""
    # Given an environment with the wheel and its one driver
    place = Installed.of(wheel, tmp_path / "venv", driver)
    # When the demo runs there
    command = [place.command("mailmend"), "demo", "--messages", str(MESSAGES_MIN)]
    environment = {**without_ours(), "XDG_DATA_HOME": str(tmp_path / "data")}
    ended = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    # Then it goes to its end, without Spark, and its Cassandra is gone
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    assert "$ mailmend runs list" in ended.stderr
    assert not list((tmp_path / "venv").rglob("pyspark"))
    assert not list((tmp_path / "data").rglob("sstables"))


def test_a_program_opens_mail_by_the_wheel(installed: Path, tmp_path: Path) -> None:
    """What `mailmend.open` reads its settings by is in it; nothing is connected to."""
    script = (
        "import mailmend\n"
        "with mailmend.open(host='10.0.0.1', broker='amqp://rabbit', blobs='cassandra:') as mail:\n"
        "    print(mailmend.__file__, *mail.connection.hosts)\n"
    )
    environment = {"PYTHONPATH": str(installed), "HOME": str(tmp_path), "PATH": os.environ["PATH"]}

    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )

    assert ended.stdout == f"{installed / 'mailmend' / '__init__.py'} 10.0.0.1\n"

"""What a lane has: each test once, the parts that were asked for, all of them where none may be missing."""

import os
import platform
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

from tests.lanes import (
    LANES,
    OTHER_LANES,
    UNIT,
    UNIT_WITH_DRIVER,
    Lane,
    LaneRun,
    chosen,
    files_of,
    main,
    run_lanes,
)
from tests.support.installed import WHEEL_ONLY, all_but_the_package, refuse_other_than_the_wheel
from tests.support.lane_rules import NO_SKIPS

NO_LIBRARY = "import pytest; pytest.importorskip('no_such_library')"
NO_SERVER = """
import pytest
@pytest.fixture
def server(): pytest.skip("no server")
def test_server(server): ...
@pytest.mark.skipif(True, reason="no Java")
def test_java(): ...
"""


def test_lanes_are_chosen_by_words_of_their_titles() -> None:
    found = chosen((*LANES, *OTHER_LANES), "drills, faults")

    assert [lane.title for lane in found] == ["faults", "unit, drills", "faults, ScyllaDB's driver, wheel"]


class LaneStub(LaneRun):
    """A lane that does something else than run tests."""

    def __init__(self, title: str, does: Callable[[], object]) -> None:
        LaneRun.__init__(self, Lane(title, ()), Path("no journal"))
        self.does = does

    def run(self, options: Sequence[str], *, shown: bool) -> None:
        del options, shown
        self.lines.append(f"{self.lane.title} ended\n")
        assert self.does() is not False


def test_a_lane_begins_as_soon_as_an_earlier_one_has_ended(capsys: pytest.CaptureFixture[str]) -> None:
    last_began = threading.Event()
    waiting = partial(last_began.wait, 20.0)
    doings: dict[str, Callable[[], object]] = {
        "slow": waiting,
        "slower": waiting,
        "shown": list,
        "last": last_began.set,
    }

    run_lanes([LaneStub(title, does) for title, does in doings.items()], ())

    said = capsys.readouterr().out.splitlines()
    assert sorted(said) == ["last ended", "slow ended", "slower ended"]


def test_words_of_no_lane_are_refused_with_the_titles(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--lanes", "nothing of that name"])

    assert code == 2
    assert "unit, drills" in capsys.readouterr().err


@pytest.mark.parametrize(("no_skips", "said"), [("", "3 skipped"), ("1", "3 errors")])
def test_where_no_part_may_be_missing_nothing_is_skipped(tmp_path: Path, no_skips: str, said: str) -> None:
    (tmp_path / "test_server.py").write_text(NO_SERVER)
    (tmp_path / "test_library.py").write_text(NO_LIBRARY)
    words = (
        "-p",
        "tests.support.lane_rules",
        "-p",
        "no:cacheprovider",
        "--continue-on-collection-errors",
        "-q",
        str(tmp_path),
    )
    environment = os.environ | {NO_SKIPS: no_skips, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
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


def test_no_process_of_the_tests_compiles_anew_what_another_has_compiled() -> None:
    rule = "shown: ; @echo $${PYTHONDONTWRITEBYTECODE-not set}"
    ended = subprocess.run(
        ["make", "--silent", f"--eval={rule}", "shown"],
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert ended.stdout.strip() == "not set"


def test_what_imports_the_driver_is_run_with_scylladbs_too() -> None:
    files = [
        file
        for file in Path("tests/unit").rglob("*.py")
        if re.search(r"(?m)^(from|import) cassandra\b", file.read_text())
    ]
    assert [file for file in files if not str(file).startswith(UNIT_WITH_DRIVER)] == []


KINDS = frozenset(file.parts[1] for file in Path("tests").glob("*/**/test_*.py"))


def test_each_test_file_is_in_one_lane_of_make_test() -> None:
    in_lanes = Counter(word for lane in LANES for word in lane.arguments)
    files = {file for kind in KINDS for file in files_of(kind) if not file.startswith(UNIT)}

    assert in_lanes == Counter({UNIT, *files})


def test_a_name_of_a_lane_that_no_file_has_is_refused() -> None:
    with pytest.raises(FileNotFoundError, match=r"no folder of tests/faults has test_no_such_fault\.py"):
        files_of("faults", "no_such_fault")


def test_the_marker_of_a_test_is_its_first_folder(request: pytest.FixtureRequest) -> None:
    markers = {line.partition(":")[0] for line in request.config.getini("markers")}

    assert markers >= KINDS
    assert [marker.name for marker in request.node.iter_markers() if marker.name in KINDS] == ["unit"]


def test_the_folders_inside_a_kind_are_those_of_packages() -> None:
    folders = {
        file.parent.relative_to(f"tests/{kind}") for kind in KINDS for file in Path("tests", kind).rglob("test_*.py")
    }

    assert "mailqueue/rules" in map(str, folders)
    # An older checkout may still hold the folder of a package that is gone, with its compiled files.
    strange = {str(folder) for folder in folders - {Path()} if not Path(folder, "__init__.py").exists()}
    assert strange == set()


def test_a_lane_of_the_wheel_sees_the_tests_but_no_package_of_the_checkout(tmp_path: Path) -> None:
    folder = all_but_the_package(tmp_path / "lane")
    script = "from importlib.util import find_spec; print(bool(find_spec('tests.lanes')), bool(find_spec('mailmend')))"

    # Without `site` the environment's own mailmend is not seen either
    ended = subprocess.run([sys.executable, "-S", "-c", script], cwd=folder, capture_output=True, text=True, check=True)

    assert ended.stdout == "True False\n"


def test_a_lane_of_the_wheel_refuses_the_package_of_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WHEEL_ONLY, "1")

    refuse_other_than_the_wheel(Path(sys.prefix, "lib", "mailmend", "__init__.py"))
    with pytest.raises(pytest.UsageError, match="install the wheel into"):
        refuse_other_than_the_wheel(Path("mailmend", "__init__.py").absolute())

"""Whether a process is surely no more: only those of this boot and of this space of process ids are known."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mailmend.delivery.shared import sharing as processes
from mailmend.delivery.shared.sharing import has_ended, own_process

pytestmark = pytest.mark.skipif(not own_process(), reason="needs Linux's /proc")


@pytest.fixture
def other() -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def called(number: int | str) -> str:
    """As a process of this host with that number calls itself."""
    return f"{own_process().rpartition(' ')[0]} {number}"


def test_a_process_has_ended_once_it_was_killed_and_waited_for(other: "subprocess.Popen[bytes]") -> None:
    """Before that, its connections may be open."""
    assert not has_ended(called(other.pid))
    other.kill()
    assert not has_ended(called(other.pid))
    other.wait()
    assert has_ended(called(other.pid))


def test_this_process_and_another_users_have_not_ended() -> None:
    assert not has_ended(own_process())
    assert not has_ended(called(1))


def test_nobody_can_tell_of_another_boot_or_another_space_of_process_ids(other: "subprocess.Popen[bytes]") -> None:
    boot, space, _ = own_process().split()
    other.kill()
    other.wait()
    assert has_ended(f"{boot} {space} {other.pid}")
    assert not has_ended(f"{boot[:-1]}x {space} {other.pid}")
    assert not has_ended(f"{boot} {space}1 {other.pid}")


@pytest.mark.parametrize("number", ["", "-7", "x", "0", "9" * 30])
def test_what_is_no_process_id_has_not_ended(number: str) -> None:
    assert not has_ended(called(number))


def test_where_the_system_does_not_tell_nothing_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: "subprocess.Popen[bytes]"
) -> None:
    ended = called(other.pid)
    other.kill()
    other.wait()
    monkeypatch.setattr(processes, "_BOOT", tmp_path / "none")
    assert own_process() == ""
    assert not has_ended(ended)
    assert not has_ended("")
    assert not has_ended(str(other.pid))

"""The pieces under a local cluster that touch the machine: ports, locks, files, processes, sockets."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mailmend.admin.local import local_cluster, processes
from mailmend.admin.local.folders import locked
from mailmend.admin.local.jars import ask_version, candidates, wheel_home
from mailmend.admin.local.processes import StartedProcess, free_port, launch, require_free, this_process
from mailmend.admin.local.servers import running_contact
from mailmend.model.errors import LocalServerError
from mailmend.repair.clock import SystemClock
from tests.support.answering import answering
from tests.support.clock import VirtualClock


def test_a_free_port_is_free_on_every_address() -> None:
    hosts = ("127.0.0.1", "127.0.0.2")
    found = {free_port(hosts) for _ in range(8)}
    for port in found:
        for host in hosts:
            require_free(host, port)
    assert len(found) > 1


def test_a_port_that_is_promised_already_is_not_given_again() -> None:
    first, second = _two_free_ports()
    assert free_port(["127.0.0.1"], besides=_all_but(first, second) | {first}) == second


def test_a_port_that_is_taken_on_one_address_is_passed_over() -> None:
    first, second = _two_free_ports()
    with socket.create_server(("127.0.0.2", first)):
        assert free_port(["127.0.0.1", "127.0.0.2"], besides=_all_but(first, second)) == second


def test_no_port_that_is_free_is_reported_as_such() -> None:
    with pytest.raises(LocalServerError, match="no port between"):
        free_port(["127.0.0.1"], besides=_all_but())


def _two_free_ports() -> tuple[int, int]:
    hosts = ("127.0.0.1", "127.0.0.2")
    first = free_port(hosts)
    return first, free_port(hosts, besides={first})


def _all_but(*ports: int) -> set[int]:
    return set(range(1, 65_536)) - set(ports)


def test_a_taken_port_says_which_and_how_to_choose_another() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(LocalServerError, match=rf"port {port} on 127\.0\.0\.1 is taken"):
            require_free("127.0.0.1", port)


def test_an_address_that_is_not_here_says_how_to_add_it() -> None:
    with pytest.raises(LocalServerError, match=r"no address 192\.0\.2\.1"):
        require_free("192.0.2.1", 17_000)


def test_a_lock_is_free_again_after_its_block(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "lock"
    with pytest.raises(KeyError), locked(path, 0.1):
        raise KeyError
    with locked(path, 0.1):
        assert path.exists()


def test_whoever_holds_a_lock_may_take_it_again(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with locked(path, 0.1), locked(path, 0.1):
        assert path.exists()


def test_a_killed_holder_frees_the_lock(tmp_path: Path) -> None:
    # Given another process that holds the lock
    path = tmp_path / "lock"
    code = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); print('held'); input()"
    with subprocess.Popen(
        [sys.executable, "-u", "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(LocalServerError, match=str(path)), locked(path, 0.1):
            pass
        # When it is killed
        holder.kill()
    # Then the lock is ours
    with locked(path, 0.1):
        pass


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[StartedProcess]:
    script = "import threading; threading.Event().wait()"
    process = launch([sys.executable, "-c", script, "our-mark"], "our-mark", tmp_path, tmp_path / "console")
    yield process
    process.kill()
    assert process.wait_end(SystemClock(), 20)


def test_a_launched_process_runs_until_it_is_asked_to_end(sleeper: StartedProcess) -> None:
    assert sleeper.runs
    sleeper.ask_to_end()
    assert sleeper.wait_end(SystemClock(), 20)
    assert not sleeper.runs


def test_a_process_that_is_not_ours_is_not_running_and_gets_no_signal(sleeper: StartedProcess) -> None:
    """A number may be given again: another start, and somebody else's command line, are somebody else."""
    others = [replace(sleeper, started_at=1.0), replace(this_process(), mark="another-mark")]
    for other in others:
        assert not other.runs
        other.ask_to_end()
        other.kill()
    assert sleeper.runs
    assert this_process().runs


def test_a_process_that_does_not_end_is_waited_for_in_bounds(sleeper: StartedProcess) -> None:
    assert not sleeper.wait_end(VirtualClock(), 5)


def test_a_launched_process_writes_to_its_console_and_has_its_own_session(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import os; print(os.getsid(0) == os.getpid(), os.getcwd())"]
    launch(command, "print", tmp_path, tmp_path / "console").wait_end(SystemClock(), 20)
    assert tmp_path.joinpath("console").read_text(encoding="utf-8").split() == ["True", str(tmp_path)]


def test_there_is_no_process_of_an_impossible_number() -> None:
    assert not StartedProcess(2**22 + 1, 1.0, "").runs


def _saying(answer: bytes) -> Callable[[socket.socket], None]:
    def say(connection: socket.socket) -> None:
        connection.recv(100)
        connection.sendall(answer)

    return say


@pytest.mark.parametrize(
    ("answer", "ready"),
    [
        (bytes([0x84, 0, 0, 0, 0x06, 0, 0, 0, 2]) + b"\0\0", True),
        (bytes([0x84, 0, 0, 0, 0x00, 0, 0, 0, 2]) + b"\0\0", False),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", False),
        (b"SSH-2.0", False),
        (b"", False),
    ],
    ids=["supported", "error", "web", "short", "silent"],
)
def test_only_an_answer_of_the_protocol_counts(answer: bytes, ready: bool) -> None:
    with answering(_saying(answer)) as port:
        assert processes.speaks_cql("127.0.0.1", port) is ready


def test_an_answer_in_pieces_is_read_whole() -> None:
    def dribble(connection: socket.socket) -> None:
        connection.recv(100)
        for byte in bytes([0x84, 0, 0, 0, 0x06, 0, 0, 0, 1, 7]):
            connection.sendall(bytes([byte]))

    with answering(dribble) as port:
        assert processes.speaks_cql("127.0.0.1", port)


def test_a_closed_port_is_not_ready() -> None:
    port = free_port(["127.0.0.1"])
    assert not processes.speaks_cql("127.0.0.1", port)
    assert not processes.logs_in("127.0.0.1", port, "a", "b")
    assert not processes.reaches_all("127.0.0.1", port)


def test_this_machines_java_says_its_version() -> None:
    versions = [ask_version(path) for path in candidates(os.environ)]
    if not versions:
        pytest.skip("there is no Java")
    assert all(version is None or version >= 8 for version in versions)


def test_what_is_not_java_has_no_version(tmp_path: Path) -> None:
    assert ask_version(tmp_path / "none") is None
    assert ask_version(tmp_path) is None
    assert ask_version(Path("/bin/true")) is None


def test_the_wheel_is_found_when_it_is_installed() -> None:
    home = wheel_home()
    assert home is None or (home / "bin" / "java").exists()


def test_where_nothing_runs_there_is_no_contact(tmp_path: Path) -> None:
    assert running_contact({"XDG_DATA_HOME": str(tmp_path)}) is None


def test_a_broken_state_is_no_contact(tmp_path: Path) -> None:
    state = local_cluster(environment={"XDG_DATA_HOME": str(tmp_path)}).layout.state
    state.parent.mkdir(parents=True)
    state.write_text("nonsense", encoding="utf-8")
    assert running_contact({"XDG_DATA_HOME": str(tmp_path)}) is None

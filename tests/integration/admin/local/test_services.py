"""A server beside Cassandra, whatever kind it is: started, stopped, killed, wiped, cleaned, and never anybody else's.

A small server of two processes stands for all of them; what is RabbitMQ's own is tested with RabbitMQ.
"""

import json
import os
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import psutil
import pytest

from mailmend.admin.local import ClusterRequest, LocalServers, ServerState, local_cluster
from mailmend.admin.local.cassandra_node import first_settings
from mailmend.admin.local.folders import write_json
from mailmend.admin.local.processes import RECORD, ServerRecord, free_port, this_process
from mailmend.admin.local.server import LocalServer, sweep_folders
from mailmend.model.errors import LocalServerError, UnsafeRequest, WrongUse
from mailmend.repair.clock import SystemClock
from tests.support.servers import PREFIX
from tests.support.small_service import SmallService, hurried, notes, small_run


@contextmanager
def _ended(run: LocalServer) -> Iterator[LocalServer]:
    try:
        yield run
    finally:
        run.kill()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[LocalServer]:
    with _ended(small_run(tmp_path)) as run:
        yield run


def _pids(run: LocalServer) -> dict[str, int]:
    return {name: process.pid for name, process in run.record.processes.items()}


def _end(run: LocalServer, name: str) -> None:
    process = run.record.processes[name]
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait_end(SystemClock(), 20)


def test_up_starts_its_processes_in_order_and_waits_until_it_answers(small: LocalServer) -> None:
    assert small.status().state is ServerState.STOPPED
    found = small.up()
    assert found.state is ServerState.UP
    assert found.contacts == {"small": f"small://127.0.0.1:{small.site.ports['second']}"}
    assert set(notes(small)) == {"first came", "second came"}
    assert found.pids == tuple(_pids(small).values())


def test_what_it_stores_is_for_its_owner_only(small: LocalServer) -> None:
    small.up()
    assert small.folder.stat().st_mode & 0o777 == 0o700


def test_up_again_changes_nothing(small: LocalServer) -> None:
    assert small.up().pids == small.up().pids
    assert len(notes(small)) == 2


def test_two_at_once_start_it_once(small: LocalServer) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: small.up().pids, range(4)))
    assert len(set(found)) == 1


def test_down_lets_the_last_one_end_first(small: LocalServer) -> None:
    # Given one that runs
    small.up()
    ports = small.site.ports
    # When it is taken down
    found = small.down()
    # Then its processes were let go in reverse
    assert notes(small)[2:] == ["second ended", "first ended"]
    assert (found.state, found.pids) == (ServerState.STOPPED, ())
    # And when it is started again, it is where it was and has what it had
    small.up()
    assert small.site.ports == ports
    assert len(notes(small)) == 6


def test_down_where_nothing_runs_is_fine(small: LocalServer) -> None:
    assert small.down().state is ServerState.STOPPED
    assert not small.folder.exists()


def test_a_killed_one_is_seen_dead_and_comes_back(small: LocalServer) -> None:
    """As after a crash: nothing says good-bye, nothing is written down; the ports stay."""
    # Given one that runs
    before, ports = small.up().pids, small.site.ports
    # When it is killed
    small.kill()
    # Then it is known to be dead
    assert small.status().state is ServerState.DEAD
    assert not [note for note in notes(small) if "ended" in note]
    # And when it is started again, others answer at the same place
    after = small.up()
    assert after.state is ServerState.UP
    assert not set(before) & set(after.pids)
    assert small.site.ports == ports


@pytest.mark.parametrize("name", ["first", "second"])
def test_only_the_process_that_is_gone_is_started_again(small: LocalServer, name: str) -> None:
    # Given one of whose processes one has fallen over
    small.up()
    before = _pids(small)
    _end(small, name)
    assert small.status().state is ServerState.DEAD
    # When it is started again
    small.up()
    # Then that one is another, and the other one is the same
    after = _pids(small)
    assert {other for other in after if after[other] == before[other]} == {"first", "second"} - {name}
    assert list(after) == ["first", "second"]


def test_a_deaf_process_is_killed_in_the_end(tmp_path: Path) -> None:
    with _ended(small_run(tmp_path, SmallService("deaf"))) as run:
        run.up()
        assert hurried(run).down().state is ServerState.STOPPED
        assert notes(run)[2:] == ["first ended"]


def test_wiped_it_has_forgotten_everything_but_its_ports(small: LocalServer) -> None:
    small.up()
    ports = small.site.ports
    with pytest.raises(UnsafeRequest, match="mailmend local down"):
        small.wipe()
    small.kill()
    small.wipe()
    assert notes(small) == []
    assert small.status().state is ServerState.STOPPED
    small.up()
    assert small.site.ports == ports
    assert len(notes(small)) == 2


def test_a_running_one_is_not_cleaned_away_and_a_stopped_one_is_whole(small: LocalServer) -> None:
    small.up()
    with pytest.raises(UnsafeRequest, match="mailmend local down"):
        small.clean()
    assert small.status().state is ServerState.UP
    small.down()
    assert [small.clean(), small.clean()] == [True, False]
    assert not small.folder.exists()


def test_one_process_left_running_is_enough_to_refuse(small: LocalServer) -> None:
    small.up()
    _end(small, "second")
    for remove in (small.clean, small.wipe):
        with pytest.raises(UnsafeRequest):
            remove()


def test_a_folder_with_something_else_in_it_is_left_alone(small: LocalServer) -> None:
    # Given somebody's folder of that name
    small.folder.mkdir()
    letter = small.folder / "letter.txt"
    letter.write_text("dear all", encoding="utf-8")
    # When it is to be used, and cleaned
    with pytest.raises(WrongUse, match="something else"):
        small.up()
    # Then nothing has happened to it
    assert small.clean() is False
    assert [path.name for path in small.folder.iterdir()] == ["letter.txt"]


def test_a_broken_one_names_the_reason_and_the_log(tmp_path: Path) -> None:
    with _ended(small_run(tmp_path, SmallService("broken"))) as run:
        with pytest.raises(LocalServerError, match="ERROR: out of luck") as caught:
            run.up()
        assert str(run.kind.log(run.site)) in str(caught.value)
        assert not _pids(run)
        assert run.status().state is ServerState.STOPPED


def test_one_that_does_not_answer_in_time_is_ended(tmp_path: Path) -> None:
    with _ended(replace(small_run(tmp_path, SmallService("stuck")), ready_seconds_max=0.3)) as run:
        with pytest.raises(LocalServerError, match="did not answer within"):
            run.up()
        assert not _pids(run)


def test_parts_that_cannot_be_had_leave_no_trace(tmp_path: Path) -> None:
    run = small_run(tmp_path, SmallService(fetched=False))
    with pytest.raises(LocalServerError, match="could not be fetched"):
        run.up()
    assert not run.exists
    assert not run.folder.exists()


class _Interrupted(SystemClock):
    """The moment at which a person presses Ctrl-C: the first pause."""

    def __init__(self) -> None:
        self.pressed = False

    def sleep(self, seconds: float) -> None:
        if not self.pressed:
            self.pressed = True
            raise KeyboardInterrupt
        super().sleep(seconds)


def test_ctrl_c_while_it_starts_leaves_no_process(tmp_path: Path) -> None:
    with _ended(small_run(tmp_path, SmallService("stuck"))) as run:
        interrupted = replace(run, machine=replace(run.machine, clock=_Interrupted()))
        with pytest.raises(KeyboardInterrupt):
            interrupted.up()
        assert not _pids(run)


def test_a_failed_start_leaves_running_what_ran_before(small: LocalServer) -> None:
    # Given one whose second process is gone, and would not come back well
    small.up()
    first = _pids(small)["first"]
    _end(small, "second")
    # When it is started again in vain
    with pytest.raises(LocalServerError, match="out of luck"):
        replace(small, kind=SmallService("broken")).up()
    # Then the first one is still there
    assert psutil.pid_exists(first)
    assert list(_pids(small)) == ["first"]


def test_the_usual_ports_are_taken_where_they_are_free(tmp_path: Path) -> None:
    first = free_port(["127.0.0.1"])
    usual = {"first": first, "second": free_port(["127.0.0.1"], besides={first})}
    run = replace(small_run(tmp_path, SmallService(usual=usual)), usual_ports=True)
    with socket.create_server(("127.0.0.1", usual["second"])), _ended(run):
        run.up()
        assert run.site.ports["first"] == usual["first"]
        assert run.site.ports["second"] not in usual.values()


def test_ports_that_were_chosen_are_not_changed_behind_its_clients(small: LocalServer) -> None:
    small.up()
    small.down()
    port = small.site.ports["first"]
    with socket.create_server(("127.0.0.1", port)):
        with pytest.raises(LocalServerError, match=f"port {port} on 127.0.0.1 is taken") as caught:
            small.up()
        assert "--ports NAME=PORT" in str(caught.value)
        assert not _pids(small)


def test_a_reused_number_is_neither_running_nor_touched(small: LocalServer) -> None:
    # Given a state that names this very test's process: with a wrong start, and with a mark that it does not carry
    small.up()
    record = small.record
    for impostor in (replace(this_process(), started_at=1.0), replace(this_process(), mark="no such word")):
        write_json(small.folder / RECORD, asdict(ServerRecord(record.ports, {"second": impostor})))
        # When it is looked at, killed and taken down
        assert small.status().state is ServerState.DEAD
        small.kill()
        small.down()
        # Then this test still lives
        assert this_process().runs
    write_json(small.folder / RECORD, asdict(record))
    assert small.status().state is ServerState.UP


def _servers(folder: Path, small: LocalServer) -> LocalServers:
    return LocalServers(local_cluster(folder / "cluster", environment={}), {"small": small})


def test_what_was_started_beside_a_cluster_that_fails_is_ended(small: LocalServer, tmp_path: Path) -> None:
    servers = _servers(tmp_path, small)
    for ran_before in (False, True):
        if ran_before:
            small.up()
        with pytest.raises(WrongUse):
            servers.up(ClusterRequest(nodes=9), ["small"])
        assert bool(small.status().pids) is ran_before


def test_all_servers_are_stopped_and_cleaned_together(small: LocalServer, tmp_path: Path) -> None:
    """Only what was ever started is told of; while one of them runs, nothing of any of them is removed."""
    # Given a cluster that was started once, and a server beside it that runs
    servers = _servers(tmp_path, small)
    assert servers.status().services == ()
    write_json(servers.cluster.layout.state, {"settings": first_settings(ClusterRequest(), 17_001).as_json()})
    small.up()
    assert [service.state for service in servers.status().services] == [ServerState.UP]
    # When they are cleaned, then that is refused until it is stopped
    with pytest.raises(UnsafeRequest):
        servers.clean()
    assert servers.status().cluster.settings is not None
    assert [service.state for service in servers.down().services] == [ServerState.STOPPED]
    assert [servers.clean(), servers.clean()] == [True, False]
    assert servers.status().services == ()


def test_servers_of_a_killed_test_run_are_swept_away(tmp_path: Path) -> None:
    owners = {"dead": replace(this_process(), started_at=1.0), "alive": this_process()}
    runs = {name: small_run(tmp_path / f"mailmend-test-{name}" / "services") for name in owners}
    with _ended(runs["dead"]), _ended(runs["alive"]):
        # Given servers of two runs, one of which has died
        for name, owner in owners.items():
            runs[name].up()
            words = json.dumps(asdict(owner))
            (tmp_path / f"mailmend-test-{name}" / "owner.json").write_text(words, encoding="utf-8")
        pids = {name: run.status().pids for name, run in runs.items()}
        # When the next one tidies up
        sweep_folders(PREFIX, tmp_path)
        # Then only the living one's are there
        assert not any(psutil.pid_exists(pid) for pid in pids["dead"])
        assert not (tmp_path / "mailmend-test-dead").exists()
        assert runs["alive"].status().state is ServerState.UP

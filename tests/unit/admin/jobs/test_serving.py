"""The server of jobs, by a clock that is turned by hand: its times, who leads, what a killed one leaves, its end."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.admin.jobs.children import Child, ChildProcess, Say
from mailmend.admin.jobs.cron import parse_cron
from mailmend.admin.jobs.declaration import Job, Missed
from mailmend.admin.jobs.schedule import turn_meant
from mailmend.admin.jobs.serve import BEAT, TASKS_EVERY, Commands, DeclaredJobs, JobServer, ServeRequest
from mailmend.cql.memory import MemoryTables
from mailmend.model.errors import CannotReach, MailmendError, WrongUse
from mailmend.repair.ledger.jobs import ENDING, AdminTasks, JobRuns, TaskStatus
from mailmend.repair.ledger.leases import TTL_SECONDS, Leases
from tests.support.clock import VirtualClock, VirtualTimers
from tests.support.cluster_twin import ClusterTwin
from tests.support.commands import CommandLine
from tests.support.skewed import SkewedClock
from tests.support.task_desk import CommandTwin, TaskWorld, here

TURN, MINUTE, BEGINNING = timedelta(minutes=20), timedelta(minutes=1), datetime(2026, 9, 1, 10, 37, tzinfo=UTC)
OFTEN = Job(name="often", words=("check",), schedule=parse_cron("*/20 * * * *"), zone=ZoneInfo("UTC"))
FIRST = BEGINNING + 3 * MINUTE


@dataclass
class JobWorld:
    """A ledger in memory, and what was begun on it."""

    clock: VirtualClock
    tables: MemoryTables
    begun: list[tuple[str, datetime]] = field(default_factory=list)
    lasts: timedelta = MINUTE
    deaf: bool = False
    reachable: bool = True

    def server(self, *jobs: Job, owner: str = "one") -> JobServer:
        return JobServer(
            runs=JobRuns(self.tables, "mail", self.clock, owner),
            leases=Leases(self.tables, self.clock, owner),
            clock=self.clock,
            timers=VirtualTimers(self.clock),
            declared=lambda: jobs or (OFTEN,),
            begin=self.begin,
            apart=here,
        )

    async def begin(self, job: Job, _: Say) -> Child:
        due_at = turn_meant(job, self.clock.now).due_at
        if JobRuns(self.tables, "mail", self.clock, "a run").begin_turn(job.name, due_at) is None:
            self.begun.append((job.name, self.clock.now))
        return ChildTwin(self)

    def times(self) -> list[str]:
        return [f"{at.astimezone(ZoneInfo('Europe/Berlin')):%d %H:%M}" for _, at in self.begun]


@dataclass
class ChildTwin:
    """A run that takes its time, and ends within seconds once it is told to, unless it is deaf."""

    world: JobWorld
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    code: int = 0

    def stop(self) -> None:
        if not self.world.deaf:
            self._end(130)

    def kill(self) -> None:
        self._end(-9)

    def _end(self, code: int) -> None:
        self.code = code
        self.stopped.set()

    async def wait(self) -> int:
        until = self.world.clock.now + self.world.lasts
        while not self.stopped.is_set() and self.world.clock.now < until:
            await self.world.clock.pause(1)
        return self.code


@pytest.fixture
def world() -> JobWorld:
    clock = VirtualClock()
    clock.turn_to(BEGINNING)

    def surround(_: object, carry_out: Callable[[], Any]) -> Any:
        if not found.reachable:
            raise CannotReach("no node answered")
        return carry_out()

    found = JobWorld(clock, MemoryTables(clock.micros, surround))
    return found


def errors_in(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(one.getMessage(), vars(one)["error"]) for one in caplog.records if "error" in vars(one)]


async def served(world: JobWorld, *servers: JobServer, lasting: timedelta) -> None:
    """Have them serve for so long, then stop."""
    stop = asyncio.Event()
    tasks = [asyncio.create_task(server.serve(stop)) for server in servers]
    until = world.clock.now + lasting
    while world.clock.now < until:
        await world.clock.pause((until - world.clock.now).total_seconds())
    stop.set()
    await asyncio.gather(*tasks)


async def test_a_job_begins_at_its_times(world: JobWorld) -> None:
    await served(world, world.server(), lasting=3 * TURN)

    assert world.begun == [("often", FIRST + n * TURN) for n in range(3)]


@pytest.mark.parametrize(
    ("day", "times"),
    [
        (datetime(2026, 3, 28, tzinfo=UTC), ["28 02:30", "29 03:00", "30 02:30"]),
        (datetime(2026, 10, 24, tzinfo=UTC), ["24 02:30", "25 02:30", "26 02:30"]),
    ],
)
async def test_a_night_in_which_clocks_change_has_one_run(world: JobWorld, day: datetime, times: list[str]) -> None:
    server = world.server()
    server.leases = replace(server.leases, ttl_seconds=3600)
    server.jobs = (replace(OFTEN, schedule=parse_cron("30 2 * * *"), zone=ZoneInfo("Europe/Berlin")),)
    for passed in range(0, 60 * 60, 10):
        world.clock.turn_to(day + passed * MINUTE)
        await server.look()
        await asyncio.gather(*server._at_work)

    assert world.times() == times


async def test_of_two_servers_one_works_and_hands_over_when_it_ends(world: JobWorld) -> None:
    first, second, third, stop = *(world.server(owner=one) for one in ("one", "two", "three")), asyncio.Event()
    leading = asyncio.create_task(first.serve(stop))
    await world.clock.pause(1)
    assert first.lease

    await served(world, second, lasting=35 * MINUTE)
    assert (len(world.begun), second.lease) == (2, None)

    stop.set()
    await leading
    await served(world, third, lasting=TURN)
    assert len(world.begun) == 3


@pytest.mark.parametrize("killed_before", [timedelta(seconds=1), timedelta(seconds=-1)])
async def test_a_killed_server_is_followed_in_time_and_its_planned_run_is_not_lost(
    world: JobWorld, killed_before: timedelta
) -> None:
    """Killed just before a run is due, the other begins it; just after, its `jobs run` tells that it was begun."""
    first, second = world.server(), world.server(owner="two")
    first.jobs = second.jobs = (OFTEN,)
    await first.look()
    world.clock.turn_to(FIRST - killed_before)
    await first.look()
    await asyncio.sleep(0)
    assert len(world.begun) == (killed_before < timedelta())
    killed_at = world.clock.now

    while not second.lease:
        await second.look()
        await asyncio.sleep(0)
        world.clock.advance(1)

    assert world.clock.now - killed_at <= timedelta(seconds=TTL_SECONDS) + BEAT + timedelta(seconds=1)
    assert len(world.begun) == 1
    await asyncio.gather(*second._at_work, *first._at_work)


async def test_a_run_is_not_begun_while_the_one_before_is_at_work(world: JobWorld) -> None:
    world.lasts = 25 * MINUTE

    await served(world, world.server(), lasting=50 * MINUTE)

    assert [at.minute for _, at in world.begun] == [40, 20]


async def test_a_paused_job_does_not_begin_until_it_is_resumed(world: JobWorld) -> None:
    server, stop = world.server(), asyncio.Event()
    server.runs.pause("often", "disks")
    task = asyncio.create_task(server.serve(stop))
    await world.clock.pause(TURN.total_seconds())
    assert world.begun == []

    server.runs.resume("often")
    await world.clock.pause(TURN.total_seconds())

    stop.set()
    await task
    assert [at.minute for _, at in world.begun] == [0]


@pytest.mark.parametrize(("missed", "begun"), [(Missed.SKIP, 0), (Missed.RUN, 1)])
async def test_a_run_that_was_missed_is_made_up_for_where_that_is_declared(
    world: JobWorld, missed: Missed, begun: int
) -> None:
    job = replace(OFTEN, missed=missed, schedule=parse_cron("0 1 * * *"))
    JobRuns(world.tables, "mail", world.clock, "one").begin_turn("often", BEGINNING - timedelta(hours=33))

    await served(world, world.server(job), lasting=MINUTE)

    assert len(world.begun) == begun


async def test_a_ledger_that_cannot_be_reached_is_waited_for(world: JobWorld) -> None:
    server, stop = world.server(), asyncio.Event()
    task = asyncio.create_task(server.serve(stop))
    await world.clock.pause(1)

    world.reachable = False
    await world.clock.pause(10 * 60)
    assert server.lease is None, "it has expired"
    world.reachable = True
    await world.clock.pause(TURN.total_seconds())

    stop.set()
    await task
    assert [at.minute for _, at in world.begun] == [47, 0], "as soon as it was there again"


async def test_a_leader_whose_clock_is_set_back_stays_the_only_one(world: JobWorld) -> None:
    """It renews its lease by the monotonic clock; by the wall clock it would sleep through ten minutes."""
    wall = SkewedClock(world.clock, timedelta())
    first, second = world.server(), world.server(owner="two")
    first.clock, first.leases, first.timers = wall, Leases(world.tables, wall, "one"), VirtualTimers(wall)
    stop = asyncio.Event()
    leading = asyncio.create_task(first.serve(stop))
    await world.clock.pause(1)
    standing_by = asyncio.create_task(second.serve(stop))
    await world.clock.pause(60)

    wall.ahead = -timedelta(minutes=10)
    leaders = []
    for _ in range(120):
        await world.clock.pause(5)
        leaders.append((first.lease is not None, second.lease is not None))

    stop.set()
    await asyncio.gather(leading, standing_by)
    assert set(leaders) == {(True, False)}


async def test_who_lost_the_lease_begins_nothing(world: JobWorld) -> None:
    first, second = world.server(), world.server(owner="two")
    first.jobs = (OFTEN,)
    await first.look()
    world.clock.turn_to(FIRST + MINUTE)
    second.leases.acquire(second.name, "jobs serve")

    await first.look()

    assert (first.lease, world.begun) == (None, [])


async def test_settings_are_read_again_all_or_none(world: JobWorld, caplog: pytest.LogCaptureFixture) -> None:
    server = world.server()
    other = replace(OFTEN, name="other")
    reported: list[Sequence[Job] | MailmendError] = [(OFTEN,), WrongUse("line 3: no"), (other,)]

    def declared() -> Sequence[Job]:
        found = reported.pop(0)
        if isinstance(found, MailmendError):
            raise found
        return found

    server.declared, stop = declared, asyncio.Event()
    task = asyncio.create_task(server.serve(stop))
    for _ in range(2):
        await world.clock.pause(TURN.total_seconds())
        server.reload()
    await world.clock.pause(TURN.total_seconds())
    stop.set()
    await task

    assert [name for name, _ in world.begun] == ["often", "often", "other"]
    assert ("the settings stay as they were", "line 3: no") in errors_in(caplog)


@pytest.mark.parametrize(("deaf", "waits"), [(False, timedelta(seconds=30)), (True, ENDING + 2 * BEAT)])
async def test_what_runs_is_ended_in_good_order_and_killed_when_patience_is_over(
    world: JobWorld, *, deaf: bool, waits: timedelta
) -> None:
    world.lasts, world.deaf = 5 * timedelta(hours=1), deaf
    server, stop = world.server(), asyncio.Event()
    task = asyncio.create_task(server.serve(stop))
    await world.clock.pause(TURN.total_seconds())
    stopped_at = world.clock.now

    stop.set()
    await task

    assert world.clock.now - stopped_at <= waits
    assert len(world.begun) == 1
    assert Leases(world.tables, world.clock, "two").holder(server.name) is None, "the lease is free at once"


async def test_a_program_that_cannot_be_started_is_reported(world: JobWorld, caplog: pytest.LogCaptureFixture) -> None:
    server = world.server()

    async def refused(_: Job, __: Say) -> Child:
        raise FileNotFoundError(2, "No such file")

    server.begin = refused

    await served(world, server, lasting=TURN)

    assert ("a job cannot begin", "No such file") in errors_in(caplog)


# The command


SETTINGS = """
[jobs.often]
command = "check --engine local --delay 0"
schedule = "*/20 * * * *"
"""


def declare(mailmend: CommandLine, text: str) -> None:
    folder = mailmend.home / "config" / "mailmend"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(text)


def test_the_command_begins_what_a_unit_begins_with_settings_that_were_accepted(
    mailmend: CommandLine, cluster: ClusterTwin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is broken meanwhile, and SIGHUP refuses it; runs go on. What is typed counts for runs too."""
    declare(mailmend, SETTINGS)
    cluster.clock.turn_to(BEGINNING)
    begun: list[list[str]] = []

    async def begin(words: list[str], _: Say, __: bytearray | None = None) -> Child:
        place = Path(words[words.index("--config") + 1])
        assert place.read_text() == SETTINGS
        assert place.stat().st_mode & 0o77 == 0
        begun.append(words)
        if len(begun) == 1:
            declare(mailmend, SETTINGS.replace("*/20", "wrong"))
            os.kill(os.getpid(), signal.SIGHUP)
        else:
            os.kill(os.getpid(), signal.SIGTERM)
        return ChildTwin(JobWorld(cluster.clock, MemoryTables(cluster.clock.micros)))

    monkeypatch.setattr(ChildProcess, "begin", begin)
    monkeypatch.setattr("mailmend.admin.jobs.serve.ScheduledTimers", lambda: VirtualTimers(cluster.clock))

    ended = mailmend("jobs", "serve", "--keyspace", "mail")

    assert ended.code == 0, ended.err
    assert re.search(r"ERROR mailmend.jobs the settings stay .*config.toml, line 4: job 'often'", ended.err), ended.err
    assert ended.err.endswith("Stopped on request; what ran has ended.\n")
    words = begun[0]
    assert words[:3] == [sys.executable, "-m", "mailmend"]
    assert words[5:] == ["jobs", "run", "often", "--scheduled", "--keyspace", "mail"]
    assert len(begun) == 2


def test_a_wrong_declaration_is_refused_before_anything_runs(mailmend: CommandLine, cluster: ClusterTwin) -> None:
    declare(mailmend, SETTINGS.replace("*/20", "wrong"))

    ended = mailmend("jobs", "serve")

    assert (ended.code, "line 4: job 'often': " in ended.err) == (2, True), ended.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--listen", "0.0.0.0:8000"), "can be reached from elsewhere"),
        (("--listen", "8000"), "is not HOST:PORT"),
        (("--tokens-file", "tokens"), "are for --listen"),
        (("--listen", "127.0.0.1:8000", "--tokens-file", "/nowhere"), "cannot be read"),
    ],
)
def test_what_nobody_should_listen_with_is_refused(
    mailmend: CommandLine, cluster: ClusterTwin, options: tuple[str, ...], said: str
) -> None:
    ended = mailmend("jobs", "serve", *options)

    assert (ended.code, said in ended.err) == (2, True), ended.err


def test_a_planned_run_is_run_once_whoever_begins_it(mailmend: CommandLine, cluster: ClusterTwin) -> None:
    declare(mailmend, SETTINGS)
    cluster.clock.turn_to(FIRST)

    first, second = (mailmend("jobs", "run", "often", "--scheduled") for _ in range(2))

    assert (first.code, second.code) == (0, 0)
    assert "Nothing ran: job 'often' began already at 2026-09-01 10:40:00 UTC, by " in second.err
    assert len(mailmend("jobs", "history", "--json").json["runs"]) == 1
    assert mailmend("jobs", "run", "often", "--scheduled", "--anyway").code == 0
    cluster.clock.advance(3600)
    mailmend("jobs", "run", "often", "--scheduled")
    assert len(mailmend("jobs", "history", "--json").json["runs"]) == 3


# Tasks beside jobs


async def test_the_command_of_a_task_logs_what_is_read_whatever_was_typed_for_the_server(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begun: list[str] = []

    async def begin(words: list[str], *_: object) -> None:
        begun.extend(words)

    monkeypatch.setattr(ChildProcess, "begin", begin)
    typed = ("--log-level", "error", "--log-format", "text")
    request = ServeRequest(connection=ConnectionSettings(), declared=lambda: DeclaredJobs((), ""), typed=typed)

    await Commands(request, tmp_path).begin_task(("repair", "blobs"), begun.append, bytearray())

    assert begun[-4:] == ["--log-level", "info", "--log-format", "json"], "the last counts"


async def test_who_leads_runs_tasks_and_ends_them_in_good_order(world: JobWorld, tmp_path: Path) -> None:
    """Asked for on another server: found within seconds; what does not end by then goes on at the next leader."""
    desk = TaskWorld(tmp_path, clock=world.clock)
    desk.tables, server, stop = world.tables, world.server(), asyncio.Event()
    desk.tasks = AdminTasks(world.tables, "mail", world.clock, "elsewhere")
    desk.next = CommandTwin(waits=True)
    server.tasks = replace(desk.server(), tasks=desk.tasks, wake=server.wake)
    task = asyncio.create_task(server.serve(stop))
    await world.clock.pause(1)

    taken = desk.tasks.submit("solve-message-inconsistencies", {}, "nightly")
    await world.clock.pause(TASKS_EVERY.total_seconds() + 1)
    at_work = desk.tasks.get(taken.id).status
    stop.set()
    await task

    assert (at_work, desk.tasks.get(taken.id).status) == (TaskStatus.IN_PROGRESS, TaskStatus.WAITING)

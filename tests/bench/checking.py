"""A whole `check messages` as a person runs it, on the messages of a James that has been at work for a while.

Each command is a process of its own, and the engines take turns. What they find is asserted. Beside them stand bare
scans of what a check reads, each a process that does nothing else; James's own task, where its classes are to be had,
and a walk that reads as James does; both know only two of the tables.
"""

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import psutil

from mailmend.cql.driver.session import Contact, connect
from mailmend.model.errors import ExitCode
from mailmend.repair.decisions.engines import SPARK_ROWS_MIN
from tests.bench.james_repair import SAMPLE_SECONDS, SECONDS_MAX, SHIPPED, UNTHROTTLED, james_per_second
from tests.bench.population import WORN
from tests.bench.scanning import family_of, walk_per_second
from tests.support.nodetool import nodetool_of
from tests.support.servers import CassandraServer

MESSAGES: Final = 200_000
ROUNDS: Final = 3
LANES: Final[Mapping[str, str]] = {
    "check, Spark": "check messages --delay 0 --no-writers --engine spark",
    "check, local": "check messages --delay 0 --no-writers --engine local",
    "dry run, leaks too, local": "repair messages --delay 0 --engine local --dry-run --no-writers --leaks collect",
}
"""Without writers nobody waits between two looks at a counter. The dry run looks again at every leak too."""
HOURLY: Final = {"hourly, --pace auto, local": "check messages --delay 0 --no-writers --engine local --pace auto"}
"""On a sound population, as a job of every hour finds it."""

SNAPSHOT: Final[Mapping[str, str]] = {
    "check, snapshot": "check messages --delay 0 --no-writers --engine local",
    "check, snapshot alone": "check messages --no-recheck",
}
"""The same check from a snapshot's files; alone no cluster is asked, so counters are suspects."""

BARE: Final[Mapping[str, str]] = {"bare scans, Spark": "spark", "bare scans, local": "local"}

_LOOK_SECONDS: Final = 0.1

Findings = Mapping[str, Mapping[str, int]]
"""The numbers of findings by projection and verdict, as the JSON has them."""


@dataclass(frozen=True, slots=True)
class Checked:
    """Medians of the rounds of one lane.

    Attributes:
        cpu_seconds: of the command with its children, without the server.
        stages: seconds by the stages of the command's JSON.
    """

    lane: str
    seconds: float
    cpu_seconds: float
    stages: Mapping[str, float]

    def __str__(self) -> str:
        stages = ", ".join(f"{name} {seconds:.1f}" for name, seconds in self.stages.items())
        return f"{self.lane:26} {self.seconds:5.1f} s, CPU {self.cpu_seconds:5.1f} s: {stages}"


@dataclass(frozen=True, slots=True)
class Peer:
    """Another way to compare the two tables.

    Attributes:
        seconds: for all messages, by that rate.
    """

    name: str
    per_second: float
    seconds: float

    def __str__(self) -> str:
        return f"{self.name:26} {self.seconds:5.0f} s for its two tables: {self.per_second:,.0f} messages/s"


def populate(contact: Contact, keyspace: str, messages: int, *, worn: bool = True) -> None:
    """Write a population; in a process of its own, so that no JVM of ours stands by while others are measured."""
    address, how = f"{contact.hosts[0]}:{contact.port}", ["worn"] * worn
    subprocess.run([sys.executable, "-m", "tests.bench.population", address, keyspace, str(messages), *how], check=True)


def snapshot_of(server: CassandraServer, keyspace: str) -> Path | None:
    """The folder of a new snapshot; None where the files of the server are elsewhere."""
    if server.sstables is None or server.jmx_port is None:
        return None
    with TemporaryDirectory() as home:
        nodetool = shlex.split(nodetool_of(server, Path(home)).format(host=server.host))
        subprocess.run([*nodetool, "snapshot", keyspace], check=True, capture_output=True)
    return server.sstables / keyspace


def measure(contact: Contact, keyspace: str, messages: int, snapshot: Path | None = None) -> list[Checked]:
    """Run the lanes and the bare scans in turn."""
    place = ["--host", contact.hosts[0], "--port", str(contact.port), "--keyspace", keyspace, "--json"]
    address, brief = f"{contact.hosts[0]}:{contact.port}", ["brief"] if messages < SPARK_ROWS_MIN else []
    commands = {lane: ["mailmend", *command.split(), *place] for lane, command in LANES.items()}
    commands |= {lane: ["tests.bench.scanning", address, keyspace, engine, *brief] for lane, engine in BARE.items()}
    if snapshot is not None:
        files = ["--snapshot", str(snapshot)]
        commands |= {lane: ["mailmend", *command.split(), *place, *files] for lane, command in SNAPSHOT.items()}
    runs = [run(lane, command, _found_by(lane)) for _ in range(ROUNDS) for lane, command in commands.items()]
    return [middle([one for one in runs if one.lane == lane]) for lane in commands]


def measure_hourly(contact: Contact, keyspace: str) -> list[Checked]:
    """Run its lane on a sound population."""
    place = ["--host", contact.hosts[0], "--port", str(contact.port), "--keyspace", keyspace, "--json"]
    commands = {lane: ["mailmend", *command.split(), *place] for lane, command in HOURLY.items()}
    return [middle([run(lane, command, {}) for _ in range(ROUNDS)]) for lane, command in commands.items()]


def ratios(measured: Sequence[Checked]) -> dict[str, float]:
    """Whole checks in bare scans of the same tables and columns, and in a check of the cluster."""
    seconds = {one.lane: one.seconds for one in measured}
    found = {f"check ÷ {bare}": round(seconds[bare.replace("bare scans", "check")] / seconds[bare], 2) for bare in BARE}
    for lane in SNAPSHOT.keys() & seconds.keys():
        for other in ("check, local", "bare scans, local"):
            found[f"{lane} ÷ {other}"] = round(seconds[lane] / seconds[other], 2)
    return found


def beside(contact: Contact, keyspace: str, messages: int) -> list[Peer]:
    """The walk; James unthrottled and, for half a minute, as he is shipped."""
    with connect(contact) as cluster:
        walk = walk_per_second(cluster.keyspace(keyspace), family_of(cluster, keyspace))
    peers = [Peer("a walk with point reads", walk, messages / walk)]
    for name, pace, seconds in (("unthrottled", UNTHROTTLED, SECONDS_MAX), ("as shipped", SHIPPED, SAMPLE_SECONDS)):
        if rate := james_per_second(contact, keyspace, pace, seconds):
            peers.append(Peer(f"James's task, {name}", rate, messages / rate))
    return peers


def as_json(measured: Sequence[Checked | Peer]) -> list[dict[str, Any]]:
    return [asdict(one) for one in measured]


def _found_by(lane: str) -> Findings | None:
    """What a lane has to find in a worn population; None: it only scans."""
    if lane in BARE:
        return None
    return WORN


def run(lane: str, arguments: Sequence[str], found: Findings | None) -> Checked:
    """Run a module in a process of its own; one that finds something else than it has to measured nothing."""
    began = time.perf_counter()
    with psutil.Popen([sys.executable, "-m", *arguments], stdout=subprocess.PIPE) as process:
        cpu = dict[int, float]()
        while process.poll() is None:
            for one in (process, *process.children(recursive=True)):
                try:
                    cpu[one.pid] = sum(one.cpu_times()[:2])
                except psutil.Error:
                    continue
            time.sleep(_LOOK_SECONDS)
        seconds = time.perf_counter() - began
        result = json.loads(process.stdout.read())
    assert process.returncode in (ExitCode.FINE, ExitCode.DRIFT), result
    assert found is None or result["findings"] == found, result["findings"]
    return Checked(lane, seconds, sum(cpu.values()), result["seconds"])


def middle(runs: Sequence[Checked]) -> Checked:
    """The medians of the runs of one lane."""
    return Checked(
        runs[0].lane,
        round(median(one.seconds for one in runs), 1),
        round(median(one.cpu_seconds for one in runs), 1),
        {stage: round(median(one.stages[stage] for one in runs), 1) for stage in runs[0].stages},
    )

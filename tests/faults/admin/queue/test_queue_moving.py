"""A queue goes from a real RabbitMQ to a real Pulsar and back, and the mover is killed on both ways."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import CommandLine, Ended, command_line
from tests.support.pulsars import RealPulsar
from tests.support.queue_processes import QueueProcesses, delivered

pytestmark = [pytest.mark.cassandra, pytest.mark.broker, pytest.mark.object_store, pytest.mark.thorough]

QUEUE = "moving"
_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Way:
    """From one broker to the other.

    Attributes:
        source: the variables of a shell in which the source is the queue's broker.
        there: likewise the target.
        to: the words that name the target.
    """

    source: Mapping[str, str]
    there: Mapping[str, str]
    to: tuple[str, ...]


@pytest.fixture
def ways(processes: QueueProcesses, pulsar: RealPulsar) -> Iterator[tuple[Way, Way]]:
    """To Pulsar, and back."""
    with pulsar.namespace() as namespace:
        rabbitmq = processes.servers.environment
        over_pulsar = namespace.environment(rabbitmq)
        yield (_way(rabbitmq, over_pulsar), _way(over_pulsar, rabbitmq))


def _way(source: Mapping[str, str], there: Mapping[str, str]) -> Way:
    to = ("--to-broker", there["MAILMEND_BROKER"], "--to-management", there["MAILMEND_BROKER_MANAGEMENT"])
    secret = {"MAILMEND_TO_PASSWORD": there.get("MAILMEND_BROKER_PASSWORD", "")}
    return Way({**source, **secret}, there, to)


def shell(home: Path, environment: Mapping[str, str]) -> CommandLine:
    return command_line(home, None, **environment)


def listed(home: Path, environment: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """What the queue over that broker shows, by the mails' names."""
    ended = shell(home, environment)("queue", "browse", "--queue", QUEUE, "--json")
    assert ended.code == 0, ended.err
    return {one["name"]: one for one in ended.json["mails"]}


_KEPT = ("id", "sender", "recipients", "state", "priority", "where", "due_at", "attempts", "enqueued_at")


def _story(one: Mapping[str, Any]) -> dict[str, Any]:
    """What a mail keeps on its way."""
    return {name: one[name] for name in _KEPT}


def moved(home: Path, way: Way) -> Ended:
    ended = shell(home, way.source)("queue", "move", QUEUE, *way.to, "--wait", "2s", "--json")
    assert (ended.code, ended.json["left"], listed(home, way.source)) == (0, 0, {}), ended
    return ended


def test_a_queue_goes_to_pulsar_and_back_though_its_mover_is_killed(
    processes: QueueProcesses, ways: tuple[Way, Way], tmp_path: Path
) -> None:
    """Killed while a mail is in the journal alone, and back when one is there and not noted: each comes once."""
    to, back = ways

    # Given two mails that wait and a delayed one, and a mover that is killed with one of them in hand
    processes.put(QUEUE, "one", "two")
    processes.put(QUEUE, "later", delay=_HOUR)
    before = listed(tmp_path, to.source)
    processes.typed(tmp_path, "move", QUEUE, *to.to, at="put", nth=2, variables=to.source)
    assert set(listed(tmp_path, to.there)) == {"later"}
    assert len(listed(tmp_path, to.source)) < 2

    # When the same command is typed again, then all are there, each as it was
    assert moved(tmp_path, to).json["resumed"] >= 1
    there = listed(tmp_path, to.there)
    assert {name: _story(one) for name, one in there.items()} == {name: _story(one) for name, one in before.items()}

    # And when one is delivered there and the rest goes back, and its mover is killed where one is put and not noted
    taken = shell(tmp_path, to.there)("queue", "dequeue", "--queue", QUEUE, "--limit", "1", "--exec", "true", "--json")
    assert taken.json["acked"] == 1, taken
    processes.typed(tmp_path, "move", QUEUE, *back.to, at="done put", nth=1, variables=back.source)
    moved(tmp_path, back)

    # Then what is left is delivered once, under new ids, for RabbitMQ's tables know the old ones
    here = listed(tmp_path, to.source)
    assert len(here) == 2
    assert here["later"]["due_at"] == before["later"]["due_at"]
    assert {one["id"] for one in here.values()}.isdisjoint(one["id"] for one in before.values())
    assert shell(tmp_path, to.source)("queue", "flush", "--queue", QUEUE).code == 0
    wanted = sorted(one["id"] for one in here.values())
    assert sorted(processes.run(QUEUE, lambda queue: delivered(queue, wanted))) == wanted

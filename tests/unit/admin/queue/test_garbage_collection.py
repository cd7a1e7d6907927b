"""Garbage collection by nodetool: told first, one SSTable measured, one node after the other."""

import asyncio
import json
from dataclasses import dataclass, field

import pytest

from mailmend.admin.frame.nodetool import Nodetool
from mailmend.admin.queue.garbage_collection import GarbageCollection, GarbageCollector, what_it_costs
from mailmend.cql.memory import MemoryTables
from mailmend.mailqueue.rules.size import Rewritten
from mailmend.model.catalog.mail_queue import DELETED_MAILS, ENQUEUED_MAILS
from mailmend.model.errors import CannotReach, WrongUse
from mailmend.model.operations import Put
from tests.support.clock import VirtualClock
from tests.support.in_turn import InTurn

MEBIBYTE = 2**20
MARK = {"queuename": "spool", "enqueueid": "one"}


@dataclass(frozen=True, slots=True)
class NodetoolTwin(Nodetool):
    """Nodes with SSTables of so many bytes each, at first; one may fail."""

    clock: VirtualClock = field(default_factory=VirtualClock)
    asked: list[tuple[str, ...]] = field(default_factory=list)
    fails: str = ""
    rewrites: bool = True

    async def run(self, host: str, *task: str) -> str:
        self.asked.append((host, *task))
        if (host, task[0]) == (self.fails, "garbagecollect"):
            raise CannotReach("nodetool garbagecollect failed")
        match task[0]:
            case "tablestats":
                done = (host, "garbagecollect", "ks", "enqueuedmailsv4", "deletedmailsv2") in self.asked
                stats = {"space_used_live": 1 if done else 30 * MEBIBYTE, "sstable_count": 1 if done else 3}
                return json.dumps({"ks": {"tables": {"deletedmailsv2": stats}}})
            case "getsstables":
                return "" if host == "a" else "/data/ks/nb-1-big-Data.db\n/data/ks/nb-2-big-Data.db"
            case "compact":
                self.clock.advance(3)
            case "compactionhistory":
                self.clock.advance(1)
                named = {"keyspace_name": "ks", "columnfamily_name": "deletedmailsv2", "bytes_in": 10 * MEBIBYTE}
                past = [named | {"id": str(number)} for number in range(1 + self.rewritten)]
                return json.dumps({"CompactionHistory": past})
            case _:
                pass
        return ""

    @property
    def rewritten(self) -> int:
        return self.rewrites * sum(one[1] == "compact" for one in self.asked)


def collector_of(tool: NodetoolTwin) -> GarbageCollector:
    return GarbageCollector(tool, tool.clock, "ks", (ENQUEUED_MAILS, DELETED_MAILS))


async def reported(tool: NodetoolTwin) -> GarbageCollection:
    tables = MemoryTables(tool.clock.micros)
    tables.write(Put(DELETED_MAILS, MARK))
    collector = collector_of(tool)
    return await collector.measured(await collector.cost(["a", "b"], ["c"]), InTurn(tables))


async def test_what_it_costs_is_reported_by_one_sstable_of_the_first_node_that_has_one() -> None:
    """Less the time that nodetool takes itself."""
    tool = NodetoolTwin(("nodetool",))
    cost = await reported(tool)
    assert cost.measured == Rewritten(10 * MEBIBYTE, 2.0)
    assert ("b", "compact", "--user-defined", "/data/ks/nb-1-big-Data.db") in tool.asked
    assert what_it_costs(cost) == (
        "Garbage collection rewrites 60.0 MiB in 6 SSTables on 2 nodes, one after the other: about 12 s in all, by one "
        "SSTable of 10.0 MiB in 2.0 s. Left out, as they are down: c."
    )


async def test_an_sstable_that_went_meanwhile_is_no_measure() -> None:
    cost = await reported(NodetoolTwin(("nodetool",), rewrites=False))
    assert cost.measured is None
    assert "not known" in what_it_costs(cost)


async def test_one_node_follows_the_other_whatever_becomes_of_it() -> None:
    tool, began = NodetoolTwin(("nodetool",), fails="a"), list[str]()
    collector = collector_of(tool)
    done = await collector.collect(await collector.cost(["a", "b"]), began.append)
    assert began == ["a", "b"]
    assert [(one.node, one.failed, one.after and one.after.bytes) for one in done.nodes] == [
        ("a", "nodetool garbagecollect failed", None),
        ("b", None, 1),
    ]
    assert done.failed
    work = [one[:2] for one in tool.asked if one[1] in {"flush", "garbagecollect"}]
    assert work == [(node, task) for node in "ab" for task in ("flush", "garbagecollect")]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "does not say where"),
        ("nodetool", "does not say where"),
        ("no'quote {host}", "not a command"),
        ("no-such-program {host}", "there is no program"),
    ],
)
def test_a_command_that_cannot_be_one_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(WrongUse, match=complaint):
        Nodetool.parse(text)


def ended(text: str, *task: str, host: str = "10.0.0.1") -> str:
    return asyncio.run(Nodetool.parse(text).ask(host, *task))


def test_each_word_stays_one_word_and_no_shell_reads_it() -> None:
    assert ended("echo -h {host} 'a  b' ';' $HOME", "flush", host="::1;x y").strip() == "-h ::1;x y a  b ; $HOME flush"


def test_what_only_we_need_to_know_is_not_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAILMEND_PASSWORD", "secret")
    assert "secret" not in ended("env {host}=1", ["NODE=1", "sh", "-c", "env"][0])


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'nodetool: Failed to connect'; echo '-- StackTrace --'; echo at x; exit 1", "Failed to connect"),
        ("echo one >&2; echo 'ssh: no route' >&2; exit 255", "exit 255: ssh: no route"),
        ("exit 3", "exit 3: it said nothing"),
    ],
)
def test_a_failure_says_where_and_why_and_nothing_of_the_words_behind_the_first(script: str, said: str) -> None:
    with pytest.raises(CannotReach, match=r"nodetool flush on 10.0.0.1, by way of 'sh', failed") as refused:
        ended(f'sh -c "{script}" {{host}} -pw secret', "flush")
    assert said in refused.value.what
    assert "secret" not in str(refused.value)


async def test_what_does_not_answer_is_killed_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mailmend.admin.frame.nodetool.ANSWER_SECONDS_MAX", 0.05)
    with pytest.raises(CannotReach, match="no answer in"):
        await Nodetool.parse("sh -c 'exec sleep 60' {host}").ask("10.0.0.1", "flush")

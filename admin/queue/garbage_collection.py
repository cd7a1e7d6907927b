"""Garbage collection of the queue's tables whose rows never expire: what it costs first, then node after node.

There each time window keeps what was deleted until a command rewrites its SSTables; Cassandra alone does not.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.nodetool import Nodetool
from mailmend.admin.queue.connections import QueueConnections
from mailmend.admin.queue.request import confirm
from mailmend.mailqueue.rules.size import OnDisk, Rewritten, compactions, key_text, on_disk
from mailmend.model.catalog.mail_queue import DELETED_MAILS, ENQUEUED_MAILS
from mailmend.model.errors import MailmendError
from mailmend.model.names import name_of
from mailmend.model.operations import Level, Scan
from mailmend.model.ports import AsyncTables, Clock
from mailmend.model.sizes import MIB
from mailmend.model.table import Table

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CollectedNode:
    """One node: what the tables take there before and after the work; `failed` says why there is no figure after it."""

    node: str
    before: OnDisk
    after: OnDisk | None = None
    seconds: float = 0.0
    failed: str | None = None


@dataclass(frozen=True, slots=True)
class GarbageCollection:
    """What a garbage collection would cost, and what came of it.

    Attributes:
        measured: one SSTable, rewritten to see how long that takes; None in a dry run, or where there is no SSTable.
        down: nodes that are left out.
    """

    nodes: tuple[CollectedNode, ...]
    measured: Rewritten | None = None
    down: tuple[str, ...] = ()

    @property
    def before(self) -> OnDisk:
        return sum((node.before for node in self.nodes), OnDisk(0, 0))

    @property
    def seconds_about(self) -> float | None:
        if self.measured is None:
            return None
        return self.measured.seconds_for(self.before)

    @property
    def failed(self) -> bool:
        return any(node.failed for node in self.nodes)


@dataclass(frozen=True, slots=True)
class GarbageCollector:
    """Works on tables of one keyspace."""

    tool: Nodetool
    clock: Clock
    keyspace: str
    tables: tuple[Table, ...]

    async def cost(self, nodes: Iterable[str], down: Iterable[str] = ()) -> GarbageCollection:
        """What the tables take on each node.

        Raises:
            CannotReach: nodetool of some node did not answer.
        """
        found = [CollectedNode(node, await self._on_disk(node)) for node in nodes]
        return GarbageCollection(tuple(found), down=tuple(down))

    async def measured(self, cost: GarbageCollection, rows: AsyncTables) -> GarbageCollection:
        """Rewrite one SSTable, of the first table and on the first node that has one."""
        for table in self.tables:
            key = await _some_key(rows, table)
            if not key:
                continue
            for node in cost.nodes:
                if measured := await self._rewritten(node.node, table, key):
                    return replace(cost, measured=measured)
        return cost

    async def collect(self, cost: GarbageCollection, began: Callable[[str], None]) -> GarbageCollection:
        """One node after the other; what fails on one is reported, and the next one follows."""
        nodes = []
        for node in cost.nodes:
            began(node.node)
            nodes.append(await self._collected(node))
        return replace(cost, nodes=tuple(nodes))

    async def _collected(self, node: CollectedNode) -> CollectedNode:
        async def work() -> OnDisk:
            await self.tool.run(node.node, "flush", self.keyspace, *self._names)
            await self.tool.run(node.node, "garbagecollect", self.keyspace, *self._names)
            return await self._on_disk(node.node)

        try:
            after, seconds = await self._timed(work)
        except MailmendError as error:
            return replace(node, failed=error.what)
        return replace(node, after=after, seconds=seconds)

    async def _rewritten(self, node: str, table: Table, key: str) -> Rewritten | None:
        """Cassandra rewrites an SSTable that is named as it compacts; less the time that nodetool itself takes."""
        await self.tool.run(node, "flush", self.keyspace, table.name)
        answer = await self._ask(node, "getsstables", table.name, key)
        files = [word for word in answer.split() if "-Data.db" in word]
        if not files:
            return None
        before, idle = await self._timed(lambda: self._compactions(node, table))
        _, seconds = await self._timed(lambda: self.tool.run(node, "compact", "--user-defined", files[0]))
        after = await self._compactions(node, table)
        new = [read for compaction, read in after.items() if compaction not in before]
        # With another compaction at work it is not known which of them was this one.
        if len(new) != 1 or not new[0]:
            return None
        return Rewritten(new[0], max(seconds - idle, 0.0))

    async def _compactions(self, node: str, table: Table) -> dict[str, int]:
        answer = await self.tool.ask(node, "compactionhistory", "--format", "json")
        return dict(compactions(answer, self.keyspace, table.name))

    async def _on_disk(self, node: str) -> OnDisk:
        named = [f"{self.keyspace}.{name}" for name in self._names]
        return on_disk(await self.tool.ask(node, "tablestats", "--format", "json", "--", *named), self.keyspace)

    async def _ask(self, node: str, question: str, *about: str) -> str:
        return await self.tool.ask(node, question, "--", self.keyspace, *about)

    async def _timed(self, work: Callable[[], Awaitable[T]]) -> tuple[T, float]:
        began = self.clock.monotonic()
        answer = await work()
        return answer, self.clock.monotonic() - began

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(table.name for table in self.tables)


async def _some_key(rows: AsyncTables, table: Table) -> str:
    """The key of some partition; "" in an empty table."""
    row = await anext(rows.scan(Scan(table, table.partition_names, Level.ONE)), None)
    if row is None:
        return ""
    return key_text(table.partition_of(row))


def collector_for(command: str, connections: QueueConnections) -> GarbageCollector | None:
    """The collector; None where rows and marks expire, because Cassandra then drops their SSTables.

    Raises:
        WrongUse: the command cannot be one that reaches nodetool.
    """
    tool = Nodetool.parse(command)
    own = connections.own
    lives = ((ENQUEUED_MAILS, own.row_ttl_seconds), (DELETED_MAILS, own.mark_ttl_seconds))
    tables = tuple(table for table, seconds in lives if not seconds)
    if not tables:
        return None
    return GarbageCollector(tool, connections.clock, name_of(connections.cluster.mail.name), tables)


async def agreed(
    collector: GarbageCollector, connections: QueueConnections, caller: Caller, *, dry_run: bool, yes: bool
) -> GarbageCollection:
    """Tell what it will cost, and ask.

    Raises:
        CannotReach: nodetool of some node does not answer.
        UnsafeRequest: no person agreed.
    """
    cost = await collector.cost(*connections.cluster.nodes())
    if not dry_run:
        cost = await collector.measured(cost, connections.tables)
    caller.remark(what_it_costs(cost))
    if not dry_run:
        confirm("Collect garbage on each of these nodes, once the queues are clean?", caller, yes=yes)
    return cost


def what_it_costs(cost: GarbageCollection) -> str:
    nodes = len(cost.nodes)
    before = cost.before
    rewrites = (
        f"Garbage collection rewrites {before.bytes / MIB:,.1f} MiB in {before.sstables:,} SSTables on "
        f"{nodes} node{'s' * (nodes > 1)}, one after the other"
    )
    left_out = ""
    if cost.down:
        left_out = f" Left out, as they are down: {', '.join(cost.down)}."
    if cost.measured is None:
        return f"{rewrites}; how long that takes is not known before an SSTable was rewritten.{left_out}"
    one = cost.measured
    how_long = f"about {cost.seconds_about:,.0f} s in all"
    return f"{rewrites}: {how_long}, by one SSTable of {one.bytes / MIB:,.1f} MiB in {one.seconds:.1f} s.{left_out}"

"""Delivery without a network: servers that answer by a script, a queue in memory that may die, time turned by hand."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from email import message_from_bytes
from typing import Any, Final

from mailmend.cql.memory import MemoryTables
from mailmend.delivery.ledger.attempts import LedgerAttempts
from mailmend.delivery.ledger.orders import LedgerOrders
from mailmend.delivery.mail.attempts import (
    AttemptStage,
    BeforeContent,
    DeliveryAttempt,
    JournalledAttempt,
    NextHop,
    NoNextHop,
    RecipientResult,
    SmtpReply,
    at_once,
)
from mailmend.delivery.mail.entries import EntryState, QueuedEntry
from mailmend.delivery.mail.envelopes import queued_entries
from mailmend.delivery.mail.settling import RetryInterval, RetrySchedule
from mailmend.delivery.policy.engine import PickupEngine
from mailmend.delivery.policy.policy import CounterPolicy
from mailmend.delivery.policy.rates import RateAlgorithm
from mailmend.delivery.policy.shares import ServerShare
from mailmend.delivery.server.hooks import DeliveryHooks
from mailmend.delivery.server.serving import DeliveryServer
from mailmend.delivery.settings import DeliverySettings
from mailmend.mailqueue.memory import MemoryDequeued, MemoryMailQueue
from mailmend.mailqueue.queue import DELAYED, SubQueueOf
from mailmend.mailqueue.rules.backlogs import SubQueueName
from mailmend.mailqueue.rules.mails import Mail
from mailmend.model.errors import CannotReach
from mailmend.model.ids import EnqueueId, QueueName
from mailmend.model.operations import Read, Seen, Write
from tests.support.clock import VirtualClock
from tests.support.in_turn import InTurn

CONTENT = b"From: ann@sender.example\r\nSubject: hello\r\n\r\nBody.\r\n"
ACCEPTED = SmtpReply(250, "2.0.0", "taken")
LATER = SmtpReply(450, "4.2.0", "later")
NEVER = SmtpReply(550, "5.1.1", "no such user")
BUSY = SmtpReply(421, "4.3.2", "too busy")
FULL = SmtpReply(452, "4.2.2", "full")
"""Said to the end of the content."""

LOST = SmtpReply(451, "4.4.2", "the connection was lost", ours=True)
MINUTE = timedelta(minutes=1)
SCHEDULE: Final = RetrySchedule((RetryInterval(MINUTE), RetryInterval(5 * MINUTE)))


class Killed(BaseException):
    """The process of the server is gone: nothing that it does has any effect any more."""


@dataclass
class Life:
    """Of a server's process: it may end before or after any of its steps."""

    dies_at: int | None = None
    steps: int = 0
    dead: bool = False

    def step(self) -> None:
        self.steps += 1
        if self.dead or self.steps == self.dies_at:
            self.dead = True
            raise Killed


@dataclass
class TableHops:
    """Implements `delivery.mail.attempts.NextHops`: one server for each domain, unless the table has others."""

    table: dict[str, Sequence[NextHop] | SmtpReply] = field(default_factory=dict)

    async def of(self, domain: str) -> Sequence[NextHop]:
        found = self.table.get(domain, (NextHop(f"mx.{domain}", "192.0.2.1"),))
        if isinstance(found, SmtpReply):
            raise NoNextHop(domain, found)
        return found


@dataclass
class ScriptedRelay:
    """Implements `delivery.mail.attempts.MailRelay`.

    Attributes:
        scripts: what is said to a recipient, one after the other; the last is said for ever.
        silent: hosts that refuse connections.
        seconds: how long an attempt takes.
        attempts: all that began, each with the time.
        taken: recipients and contents of what was taken.
        most: the largest number of attempts at once, by recipients' domain.
        breaking: hosts that take the mail, and whose answer is lost.
        stalling: hosts that are silent behind the content.
    """

    clock: VirtualClock
    scripts: dict[str, list[SmtpReply]] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    seconds: float = 1.0
    attempts: list[tuple[float, DeliveryAttempt]] = field(default_factory=list)
    taken: list[tuple[str, bytes]] = field(default_factory=list)
    running: Counter[str] = field(default_factory=Counter)
    most: Counter[str] = field(default_factory=Counter)
    life: Life = field(default_factory=Life)
    breaking: set[str] = field(default_factory=set)
    stalling: set[str] = field(default_factory=set)

    async def deliver(
        self, attempt: DeliveryAttempt, content: bytes, before_content: BeforeContent = at_once
    ) -> Sequence[RecipientResult]:
        (entry,) = attempt.recipients
        recipient = entry.recipient
        domain = recipient.rpartition("@")[2]
        self.life.step()
        self.attempts.append((self.clock.monotonic(), attempt))
        self.running[domain] += 1
        self.most[domain] = max(self.most[domain], self.running[domain])
        try:
            await self.clock.pause(self.seconds)
        finally:
            self.running[domain] -= 1
        if attempt.hop.host in self.silent:
            refused = SmtpReply(421, "4.4.1", "connection refused", ours=True)
            return [RecipientResult(recipient, delivered=False, reply=refused, stage=AttemptStage.CONNECT)]
        script = self.scripts.get(recipient, [ACCEPTED])
        reply = script[0]
        stage = AttemptStage.DATA if reply.positive or reply is FULL else AttemptStage.RECIPIENT
        if stage is AttemptStage.DATA:
            await before_content()
            self.life.step()
            await self.clock.pause(1e6 if attempt.hop.host in self.stalling else 0.0)
        if not self.life.dead:
            script[:] = script[1:] or script
        if reply.positive and not self.life.dead:
            self.taken.append((recipient, content))
        self.life.step()
        if reply.positive and attempt.hop.host in self.breaking:
            return [RecipientResult(recipient, False, LOST, stage, attempt.hop.host, uncertain=True)]
        return [RecipientResult(recipient, reply.positive, reply, stage, attempt.hop.host)]

    async def close(self) -> None:
        """There are no connections."""

    @property
    def recipients(self) -> list[str]:
        return [attempt.recipients[0].recipient for _, attempt in self.attempts]

    @property
    def had(self) -> list[str]:
        return [recipient for recipient, _ in self.taken]

    def reports(self) -> list[tuple[str, str]]:
        """Of all notifications that were delivered: the recipient, and what became of it."""
        texts = [content for _, content in self.taken if b"multipart/report" in content]
        return [one for text in texts for one in reported(text)]


def reported(content: bytes) -> Iterable[tuple[str, str]]:
    status: Any = message_from_bytes(content).get_payload(1)
    for group in status.get_payload()[1:]:
        yield group["Final-Recipient"].partition("; ")[2], group["Action"]


class _Dequeued:
    """A mail in the hands of a process that may be killed."""

    def __init__(self, mail: MemoryDequeued, life: Life, failing: set[str]) -> None:
        self._mail, self._life, self._failing = mail, life, failing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._mail, name)

    async def ack(self) -> None:
        self._life.step()
        if "ack" in self._failing:
            self._failing.remove("ack")
            self._mail._queue.give_back(self._mail.enqueue_id)
            self._mail._stream.settled(self._mail.enqueue_id)
            raise CannotReach("the mark cannot be written")
        await self._mail.ack()
        self._life.step()


@dataclass
class MortalQueue:
    """A queue as one process has it.

    Attributes:
        failing: calls that fail once.
        refusing: what a call raises, one after the other.
    """

    queue: MemoryMailQueue
    life: Life
    failing: set[str] = field(default_factory=set)
    refusing: dict[str, list[Exception]] = field(default_factory=dict)

    @property
    def name(self) -> QueueName:
        return self.queue.name

    async def enqueue(self, mail: Mail, content: bytes, **when: Any) -> EnqueueId:
        self.life.step()
        if "enqueue" in self.failing:
            self.failing.remove("enqueue")
            raise CannotReach("the broker does not answer")
        if errors := self.refusing.get("enqueue"):
            raise errors.pop(0)
        enqueue_id = await self.queue.enqueue(mail, content, **when)
        self.life.step()
        return enqueue_id

    @property
    def keeps_backlogs(self) -> bool:
        return self.queue.keeps_backlogs

    @property
    def backlog_sizes(self) -> Mapping[SubQueueName, int]:
        return self.queue.backlog_sizes

    @asynccontextmanager
    async def dequeue(
        self, prefetch: int = 5, bytes_max: int | None = None, sub_queue_of: SubQueueOf | None = None
    ) -> AsyncIterator[AsyncIterator[_Dequeued]]:
        del sub_queue_of
        async with self.queue.dequeue(prefetch, bytes_max=bytes_max) as mails:
            yield self._each(mails)

    async def _each(self, mails: AsyncIterator[MemoryDequeued]) -> AsyncIterator[_Dequeued]:
        async for mail in mails:
            yield _Dequeued(mail, self.life, self.failing)


class MortalTables(InTurn):
    """Tables as one process has them.

    Attributes:
        silent: whether they do not answer.
    """

    def __init__(self, tables: MemoryTables, life: Life) -> None:
        super().__init__(tables)
        self.life = life
        self.silent = False

    async def read(self, read: Read) -> Sequence[Seen]:
        self._ask()
        return await super().read(read)

    async def write(self, write: Write) -> None:
        self.life.step()
        self._ask()
        await super().write(write)
        self.life.step()

    def _ask(self) -> None:
        if self.silent:
            raise CannotReach("the ledger does not answer")


@dataclass
class DeliverySite:
    """A queue, the servers around it, and servers of deliveries that come and go.

    Attributes:
        shares: whether servers read what people order.
        journals: whether they write their attempts down.
        shares_limits: whether servers share their limits.
        attempts: where they do.
        name: of the process of a server.
    """

    shares: bool = False
    journals: bool = False
    shares_limits: bool = False
    name: str = "server"
    clock: VirtualClock = field(default_factory=VirtualClock)
    hops: TableHops = field(default_factory=TableHops)
    failing: set[str] = field(default_factory=set)
    refusing: dict[str, list[Exception]] = field(default_factory=dict)
    queue: MemoryMailQueue = field(init=False)
    relay: ScriptedRelay = field(init=False)
    tables: MemoryTables = field(init=False)
    server: DeliveryServer = field(init=False)
    attempts: MortalTables = field(init=False)

    def __post_init__(self) -> None:
        self.tables = MemoryTables(self.clock.micros)
        self.queue = MemoryMailQueue(QueueName("outgoing"), self.clock)
        self.relay = ScriptedRelay(self.clock)
        self.attempts = MortalTables(self.tables, self.relay.life)

    @property
    def ledger(self) -> LedgerOrders:
        return LedgerOrders(InTurn(self.tables), "mail")

    def beside(self) -> "DeliverySite":
        """Another one at the same queue."""
        other = DeliverySite(self.shares, shares_limits=self.shares_limits, clock=self.clock, hops=self.hops)
        other.queue, other.tables = self.queue, self.tables
        return other

    async def put(self, *recipients: str, sender: str | None = "ann@sender.example", **fields: Any) -> EnqueueId:
        mail = Mail("m", recipients, sender=sender, last_updated=self.clock.now, **fields)
        return await self.queue.enqueue(mail, CONTENT)

    async def serve(
        self,
        seconds: float = 3600.0,
        policies: Sequence[CounterPolicy] = (),
        *,
        until: Callable[[], bool] = lambda: False,
        dies_at: int | None = None,
        hooks: DeliveryHooks | None = None,
        algorithm: RateAlgorithm = RateAlgorithm.TOKEN_BUCKET,
        beside: Coroutine[Any, Any, None] | None = None,
        **settings: Any,
    ) -> None:
        """A server works for that long, or until something holds, or until it is killed; due mails move meanwhile.

        `beside` is what somebody else does at the same time.
        """
        life = self.relay.life = self.attempts.life = Life(dies_at)
        known = {"reporter": "mail.sender.example", "schedules": {"": SCHEDULE}, **settings}
        self.server = server = DeliveryServer(
            name=self.name,
            queue=MortalQueue(self.queue, life, self.failing, self.refusing),  # type: ignore[arg-type]
            next_hops=self.hops,
            relay=self.relay,
            engine=PickupEngine(policies, algorithm, share=ServerShare() if self.shares_limits else None),
            clock=self.clock,
            settings=DeliverySettings(**known),
            hooks=hooks,
            ledger=self.ledger if self.shares else None,
            journal=LedgerAttempts(self.attempts, "mail") if self.journals else None,
            servers=self.ledger.servers if self.shares_limits else None,
        )
        stop, ends_at = asyncio.Event(), self.clock.monotonic() + seconds
        serving = asyncio.ensure_future(server.serve(stop))
        other = asyncio.ensure_future(beside or asyncio.sleep(0))
        while self.clock.monotonic() < ends_at and not life.dead and not until() and not serving.done():
            await self.clock.pause(min(10.0, ends_at - self.clock.monotonic()))
            await self.queue.move_due()
        stop.set()
        await serving
        await other

    async def recorded(self, mail: EnqueueId) -> Sequence[JournalledAttempt]:
        """What the journal has of a mail, by its first id."""
        return await LedgerAttempts(InTurn(self.tables), "mail").of(self.queue.name, mail)

    async def held(self) -> list[QueuedEntry]:
        """Recipients that wait for a person."""
        found = [one async for mail in self.queue.browse() for one in queued_entries(mail, self.clock.now)]
        return [one for one in found if one.state is EntryState.HOLD]

    async def mails(self) -> list[Mail]:
        return [one.queued.mail async for one in self.queue.browse()]

    async def waits(self) -> list[timedelta]:
        """How long each delayed mail waits yet."""
        return [one.due_at - self.clock.now async for one in self.queue.browse(DELAYED) if one.due_at]

"""Servers that share limits, step by step: a ledger in memory, a clock for each, and all that can go wrong between."""

from collections.abc import Coroutine, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from types import coroutine
from typing import Any, Final
from uuid import UUID

from mailmend.cql.memory import MemoryTables
from mailmend.delivery.ledger.servers import LedgerServers
from mailmend.delivery.policy.engine import Picked, PickupEngine
from mailmend.delivery.policy.policy import CounterPolicy, PickupField
from mailmend.delivery.policy.rates import RateAlgorithm
from mailmend.delivery.policy.shares import ServerName, ServerShare
from mailmend.delivery.policy.sub_queues import ActiveMail
from mailmend.delivery.shared.sharing import SharedLimits
from mailmend.model.errors import CannotReach, DoubtfulWrite, MailmendError
from mailmend.model.ids import QueueName
from mailmend.model.operations import Applied, Conditional, Read, Seen, Write
from tests.support.clock import START, uuid_at

OUTGOING: Final = QueueName("outgoing")


class Wire(Enum):
    """What becomes of requests to the ledger."""

    WELL = "well"
    CUT = "cut"
    ANSWERS_LOST = "answers lost"


@coroutine
def _others_go_on() -> Iterator[None]:
    yield


@dataclass
class Ledger:
    """Time, and the tables that all servers see; rows may expire some seconds before others say.

    Attributes:
        seconds: the true time.
        ahead: how far the nodes' clocks are ahead as they look at what has expired.
        started: how many processes were.
        ended: processes of which others of their host know that they are no more.
    """

    seconds: float = 0.0
    ahead: float = 0.0
    ended: set[str] = field(default_factory=set)
    started: int = 0
    tables: MemoryTables = field(init=False)

    def __post_init__(self) -> None:
        self.tables = MemoryTables(lambda: START + round((self.seconds + self.ahead) * 1_000_000))


@dataclass
class OwnClock:
    """One machine's clocks: none of them is right, and the one of the wall jumps."""

    ledger: Ledger
    faster: float = 0.0
    off: float = 0.0
    issued: int = 0

    def micros(self) -> int:
        return START + round((self.ledger.seconds + self.off) * 1_000_000)

    def monotonic(self) -> float:
        return 1000 + self.ledger.seconds * (1 + self.faster)

    def random_uuid(self) -> UUID:
        self.issued += 1
        return uuid_at(START + round(self.ledger.seconds * 1_000_000), id(self) % 5000 + 5000 * self.issued)


@dataclass
class WiredTables:
    """Implements `model.ports.AsyncTables`, as far as servers use it; others go on before and after each request."""

    ledger: Ledger
    wire: Wire = Wire.WELL

    async def read(self, read: Read) -> Sequence[Seen]:
        seen: Sequence[Seen] = await self._through(lambda: self.ledger.tables.read(read), CannotReach)
        return seen

    async def attempt(self, write: Conditional) -> Applied:
        applied: Applied = await self._through(lambda: self.ledger.tables.attempt(write), DoubtfulWrite)
        return applied

    async def write_all(self, writes: Sequence[Write]) -> list[MailmendError | None]:
        try:
            answers: list[MailmendError | None] = await self._through(
                lambda: self.ledger.tables.write_all(writes), CannotReach
            )
        except CannotReach as error:
            return [error for _ in writes]
        return answers

    async def _through(self, carry_out: Any, lost: type[MailmendError]) -> Any:
        await _others_go_on()
        if self.wire is Wire.CUT:
            raise lost("nobody answers")
        answer = carry_out()
        await _others_go_on()
        if self.wire is not Wire.WELL:
            raise lost("the answer is lost")
        return answer


@dataclass(eq=False)
class SharingServer:
    """A process that shares limits; whatever it delivers is told to `begun`.

    Attributes:
        host: where those that come later know whether it has ended; empty: nobody does.
    """

    ledger: Ledger
    name: str
    policies: Sequence[CounterPolicy]
    algorithm: RateAlgorithm
    faster: float = 0.0
    insists: bool = False
    off: float = 0.0
    host: str = ""
    clock: OwnClock = field(init=False)
    tables: WiredTables = field(init=False)
    engine: PickupEngine = field(init=False)
    limits: SharedLimits = field(init=False)
    under_way: list[Picked] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    _turn: Coroutine[Any, Any, bool] | None = None
    _saves: bool = True
    _mails: int = 0

    def __post_init__(self) -> None:
        self.clock, self.tables = OwnClock(self.ledger, self.faster, self.off), WiredTables(self.ledger)
        self.ledger.started += 1
        self.engine = PickupEngine(self.policies, self.algorithm, share=ServerShare())
        self.limits = SharedLimits(
            queue=OUTGOING,
            ledger=LedgerServers(self.tables, "mail"),  # type: ignore[arg-type]
            engine=self.engine,
            clock=self.clock,  # type: ignore[arg-type]
            name=ServerName(self.name),
            insists=self.insists,
            owner=self.name,
            wake=lambda: None,
            break_off=self.end_all,
            process=f"{self.host} {self.ledger.started}",
            has_ended=lambda one: bool(self.host) and one.startswith(f"{self.host} ") and one in self.ledger.ended,
        )

    @property
    def now(self) -> int:
        return round(self.clock.monotonic() * 1_000_000) * 1000

    def step(self) -> bool:
        """Go on until the next request has left, or has an answer; whether turn and saving are over."""
        if self._turn is None:
            self._saves = not self._saves
            self._turn = self.limits.rates.save() if self._saves else self.limits.turn()
        try:
            self._turn.send(None)
        except (StopIteration, MailmendError):
            self._turn = None
        return self._turn is None and self._saves

    def save(self) -> None:
        """Save what began, unless a turn is under way: others go on before and after each request."""
        if self._turn is None:
            self._saves = False
            while not self.step():
                pass

    def turn(self) -> None:
        while not self.step():
            pass

    def begin(self, domain: str, most: int = 100_000) -> list[Picked]:
        """Begin whatever may begin, at most so many, with one mail for that domain there; those that have begun."""
        if domain not in self.waiting:
            self._mails += 1
            self.engine.add(ActiveMail(str(self._mails), {PickupField.RECIPIENT_DOMAIN: domain}))
            self.waiting.append(domain)
        begun = list[Picked]()
        while len(begun) < most and (picked := self.engine.pick(self.now)):
            self.waiting.remove(picked.mail.values[PickupField.RECIPIENT_DOMAIN])
            begun.append(picked)
        self.under_way += begun
        return begun

    def end_one(self) -> None:
        self.engine.end(self.under_way.pop(0), self.now)

    def end_all(self) -> None:
        while self.under_way:
            self.end_one()

    def kill(self) -> None:
        self.under_way.clear()
        self._abandon()
        self.ledger.ended.add(self.limits.process)

    def stop(self) -> None:
        """In an orderly way, as far as the ledger answers."""
        self._abandon()
        self.end_all()
        ending = self.limits.end()
        with suppress(StopIteration):
            while True:
                ending.send(None)

    def _abandon(self) -> None:
        if self._turn is not None:
            self._turn.close()
            self._turn = None

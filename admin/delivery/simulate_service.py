"""`mailmend policy simulate`: the recorded attempts of a queue again, under another policy file."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mailmend.admin.delivery.connections import at_ledger, attempt_record, policy_file
from mailmend.admin.delivery.policy_service import limits_path, policy_path, suspension_path
from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import EngineWanted, chosen_engine, open_cluster
from mailmend.admin.queue.request import QueueRequest
from mailmend.delivery.ledger.recorded_attempts import AttemptsWanted
from mailmend.delivery.policy.policy import PickupField, Threshold
from mailmend.delivery.policy.recorded import tells_sources, with_concurrency
from mailmend.delivery.policy.replay_sums import AttemptRecord, DelayedValue, PolicyUse, ReplaySums, most_delayed
from mailmend.delivery.policy.replaying import CounterUse, LimitKind, most_refusing
from mailmend.model.catalog.ledger import DELIVERY_ATTEMPT
from mailmend.model.errors import WrongUse
from mailmend.model.instants import instant_of
from mailmend.model.operations import Level
from mailmend.model.texts import Place
from mailmend.repair.mending.limits import Pace

if TYPE_CHECKING:
    from mailmend.delivery.policy.file.reading import PolicyFile

TOP: Final = 10
"""How many counters, and values of each field, are named unless it is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateRequest(QueueRequest):
    """Which attempts are replayed, under what.

    Attributes:
        since, until: when they were ready: an instant, or how long ago; None: as far as there are any.
        against: another file, mostly the present one, that the same attempts are replayed under too.
        concurrency: deliveries at once, of all servers together; None: no limit but those of the file.
        top: how many counters, and values of each field, are named.
        engine: "auto", "spark" or "local".
    """

    file: Path
    since: datetime | timedelta | None = None
    until: datetime | timedelta | None = None
    against: Path | None = None
    concurrency: int | None = None
    top: int = TOP
    engine: str = "auto"
    master: str | None = None
    spark_conf: tuple[tuple[str, str], ...] = ()
    rows_per_second: int | None = None
    level: Level = Level.LOCAL_QUORUM

    def wanted(self, now: datetime) -> AttemptsWanted:
        since, until = (now - end if isinstance(end, timedelta) else end for end in (self.since, self.until))
        if since and until and since >= until:
            raise WrongUse("--since is not before --until", mend="The later of the two is --until.")
        return AttemptsWanted(self.settings.connection.keyspace, self.queue, since, until)


@dataclass(frozen=True, slots=True)
class LimitUse:
    """What a counter, or a suspension, did to the attempts.

    Attributes:
        policy: its number, from 0; None: it is `--concurrency`, or a suspension.
        suspension: its number, from 0; None: it is a counter.
        counted: the values and groups under which it counts, by field.
        threshold: its limits; None: it is a suspension.
        kind: the limit that refused most often; None: none refused.
        place: of that limit, or of what sets the limits; None: it is `--concurrency`.
    """

    use: CounterUse
    policy: int | None
    suspension: int | None
    counted: Mapping[PickupField, str]
    threshold: Threshold | None
    kind: LimitKind | None
    place: Place | None


@dataclass(frozen=True, slots=True)
class SimulatedFile:
    """What becomes of the attempts under one file.

    Attributes:
        policies: of all counters of a policy, by its place; of `--concurrency` None.
        limits: the counters that held back most, and the suspensions that held back any.
        delayed: by field and value, those that were delayed most.
        by_source: whether anything in the file tells source addresses apart.
    """

    file: Path
    sums: ReplaySums
    policies: Sequence[tuple[Place | None, PolicyUse]]
    limits: Sequence[LimitUse]
    delayed: Mapping[tuple[PickupField, str], DelayedValue]
    by_source: bool


@dataclass(frozen=True, slots=True)
class Simulation:
    """What would become of recorded attempts.

    Attributes:
        engine: "spark" or "local".
        incomplete: rows that lack when they were ready or began; they are left out.
        lasting: what those last of which no end is known, in milliseconds.
        files: the file that was asked about, then the one that it is compared with; none where nothing is recorded.
    """

    request: SimulateRequest
    wanted: AttemptsWanted
    engine: str
    attempts: int
    incomplete: int
    lasting: int | None
    files: Sequence[SimulatedFile]


def simulate(request: SimulateRequest, caller: Caller) -> Simulation:
    """Replay the recorded attempts of a queue under a policy file; nothing is written.

    Raises:
        WrongUse: a file cannot be read, there are too many attempts for one process, or none has an end.
        BadPolicyFile: the server would not take a file; the message says where.
        CannotReach: the ledger cannot be read.
    """
    files = [(path, policy_file(path)) for path in (request.file, request.against) if path]
    with open_cluster(request.settings.connection) as opened:
        wanted = request.wanted(instant_of(opened.clock.micros()))
        asked = EngineWanted(request.engine, request.master, dict(request.spark_conf))
        ledger = at_ledger(opened)
        engine = chosen_engine(ledger, asked, caller.remark, DELIVERY_ATTEMPT)
        pace = Pace(request.rows_per_second, opened.clock)
        record = attempt_record(ledger, asked.chosen(engine), wanted, request.level, pace, progress=caller.progress)
        try:
            attempts = record.attempts
            lasting = record.lasting
            if attempts and lasting is None:
                mend = "Replay more of the record: --since and --until say how much."
                raise WrongUse(f"none of {attempts:,} attempts has an end: how long they last is unknown", mend=mend)
            found = [_simulated(file, read, record, request) for file, read in files] if attempts else []
            return Simulation(request, wanted, engine.name, attempts, record.incomplete, lasting, found)
        finally:
            record.close()


def _simulated(file: Path, read: "PolicyFile", record: AttemptRecord, request: SimulateRequest) -> SimulatedFile:
    said = read.said
    top = request.top
    sums = record.replay(with_concurrency(said, request.concurrency), top)
    before = 0 if request.concurrency is None else 1
    numbers = {number: sums.policies.get(number + before, PolicyUse()) for number in range(-before, len(said.policies))}
    places = [(read.place_of(policy_path(number)) if number >= 0 else None, use) for number, use in numbers.items()]
    limits = list(_limits(read, most_refusing(sums.uses, top), before, request.concurrency))
    return SimulatedFile(file, sums, places, limits, most_delayed(sums.values, top), tells_sources(said))


def _limits(read: "PolicyFile", uses: Sequence[CounterUse], before: int, concurrency: int | None) -> Iterator[LimitUse]:
    numbers = {declared.id: number for number, declared in enumerate(read.said.suspensions)}
    for use in uses:
        number, key = use.place
        kind = max(LimitKind, key=lambda one: use.refusals[one]) if use.refusals else None
        if number < 0:
            suspension = numbers[key[0]]
            yield LimitUse(use, None, suspension, {}, None, None, read.place_of(suspension_path(suspension)))
        elif number < before:
            yield LimitUse(use, None, None, {}, Threshold(concurrency), kind, None)
        else:
            policy = read.said.policies[number - before]
            counted = dict(zip(policy.fields, key, strict=True))
            condition = policy.condition(key)
            path = limits_path(read.said, number - before, condition) or policy_path(number - before)
            if kind:
                path = (*path, *(("then",) if condition is not None else ()), kind.value)
            threshold = policy.threshold(key)
            yield LimitUse(use, number - before, None, counted, threshold, kind, read.place_of(path))

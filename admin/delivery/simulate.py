"""`mailmend policy simulate`: the recorded attempts of a queue again, under another policy file."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from mailmend.admin.delivery.connections import at_ledger, attempt_record, policy_file
from mailmend.admin.delivery.policy_texts import (
    limits_path,
    policy_path,
    suspension_path,
)
from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import chosen_engine, open_cluster
from mailmend.admin.frame.command import Command, Values
from mailmend.admin.frame.kinds import ParsedValue
from mailmend.admin.frame.options import FILE, option
from mailmend.admin.frame.scan_options import ScanOptions
from mailmend.admin.messages.options import SCANNING_ALL, scanning_of
from mailmend.admin.queue.options import QUEUE_ARGUMENT, queue_settings
from mailmend.admin.queue.request import QueueRequest
from mailmend.delivery.ledger.attempts import AttemptsWanted
from mailmend.delivery.policy.policy import PickupField, Threshold
from mailmend.delivery.policy.replay_sums import (
    AttemptRecord,
    DelayedValue,
    PolicyUse,
    ReplaySums,
    most_delayed,
)
from mailmend.delivery.policy.replaying import (
    CounterUse,
    LimitKind,
    most_refusing,
    tells_sources,
    with_concurrency,
)
from mailmend.model.catalog.ledger import DELIVERY_ATTEMPT
from mailmend.model.durations import parse_duration
from mailmend.model.errors import WrongUse
from mailmend.model.instants import instant_of
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
        concurrency: deliveries at once, of all servers together; None: only the limits of the file.
        top: how many counters, and values of each field, are named.
    """

    file: Path
    since: datetime | timedelta | None = None
    until: datetime | timedelta | None = None
    against: Path | None = None
    concurrency: int | None = None
    top: int = TOP
    scanning: ScanOptions = field(default_factory=ScanOptions)

    def wanted(self, now: datetime) -> AttemptsWanted:
        since = _instant_before(now, self.since)
        until = _instant_before(now, self.until)
        if since and until and since >= until:
            raise WrongUse("--since is not before --until", mend="The later of the two is --until.")
        return AttemptsWanted(self.settings.connection.keyspace, self.queue, since, until)


def _instant_before(now: datetime, end: datetime | timedelta | None) -> datetime | None:
    """The instant itself, or that long before now."""
    if isinstance(end, timedelta):
        return now - end
    return end


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
    files = [(request.file, policy_file(request.file))]
    if request.against:
        files.append((request.against, policy_file(request.against)))
    with open_cluster(request.settings.connection) as opened:
        wanted = request.wanted(instant_of(opened.clock.micros()))
        ledger = at_ledger(opened)
        scan = request.scanning
        engine = chosen_engine(ledger, scan, caller.remark, (DELIVERY_ATTEMPT,))
        pace = Pace(scan.rows_per_second, opened.clock)
        record = attempt_record(ledger, engine, wanted, scan.level, pace, progress=caller.progress)
        try:
            attempts = record.attempts
            lasting = record.lasting
            if attempts and lasting is None:
                mend = "Replay more of the record: --since and --until say how much."
                raise WrongUse(f"none of {attempts:,} attempts has an end: how long they last is unknown", mend=mend)
            found = list[SimulatedFile]()
            if attempts:
                found = [_simulated(file, read, record, request) for file, read in files]
            return Simulation(request, wanted, engine.name, attempts, record.incomplete, lasting, found)
        finally:
            record.close()


def _simulated(file: Path, read: "PolicyFile", record: AttemptRecord, request: SimulateRequest) -> SimulatedFile:
    said = read.said
    top = request.top
    sums = record.replay(with_concurrency(said, request.concurrency), top)
    places = list[tuple[Place | None, PolicyUse]]()
    before = 0
    if request.concurrency is not None:
        # The replay counts `--concurrency` as a policy before those of the file.
        before = 1
        places.append((None, sums.policies.get(0, PolicyUse())))
    for number in range(len(said.policies)):
        use = sums.policies.get(number + before, PolicyUse())
        places.append((read.place_of(policy_path(number)), use))
    limits = list(_limits(read, most_refusing(sums.uses, top), before, request.concurrency))
    return SimulatedFile(file, sums, places, limits, most_delayed(sums.values, top), tells_sources(said))


def _limits(read: "PolicyFile", uses: Sequence[CounterUse], before: int, concurrency: int | None) -> Iterator[LimitUse]:
    numbers = {declared.id: number for number, declared in enumerate(read.said.suspensions)}
    for use in uses:
        number, key = use.place
        kind = None
        if use.refusals:
            kind = max(LimitKind, key=use.refusals.__getitem__)
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
                if condition is not None:
                    path = (*path, "then")
                path = (*path, kind.value)
            threshold = policy.threshold(key)
            yield LimitUse(use, number - before, None, counted, threshold, kind, read.place_of(path))


_BACK_MAX: Final = timedelta(days=3650)
_TOP_MAX: Final = 1_000


def _time(value: Any) -> datetime | timedelta:
    """An instant, or how long ago."""
    try:
        at = datetime.fromisoformat(str(value))
    except ValueError:
        try:
            return parse_duration(str(value), maximum=_BACK_MAX)
        except WrongUse as error:
            mend = "Write it like 2026-05-01T08:00:00Z, or like 2h, which is so long ago."
            raise WrongUse(f"{value!r} is neither a time nor a duration", mend=mend) from error
    if at.tzinfo is None:
        return at.replace(tzinfo=UTC)
    return at


_TIME: Final = ParsedValue("time", _time)


def _refuse_unnamed(others: Values, context: click.Context) -> None:
    if not others["queue_named"] and context.get_parameter_source("queue") is ParameterSource.DEFAULT:
        mend = "Name it: mailmend policy simulate policies.yaml outgoing"
        raise WrongUse("it is not said whose attempts are replayed", mend=mend)


_SCANNING: Final = tuple(declared for declared in SCANNING_ALL if declared.name != "pace")

SIMULATE: Final = Command(
    name="simulate",
    summary="Say what a policy file would have done to the recorded attempts of a queue.",
    about="""The attempts that `delivery serve` has recorded in the ledger are replayed under the file, by the engine
    that picks mails there: when the last one would begin and end, how many would have waited longer than they did,
    which limits would have held them back, and whose mails. With --against the same is done with another file, mostly
    the present one. Nothing is written.

    What is assumed: each attempt is ready when it was, and lasts as long as it did; an attempt without a known end
    lasts as long as the median. What is refused elsewhere has no further retries: only the recorded retries count.
    All servers of the queue are one, and nothing is under way at the beginning. What no policy limits, like `delivery
    serve --concurrency`, is left out unless it is said with --concurrency: of all servers together. What was
    suspended or set by command is left out too.

    Where every policy counts by tenantid, Spark replays each tenant apart, on as many cores as there are; else one core
    replays all of them. This needs mailmend[delivery].""",
    service="mailmend.admin.delivery.simulate:simulate",
    present="mailmend.admin.delivery.simulation_document:simulation_document",
    paged=True,
    options=(
        click.Argument(["file"], type=FILE, metavar="FILE"),
        QUEUE_ARGUMENT,
        option(
            "--since",
            "How far to look back: only attempts that were ready then or later; 2h ago, or an instant like "
            "2026-05-01T08:00:00Z. [default: all that are kept]",
            type=_TIME,
            metavar="TIME",
        ),
        option(
            "--until",
            "Only attempts that were ready before: as with --since. [default: now]",
            type=_TIME,
            metavar="TIME",
        ),
        option(
            "--against",
            "Replay the same attempts under this file too, and show both.",
            type=FILE,
            metavar="FILE",
        ),
        option(
            "--concurrency",
            "Attempts to deliver at once: of all servers of the queue together. [default: what the policies allow]",
            type=click.IntRange(min=1),
            metavar="N",
        ),
        option(
            "--top",
            "How many limits, and values of each field, are named.",
            type=click.IntRange(1, _TOP_MAX),
            default=TOP,
            metavar="N",
        ),
        *_SCANNING,
    ),
    shared=(queue_settings(check=_refuse_unnamed), scanning_of(_SCANNING)),
    examples="""
        mailmend policy simulate policies.yaml outgoing --against now.yaml --since 24h
        mailmend policy simulate policies.yaml outgoing --since 2026-05-01T08:00:00Z --until 2026-05-01T12:00:00Z
        mailmend policy simulate policies.yaml outgoing --concurrency 200 --engine local --json""",
    exits="0 it was simulated, or nothing is recorded; 2 wrong use, or the server would refuse a file; 4 the cluster "
    "cannot be reached.",
)

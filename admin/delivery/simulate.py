"""`mailmend policy simulate`: the recorded attempts of a queue again, under another policy file."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from mailmend.admin.delivery.connections import at_ledger, attempt_record, policy_file
from mailmend.admin.delivery.limits import threshold_texts
from mailmend.admin.delivery.policy_paths import limits_path, policy_path, suspension_path
from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import chosen_engine, open_cluster
from mailmend.admin.frame.command import Command, Values
from mailmend.admin.frame.document import Document, Grid, GridCell, Part
from mailmend.admin.frame.kinds import ParsedValue
from mailmend.admin.frame.options import FILE, option
from mailmend.admin.frame.scan_options import ScanOptions
from mailmend.admin.frame.values import fields_json, instant_text, plain, printable, shown
from mailmend.admin.messages.options import SCANNING_ALL, scanning_of
from mailmend.admin.queue.options import QUEUE_ARGUMENT, queue_settings
from mailmend.admin.queue.request import QueueRequest
from mailmend.delivery.ledger.recorded_attempts import AttemptsWanted
from mailmend.delivery.policy.file.description import THRESHOLD
from mailmend.delivery.policy.policy import PickupField, Threshold
from mailmend.delivery.policy.rates import SECOND
from mailmend.delivery.policy.recorded import MILLI, tells_sources, with_concurrency
from mailmend.delivery.policy.replay_sums import (
    AttemptRecord,
    DelayedValue,
    PolicyUse,
    ReplaySums,
    WaitSums,
    most_delayed,
)
from mailmend.delivery.policy.replaying import CounterUse, LimitKind, most_refusing
from mailmend.mailqueue.rules.health import days
from mailmend.model.catalog.ledger import DELIVERY_ATTEMPT
from mailmend.model.durations import parse_duration
from mailmend.model.errors import ExitCode, WrongUse
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
        ledger = at_ledger(opened)
        scan = request.scanning
        engine = chosen_engine(ledger, scan, caller.remark, DELIVERY_ATTEMPT)
        pace = Pace(scan.rows_per_second, opened.clock)
        record = attempt_record(ledger, engine, wanted, scan.level, pace, progress=caller.progress)
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


_PERCENTS: Final = (50, 95, 99)
_MILLIS: Final = 1_000
_OF_LIMITS: Final = ("place", "policy", "counted as", "limit", "held", "never", "refused for", "most at once")
_OF_VALUES: Final = ("field", "value", "attempts", "later", "never", "later on average", "at most")
_KEYS_WRAPPED: Final = frozenset({"counted as", "value"})

_ASSUMED: Final = (
    "Assumed: each attempt is ready when it was, lasts as long as it did, and has no further retries; all servers "
    "are one; nothing is under way when it begins."
)


def simulation_document(result: Simulation) -> Document:
    request = result.request
    wanted = result.wanted
    json = {
        "keyspace": wanted.keyspace,
        "queue": request.queue,
        "since": plain(wanted.since),
        "until": plain(wanted.until),
        "concurrency": request.concurrency,
        **fields_json(result, "engine", "attempts", "incomplete"),
        "without_end": result.files[0].sums.without_end if result.files else 0,
        "median_seconds": _seconds(result.lasting),
        "recorded": _recorded_json(result.files[0]) if result.files else None,
        "simulated": _file_json(result.files[0]) if result.files else None,
        "against": _file_json(result.files[1]) if result.files[1:] else None,
        "exit": int(ExitCode.FINE),
    }
    if not result.files:
        hint = "Servers of this queue record them: mailmend delivery serve"
        return Document(json, (f"No attempts are recorded of {request.queue} in that time.",), remarks=(hint,))
    tables = (part for file in result.files for part in _file_parts(file))
    return Document(json, (_headline(result), _compared(result), *tables), remarks=tuple(_remarks(result)))


def _headline(result: Simulation) -> str:
    sums = result.files[0].sums
    span = f"{_instant(sums.first_ready)} to {_instant(sums.recorded.last_ended)}"
    return f"{result.request.queue}: {result.attempts:,} attempts, {span} (UTC)."


def _remarks(result: Simulation) -> Iterator[str]:
    yield _ASSUMED
    if without := result.files[0].sums.without_end:
        yield f"Of {without:,} attempts no end is known: they are taken to last {_span(result.lasting)}, the median."
    if result.incomplete:
        yield f"{result.incomplete:,} rows lack when they were ready or began, and are left out."


def _compared(result: Simulation) -> Grid:
    """What was recorded, and each file, side by side."""
    first = result.files[0].sums
    sides = [(first.recorded, None), *((file.sums.simulated, file.sums.total) for file in result.files)]
    rows: list[Sequence[GridCell]] = [
        ("drain time", *(_span(_drain(sums, first.first_ready)) for sums, _ in sides)),
        ("attempts a second", *(_rate_text(sums, first.first_ready) for sums, _ in sides)),
        ("last one begins", *(_instant(sums.last_begun) for sums, _ in sides)),
        ("last one ends", *(_instant(sums.last_ended) for sums, _ in sides)),
        *(
            (f"{percent} of 100 waited at most", *(_span(sums.percentile(percent)) for sums, _ in sides))
            for percent in _PERCENTS
        ),
        ("longest wait", *(_span(sums.longest) for sums, _ in sides)),
        ("later than recorded", *("" if value is None else f"{value.delayed:,}" for _, value in sides)),
        ("later, all together", *("" if value is None else _span(value.later) for _, value in sides)),
        ("never begin", *("" if value is None else f"{value.never:,}" for _, value in sides)),
    ]
    names = [printable(str(file.file)) for file in result.files]
    if len(set(names)) < len(names):
        names = [f"{name}, {number}" for number, name in enumerate(names, 1)]
    return Grid("All attempts", ("", "recorded", *names), rows)


def _file_parts(one: SimulatedFile) -> Iterator[Part]:
    name = printable(str(one.file))
    limits = [_limit_row(limit) for limit in one.limits]
    if limits:
        yield Grid(f"Limits of {name}, those that hold most first", _OF_LIMITS, limits, _KEYS_WRAPPED)
    else:
        yield f"No limit of {name} is there for any of them."
    delayed = [_delayed_row(field, value, found) for (field, value), found in one.delayed.items()]
    if delayed:
        yield Grid(f"Delayed most by {name}", _OF_VALUES, delayed, _KEYS_WRAPPED)
    if one.by_source and one.sums.sources:
        total = sum(one.sums.sources.values())
        shares = sorted(one.sums.sources.items(), key=lambda pair: (-pair[1], pair[0]))
        sent = [
            (printable(source) or "(any)", f"{count:,}", f"{100 * count / total:.1f} %") for source, count in shares
        ]
        yield Grid(f"Sent from, by {name}", ("address", "attempts", "share"), sent)


def _limit_row(limit: LimitUse) -> Sequence[GridCell]:
    use = limit.use
    named = ", ".join(f"{field.value} {text or '(empty)'}" for field, text in limit.counted.items())
    return (
        f"{limit.place.line}:{limit.place.column}" if limit.place else "--concurrency",
        "" if limit.policy is None else str(limit.policy + 1),
        printable(named) or ("mails that it names" if limit.threshold is None else "every mail"),
        _limit_text(limit),
        f"{use.held:,}",
        f"{use.never:,}",
        "" if limit.threshold is None else _span(use.refused_for // MILLI),
        "" if limit.threshold is None else f"{use.most:,}",
    )


def _limit_text(limit: LimitUse) -> str:
    """The limit that refused most; where none did, all that are there."""
    if limit.threshold is None:
        return "suspended"
    texts = threshold_texts(limit.threshold)
    return f"{limit.kind.value} {texts[limit.kind]}" if limit.kind else _all_limits(texts)


def _all_limits(texts: dict[LimitKind, str]) -> str:
    return ", ".join(f"{kind.value} {text}" for kind, text in texts.items())


def _delayed_row(field: PickupField, value: str, found: DelayedValue) -> Sequence[GridCell]:
    late = found.delayed - found.never
    numbers = (f"{number:,}" for number in (found.attempts, late, found.never))
    average = _span(found.later // late) if late else ""
    return (field.value, printable(value), *numbers, average, _span(found.latest) if late else "")


def _drain(one: WaitSums, first_ready: int | None) -> int | None:
    return None if one.last_ended is None or first_ready is None else one.last_ended - first_ready


def _rate(one: WaitSums, first_ready: int | None) -> float | None:
    drain = _drain(one, first_ready)
    return round(one.begun * _MILLIS / drain, 3) if drain else None


def _rate_text(one: WaitSums, first_ready: int | None) -> str:
    rate = _rate(one, first_ready)
    return "" if rate is None else f"{rate:,.1f}"


def _span(millis: int | None) -> str:
    if millis is None:
        return ""
    if millis < _MILLIS:
        return f"{millis} ms" if millis else "0 s"
    span = timedelta(milliseconds=millis)
    return days(span) if span >= timedelta(minutes=1) else f"{millis / _MILLIS:.1f} s"


def _instant(millis: int | None) -> str:
    return "" if millis is None else shown(instant_of(millis * 1_000))


def _seconds(millis: int | None) -> float | None:
    return None if millis is None else millis / _MILLIS


def _instant_json(millis: int | None) -> str | None:
    return None if millis is None else instant_text(instant_of(millis * 1_000))


def _waits_json(one: WaitSums, first_ready: int | None) -> dict[str, Any]:
    return {
        "begun": one.begun,
        "drain_seconds": _seconds(_drain(one, first_ready)),
        "attempts_per_second": _rate(one, first_ready),
        "last_begun_at": _instant_json(one.last_begun),
        "last_ended_at": _instant_json(one.last_ended),
        "wait_seconds": {
            **{f"p{percent}": _seconds(one.percentile(percent)) for percent in _PERCENTS},
            "max": _seconds(one.longest),
        },
    }


def _recorded_json(one: SimulatedFile) -> dict[str, Any]:
    first = one.sums.first_ready
    return {"first_ready_at": _instant_json(first), **_waits_json(one.sums.recorded, first)}


def _file_json(one: SimulatedFile) -> dict[str, Any]:
    sums = one.sums
    return {
        "file": str(one.file),
        **_waits_json(sums.simulated, sums.first_ready),
        "delayed": _delayed_json(sums.total),
        "policies": [_policy_json(place, use) for place, use in one.policies],
        "limits": [_limit_json(limit) for limit in one.limits],
        "most_delayed": [
            {"field": field.value, "value": value, **_delayed_json(found)}
            for (field, value), found in one.delayed.items()
        ],
        "sources": dict(sorted(sums.sources.items())) if one.by_source else None,
    }


def _delayed_json(found: DelayedValue) -> dict[str, Any]:
    return {
        "attempts": found.attempts,
        "later": found.delayed - found.never,
        "never": found.never,
        "later_seconds": _seconds(found.later),
        "later_seconds_max": _seconds(found.latest),
    }


def _place_json(place: Place | None) -> dict[str, int] | None:
    return fields_json(place, "line", "column") if place else None


def _policy_json(place: Place | None, use: PolicyUse) -> dict[str, Any]:
    return {
        "place": _place_json(place),
        "counters": use.counters,
        "refusing": use.refusing,
        "refusals": {kind.value: count for kind in LimitKind if (count := use.refusals[kind])},
        "held": use.held,
        "most_at_once": use.most,
    }


def _limit_json(limit: LimitUse) -> dict[str, Any]:
    use = limit.use
    suspends = limit.suspension is not None
    limits = THRESHOLD.json(limit.threshold or Threshold())
    del limits["stop"]
    del limits["cluster"]
    return {
        "place": _place_json(limit.place),
        "policy": None if limit.policy is None else limit.policy + 1,
        "suspension": None if limit.suspension is None else limit.suspension + 1,
        "key": {field.value: text for field, text in limit.counted.items()},
        **limits,
        "refused_by": limit.kind.value if limit.kind else None,
        "refusals": None if suspends else use.refusals.total(),
        "held": use.held,
        "never": use.never,
        "refused_seconds": None if suspends else round(use.refused_for / SECOND, 3),
        "most_at_once": None if suspends else use.most,
    }


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
    return at if at.tzinfo else at.replace(tzinfo=UTC)


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
    present="mailmend.admin.delivery.simulate:simulation_document",
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

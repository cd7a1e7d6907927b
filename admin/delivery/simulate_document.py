"""What `mailmend policy simulate` shows."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, Final

from mailmend.admin.delivery.conditions import threshold_json
from mailmend.admin.delivery.simulate_service import LimitUse, SimulatedFile, Simulation
from mailmend.admin.frame.document import Document, Grid, GridCell, Part
from mailmend.admin.frame.values import fields_json, instant_text, plain, printable, shown
from mailmend.delivery.policy.policy import PickupField, Threshold
from mailmend.delivery.policy.rates import SECOND
from mailmend.delivery.policy.recorded import MILLI
from mailmend.delivery.policy.replay_sums import DelayedValue, PolicyUse, WaitSums
from mailmend.delivery.policy.replaying import LimitKind
from mailmend.mailqueue.rules.health import days
from mailmend.model.errors import ExitCode
from mailmend.model.instants import instant_of
from mailmend.model.texts import Place

_PERCENTS: Final = (50, 95, 99)
_MILLIS: Final = 1_000
_OF_LIMITS: Final = ("place", "policy", "counted as", "limit", "held", "never", "refused for", "most at once")
_OF_VALUES: Final = ("field", "value", "attempts", "later", "never", "later on average", "at most")
_KEYS_WRAPPED: Final = frozenset({"counted as", "value"})

_ASSUMED: Final = (
    "Assumed: each attempt is ready when it was, lasts as long as it did, and is not tried again besides; all servers "
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
    texts = _threshold_texts(limit.threshold)
    return f"{limit.kind.value} {texts[limit.kind]}" if limit.kind else _all_limits(texts)


def _all_limits(texts: dict[LimitKind, str]) -> str:
    return ", ".join(f"{kind.value} {text}" for kind, text in texts.items())


def _threshold_texts(threshold: Threshold) -> dict[LimitKind, str]:
    found = dict[LimitKind, str]()
    if threshold.concurrency is not None:
        found[LimitKind.CONCURRENCY] = f"{threshold.concurrency:,}"
    if rate := threshold.rate:
        found[LimitKind.RATE] = f"{rate.count}/{rate.interval / SECOND:.9g}"
    if gap := threshold.connect_interval:
        found[LimitKind.CONNECT_INTERVAL] = f"{gap / SECOND:.9g}"
    return found


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
    return {
        "place": _place_json(limit.place),
        "policy": None if limit.policy is None else limit.policy + 1,
        "suspension": None if limit.suspension is None else limit.suspension + 1,
        "key": {field.value: text for field, text in limit.counted.items()},
        **threshold_json(limit.threshold or Threshold()),
        "refused_by": limit.kind.value if limit.kind else None,
        "refusals": None if suspends else use.refusals.total(),
        "held": use.held,
        "never": use.never,
        "refused_seconds": None if suspends else round(use.refused_for / SECOND, 3),
        "most_at_once": None if suspends else use.most,
    }

"""What `mailmend policy simulate` found, as people and programs read it."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, Final

from mailmend.admin.delivery.answers import from_one
from mailmend.admin.delivery.policy_texts import counted_text, threshold_texts
from mailmend.admin.delivery.simulate import LimitUse, SimulatedFile, Simulation
from mailmend.admin.frame.document import Document, Grid, GridCell, Part
from mailmend.admin.frame.values import fields_json, instant_text, plain, printable, shown
from mailmend.delivery.policy.file.description import THRESHOLD
from mailmend.delivery.policy.policy import PickupField, Threshold
from mailmend.delivery.policy.rates import SECOND
from mailmend.delivery.policy.replay_sums import DelayedValue, PolicyUse, WaitSums
from mailmend.delivery.policy.replaying import MILLI, LimitKind
from mailmend.mailqueue.rules.health import days
from mailmend.model.errors import ExitCode
from mailmend.model.instants import instant_of
from mailmend.model.texts import Place

_PERCENTS: Final = (50, 95, 99)
_MILLIS: Final = 1_000
_OF_LIMITS: Final = ("place", "policy", "counted as", "limit", "held", "never", "refused for", "most at once")
_OF_VALUES: Final = ("field", "value", "attempts", "later", "never", "later on average", "at most")
_KEYS_WRAPPED: Final = frozenset({"counted as", "value"})
_COMPARED: Final = (
    "drain time",
    "attempts a second",
    "last one begins",
    "last one ends",
    *(f"{percent} of 100 waited at most" for percent in _PERCENTS),
    "longest wait",
    "later than recorded",
    "later, all together",
    "never begin",
)

_ASSUMED: Final = (
    "Assumed: each attempt is ready when it was, lasts as long as it did, and has no further retries; all servers "
    "are one; nothing is under way when it begins."
)


def simulation_document(result: Simulation) -> Document:
    request = result.request
    wanted = result.wanted
    json: dict[str, Any] = {
        "keyspace": wanted.keyspace,
        "queue": request.queue,
        "since": plain(wanted.since),
        "until": plain(wanted.until),
        "concurrency": request.concurrency,
        **fields_json(result, "engine", "attempts", "incomplete"),
        "without_end": 0,
        "median_seconds": _seconds(result.lasting),
        "recorded": None,
        "simulated": None,
        "against": None,
        "exit": int(ExitCode.FINE),
    }
    if not result.files:
        hint = "Servers of this queue record them: mailmend delivery serve"
        return Document(json, (f"No attempts are recorded of {request.queue} in that time.",), remarks=(hint,))
    asked, *others = result.files
    json["without_end"] = asked.sums.without_end
    json["recorded"] = _recorded_json(asked)
    json["simulated"] = _file_json(asked)
    if others:
        json["against"] = _file_json(others[0])
    body: list[Part] = [_headline(result), _compared(result)]
    for file in result.files:
        body += _file_parts(file)
    return Document(json, body, remarks=tuple(_remarks(result)))


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
    columns = [[*_waits_column(first.recorded, first.first_ready), "", "", ""]]
    for file in result.files:
        total = file.sums.total
        waits = _waits_column(file.sums.simulated, first.first_ready)
        columns.append([*waits, f"{total.delayed:,}", _span(total.later), f"{total.never:,}"])
    names = [printable(str(file.file)) for file in result.files]
    if len(set(names)) < len(names):
        names = [f"{name}, {number}" for number, name in enumerate(names, 1)]
    return Grid("All attempts", ("", "recorded", *names), list(zip(_COMPARED, *columns, strict=True)))


def _waits_column(waits: WaitSums, first_ready: int | None) -> list[str]:
    return [
        _span(_drain(waits, first_ready)),
        _rate_text(waits, first_ready),
        _instant(waits.last_begun),
        _instant(waits.last_ended),
        *(_span(waits.percentile(percent)) for percent in _PERCENTS),
        _span(waits.longest),
    ]


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
    sources = one.sums.sources
    if one.by_source and sources:
        total = sum(sources.values())
        sent = list[Sequence[GridCell]]()
        for source, count in sorted(sources.items(), key=lambda pair: (-pair[1], pair[0])):
            share = f"{100 * count / total:.1f} %"
            sent.append((printable(source) or "(any)", f"{count:,}", share))
        yield Grid(f"Sent from, by {name}", ("address", "attempts", "share"), sent)


def _limit_row(limit: LimitUse) -> Sequence[GridCell]:
    use = limit.use
    place = "--concurrency"
    if limit.place:
        place = f"{limit.place.line}:{limit.place.column}"
    policy = ""
    if limit.policy is not None:
        policy = str(limit.policy + 1)
    held = f"{use.held:,}"
    never = f"{use.never:,}"
    if limit.threshold is None:
        return (place, policy, "mails that it names", "suspended", held, never, "", "")
    counted = printable(counted_text(limit.counted)) or "every mail"
    limits = _limit_text(limit.threshold, limit.kind)
    return (place, policy, counted, limits, held, never, _span(use.refused_for // MILLI), f"{use.most:,}")


def _limit_text(threshold: Threshold, kind: LimitKind | None) -> str:
    """The limit that refused most; where none did, all that are there."""
    texts = threshold_texts(threshold)
    if kind:
        return f"{kind.value} {texts[kind]}"
    return ", ".join(f"{limit.value} {text}" for limit, text in texts.items())


def _delayed_row(field: PickupField, value: str, found: DelayedValue) -> Sequence[GridCell]:
    late = found.delayed - found.never
    average = ""
    latest = ""
    if late:
        average = _span(found.later // late)
        latest = _span(found.latest)
    counts = (f"{found.attempts:,}", f"{late:,}", f"{found.never:,}")
    return (field.value, printable(value), *counts, average, latest)


def _drain(waits: WaitSums, first_ready: int | None) -> int | None:
    if waits.last_ended is None or first_ready is None:
        return None
    return waits.last_ended - first_ready


def _rate(waits: WaitSums, first_ready: int | None) -> float | None:
    drain = _drain(waits, first_ready)
    if not drain:
        return None
    return round(waits.begun * _MILLIS / drain, 3)


def _rate_text(waits: WaitSums, first_ready: int | None) -> str:
    rate = _rate(waits, first_ready)
    if rate is None:
        return ""
    return f"{rate:,.1f}"


def _span(millis: int | None) -> str:
    if millis is None:
        return ""
    if millis == 0:
        return "0 s"
    if millis < _MILLIS:
        return f"{millis} ms"
    span = timedelta(milliseconds=millis)
    if span >= timedelta(minutes=1):
        return days(span)
    return f"{millis / _MILLIS:.1f} s"


def _instant(millis: int | None) -> str:
    if millis is None:
        return ""
    return shown(instant_of(millis * 1_000))


def _seconds(millis: int | None) -> float | None:
    if millis is None:
        return None
    return millis / _MILLIS


def _instant_json(millis: int | None) -> str | None:
    if millis is None:
        return None
    return instant_text(instant_of(millis * 1_000))


def _waits_json(waits: WaitSums, first_ready: int | None) -> dict[str, Any]:
    wait_seconds = {f"p{percent}": _seconds(waits.percentile(percent)) for percent in _PERCENTS}
    wait_seconds["max"] = _seconds(waits.longest)
    return {
        "begun": waits.begun,
        "drain_seconds": _seconds(_drain(waits, first_ready)),
        "attempts_per_second": _rate(waits, first_ready),
        "last_begun_at": _instant_json(waits.last_begun),
        "last_ended_at": _instant_json(waits.last_ended),
        "wait_seconds": wait_seconds,
    }


def _recorded_json(one: SimulatedFile) -> dict[str, Any]:
    first = one.sums.first_ready
    return {"first_ready_at": _instant_json(first), **_waits_json(one.sums.recorded, first)}


def _file_json(one: SimulatedFile) -> dict[str, Any]:
    sums = one.sums
    most_delayed = list[dict[str, Any]]()
    for (field, value), found in one.delayed.items():
        named = {"field": field.value, "value": value}
        most_delayed.append({**named, **_delayed_json(found)})
    sources = None
    if one.by_source:
        sources = dict(sorted(sums.sources.items()))
    return {
        "file": str(one.file),
        **_waits_json(sums.simulated, sums.first_ready),
        "delayed": _delayed_json(sums.total),
        "policies": [_policy_json(place, use) for place, use in one.policies],
        "limits": [_limit_json(limit) for limit in one.limits],
        "most_delayed": most_delayed,
        "sources": sources,
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
    if place is None:
        return None
    return fields_json(place, "line", "column")


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
    limits = THRESHOLD.json(limit.threshold or Threshold())
    del limits["stop"]
    del limits["cluster"]
    json = {
        "place": _place_json(limit.place),
        "policy": from_one(limit.policy),
        "suspension": from_one(limit.suspension),
        "key": {field.value: text for field, text in limit.counted.items()},
        **limits,
        "refused_by": plain(limit.kind),
        "refusals": use.refusals.total(),
        "held": use.held,
        "never": use.never,
        "refused_seconds": round(use.refused_for / SECOND, 3),
        "most_at_once": use.most,
    }
    if limit.suspension is not None:
        # A suspension is no counter: nothing of this is counted there.
        json |= {"refusals": None, "refused_seconds": None, "most_at_once": None}
    return json

"""The options that say when a mail is tried again, and for how long, each by transport."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeVar

import click

from mailmend.admin.frame.kinds import ParsedValue
from mailmend.admin.frame.options import option
from mailmend.admin.queue.request import QueueRequest
from mailmend.delivery.mail.settling import DEFAULT_SCHEDULE, RetryInterval, RetrySchedule
from mailmend.model.durations import parse_duration
from mailmend.model.errors import WrongUse

T = TypeVar("T")

COUNT_MAX: Final = 10_000
AGE_MAX: Final = timedelta(days=365)

_INTERVAL_MAX: Final = timedelta(days=30)
_NOTIFY: Final = ":notify"
_WHOLE: Final = 100
_NUMBER: Final = re.compile("[0-9]{1,5}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRequest(QueueRequest):
    """What a server of deliveries is told of retries, by transport; "" is for all other transports.

    Attributes:
        retries: the waits between attempts.
        retry_counts: how often a mail is tried again at most.
        longest_ages: after which time in the queue a mail has failed.
        retry_jitters: by which part of it a wait may be longer.
    """

    retries: Mapping[str, tuple[RetryInterval, ...]] = field(default_factory=dict)
    retry_counts: Mapping[str, int] = field(default_factory=dict)
    longest_ages: Mapping[str, timedelta] = field(default_factory=dict)
    retry_jitters: Mapping[str, float] = field(default_factory=dict)

    @property
    def schedules(self) -> Mapping[str, RetrySchedule]:
        """The schedule of each transport that is named; "" is for all others.

        Of what is not said for a transport, it has what is said for all others.
        """
        others = self._changed("", DEFAULT_SCHEDULE)
        schedules = {"": others}
        for name in (*self.retries, *self.retry_counts, *self.longest_ages, *self.retry_jitters):
            schedules[name] = self._changed(name, others)
        return schedules

    def _changed(self, name: str, schedule: RetrySchedule) -> RetrySchedule:
        return replace(
            schedule,
            intervals=self.retries.get(name, schedule.intervals),
            count=self.retry_counts.get(name, schedule.count),
            longest_age=self.longest_ages.get(name, schedule.longest_age),
            jitter=self.retry_jitters.get(name, schedule.jitter),
        )


def _parse_intervals(text: str) -> tuple[RetryInterval, ...]:
    return tuple(_interval(interval) for interval in text.split(","))


def _interval(text: str) -> RetryInterval:
    wait = parse_duration(text.removesuffix(_NOTIFY), maximum=_INTERVAL_MAX, zero=False)
    return RetryInterval(wait, notify=text.endswith(_NOTIFY))


def _parse_count(text: str) -> int:
    if not _NUMBER.fullmatch(text) or int(text) > COUNT_MAX:
        mend = f"Write 0 to {COUNT_MAX:,}, like 10."
        raise WrongUse(f"{text!r} is no number of retries", mend=mend)
    return int(text)


def _parse_age(text: str) -> timedelta:
    return parse_duration(text, maximum=AGE_MAX, zero=False)


def _parse_percent(text: str) -> float:
    number = text.removesuffix("%")
    if not _NUMBER.fullmatch(number) or int(number) > _WHOLE:
        raise WrongUse(f"{text!r} is no percentage", mend="Write 0% to 100%, like 10%.")
    return int(number) / _WHOLE


def _of_transport(parse: Callable[[str], T], value: Any) -> tuple[str, T]:
    """Read `VALUE`, for all transports, or `TRANSPORT=VALUE`."""
    transport, _, text = str(value).rpartition("=")
    return transport, parse(text)


def _by_transport(_context: click.Context, _option: click.Parameter, given: Any) -> dict[str, Any]:
    return dict(given)


def _retry_option(name: str, about: str, owner: str, parse: Callable[[str], Any], value: str) -> Any:
    return option(
        name,
        about,
        owner,
        type=ParsedValue(value.lower(), partial(_of_transport, parse)),
        multiple=True,
        callback=_by_transport,
        metavar=f"[TRANSPORT=]{value}",
    )


RETRY_OPTIONS: Final = (
    _retry_option(
        "--retry",
        "When mails are tried again: intervals, of which the last repeats; :notify tells the sender "
        "of the delay. With TRANSPORT= for that transport alone; may be given again. "
        "[default: 1m,15m,1h:notify,2h,3h]",
        "retries",
        _parse_intervals,
        "INTERVALS",
    ),
    _retry_option(
        "--retry-count",
        "How often a mail is tried again at most. [default: as often as its age allows]",
        "retry_counts",
        _parse_count,
        "NUMBER",
    ),
    _retry_option(
        "--longest-age",
        "How long after its first enqueueing a mail has failed that names no expiry. [default: 5d]",
        "longest_ages",
        _parse_age,
        "DURATION",
    ),
    _retry_option(
        "--retry-jitter",
        "By how much longer an interval may be: not all mails come again at once. [default: 10%]",
        "retry_jitters",
        _parse_percent,
        "PERCENT",
    ),
)

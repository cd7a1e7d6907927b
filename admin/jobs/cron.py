"""Cron text: five fields, as every scheduler that we write units for reads them; the only importer of cronsim.

What schedulers read differently is refused: seconds, L, W, #, ?, 5/15, and a step in one field of
days together with the other field (docs/adr/0029).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from mailmend.model.errors import WrongUse

FIELDS: Final = ("minute", "hour", "day of month", "month", "day of week")
_NUMBER: Final = r"[0-9]{1,4}"
_VALUE: Final = rf"(?:{_NUMBER}|[A-Z]{{3}})"
_TERM: Final = rf"(?:\*(?:/{_NUMBER})?|{_VALUE}(?:-{_VALUE}(?:/{_NUMBER})?)?)"
_FIELD: Final = re.compile(rf"{_TERM}(?:,{_TERM})*")
_SPANS: Final = (60, 24, 31, 12, 7)
_EXAMPLE: Final = "Write five fields: minute, hour, day of month, month, day of week; '30 2 * * *' is 02:30 each day."


@dataclass(frozen=True, slots=True)
class Cron:
    """A schedule: the values of each field; days of the week from 0, Sunday.

    Where both fields of days are restricted, a day of either kind counts, as in every cron.
    """

    text: str
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: tuple[int, ...]

    @property
    def plain(self) -> str:
        """The same schedule in numbers, which every scheduler reads alike."""
        values = (self.minutes, self.hours, self.days, self.months, self.weekdays)
        fields = []
        for value, span in zip(values, _SPANS, strict=True):
            if len(value) == span:
                fields.append("*")
            else:
                fields.append(",".join(map(str, value)))
        return " ".join(fields)

    def after(self, at: datetime, zone: ZoneInfo) -> Iterator[datetime]:
        """The instants of the schedule after `at`, in UTC, without end.

        A time that the clocks leave out comes right after the gap, one that they show twice comes once.
        """
        return self._instants(at, zone, backwards=False)

    def before(self, at: datetime, zone: ZoneInfo) -> Iterator[datetime]:
        """The instants of the schedule before `at`, in UTC, the latest first."""
        return self._instants(at, zone, backwards=True)

    def _instants(self, at: datetime, zone: ZoneInfo, *, backwards: bool) -> Iterator[datetime]:
        for moment in CronSim(self.text, at.astimezone(zone), reverse=backwards):
            yield moment.astimezone(UTC)


def parse_cron(text: str) -> Cron:
    """Read cron text.

    Raises:
        WrongUse: it is not a schedule, no day ever fits, or schedulers would read it differently.
    """
    parts = text.upper().split()
    if len(parts) != len(FIELDS):
        raise WrongUse(f"{text!r} has {len(parts)} fields", mend=_EXAMPLE)
    for name, part in zip(FIELDS, parts, strict=True):
        if not _FIELD.fullmatch(part):
            raise WrongUse(
                f"{part!r} is not the {name} of a schedule", mend=f"{_EXAMPLE} Lists 1,15, ranges 1-5, steps */15."
            )
    _, _, days, _, weekdays = parts
    for step, other in ((days, weekdays), (weekdays, days)):
        if step.startswith("*/") and other != "*":
            raise WrongUse(
                f"{text!r} means other days to every scheduler: a step in one field of days, and the other restricted",
                mend=f"Write the days out instead of {step}, or * for the other field.",
            )
    try:
        sim = CronSim(text, datetime(2024, 1, 1, tzinfo=UTC))
        next(sim)
    except CronSimError as error:
        raise WrongUse(f"{text!r} is not a schedule: {error}", mend=_EXAMPLE) from error
    except StopIteration:
        raise WrongUse(f"{text!r} never comes", mend="No day fits it: February has no 30th.") from None
    weekdays_of = {weekday % 7 for weekday in sim.weekdays if isinstance(weekday, int)}
    fields = [sim.minutes, sim.hours, sim.days, sim.months, weekdays_of]
    if not sim.day_and and (len(sim.days) == _SPANS[2] or len(weekdays_of) == _SPANS[4]):
        fields[2], fields[4] = set(range(1, 32)), set(range(7))  # a day of either kind: each day is
    return Cron(" ".join(parts), *(tuple(sorted(numbers)) for numbers in fields))

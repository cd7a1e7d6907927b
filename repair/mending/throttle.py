"""Changes the pace of a run while it is at work: by the load of the cluster, and by what `jobs set` says.

The thread that uses the pace also looks at the cluster, so that in a run of one thread no other thread delays the timed
request. A look that is due while a request is sent waits for it; a look that is due in a pause is made in the pause. So
the share of looks under this run's own load equals the share of time in which the run is at work.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final
from uuid import UUID

from mailmend.model.errors import AccessDenied, CannotReach, MailmendError, TimedOut
from mailmend.model.operations import Level, Scan
from mailmend.model.ports import Clock, Tables
from mailmend.model.table import Table
from mailmend.repair.decisions.pressure import LOOK_SECONDS, Observation, Pressure, Strain
from mailmend.repair.ledger.runs import RunLimit, RunLimits

HEAR_SECONDS: Final = 2.0
"""The time, in seconds, after which a run that reads or writes notices a limit that was set."""

_COMPACTIONS_SECONDS: Final = 5.0
_CALM_LOOKS: Final = 8
"""How the cluster answers before anything is asked of it."""

_OWN: Final = 8
"""The number of looks over which the run's own rows per second are a mean."""

_LIMITS_LISTED_MAX: Final = 10
"""As many of the limits that were set are listed, the last ones; all are in the ledger."""

_TOKENS: Final = 1 << 63
_LOG: Final = logging.getLogger("mailmend.runs")


@dataclass(frozen=True, slots=True)
class SmallRead:
    """A small read whose latency is measured: the first row after a random token of a table."""

    tables: Tables
    table: Table
    clock: Clock
    level: Level = Level.LOCAL_QUORUM

    def __call__(self) -> float:
        """Carry out the read; returns its latency in seconds."""
        after = round((2 * self.clock.chance() - 1) * (_TOKENS - 1))
        names = self.table.partition_names
        began = self.clock.monotonic()
        for _ in self.tables.scan(Scan(self.table, names, self.level, tokens=(after, _TOKENS - 1), limit=1)):
            pass
        return self.clock.monotonic() - began


@dataclass(slots=True)
class Throttle:
    """The changing rate of a run. The thread that uses the pace calls `look` regularly; not for two threads at once.

    Attributes:
        limit: the operator's limit, in rows per second of the whole run.
        read: carries out the small read and returns its seconds; None: the rate does not depend on pressure.
        compactions: returns the pending compactions of the node with the most; None where they are not known.
        limits: the limits that `jobs set` writes; None: they are not read.
        run: the id under which limits are set; None as long as it is not known.
        workers: the number of throttles that share the rate.
        declared: the limit with which the run was started.
    """

    clock: Clock
    limit: int | None = None
    read: Callable[[], float] | None = None
    compactions: Callable[[], int | None] | None = None
    limits: RunLimits | None = None
    run: UUID | None = None
    workers: int = 1
    declared: int | None = field(default=None, init=False)
    pressure: Pressure = field(default_factory=Pressure, init=False)
    lowest: float = field(default=inf, init=False)
    rows: int = field(default=0, init=False)
    slowed: Counter[Strain] = field(default_factory=Counter, init=False)
    heard: deque[RunLimit] = field(default_factory=lambda: deque(maxlen=_LIMITS_LISTED_MAX), init=False)
    _rows: int = field(default=0, init=False)
    _own: float = field(default=0.0, init=False)
    _timeouts: int = field(default=0, init=False)
    _overloads: int = field(default=0, init=False)
    _looked: float | None = field(default=None, init=False)
    _heard_at: float = field(default=-inf, init=False)
    _counted_at: float = field(default=-inf, init=False)

    def __post_init__(self) -> None:
        self.declared = self.limit
        self._limit_is(self.limit)

    @property
    def rows_per_second(self) -> float | None:
        """This worker's part of the rate; None: no limit."""
        if self.pressure.rate == inf:
            return None
        return self.pressure.rate / self.workers

    @property
    def seconds(self) -> float:
        """The time between two looks, in seconds; longer where many workers look at one cluster."""
        if self.read is None:
            return HEAR_SECONDS
        return min(HEAR_SECONDS, LOOK_SECONDS * self.workers)

    def hear_of(self, run: UUID) -> None:
        """Read the limits of this run from now on, unless a job's run is known, whose limits count instead."""
        self.run = self.run or run

    def due_in(self) -> float:
        """Seconds until the next look."""
        if self._looked is None:
            return 0.0
        return max(0.0, self._looked + self.seconds - self.clock.monotonic())

    def note(self, rows: int, answers: Sequence[Any] = ()) -> None:
        """Count rows that are requested, and the errors among answers."""
        self.rows += rows
        self._rows += rows
        for answer in answers:
            self._timeouts += isinstance(answer, TimedOut)
            self._overloads += isinstance(answer, CannotReach) and not isinstance(answer, TimedOut | AccessDenied)

    def look(self) -> None:
        """Read limits that were set, time the small read, and change the rate."""
        self._hear()
        looks = 1
        if self._looked is None:
            looks = _CALM_LOOKS
        for _ in range(looks):
            if self.read is not None:
                self._feel(self.read)
        self._looked = self.clock.monotonic()

    def max_fixes(self, declared: int | None) -> int | None:
        """The newest `--max-fixes` that was set for the run; `declared` where none was."""
        self._heard_at = -inf
        self._hear()
        if not self.heard or self.heard[-1].max_fixes is None:
            return declared
        return self.heard[-1].max_fixes

    def as_json(self) -> dict[str, Any]:
        """The rates for people and for the ledger, in rows per second of the whole run."""
        return {
            "auto": self.read is not None,
            "rows": self.rows,
            "limit": self.limit,
            "lowest": _rounded(self.lowest),
            "last": _rounded(self.pressure.rate),
            "slowed": {strain.value: number for strain, number in self.slowed.items()},
            "set": [_limit_json(limit) for limit in self.heard],
        }

    def _limit_is(self, limit: int | None) -> None:
        self.limit = limit
        rate = inf
        if limit is not None:
            rate = float(limit)
        self.pressure = self.pressure.limited(rate)
        self.lowest = min(self.lowest, self.pressure.rate)

    def _hear(self) -> None:
        now = self.clock.monotonic()
        if self.limits is None or self.run is None or now < self._heard_at + HEAR_SECONDS:
            return
        self._heard_at = now
        try:
            said = self.limits.newest(self.run)
        except MailmendError:  # the limit stands as it was; whoever sets one sees the same error
            return
        if said and (not self.heard or said != self.heard[-1]):
            self.heard.append(said)
            fields = {"rows_per_second": said.rows_per_second, "max_fixes": said.max_fixes, "by": said.owner}
            _LOG.info("limits were set", extra=fields)
            if said.rows_per_second:  # 0 is no rate: the process of the job reads it too, and ends
                self._limit_is(said.rows_per_second)

    def _feel(self, read: Callable[[], float]) -> None:
        seconds = None
        try:
            seconds = read()
        except MailmendError as error:
            if not isinstance(error, CannotReach) or isinstance(error, AccessDenied):
                self.read = None  # the table is not there, or not ours to read: it can show nothing
                return
            self.note(0, [error])
        since = self._looked
        now = self.clock.monotonic()
        if since is not None and now > since:
            self._own += (self._rows * self.workers / (now - since) - self._own) / _OWN
        seen = Observation(self._own, seconds, self._timeouts, self._overloads, self._compactions_now(now))
        self._rows = self._timeouts = self._overloads = 0
        self.pressure, strain = self.pressure.after(seen)
        if strain:
            level = logging.INFO
            if self.slowed[strain]:  # only the first of each kind is of interest; more may come at once
                level = logging.DEBUG
            self.slowed[strain] += 1
            fields = {"strain": strain.value, "rows_per_second": _rounded(self.pressure.rate)}
            _LOG.log(level, "slowed down", extra=fields)
        self.lowest = min(self.lowest, self.pressure.rate)

    def _compactions_now(self, now: float) -> int | None:
        if self.compactions is None or now < self._counted_at + _COMPACTIONS_SECONDS:
            return None
        self._counted_at = now
        found = self.compactions()
        if found is None:  # an older server, or a role that may not read it
            self.compactions = None
        return found


def pace_of(throttle: Throttle | None) -> dict[str, Any] | None:
    """The rates of a run; None where nothing could change its pace."""
    if throttle is None:
        return None
    return throttle.as_json()


def _rounded(rate: float) -> int | None:
    """A rate in rows per second; None where there is no limit."""
    if rate == inf:
        return None
    return round(rate)


def _limit_json(limit: RunLimit) -> dict[str, Any]:
    return {
        "at": f"{limit.set_at:%Y-%m-%dT%H:%M:%SZ}",
        "by": limit.owner,
        "rows_per_second": limit.rows_per_second,
        "max_fixes": limit.max_fixes,
    }

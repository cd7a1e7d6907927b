"""The recorded attempts of a queue, read from the ledger and kept to be replayed as often as is wanted.

This process holds them all; Spark's way, in `spark_repair.attempts`, holds only those that wait at once.
"""

from dataclasses import dataclass, field
from datetime import datetime
from statistics import median
from typing import Final

from mailmend.delivery.policy.policies import PickupPolicies
from mailmend.delivery.policy.recorded import RecordedAttempt, sources_of, values_of
from mailmend.delivery.policy.replay_sums import ReplaySums
from mailmend.delivery.policy.sub_queues import ActiveMail
from mailmend.mailqueue.rules.slices import millis_of
from mailmend.model.catalog.ledger import DELIVERY_ATTEMPT
from mailmend.model.errors import WrongUse
from mailmend.model.ids import QueueName
from mailmend.model.operations import Level, Scan
from mailmend.model.ports import Progress, Tables
from mailmend.model.table import Row

COLUMNS: Final = (
    "keyspacename",
    "queuename",
    "firstmail",
    "number",
    "attempt",
    "fields",
    "sources",
    "readyat",
    "startedat",
    "endedat",
    "urgent",
)
ATTEMPTS_MAX: Final = 1_000_000
"""How many attempts this process holds; some 400 bytes each."""

_REPORTED_ROWS: Final = 1_000


@dataclass(frozen=True, slots=True)
class AttemptsWanted:
    """Which attempts are replayed: the attempts of a queue that were ready in a stretch of time.

    Attributes:
        since, until: None: as far as there are any.
    """

    keyspace: str
    queue: QueueName
    since: datetime | None = None
    until: datetime | None = None


@dataclass(slots=True)
class LocalAttempts:
    """Attempts in this process, sorted. Implements `delivery.policy.replay_sums.AttemptRecord`."""

    held: list[RecordedAttempt] = field(default_factory=list)
    incomplete: int = 0

    @property
    def attempts(self) -> int:
        return len(self.held)

    @property
    def lasting(self) -> int | None:
        known = list[int]()
        for attempt in self.held:
            lasted = attempt.lasted
            if lasted is not None:
                known.append(lasted)
        if not known:
            return None
        return int(median(known))

    def replay(self, said: PickupPolicies, top: int) -> ReplaySums:
        sums = ReplaySums()
        sums.replay(self.held, said, self.lasting or 0, top)
        return sums

    def close(self) -> None:
        self.held = []


def read_attempts(
    ledger: Tables, wanted: AttemptsWanted, level: Level, progress: Progress, most: int = ATTEMPTS_MAX
) -> LocalAttempts:
    """Read the whole table, of which only the wanted rows are kept.

    Raises:
        WrongUse: there are more than this process should hold.
    """
    progress.stage("read the attempts")
    found = LocalAttempts()
    for number, row in enumerate(ledger.scan(Scan(DELIVERY_ATTEMPT, COLUMNS, level)), 1):
        if number % _REPORTED_ROWS == 0:
            progress.advance(_REPORTED_ROWS)
        if (row["keyspacename"], row["queuename"]) != (wanted.keyspace, wanted.queue):
            continue
        if row["readyat"] is None or row["startedat"] is None:
            found.incomplete += 1
        elif _is_within(row["readyat"], wanted):
            found.held.append(attempt_of(row))
        if len(found.held) > most:
            mend = "Take --engine spark, or fewer of them with --since and --until."
            raise WrongUse(f"there are more than {most:,} attempts, too many for this process alone", mend=mend)
    progress.stage("replay")
    found.held.sort(key=lambda one: one.order)
    return found


def _is_within(at: datetime, wanted: AttemptsWanted) -> bool:
    return (wanted.since is None or at >= wanted.since) and (wanted.until is None or at < wanted.until)


def attempt_of(row: Row) -> RecordedAttempt:
    """An attempt from its row."""
    name = f"{row['firstmail']}:{row['number']}:{row['attempt']}"
    mail = ActiveMail(name, values_of(row["fields"]), sources_of(row["sources"]), bool(row["urgent"]))
    ended_at = None
    if row["endedat"] is not None:
        ended_at = millis_of(row["endedat"])
    return RecordedAttempt(mail, millis_of(row["readyat"]), millis_of(row["startedat"]), ended_at)

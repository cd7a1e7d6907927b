"""A keyspace that exists only while it is scanned: as many messages as one likes, with a few known damages.

Run as a program it checks such a keyspace by the local engine, in a process of its own, and prints what it found and
how much memory that took: the test of bounded memory, and a bench without a server.
"""

import json
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn
from uuid import UUID

from mailmend.cql.memory import MemoryTables
from mailmend.model.catalog.mail import MESSAGES
from mailmend.model.operations import Scan
from mailmend.model.table import Row
from mailmend.repair.clock import SystemClock
from mailmend.repair.ledger.runs import Ledger
from mailmend.repair.mending.engine import RepairSettings
from mailmend.repair.scanners.local import LocalEngine
from tests.support.clock import START, uuid_at

MAILBOXES = 1000
DAMAGE_EVERY = 10_000
"""One message in so many lacks its projection; the next one has wrong flags; the one after it no content."""

_INSTANT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
_MAILBOX_IDS = [uuid_at(START, number) for number in range(MAILBOXES)]


class VanishingTables:
    """The scan of `model.ports.Tables` over rows that are made up as they are read."""

    def __init__(self, messages: int) -> None:
        self._messages = messages

    def scan(self, scan: Scan) -> Iterator[Row]:
        """Every row of the table, one at a time."""
        match scan.table.spelling:
            case "imapUidTable":
                yield from map(_truth, range(self._messages))
            case "messageIdTable":
                yield from (_mirrored(number) for number in range(self._messages) if number % DAMAGE_EVERY != 0)
            case "messageV3":
                yield from ({"messageid": _message(n)} for n in range(self._messages) if n % DAMAGE_EVERY != 2)
            case "firstUnseen":
                yield from ({"mailboxid": _mailbox(n), "uid": n + 1} for n in range(self._messages) if n % 2 == 0)
            case "mailboxCounters":
                yield from map(self._counters, range(MAILBOXES))
            case _:
                pass  # nothing is deleted or recent, and nobody has flags of his own

    def _counters(self, mailbox: int) -> dict[str, Any]:
        count = len(range(mailbox, self._messages, MAILBOXES))
        return {"mailboxid": _MAILBOX_IDS[mailbox], "count": count, "unseen": count if mailbox % 2 == 0 else 0}

    def _refuse(self, _: Any) -> NoReturn:
        raise NotImplementedError("these rows can only be scanned")

    read = read_all = write = write_all = attempt = _refuse


def _message(number: int) -> UUID:
    return UUID(int=(number * 0x9E3779B97F4A7C15F39CC0605CEDC835) % 2**128)


def _mailbox(number: int) -> UUID:
    return _MAILBOX_IDS[number % MAILBOXES]


def _truth(number: int) -> dict[str, Any]:
    message = _message(number)
    return {
        "messageid": message,
        "mailboxid": _mailbox(number),
        "uid": number + 1,
        "threadid": message,
        "modseq": number + 2,
        "flaganswered": False,
        "flagdeleted": False,
        "flagdraft": False,
        "flagflagged": False,
        "flagrecent": False,
        "flagseen": number % 2 == 1,
        "userflags": None,
        "internaldate": _INSTANT,
        "save_date": _INSTANT,
        "bodystartoctet": 10,
        "fullcontentoctets": 100,
        "headercontent": f"1_628_{number}",
    }


def _mirrored(number: int) -> dict[str, Any]:
    row = _truth(number)
    return row | {"flagflagged": True} if number % DAMAGE_EVERY == 1 else row


class _Silent:
    def stage(self, name: str, total: int | None = None) -> None:
        """Say nothing."""

    def advance(self, steps: int, suspects: int = 0) -> None:
        """Say nothing."""


def main(arguments: Sequence[str]) -> None:
    """Check a keyspace of that many messages, and print one JSON object."""
    clock = SystemClock()
    baseline = _rss_mib()
    started = time.monotonic()
    tables: Any = VanishingTables(int(arguments[0]))
    engine = LocalEngine(tables, Ledger(MemoryTables(clock.micros), clock), clock)
    detection = engine.detect(RepairSettings("mail", (MESSAGES,)), _Silent())
    counts = {name: {one.value: n for one, n in sums.items()} for name, sums in detection.counts.items()}
    detection.close()
    seconds = round(time.monotonic() - started, 1)
    print(json.dumps({"counts": counts, "mib": _rss_mib() - baseline, "baseline_mib": baseline, "seconds": seconds}))  # noqa: T201


def _rss_mib() -> float:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


if __name__ == "__main__":
    main(sys.argv[1:])

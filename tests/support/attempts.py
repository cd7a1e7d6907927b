"""Records of delivery attempts: as values for the model, and as rows of the ledger's table."""

import json
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from mailmend.delivery.policy.policy import PickupField
from mailmend.delivery.policy.replaying import RecordedAttempt
from mailmend.delivery.policy.sub_queues import ANY_SOURCE, ActiveMail
from mailmend.model.catalog.ledger import DELIVERY_ATTEMPT
from mailmend.model.instants import instant_of
from mailmend.model.operations import Put

DAY = datetime(2026, 5, 1, 8, tzinfo=UTC)
START = round(DAY.timestamp() * 1_000)
"""Milliseconds."""

_EPOCH_100NS = 0x01B21DD213814000


def attempt(
    name: str,
    ready: int = 0,
    *,
    waited: int = 0,
    lasted: int | None = 1_000,
    sources: tuple[str, ...] = ANY_SOURCE,
    urgent: bool = False,
    **fields: str,
) -> RecordedAttempt:
    """An attempt that was ready so many milliseconds after the start; fields are named as in a policy file."""
    values = {PickupField(field): value for field, value in fields.items()}
    ready_at = START + ready
    ended_at = None if lasted is None else ready_at + waited + lasted
    return RecordedAttempt(ActiveMail(name, values, sources, urgent), ready_at, ready_at + waited, ended_at)


def drawn_attempts(chance: random.Random, count: int, **shape: Any) -> list[RecordedAttempt]:
    """A record of one morning: some tenants and domains, most mails to few of them, some urgent, some without an end.

    Args:
        chance: decides.
        count: of the attempts.
        shape: `sources`, sets of addresses; `domains`, how many.
    """
    sources = shape.get("sources", (("192.0.2.1",), ("192.0.2.1", "192.0.2.2"), ("192.0.2.3",)))
    domains = shape.get("domains", 40)
    found = []
    for number in range(count):
        domain = int(domains * chance.random() ** 3)
        found.append(
            attempt(
                f"{number:032x}:0:{number:032x}",
                chance.randrange(count * 20),
                waited=chance.randrange(3_000),
                lasted=None if chance.random() < 0.01 else 1 + int(chance.expovariate(1 / 800)),
                sources=chance.choice(sources),
                urgent=chance.random() < 0.1,
                recipientdomain=f"d{domain}.example",
                remotemx=f"mx{domain % 7}.example",
                tenantid=f"t{chance.randrange(5)}",
                transportid=chance.choice(("", "bulk")),
            )
        )
    return found


def row_of(one: RecordedAttempt, number: int, keyspace: str = "mail", queue: str = "spool") -> Put:
    """The row that a server would have written."""
    at = instant_of(one.started_at * 1_000)
    fields = {field.value: value for field, value in one.mail.values.items() if value}
    row = {
        "keyspacename": keyspace,
        "queuename": queue,
        "firstmail": UUID(int=number, version=4),
        "mail": UUID(int=number, version=4),
        "number": number % 3,
        "attempt": _time_uuid(at, number),
        "fields": json.dumps({**fields, "localip": one.mail.sources[0]}),
        "sources": json.dumps([one for one in one.mail.sources if one]),
        "readyat": instant_of(one.ready_at * 1_000),
        "startedat": at,
        "endedat": None if one.ended_at is None else instant_of(one.ended_at * 1_000),
        "outcome": None if one.ended_at is None else "delivered",
        "urgent": one.mail.urgent or None,
        "server": "host pid 1",
    }
    return Put(DELIVERY_ATTEMPT, row)


def rows_of(attempts: Sequence[RecordedAttempt], keyspace: str = "mail", queue: str = "spool") -> list[Put]:
    return [row_of(one, number, keyspace, queue) for number, one in enumerate(attempts)]


def _time_uuid(at: datetime, node: int) -> UUID:
    time = (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 10 + _EPOCH_100NS
    return UUID(fields=(time & 0xFFFFFFFF, time >> 32 & 0xFFFF, time >> 48 & 0x0FFF | 0x1000, 0x80, 0, node))

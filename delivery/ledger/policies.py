"""What the servers of a queue count by, in the ledger: so it is known which conditions set limits, and which do not."""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from mailmend.delivery.policy.covering import pattern_text
from mailmend.delivery.policy.orders import ServedPolicies
from mailmend.delivery.policy.policy import CounterPolicy, FieldGroup, PickupField, field_named, kept_pattern
from mailmend.delivery.policy.rates import RateAlgorithm
from mailmend.model.catalog.ledger import DELIVERY_POLICIES
from mailmend.model.errors import WrongUse
from mailmend.model.ids import QueueName
from mailmend.model.operations import Put, Read, Remove
from mailmend.model.ports import AsyncTables
from mailmend.model.table import Row

_LOG: Final = logging.getLogger("mailmend.delivery")

SAID_FOR: Final = timedelta(minutes=5)
"""How long what a server said is there, unless it says it again."""


@dataclass(frozen=True, slots=True)
class LedgerPolicies:
    """What the servers of one mail keyspace's queues count by.

    Args:
        tables: the ledger keyspace.
        keyspace: the name of the mail keyspace.
    """

    tables: AsyncTables
    keyspace: str

    async def put(self, queue: QueueName, said: ServedPolicies) -> None:
        cells = {
            "algorithm": said.algorithm.value,
            "policies": json.dumps([_cells(policy) for policy in said.policies]),
            "saidat": said.said_at,
        }
        row = DELIVERY_POLICIES.key_row((self.keyspace, queue, said.server)) | cells
        await self.tables.write(Put(DELIVERY_POLICIES, row, ttl_seconds=round(SAID_FOR.total_seconds())))

    async def of(self, queue: QueueName) -> Sequence[ServedPolicies]:
        """Of each server that is at work, or was a moment ago; without conditions and limits.

        What cannot be read is left out, and the log says so: a server of a later version said it, or it is damaged.
        """
        seen = await self.tables.read(Read(DELIVERY_POLICIES, (self.keyspace, queue)))
        found = list[ServedPolicies]()
        for stored in seen:
            try:
                found.append(_said(stored.row))
            except (WrongUse, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
                shown = {"queue": queue, "server": stored.row["server"], "error": str(error)}
                _LOG.warning("what a server counts by cannot be read", extra=shown)
        return found

    async def remove(self, queue: QueueName, server: str) -> None:
        await self.tables.write(Remove(DELIVERY_POLICIES, (self.keyspace, queue, server)))


def _cells(policy: CounterPolicy) -> Mapping[str, Any]:
    groups = dict[str, list[Any]]()
    for named, some in policy.groups.items():
        groups[named.value] = [[group.name, list(map(pattern_text, group.patterns))] for group in some]
    return {"fields": [named.value for named in policy.fields], "groups": groups}


def _said(row: Row) -> ServedPolicies:
    return ServedPolicies(
        server=row["server"],
        algorithm=RateAlgorithm(row["algorithm"]),
        policies=tuple(_policy(policy) for policy in json.loads(row["policies"])),
        said_at=row["saidat"],
    )


def _policy(cells: Mapping[str, Any]) -> CounterPolicy:
    groups = dict[PickupField, tuple[FieldGroup, ...]]()
    for name, some in cells["groups"].items():
        named = field_named(name)
        read = list[FieldGroup]()
        for group, texts in some:
            read.append(FieldGroup(group, tuple(kept_pattern(named, text) for text in texts)))
        groups[named] = tuple(read)
    return CounterPolicy(tuple(map(field_named, cells["fields"])), groups)

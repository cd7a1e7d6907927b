"""Orders as tests make them."""

from datetime import datetime
from typing import Final
from uuid import UUID

from mailmend.delivery.policy.orders import NOTHING_BEGINS, Order, OrderKind, condition_id, normal_scope
from mailmend.delivery.policy.policy import PatternTexts, Threshold
from mailmend.model.ids import QueueName, micros_of
from mailmend.model.instants import instant_of

OUTGOING: Final = QueueName("outgoing")


def suspension(
    order_id: UUID, values: PatternTexts, ends_at: datetime | None = None, queue: QueueName = OUTGOING
) -> Order:
    """A suspension with these values as they are, valid or not."""
    return Order(
        kind=OrderKind.SUSPENSION,
        id=order_id,
        queue=queue,
        values=values,
        owner="ann",
        reason="x",
        made_at=instant_of(micros_of(order_id)),
        ends_at=ends_at,
    )


def condition(
    made_at: datetime,
    values: PatternTexts,
    threshold: Threshold = NOTHING_BEGINS,
    ends_at: datetime | None = None,
    *,
    fields: str = "recipientdomain",
    queue: QueueName = OUTGOING,
) -> Order:
    """A condition with its fields and values in their normal form; `fields` has commas between."""
    names, normal = normal_scope(OrderKind.CONDITION, values, filter(None, fields.split(",")))
    return Order(
        kind=OrderKind.CONDITION,
        id=condition_id(queue, names, normal),
        queue=queue,
        values=normal,
        fields=names,
        threshold=threshold,
        owner="ann",
        reason="x",
        made_at=made_at,
        ends_at=ends_at,
    )

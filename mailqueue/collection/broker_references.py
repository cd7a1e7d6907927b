"""What the messages of a broker refer to, as far as it can be known: the last source of references to blobs.

A message's mail has a row, which refers to the same blobs, unless that row is lost, or James runs without them
(`cassandra.view.enabled`, which its own checklist advises). Messages that wait cannot be searched while consumers run,
and counts cannot tell: a lost row and a lost message cancel out. So either the queues are empty, or a person knows how
old the oldest message may be: younger blobs stay. Dead letters may be of any age, and are read.
"""

from collections.abc import Iterable

from mailmend.mailqueue.broker import Broker, Depth
from mailmend.mailqueue.collection.references import KnownReferences, Reference
from mailmend.mailqueue.comparison import DRAIN_MAX, refuse_burying
from mailmend.mailqueue.rabbitmq.reconcile import dead_letters_named
from mailmend.model.errors import SourceUnread
from mailmend.model.ids import QueueName
from mailmend.model.ports import Clock

NAME = "messages at the broker"
_OLDEST = "Name an age that no message there has reached (--oldest-message 7d), and what is younger stays."


async def broker_references(
    broker: Broker, clock: Clock, queues: Iterable[QueueName], *, age_known: bool
) -> KnownReferences:
    """The references of the queues' dead letters.

    Args:
        broker: where the dead letters are.
        clock: limits how long a message is waited for.
        queues: all queues that may refer to the store.
        age_known: whether a person has said how old messages may be; then those that wait need not be read.

    Raises:
        SourceUnread: messages that were not read may refer to any blob.
        UnsafeRequest: looking at dead letters would lose them.
    """
    found = list[Reference]()
    for queue in queues:
        depth = await broker.depth(queue)
        if not age_known and (why := _why_unknown(queue, depth)):
            raise SourceUnread(NAME, why, mend=_OLDEST)
        if not depth.dead:
            continue
        if depth.dead > DRAIN_MAX:
            why = f"{queue} has {depth.dead:,} dead letters, and {DRAIN_MAX:,} can be read"
            raise SourceUnread(NAME, why, mend=f"Publish them again, or drop them: mailmend queue redrive {queue}")
        refuse_burying(queue, depth, "Publish them again, or drop them, first: mailmend queue redrive.")
        letters = await dead_letters_named(broker, clock, queue, depth.dead)
        if letters.bad or letters.taken < depth.dead:
            why = f"of {depth.dead:,} dead letters of {queue}, {letters.taken - letters.bad:,} could be read"
            raise SourceUnread(NAME, why, mend=f"Look at them: mailmend queue redrive {queue} --dry-run")
        found += [Reference(blob, f"dead letter of {queue}") for blob in sorted(letters.blobs)]
    return KnownReferences(NAME, found)


def _why_unknown(queue: QueueName, depth: Depth) -> str | None:
    if depth.in_hands is None:
        return f"the broker does not tell how many messages of {queue} are in consumers' hands (--broker-management)"
    if depth.ready or depth.in_hands:
        return f"{depth.ready:,} messages of {queue} wait and {depth.in_hands:,} are unacked, and may refer to blobs"
    return None

"""What `mailmend delivery` shows."""

from mailmend.admin.delivery.delivery_service import DeliveryEnded
from mailmend.admin.delivery.servers_service import QueueServers
from mailmend.admin.frame.document import Document, Grid
from mailmend.admin.frame.values import plain, printable, shown
from mailmend.admin.queue.request import QueueAnswer, QueueRequest
from mailmend.admin.queue.values import queue_document
from mailmend.delivery.mail.entries import EntryEnd


def served_document(result: DeliveryEnded) -> Document:
    sums = {end.name.lower(): result.ended.get(end, 0) for end in EntryEnd}
    counted = ", ".join(f"{sums[end.name.lower()]:,} {end.value}" for end in EntryEnd)
    return Document(
        {"queue": result.request.queue, **result.request.home, "recipients": sums, "exit": 0},
        (f"Recipients of {result.request.queue}: {counted}.",),
        remarks=("Stopped on request; what was under way has ended.",),
    )


def servers_document(result: QueueAnswer[QueueRequest, QueueServers]) -> Document:
    queue = result.request.queue
    found = result.found
    rows = [
        {
            "name": server.seat.name,
            "state": server.state,
            "has_share": server.has_share,
            "adopted": server.seat.adopted,
            "since": server.seat.since,
            "seen_at": server.seat.seen_at,
            "owner": server.seat.owner,
        }
        for server in found.servers
    ]
    json = {"epoch": found.epoch, "settled": found.settled, "absent": list(found.absent), "servers": plain(rows)}
    if not found.epoch:
        return queue_document(result, json, (f"No server has shared limits of {queue} yet.",))
    columns = ("name", "state", "shares", "since", "last seen", "process")
    cells = [
        (
            printable(server.seat.name),
            server.state,
            "yes" if server.has_share else "not yet",
            shown(server.seat.since),
            shown(server.seat.seen_at),
            printable(server.seat.owner),
        )
        for server in found.servers
    ]
    lines = [f"Limits of {queue} are shared in epoch {found.epoch}, {'' if found.settled else 'not '}by all of them."]
    lines += [f"{printable(name)} is absent: its part is kept until the others may have it." for name in found.absent]
    return queue_document(result, json, (Grid(f"Servers of {queue}", columns, cells, frozenset({"process"})), *lines))

"""What `mailmend delivery` shows."""

from admin.present.document import Document
from admin.services.delivery import DeliveryEnded
from model.delivery.entries import EntryEnd


def served_document(result: DeliveryEnded) -> Document:
    sums = {end.name.lower(): result.ended.get(end, 0) for end in EntryEnd}
    counted = ", ".join(f"{sums[end.name.lower()]:,} {end.value}" for end in EntryEnd)
    return Document(
        {"queue": result.request.queue, "keyspace": result.request.keyspace, "recipients": sums, "exit": 0},
        (f"Recipients of {result.request.queue}: {counted}.",),
        remarks=("Stopped on request; what was under way has ended.",),
    )

"""What a check or a collection of blobs found and did, as a document."""

import shlex
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Final

from mailmend.admin.frame.document import Document, Grid, Part
from mailmend.admin.frame.values import IDS_SHOWN, NOTHING_WRITTEN, plain
from mailmend.admin.messages import mending_document as mending
from mailmend.admin.messages.blobs_service import BlobsResult, summary_of
from mailmend.admin.messages.mending_service import MendingResult
from mailmend.mailqueue.rules.blob_collection import BlobVerdict
from mailmend.model.sizes import MIB
from mailmend.model.texts import keyspace_option

MEANINGS: Final[Mapping[BlobVerdict, str]] = {
    BlobVerdict.KEEP: "something refers to it",
    BlobVerdict.COLLECT: "nothing refers to it, at both looks: it only takes room (does not fail a check)",
    BlobVerdict.TOO_YOUNG: "nothing refers to it yet; it stays until nobody can",
    BlobVerdict.UNKNOWN_PREFIX: "nothing refers to it, and its id is of another family or of no known kind: it stays",
    BlobVerdict.MISSING: "something refers to it, and it is not there, or not whole",
}


def check_document(result: MendingResult | BlobsResult) -> Document:
    return blobs_document(result) if isinstance(result, BlobsResult) else mending.document_of(result)


def blobs_document(result: BlobsResult) -> Document:
    found = result.found
    json = {
        "keyspace": result.keyspace,
        "store": result.place,
        "run": plain(result.run),
        **summary_of(result),
        "listed": found.listed,
        "listed_bytes": found.bytes,
        "references": dict(found.references),
        "findings": {kind.value: found.verdicts[kind] for kind in BlobVerdict if found.verdicts[kind]},
        "collect_bytes": found.collect_bytes,
        "removed": found.removed,
        "moved": found.moved,
        "removed_list": plain(result.removed_list),
        "missing": [blob._asdict() for blob in found.missing],
        "unknown": found.examples.get(BlobVerdict.UNKNOWN_PREFIX, []),
        "broker_asked": result.broker_asked,
        "failed": list(found.failed),
        "seconds": round(result.seconds, 3),
        "pace": result.pace,
    }
    page = ("More: mailmend runbook show blob-is-missing",) if found.verdicts[BlobVerdict.MISSING] else ()
    return Document(json, tuple(_body(result)), result.exit, page)


def _body(result: BlobsResult) -> Iterator[Part]:
    found = result.found
    rows = [(kind.value, f"{found.verdicts[kind]:,}", MEANINGS[kind]) for kind in BlobVerdict if found.verdicts[kind]]
    yield f"{found.listed:,} blobs{_size(found.bytes)} in {result.place}."
    read = ", ".join(f"{name} {number:,}" for name, number in found.references.items())
    yield f"References: {read}."
    if rows:
        yield Grid("Blobs", ("verdict", "count", "meaning"), rows)
    if found.missing:
        missing = [(blob.blob_id, blob.source, blob.referrer) for blob in found.missing[:IDS_SHOWN]]
        yield Grid("Missing", ("blob", "named by", "row"), missing, frozenset({"blob", "row"}))
    unknown = found.examples.get(BlobVerdict.UNKNOWN_PREFIX, [])
    if unknown:
        yield f"Not known, such as: {', '.join(unknown[:3])}"
    if not result.broker_asked:
        yield "Messages at the broker were not looked at: they may refer to blobs that nothing else refers to."
    yield from found.failed
    if result.run is None:
        yield NOTHING_WRITTEN
    else:
        yield f"Removed {found.removed:,} blobs."
    if found.moved:
        yield f"{found.moved:,} were changed meanwhile, or are referred to by now, and left."
    if result.removed_list:
        yield f"What went is in {result.removed_list}"
    yield from _next(result)


def _size(size_bytes: int | None) -> str:
    return "" if size_bytes is None else f" of {size_bytes / MIB:,.1f} MiB"


def _next(result: BlobsResult) -> Iterator[str]:
    verdicts = result.found.verdicts
    if result.run is None and verdicts[BlobVerdict.COLLECT] and not result.found.failed:
        plan = result.plan and shlex.quote(str(result.plan))
        next_one, words = (f"apply {plan}", result.stores) if plan else ("repair blobs", result.options)
        yield f"Next: mailmend {next_one} {keyspace_option(result.keyspace)} {words}".rstrip()
    if verdicts[BlobVerdict.TOO_YOUNG]:
        days = (2 * result.rule.generation) / timedelta(days=1)
        yield f"What is too young goes once its generation and the next are over: {days:g} days at most."

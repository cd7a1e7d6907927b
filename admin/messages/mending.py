"""How a keyspace is scanned by check and repair, and the result of a check, a repair, an apply or an undo."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from mailmend.admin.frame.examples import Affected, Example
from mailmend.admin.frame.scan_options import ScanOptions
from mailmend.admin.frame.settings import BlobsSettings, ConnectionSettings, typed_as
from mailmend.mailqueue.pulsar.settings import PulsarSettings
from mailmend.repair.binding import Bound
from mailmend.repair.mending.engine import RepairResult

if TYPE_CHECKING:
    from mailmend.admin.messages.blob_sources import BlobsWanted
    from mailmend.admin.messages.blobs import BlobsRequest
    from mailmend.admin.queue.cleanup import CleanupRequest
    from mailmend.admin.queue.garbage_collection import GarbageCollection
    from mailmend.mailqueue.cleanup.writes import CleanedQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRequest(ScanOptions):
    """`what` is "messages", "queues", "blobs" or "all" (the paths of mailboxes too).

    Attributes:
        blobs: where the contents of mails in queues are; None: not looked at. Of blobs: a `BlobsWanted`.
        pulsar: whose topics' mails are looked at too, as `PulsarSettings`; None: no Pulsar is asked.
    """

    connection: ConnectionSettings
    what: str = "all"
    no_recheck: bool = False
    blobs: "BlobsSettings | BlobsWanted | None" = None
    pulsar: PulsarSettings | None = None


@dataclass(frozen=True, slots=True)
class MendingResult:
    """The totals of a check, a repair or an undo, and a few of the findings.

    Attributes:
        options: what a person gave in addition to the connection, as a command line.
        plan: the file of a plan that was made, or applied; None without a plan.
        stores: broker and store as they were typed, where applying the plan needs them again.
        queues: each mail queue; None where they were not looked at.
        topics: the mails of Pulsar's topics; None where they were not looked at.
        garbage: what a garbage collection of their tables costs, or came to; None where none was asked for.
        affected: in whose mailboxes the findings are; None where no report tells it.
    """

    summary: RepairResult
    examples: tuple[Example, ...] = ()
    options: str = ""
    plan: Path | None = None
    queues: "tuple[CleanedQueue, ...] | None" = None
    garbage: "GarbageCollection | None" = None
    affected: Affected | None = None
    stores: str = ""
    topics: "CheckedTopics | None" = None


@dataclass(frozen=True, slots=True)
class CheckedTopics:
    """The mails of a namespace of Pulsar's, with the state of their blobs.

    Attributes:
        without_blobs: topic, place and id of each mail whose bytes are gone.
    """

    namespace: str
    mails: int
    without_blobs: tuple[tuple[str, str, str], ...]


def unseen(without: Sequence[str], bound: Bound, of_target: str | None = None) -> str | None:
    """What was not looked at, in a sentence or two; None where everything was."""
    sentences = []
    if of_target:
        sentences.append(of_target)
    if without:
        sentences.append(f"Neither compared nor written: {', '.join(without)}.")
    if bound.unseen:
        sentences.append(f"Not looked at: {', '.join(bound.unseen)}.")
    return " ".join(sentences) or None


_NOT_REPEATED = frozenset(
    {
        *("connection", "what", "dry_run", "plan", "no_recheck", "blobs", "store", "broker", "typed", "missing"),
        *("settings", "approved", "kind", "scanning"),
    }
)


def given(request: "ScanOptions | BlobsRequest | BlobsWanted | CleanupRequest", names: Sequence[str] = ()) -> str:
    """The options that differ from their defaults, as words to be typed again with a repair.

    Args:
        request: the options.
        names: of the options, in the order of the words; all fields of the request where none is named.
    """
    defaults = {field.name: field.default for field in fields(request)}
    left_out = set(_NOT_REPEATED)
    if isinstance(request, CheckRequest):
        left_out.add("no_writers")
    words = []
    for name in names or defaults:
        value = getattr(request, name)
        if name in left_out or value == defaults[name]:
            continue
        option = f"--{name.replace('_', '-')}"
        for text in typed_as(value):
            if text:
                words.append(f"{option} {shlex.quote(text)}")
            else:  # a flag
                words.append(option)
    return " ".join(words)

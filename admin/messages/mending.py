"""How a keyspace is scanned by check and repair, and the result of a check, a repair, an apply or an undo."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mailmend.admin.frame.cluster import EngineWanted
from mailmend.admin.frame.examples import Affected, Example
from mailmend.admin.frame.settings import ConnectionSettings, typed_as
from mailmend.model.operations import Level
from mailmend.repair.binding import Bound
from mailmend.repair.clock import MARGIN_SECONDS, SKEW_SECONDS
from mailmend.repair.mending.engine import DELAY_SECONDS
from mailmend.repair.mending.runner import RepairResult

if TYPE_CHECKING:
    from mailmend.admin.messages.blob_sources import BlobsWanted
    from mailmend.admin.messages.repair import LagsRequest
    from mailmend.admin.queue.cleanup import CleanupRequest
    from mailmend.admin.queue.garbage_collection import GarbageCollection
    from mailmend.mailqueue.cleanup.writes import CleanedQueue

DELAY = timedelta(seconds=DELAY_SECONDS)
SKEW = timedelta(seconds=SKEW_SECONDS)
MARGIN = timedelta(seconds=MARGIN_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequest:
    """How a keyspace is scanned: what check and repair have in common.

    Attributes:
        engine: "auto", "spark" or "local".
        pace: "auto" (slow down while the cluster suffers), "full", or None: auto in a job.
        torn: "report" or "accept".
        without: columns and tables that are neither compared nor written.
        delay: between the scan and the second look.
        clock_skew: the greatest difference between any two clocks.
    """

    connection: ConnectionSettings
    engine: str = "auto"
    master: str | None = None
    spark_conf: tuple[tuple[str, str], ...] = ()
    rows_per_second: int | None = None
    pace: str | None = None
    level: Level = Level.LOCAL_QUORUM
    torn: str = "report"
    without: tuple[str, ...] = ()
    delay: timedelta = DELAY
    clock_skew: timedelta = SKEW
    no_writers: bool = False
    staging: str | None = None

    @property
    def engine_wanted(self) -> EngineWanted:
        return EngineWanted(self.engine, self.master, dict(self.spark_conf))


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRequest(ScanRequest):
    """`what` is "messages", "queues", "blobs" or "all" (the paths of mailboxes too).

    Attributes:
        blobs: where the contents of mails in queues are; None: not looked at. Of blobs: a `BlobsWanted`.
        pulsar: whose topics' mails are looked at too, as `PulsarSettings`; None: no Pulsar is asked.
    """

    what: str = "all"
    no_recheck: bool = False
    blobs: Any = None
    pulsar: Any = None


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
    left = f"Neither compared nor written: {', '.join(without)}." if without else None
    lost = f"Not looked at: {', '.join(bound.unseen)}." if bound.unseen else None
    return " ".join(filter(None, (of_target, left, lost))) or None


_NOT_REPEATED = frozenset(
    {
        *("connection", "what", "dry_run", "plan", "no_recheck", "blobs", "store", "broker", "typed", "missing"),
        *("settings", "approved", "kind"),
    }
)


def given(request: "ScanRequest | LagsRequest | BlobsWanted | CleanupRequest") -> str:
    """The options that differ from their defaults, as words to be typed again with a repair."""
    left = _NOT_REPEATED | ({"no_writers"} if isinstance(request, CheckRequest) else set())
    typed = (
        f"--{field.name.replace('_', '-')} {shlex.quote(text) if text else ''}".strip()
        for field in fields(request)
        if field.name not in left and getattr(request, field.name) != field.default
        for text in typed_as(getattr(request, field.name))
    )
    return " ".join(typed)

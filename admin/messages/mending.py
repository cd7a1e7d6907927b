"""What check, repair, apply and undo share.

These are how a keyspace is scanned, the staging area of a scan, and the result.
"""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import OpenCluster
from mailmend.admin.frame.examples import Affected, Example
from mailmend.admin.frame.extras import import_or_name_extra
from mailmend.admin.frame.run_scopes import MAIL, RunScope
from mailmend.admin.frame.scan_options import ScanOptions
from mailmend.admin.frame.settings import BlobsSettings, ConnectionSettings, parse_blobs, typed_as, without_secrets
from mailmend.mailqueue.blobs.s3 import S3Settings
from mailmend.mailqueue.pulsar.settings import PulsarSettings
from mailmend.model.catalog.ledger import KEEP
from mailmend.model.catalog.left_tables import LeftTable
from mailmend.model.errors import WrongUse
from mailmend.model.projections.declarations import Declaration
from mailmend.model.sizes import bytes_text
from mailmend.repair.binding import BoundFamilies
from mailmend.repair.clock import read_clocks
from mailmend.repair.decisions.engines import estimated_rows
from mailmend.repair.decisions.finding_sample import FINDINGS_KEPT
from mailmend.repair.mending.check_records import RecordedCheck
from mailmend.repair.mending.engine import RUNS_APART_MICROS, RepairResult, RepairSettings
from mailmend.repair.scanners.gone_mailboxes import GoneMailbox
from mailmend.repair.scanners.mismatches import Mismatch
from mailmend.repair.staging.folder import StagingFolder

if TYPE_CHECKING:
    from mailmend.admin.messages.blob_sources import BlobsWanted
    from mailmend.admin.messages.blobs import BlobsRequest
    from mailmend.admin.queue.cleanup import CleanupRequest
    from mailmend.admin.queue.garbage_collection import GarbageCollection
    from mailmend.mailqueue.cleanup.writes import CleanedQueue
    from mailmend.repair.staging.area import StagingArea, StagingStore
    from mailmend.repair.staging.bucket import StagingBucket


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRequest(ScanOptions):
    """`what` is "messages", "queues", "blobs", "all" (paths of mailboxes too), or a table.

    Attributes:
        projection: a table that follows from the table `what`; None: no pair of tables is named.
        snapshot: folders of snapshots that are read instead of the cluster.
        snapshot_name: the snapshot to read, where a folder has several.
        projections: what is looked at, or the file that declares it; None: James's tables are.
        blobs: where the contents of mails in queues are; None: not looked at. Of blobs: a `BlobsWanted`.
        pulsar: whose topics' mails are looked at too, as `PulsarSettings`; None: no Pulsar is asked.
        record: whether the check is kept in the ledger; None: in a job.
        record_findings: how many findings are kept at most.
        keep: how long the check is kept.
    """

    connection: ConnectionSettings
    what: str = "all"
    projection: str | None = None
    projections: Path | Declaration | None = None
    no_recheck: bool = False
    snapshot: tuple[Path, ...] = ()
    snapshot_name: str | None = None
    blobs: "BlobsSettings | BlobsWanted | None" = None
    pulsar: PulsarSettings | None = None
    record: bool | None = None
    record_findings: int = FINDINGS_KEPT
    keep: timedelta = KEEP


@dataclass(frozen=True, slots=True)
class CheckedTopics:
    """The mails of a namespace of Pulsar's, with the state of their blobs.

    Attributes:
        without_blobs: topic, place and id of each mail whose bytes are gone.
    """

    namespace: str
    mails: int
    without_blobs: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class MendingResult:
    """The totals of a check, a repair or an undo, and a few of the findings.

    Attributes:
        summary: the sums.
        examples: at most five findings of each projection and verdict.
        plan: the file of a plan that was made, or applied; None without a plan.
        topics: the mails of Pulsar's topics; None where they were not looked at.
        gone_mailboxes: mailboxes that are no more, of which rows are left, sorted by id; None where
            they were not looked for, as by every command but a repair of mailboxes.
    """

    summary: RepairResult
    examples: tuple[Example, ...] = ()
    plan: Path | None = None
    topics: CheckedTopics | None = None
    gone_mailboxes: tuple[GoneMailbox, ...] | None = None


@dataclass(frozen=True, slots=True)
class CommandResult(MendingResult):
    """The result, with what a command prints after the sums, and what the next command needs.

    Attributes:
        options: what a person gave in addition to the connection, as a command line.
        stores: broker and store as they were typed, where applying the plan needs them again.
        queues: each mail queue; None where they were not looked at.
        garbage: what a garbage collection of their tables costs, or came to; None where none was asked for.
        affected: in whose mailboxes the findings are; None where no report tells it.
        scope: what was looked at.
        left_tables: the denormalised tables of the keyspace that a check of mail did not look at.
        mismatches: rows of James that contradict each other; None where no command looked for them.
        record: what the ledger has of a check; None where the check is not kept.
    """

    options: str = ""
    queues: "tuple[CleanedQueue, ...] | None" = None
    garbage: "GarbageCollection | None" = None
    affected: Affected | None = None
    stores: str = ""
    scope: RunScope = MAIL
    left_tables: tuple[LeftTable, ...] = ()
    mismatches: tuple[Mismatch, ...] | None = None
    record: RecordedCheck | None = None


def unseen(
    without: Sequence[str],
    bound: BoundFamilies,
    of_target: str | None = None,
) -> str | None:
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
        *("projection", "projections", "named", "mailboxes"),
        *("settings", "approved", "kind", "scanning"),
        *("snapshot", "snapshot_name"),
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
        left_out |= {"no_writers", "record", "record_findings", "keep"}
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


ROW_BYTES: Final = 140
"""How many bytes a staged row of the truth takes at most, and its mirror's row as many. Ordinary mails take some 90."""


@contextmanager
def staged(
    place: str | None, opened: OpenCluster, settings: RepairSettings, caller: Caller
) -> Iterator[tuple[RepairSettings, "StagingArea | None"]]:
    """The settings with the area's own T, and the area, for as long as the block lasts.

    Raises:
        StagingRefused: it is of another scan, another run is at work in it, or there is no room.
    """
    if place is None:
        yield settings, None
        return
    areas = import_or_name_extra("mailmend.repair.staging.area")
    store = _store_at(place)
    reads = {name: columns for family in settings.families for name, columns in family.columns_read.items()}
    scope = areas.StagedScope(
        version=version("mailmend"),
        keyspace=settings.keyspace,
        columns={name: columns for name, (_, columns) in reads.items()},
        level=settings.level.value,
        tables=opened.identity(table for family in settings.families for table in family.tables),
    )
    sizes = opened.sizes()
    segments = {name: areas.segments_for(sizes.get(table.name)) for name, (table, _) in reads.items()}
    rows = estimated_rows(sizes.get(settings.families[0].truth.name))
    needed = rows and 2 * rows * ROW_BYTES
    with store.held():
        area: StagingArea = areas.opened_area(
            store, scope, segments, needed, lambda: read_clocks(opened.clock, opened.cluster).earliest
        )
        state = area.as_json()
        about = ""
        if needed:
            about = f" of about {bytes_text(needed)}"
        caller.remark(
            f"Staging area {state['place']}{about}: {area.kept:,} of {area.number:,} segments are kept; the scan began "
            f"at {state['began_at']}."
        )
        first = area.began - settings.timing.margin_micros
        as_of = min(first, settings.as_of or first) - RUNS_APART_MICROS * (area.attempt - 1)
        known = {"staging": state["place"], "segments_kept": f"{area.kept} of {area.number}"}
        try:
            yield replace(settings, as_of=as_of, options={**settings.options, **known}), area
        except BaseException:
            caller.remark(f"Staged data in {state['place']} is kept: run the same command to continue.")
            raise


def _store_at(place: str) -> "StagingStore":
    """A folder, or `s3a://bucket/prefix[?endpoint=URL&region=NAME]`."""
    if "://" not in place:
        return StagingFolder(Path(place).expanduser().absolute())
    parts = urlsplit(place)
    mend = "Name a folder, or s3a://bucket/prefix?endpoint=https://s3.example.org&region=eu-1."
    if parts.scheme != "s3a" or not parts.netloc or not parts.path.strip("/"):
        raise WrongUse(f"{without_secrets(place)!r} is no place for a staging area", mend=mend)
    found = parse_blobs(f"s3://{parts.netloc}?{parts.query}")
    known = S3Settings(found.endpoint, found.bucket, region=found.region, allow_http=found.allow_http)
    bucket: type[StagingBucket] = import_or_name_extra("mailmend.repair.staging.bucket").StagingBucket
    return bucket(known.bucket, parts.path.strip("/"), known.endpoint, known.region)


def ended(summary: RepairResult, area: "StagingArea | None") -> None:
    """Tell of the area, and clear it; where the cluster was lost on the way it stays, and the same command goes on."""
    if area:
        summary.staging = area.as_json()
        if not summary.untried:
            area.clear()

"""The staging area of a run: opened before its first read, cleared once the run is complete."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import OpenCluster
from mailmend.admin.frame.extras import import_or_name_extra
from mailmend.admin.frame.settings import parse_blobs, without_secrets
from mailmend.mailqueue.blobs.s3 import S3Settings
from mailmend.model.errors import WrongUse
from mailmend.model.sizes import bytes_text
from mailmend.repair.clock import read_clocks
from mailmend.repair.decisions.engines import estimated_rows
from mailmend.repair.mending.engine import RUNS_APART_MICROS, RepairResult, RepairSettings
from mailmend.repair.staging.folder import StagingFolder

if TYPE_CHECKING:
    from mailmend.repair.staging.area import StagingArea, StagingStore  # its library comes with an extra of its own
    from mailmend.repair.staging.bucket import StagingBucket

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

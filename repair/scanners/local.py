"""The Spark-free engine: the same suspects as Spark finds, on one machine, in bounded memory.

Each table of the families is paged once. What is needed of each row goes, by its key, into files on
disk; rows of one key are then joined one part at a time, so a million messages or a hundred million
need the same memory, and only time and disk grow. The projections are read before the truth: what
is read last is never older.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from mailmend.model.operations import Scan
from mailmend.model.ports import Clock, Progress, Tables
from mailmend.model.projections.content import Content
from mailmend.model.projections.family import Family
from mailmend.model.projections.findings import Suspect
from mailmend.model.projections.group import Group
from mailmend.model.projections.partial_mirror import PartialMirror
from mailmend.model.projections.projection import Projection
from mailmend.model.table import Row, Table
from mailmend.repair.joins.parts import (
    GroupSums,
    Places,
    Tag,
    by_content,
    content_record,
    content_suspects,
    group_suspects,
    place_record,
)
from mailmend.repair.joins.records import (
    PART_BYTES_MAX,
    Forms,
    Packed,
    Record,
    Spill,
    SuspectFile,
    TruthRecord,
    Workshop,
    few_collections,
    packing_key,
)
from mailmend.repair.ledger.runs import Ledger
from mailmend.repair.mending.engine import LocalSuspects, RepairSettings
from mailmend.repair.mending.generators import (
    BehindGenerator,
    GeneratorWatch,
    generators_of,
)

if TYPE_CHECKING:
    from mailmend.repair.staging.area import StagingArea  # its library comes with an extra of its own

CONTENTS_MAX = 250_000
"""The largest number of keys of content in memory, which takes some 50 MB."""

PLACES_MAX = 250_000
"""The largest number of places that are joined in memory, which takes some 100 MB."""

_REPORTED_ROWS = 1000
"""After this many rows, progress is reported."""


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """Scans a keyspace page by page. Implements `repair.mending.engine.Detector`.

    Args:
        mail: the mail keyspace.
        ledger: where the second look's fixes are recorded; never touched by a check.
        folder: for files while the result is held; None: the system's temporary folder.
        part_bytes_max: the size of one join, in bytes on disk; memory is a small multiple of it.
        contents_max: how many keys of content may be held in memory.
        places_max: how many places are joined in memory.
        staging: where the rows of a scan are kept, so that the next attempt goes on.
    """

    mail: Tables
    ledger: Ledger
    clock: Clock
    folder: Path | None = None
    part_bytes_max: int = PART_BYTES_MAX
    contents_max: int = CONTENTS_MAX
    places_max: int = PLACES_MAX
    staging: "StagingArea | None" = None

    def detect(self, settings: RepairSettings, progress: Progress) -> "LocalDetection":
        detection = LocalDetection(self, settings)
        try:
            with few_collections():
                for number, family in enumerate(settings.families):
                    _FamilyScan(self, settings, progress, detection, family, str(number)).run()
        except BaseException:
            detection.close()
            raise
        return detection


class LocalDetection(LocalSuspects):
    """What a local scan found: suspects on disk, sums in memory."""

    def __init__(self, engine: LocalEngine, settings: RepairSettings) -> None:
        super().__init__(engine.mail, engine.ledger, engine.clock, settings.families)
        self.workshop = Workshop(engine.folder)
        self._suspects = SuspectFile(self.workshop)
        self.watches: list[GeneratorWatch] = []

    def suspects(self) -> Iterator[Suspect]:
        return iter(self._suspects)

    def generators_behind(self) -> list[BehindGenerator]:
        behind: list[BehindGenerator] = []
        for watch in self.watches:
            behind += watch.end()
        return behind

    def close(self) -> None:
        self._suspects.close()
        self.workshop.close()

    def found(self, suspect: Suspect) -> None:
        self._suspects.add(suspect)
        self.counts.setdefault(suspect.projection, Counter())[suspect.verdict] += 1


@dataclass(slots=True)
class _FamilyScan:
    engine: LocalEngine
    settings: RepairSettings
    progress: Progress
    detection: LocalDetection
    family: Family
    name: str
    forms: Forms = field(init=False)
    contents: Spill = field(init=False)
    places: list[Places] = field(init=False)
    groups: Spill = field(init=False)
    sums: GroupSums = field(init=False)
    standing: set[Packed] | None = field(default_factory=set)
    unnamed: set[Packed] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.forms = Forms(self.family, accept_torn=self.settings.policy.accept_torn)
        self.contents = self._spill("contents")
        self.groups = self._spill("groups")
        self.places = []
        for number, kept in enumerate(self.forms.places):
            most = self.engine.places_max // len(self.forms.places)
            self.places.append(Places(self.forms, kept, self._spill(f"places-{number}"), most))
        self.sums = GroupSums(self.forms)

    def run(self) -> None:
        family = self.family
        watches = self._watches()
        for mirror in family.copies:
            self._keep(mirror, self._mirror_keeper(watches))
        self._keep_filters()
        for number, group in enumerate(self.forms.groups):
            self._keep(group, self._group_keeper(group, number))
        if family.content:
            self._keep(family.content, self._content_keeper(family.content))
        keep = self._truth_keeper()
        for watch in watches:
            keep = partial(_keep_watched, watch, keep)
        if isinstance(family.mirror, PartialMirror):
            keep = partial(_keep_parts, family.mirror, keep)
        self._read(family.truth, family.truth_columns, keep)
        self.progress.stage("compare")
        if family.content:
            self._join_contents(family.content)
        self.standing = None
        self.unnamed = set()
        self._keep_sums()
        for places in self.places:
            for suspects, joined in places.parts():
                self._found(suspects, joined)
        for part in self.groups.parts():
            self._found(group_suspects(self.forms, part), len(part))

    def _keep_filters(self) -> None:
        for kept, places in zip(self.forms.places, self.places, strict=True):
            for number, projection in enumerate(kept.filters):
                place_of = kept.place_of(projection)
                tag = int(Tag.FILTER) + number
                self._keep(projection, _filter_keeper(places, place_of, tag))

    def _read(self, table: Table, columns: tuple[str, ...], keep: Callable[[Row], None]) -> None:
        self.progress.stage(f"read {table.spelling}")
        rows = 0
        scan = Scan(table, columns, self.settings.level)
        staging = self.engine.staging
        mail = self.engine.mail
        if staging:
            scanned = staging.scan(mail, scan, self.progress)
        else:
            scanned = mail.scan(scan)
        for row in scanned:
            keep(row)
            rows += 1
            if rows % _REPORTED_ROWS == 0:
                self.progress.advance(_REPORTED_ROWS)
        self.progress.advance(rows % _REPORTED_ROWS)
        self.detection.scanned[table.spelling] += rows

    def _keep(self, projection: Projection, keep: Callable[[Row], None]) -> None:
        self._read(projection.table, projection.read_columns, keep)

    def _watches(self) -> list[GeneratorWatch]:
        """Collect the numbers in use that generators gave."""
        engine = self.engine
        watches = []
        found = generators_of(self.family, engine.mail, engine.clock, self.settings.keyspace)
        for place, generators in enumerate(found):
            spill = self._spill(f"numbers-{place}")
            watches.append(GeneratorWatch(generators, self.family.mirror, spill))
        self.detection.watches += watches
        return watches

    def _mirror_keeper(self, watches: Sequence[GeneratorWatch]) -> Callable[[Row], None]:
        at_mirror, *_ = self.places

        def keep(row: Row) -> None:
            at_mirror.add(self._mirror_record(row))
            for watch in watches:
                watch.add_copy(row)

        return keep

    def _group_keeper(self, group: Group, number: int) -> Callable[[Row], None]:
        key_of = packing_key(group.table)
        beside = int(Tag.BESIDE)
        return lambda row: self.groups.add(((number, key_of(row)), beside, group.held(row)))

    def _mirror_record(self, row: Row) -> Record:
        place, mark = self.forms.mirror(row)
        return (place, int(Tag.BESIDE), mark)

    def _content_keeper(self, content: Content) -> Callable[[Row], None]:
        """The keys of content are held in memory while they fit, and else all go to files."""
        key_of = packing_key(content.table)

        def keep(row: Row) -> None:
            if self.standing is None:
                self.contents.add((key_of(row), int(Tag.BESIDE)))
                return
            self.standing.add(key_of(row))
            if len(self.standing) > self.engine.contents_max:
                held = self.standing
                self.standing = None
                for key in held:
                    self.contents.add((key, int(Tag.BESIDE)))

        return keep

    def _truth_keeper(self) -> Callable[[Row], None]:
        """Truths go to their places as soon as it is known whether their content exists."""
        if self.family.content is None:
            return lambda row: self._place(self.forms.truth(row), has_content=True)
        if self.standing is None:
            return self._await_content
        standing = self.standing
        unnamed = self.unnamed
        unnamed |= standing

        def keep(row: Row) -> None:
            truth = self.forms.truth(row)
            unnamed.discard(truth.content)
            self._place(truth, has_content=truth.content in standing or not truth.content)

        return keep

    def _await_content(self, row: Row) -> None:
        """A truth row waits in a file for its content, unless it demands none."""
        truth = self.forms.truth(row)
        if truth.content:
            self.contents.add(content_record(truth))
        else:
            self._place(truth, has_content=True)

    def _join_contents(self, content: Content) -> None:
        if self.standing is not None:
            named = self.standing - self.unnamed
            self._found(content_suspects(content, named, self.standing), len(self.standing))
        for part in self.contents.parts():
            truths, standing = by_content(part)
            for truth in chain.from_iterable(truths.values()):
                self._place(truth, has_content=truth.content in standing)
            self._found(content_suspects(content, truths.keys(), standing), len(part))

    def _place(self, truth: TruthRecord, *, has_content: bool) -> None:
        for places, key in zip(self.places, truth.places, strict=True):
            if key:
                places.add(place_record(truth, has_content=has_content, at=key))
        self.sums.count(truth, has_content=has_content)
        if self.sums.full:
            self._keep_sums()

    def _keep_sums(self) -> None:
        for record in self.sums.take():
            self.groups.add(record)

    def _found(self, suspects: Iterator[Suspect], records: int) -> None:
        count = 0
        for suspect in suspects:
            self.detection.found(suspect)
            count += 1
        self.progress.advance(records, count)

    def _spill(self, name: str) -> Spill:
        return Spill(self.detection.workshop, f"{self.name}-{name}", part_bytes_max=self.engine.part_bytes_max)


def _keep_parts(mirror: PartialMirror, keep: Callable[[Row], None], row: Row) -> None:
    for part in mirror.unnested(row):
        keep(part)


def _keep_watched(watch: GeneratorWatch, keep: Callable[[Row], None], row: Row) -> None:
    watch.add(row)
    keep(row)


def _filter_keeper(
    places: Places,
    place_of: Callable[[Row], Packed],
    tag: int,
) -> Callable[[Row], None]:
    return lambda row: places.add((place_of(row), tag))

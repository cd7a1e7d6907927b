"""Looking at one message or mailbox without Spark: an engine whose scan is a few reads by key.

For a message, everything that its truth and content lead to is checked, as these are keyed by it. A
mirror row of the message without a truth is keyed by a mailbox: it is found only in the mailboxes
that are named with the message, or by paging the mirror (`scan`). For a mailbox, its own partitions
in every projection and its counters are checked: rows that differ from their truth and rows without
one (AMEND, WITHDRAW). A truth without any projection is found only by paging the truth (`scan`).
Otherwise only its possible traces are found and left: rows without truth, counters, and gaps (uids
that the mailbox gave and that no mirror row has). Pages are processed in bounded pieces. Suspects
are then handled as always: wait, look again, mend.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Any
from uuid import UUID

from mailmend.model.catalog.mail import MAILBOX_PATH, MESSAGE_COUNTER, PRIVATE
from mailmend.model.errors import MailmendError, WrongUse
from mailmend.model.ids import MailboxId, MessageId
from mailmend.model.operations import Read, Scan
from mailmend.model.ports import Clock, Progress, Tables
from mailmend.model.projections.family import Family, Filter, Union
from mailmend.model.projections.findings import RepairPolicy, Suspect, counts_of
from mailmend.model.projections.look import Look
from mailmend.model.projections.projection import Projection
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Key, Row, Table
from mailmend.model.texts import printable
from mailmend.repair.ledger.runs import Ledger
from mailmend.repair.mending.counter_reads import Tallies
from mailmend.repair.mending.counters import truths_beside
from mailmend.repair.mending.engine import LocalSuspects, RepairSettings
from mailmend.repair.mending.fixer import BATCH_SUSPECTS
from mailmend.repair.mending.generators import BehindGenerator, GeneratorWatch, generators_of
from mailmend.repair.mending.second_look import SecondLook
from mailmend.repair.scanners.keyed import NamedRows, TargetRows, key_named, suspects_named
from mailmend.repair.store.mailboxes import did_you_mean, user_name

ROWS_AT_ONCE = 1000
"""The largest number of rows, of a partition or a paged table, in memory at once."""

SUSPECTS_MAX = 100_000
"""The largest number of suspects of one target, which are held in memory."""


@dataclass(frozen=True, slots=True)
class TargetMessages:
    """Messages to be checked: where their truth leads, and in the rows of `mailboxes`, or of all with `scan`."""

    ids: tuple[MessageId, ...]
    mailboxes: tuple[MailboxId, ...] = ()
    scan: bool = False

    @property
    def mirror_partitions(self) -> list[Key]:
        """The partitions of the mirror in which rows of the messages are looked for; () is the whole mirror."""
        if self.scan:
            return [()]
        return [(mailbox,) for mailbox in self.mailboxes]

    def unseen(self, gaps: int = 0) -> str | None:  # noqa: ARG002 - of mailboxes
        """A sentence on what this check cannot find; None where it finds everything."""
        if self.scan:
            return None
        if self.mailboxes:
            return _TRACES_ELSEWHERE
        return _TRACES_ANYWHERE


@dataclass(frozen=True, slots=True)
class TargetMailboxes:
    """Mailboxes to be checked; with `scan` the whole truth is paged for messages that should be in them."""

    ids: tuple[MailboxId, ...]
    scan: bool = False

    def unseen(self, gaps: int) -> str | None:
        """A sentence on what this check cannot find; None where the mirror has every uid that was given."""
        if not gaps:
            return None
        return _MISSING_ROWS.format(gaps)


_TRACES_ANYWHERE = (
    "Exact in all that the message's truth and content lead to. Not looked for: a row of messageIdTable that names it "
    "where none of its truth leads, for it is keyed by mailbox: add --mailbox or --user, or --scan to page them all."
)
_TRACES_ELSEWHERE = (
    "Exact in all that the message's truth and content lead to, and in the mailboxes that were named. Not looked for: "
    "a row of messageIdTable that names it elsewhere, where none of its truth leads: add --scan to page them all."
)
_MISSING_ROWS = (
    "Only what the mailboxes' own rows and counters show was looked at. {:,} of the uids that they have given are in "
    "no row of messageIdTable: of messages that were deleted, or of some that were never listed. --scan tells which, "
    "and mends them; --message does for one that is known."
)

Target = TargetMessages | TargetMailboxes | TargetRows


PATHS_MAX = 20_000
"""The number of registered paths among which a similar user is looked for."""


def mailboxes_of(mail: Tables, user: str, namespace: str = PRIVATE) -> tuple[MailboxId, ...]:
    """The mailboxes of a user's registered paths; of the user as typed too, where a program wrote capitals.

    Raises:
        BadName: James cannot know such a user.
        WrongUse: the user has none.
    """
    ids = []
    for owner in dict.fromkeys((user_name(user), user)):
        for seen in mail.read(Read(MAILBOX_PATH, (namespace, owner))):
            mailbox = seen.row.get("mailboxid")
            if mailbox:
                ids.append(MailboxId(mailbox))
    if not ids:
        raise WrongUse(
            f"user {printable(user)!r} has no mailbox",
            mend=similar_user(mail, user, namespace) or "See which users have: mailboxPathV3 lists them.",
        )
    return tuple(ids)


def similar_user(mail: Tables, user: str, namespace: str = PRIVATE) -> str:
    """A sentence that names a similar user, among the users of the first `PATHS_MAX` paths; "" without one."""
    paths = mail.scan(Scan(MAILBOX_PATH, ("namespace", "user"), limit=PATHS_MAX))
    users = set()
    for path in paths:
        if path["namespace"] == namespace:
            users.add(path["user"])
    return did_you_mean(user, users)


def refuse_mistyped(
    mail: Tables,
    families: Sequence[Family],
    target: Target | None,
    clock: Clock,
) -> None:
    """Refuse messages and rows that are nowhere: an id or a key is mistyped.

    Raises:
        WrongUse: there are such messages or rows; the error names them.
    """
    if isinstance(target, TargetMessages):
        refuse_unknown(mail, families[0], target)
    elif isinstance(target, TargetRows):
        refuse_unknown_rows(mail, families, target, clock)


def refuse_unknown(mail: Tables, family: Family, target: TargetMessages) -> None:
    """Refuse messages that are in neither truth nor content, nor in any mirror row that is read.

    Raises:
        WrongUse: there are such messages; the error names them.
    """
    tables = [family.truth]
    if family.content:
        tables.append(family.content.table)
    unknown: dict[MessageId, None] = {}
    for message_id in target.ids:
        if not any(mail.read(Read(table, (message_id,))) for table in tables):
            unknown[message_id] = None
    if not unknown:
        return
    (lead,) = family.truth.partition_names
    lead = family.mirror.own_names.get(lead, lead)
    partitions = target.mirror_partitions
    for partition in partitions:
        for row in mail.scan(Scan(family.mirror.table, (lead,), under=partition)):
            unknown.pop(row[lead], None)
    if not unknown:
        return
    if partitions:
        tables.append(family.mirror.table)
    names = ", ".join(table.spelling for table in tables)
    mend = "See that no id is mistyped."
    if not target.scan:
        mend += " A row of messageIdTable alone is found with --mailbox, --user or --scan."
    raise WrongUse(f"no row of {names} names message {', '.join(map(str, unknown))}: nothing was done", mend=mend)


def refuse_unknown_rows(
    mail: Tables,
    families: Iterable[Family],
    target: TargetRows,
    clock: Clock,
) -> None:
    """Refuse keys under which neither a truth nor a table that follows has a row.

    Raises:
        WrongUse: there are such keys; the error names them, and what was looked up.
    """
    unknown = []
    looked_up: dict[str, None] = {}
    for rows in target.rows:
        finder = _RowFinder(mail, clock, rows)
        if not any(finder.finds(family) for family in families):
            unknown.append(finder.text)
            looked_up |= dict.fromkeys(finder.looked_up)
    if unknown:
        raise WrongUse(
            f"neither a truth nor a projection has a row of --key {' or '.join(unknown)}",
            mend=f"Looked up: {'; '.join(looked_up)}. See that no value is mistyped. "
            "A row that a projection lacks is found by the key of its truth, or without --key.",
        )


@dataclass(slots=True)
class _RowFinder:
    """Looks for any row under one key.

    Attributes:
        looked_up: the keys that were read, in the form of `--key`.
    """

    mail: Tables
    clock: Clock
    rows: NamedRows
    text: str = ""
    looked_up: list[str] = field(default_factory=list)

    def finds(self, family: Family) -> bool:
        """Whether a row of the family is under the key, or a truth that a whole key names."""
        for table in family.tables:
            if table.name != self.rows.table:
                continue
            self.text = key_named(table, self.rows.key)
            self.looked_up.append(self.text)
            columns = table.key_names
            if any(self.mail.scan(Scan(table, columns, under=self.rows.key, limit=1))):
                return True
        return any(self._finds_truth(family, projection) for projection in family.projections)

    def _finds_truth(self, family: Family, projection: Projection) -> bool:
        """Whether the truth has a row that a whole key names, of a row that is not there."""
        table = projection.table
        if table.name != self.rows.table or len(self.rows.key) < len(table.key):
            return False
        looks = SecondLook(self.mail, (family,), RepairPolicy(), self.clock)
        suspect = Suspect(projection.name, self.rows.key, Verdict.WITHDRAW)
        if not looks.visits(suspect):
            return False
        (look,) = looks.at([suspect])
        if isinstance(look, MailmendError):
            raise look
        self.looked_up += [key_named(family.truth, lead) for lead in look.leads]
        return bool(look.truths)


@dataclass(frozen=True, slots=True)
class Targeted:
    """Looks at one target. Implements `repair.mending.engine.Detector`.

    Args:
        ledger: where the second look's fixes are recorded; never touched by a check.
    """

    mail: Tables
    ledger: Ledger
    clock: Clock
    target: Target
    serial: bool = True

    def detect(self, settings: RepairSettings, progress: Progress) -> "TargetSuspects":
        found = TargetSuspects(self, settings)
        policy = RepairPolicy(only=frozenset(), accept_torn=settings.policy.accept_torn, serial=self.serial)
        for family in settings.families:
            kept = dict(family.mirror.kept)
            if Verdict.WITHDRAW not in kept:  # a second row of truth may be anywhere
                progress.stage(f"look at {family.truth.spelling}")
                _FamilyLook(self, settings, progress, found, family, policy).all()
        found.counts = counts_of(found.suspects())
        return found


@dataclass(frozen=True, slots=True)
class _FamilyLook:
    engine: Targeted
    settings: RepairSettings
    progress: Progress
    found: "TargetSuspects"
    family: Family
    policy: RepairPolicy

    def all(self) -> None:
        """Later looks know more and replace earlier ones."""
        match self.engine.target:
            case TargetMessages(ids=ids) as target:
                self._look_at_traces(frozenset(ids), target.mirror_partitions)
                for message in ids:
                    self._look(self._of_truths(self._rows(self.family.truth, (message,))))
                    self._look(self._of_content((message,)))
            case TargetRows(rows=rows):
                self._look(suspects_named(self.family, rows, self._streamed, self.settings.level))
            case TargetMailboxes(ids=ids, scan=scan):
                watches = self._watches()
                self._look_at_orphans(ids)
                self._look_at_partitions(ids, watches, gaps=not scan)
                if scan:
                    self._look(self._of_truths(self._paged(frozenset(ids), watches)))
                self._look_at_counters(ids)
                for watch in watches:
                    self.found.behind += watch.end()

    def _watches(self) -> list[GeneratorWatch]:
        """Collect the numbers in use that generators gave."""
        engine = self.engine
        found = generators_of(self.family, engine.mail, engine.clock, self.settings.keyspace)
        return [GeneratorWatch(generators, self.family.mirror) for generators in found]

    def _look(self, candidates: Iterator[Suspect], *, only_with_truth: bool = False) -> None:
        looks = SecondLook(self.engine.mail, (self.family,), self.policy, self.engine.clock)
        while batch := list(islice(candidates, BATCH_SUSPECTS)):
            for look in looks.confirmed(looks.at(batch)):
                self.found.take(look, only_with_truth=only_with_truth)
            self.progress.advance(len(batch))

    def _look_at_traces(self, messages: frozenset[UUID], partitions: Iterable[Key]) -> None:
        """Mirror rows that name one of the messages, wherever the truth may be."""
        for partition in partitions:
            rows = chain.from_iterable(self._named(partition))
            self._look(self._of_mirror(row for row in rows if row[self._lead] in messages))

    def _look_at_partitions(
        self,
        ids: Iterable[UUID],
        watches: Sequence[GeneratorWatch],
        *,
        gaps: bool,
    ) -> None:
        """Places of the mirror's rows, half-written ones too; filters only where a truth was found."""
        mirror = self.family.mirror
        _, uid = mirror.key_sources
        for mailbox in ids:
            last_given = self._last_uid(mailbox)  # before the rows: a row that is read has its uid counted
            last = last_given
            shown = 0
            for rows in self._named((mailbox,)):
                named = []
                halves = []
                for row in rows:
                    for watch in watches:
                        watch.add(row)
                    last = max(last, row[uid])
                    if self.family.truth.partition_named_by(row) is None:
                        halves.append(Suspect(mirror.name, mirror.key_of(row), Verdict.WITHDRAW))
                    else:
                        named.append(row)
                shown += len(named)
                self._look(iter(halves))
                self._look(self._of_mirror(named))
                self._look(self._of_groups(named), only_with_truth=True)
            if gaps:
                self.found.gaps += last - shown

    def _last_uid(self, mailbox: UUID) -> int:
        """The last one that the mailbox has given; 0 before the first. Uids are given once, from 1 on."""
        rows = self.engine.mail.read(Read(MESSAGE_COUNTER, (mailbox,)))
        return max((seen.row.get("nextuid") or 0 for seen in rows), default=0)

    def _named(self, under: Key) -> Iterator[list[Row]]:
        """What the mirror's rows tell of the truth, in bounded lists; a half-written row names no message."""
        mirror = self.family.mirror
        own = mirror.own_names
        leads = [own.get(name, name) for name in self.family.truth.partition_names]
        columns = dict.fromkeys((*mirror.table.key_names, *leads))
        for numbering in self.family.numberings:
            numbers = [own.get(name, name) for name in numbering.columns]
            columns |= dict.fromkeys(name for name in numbers if name in mirror.table)
        rows = self._streamed(Scan(mirror.table, tuple(columns), self.settings.level, under=under))
        while some := list(islice(rows, ROWS_AT_ONCE)):
            yield [mirror.restored(row) for row in some]

    def _look_at_orphans(self, ids: Iterable[UUID]) -> None:
        """Filter rows that may lack a truth; the look decides."""
        for mailbox in ids:
            for projection in self.family.filters:
                table = projection.table
                rows = self._streamed(Scan(table, table.key_names, self.settings.level, under=(mailbox,)))
                self._look(Suspect(projection.name, table.key_of(row), Verdict.WITHDRAW) for row in rows)

    def _look_at_counters(self, ids: Iterable[UUID]) -> None:
        """Counters can be judged only after all truths of the mailbox were seen."""
        for counts in self.family.counts:
            groups = [(mailbox,) for mailbox in ids]
            beside = truths_beside(self.family, counts, groups, self.found.suspects())
            tallies = Tallies(self.engine.mail, self.family, counts, self.policy, beside)
            for group in groups:
                tally = tallies.first(group)
                if not tally.deltas:
                    continue
                verdict = Verdict.PROJECT
                if tally.row:
                    verdict = Verdict.AMEND
                self.found.keep(Suspect(counts.name, group, verdict))

    def _of_truths(self, rows: Iterable[Row]) -> Iterator[Suspect]:
        for row in rows:
            yield from self._of_mirror([row])
            yield from self._of_groups([row])

    def _of_mirror(self, rows: Iterable[Row]) -> Iterator[Suspect]:
        mirror = self.family.mirror
        for row in rows:
            if mirror.is_demanded_by(row):
                lead = self.family.truth.partition_of(row)
                yield Suspect(mirror.name, mirror.key_of(row), Verdict.WITHDRAW, (lead,))

    def _of_groups(self, rows: Iterable[Row]) -> Iterator[Suspect]:
        keyed: list[Filter | Union] = [*self.family.filters, *self.family.unions]
        for row in rows:
            lead = self.family.truth.partition_of(row)
            for projection in keyed:
                if projection.is_demanded_by(row):
                    yield Suspect(projection.name, projection.key_of(row), Verdict.AMEND, (lead,))

    def _of_content(self, lead: Key) -> Iterator[Suspect]:
        if self.family.content is not None:
            row = self.family.truth.key_row(lead)
            yield Suspect(self.family.content.name, self.family.content.key_of(row), Verdict.LEAK)

    def _rows(self, table: Table, key: Key) -> list[Row]:
        rows = [seen.row for seen in self.engine.mail.read(Read(table, key))]
        self.found.scanned[table.spelling] += len(rows)
        return rows

    def _paged(self, ids: frozenset[UUID], watches: Sequence[GeneratorWatch]) -> Iterator[Row]:
        truth = self.family.truth
        mailbox, _ = self.family.mirror.key_sources
        for row in self._streamed(Scan(truth, self.family.truth_columns, self.settings.level)):
            if row[mailbox] in ids:
                for watch in watches:
                    watch.add(row)
                yield row

    def _streamed(self, scan: Scan) -> Iterator[Row]:
        rows = self.engine.mail.scan(scan)
        while some := list(islice(rows, ROWS_AT_ONCE)):
            self.found.scanned[scan.table.spelling] += len(some)
            self.progress.advance(len(some))
            yield from some

    @property
    def _lead(self) -> str:
        return self.family.truth.partition[0].name


class TargetSuspects(LocalSuspects):
    """The suspects of a target, in memory: at most SUSPECTS_MAX."""

    def __init__(self, engine: Targeted, settings: RepairSettings) -> None:
        super().__init__(engine.mail, engine.ledger, engine.clock, settings.families)
        self._suspects: dict[tuple[str, Key], Suspect] = {}
        self.behind: list[BehindGenerator] = []

    def suspects(self) -> Iterator[Suspect]:
        return iter(list(self._suspects.values()))

    def generators_behind(self) -> list[BehindGenerator]:
        return self.behind

    def keep(self, suspect: Suspect) -> None:
        """Add a suspect."""
        self._suspects[suspect.projection, suspect.key] = suspect
        if len(self._suspects) > SUSPECTS_MAX:
            raise WrongUse(
                f"more than {SUSPECTS_MAX:,} rows of the target look wrong",
                mend="Repair the whole keyspace: without --message, --mailbox, --user and --key.",
            )

    def take(self, look: Look | MailmendError, *, only_with_truth: bool = False) -> None:
        """Keep a look that does not agree; one that agrees removes a WITHDRAW suspect of the place."""
        if isinstance(look, MailmendError):
            raise look
        verdict = look.verdict
        place = (look.suspect.projection, look.key)
        before = self._suspects.get(place)
        if verdict is not Verdict.AGREE and (look.truths or not only_with_truth):
            self.keep(_merged(before, look, verdict))
        elif verdict is Verdict.AGREE and before is not None and before.verdict is Verdict.WITHDRAW:
            del self._suspects[place]


def _merged(before: Suspect | None, look: Look, verdict: Verdict) -> Suspect:
    """The suspect with all truths that led here; for a union with all wanted elements, and one truth for each."""
    earlier: tuple[Key, ...] = ()
    known: Mapping[str, Any] = {}
    if before:
        earlier = before.truth_keys
        known = before.wanted
    keys = dict.fromkeys(earlier)
    if wanted := look.projection.wanted(look):
        both = {}
        for name, cells in wanted.items():
            both[name] = cells | frozenset(known.get(name) or ())
        if before is None or both != known:  # this truth has an element that none before it has
            keys |= dict.fromkeys(look.suspect.truth_keys)
        return replace(look.suspect, verdict=verdict, truth_keys=tuple(keys), wanted=both)
    keys |= dict.fromkeys(look.suspect.truth_keys)
    truth = look.mirror.truth
    for seen in look.truths:
        if seen.row.keys() >= set(truth.partition_names):
            keys[truth.partition_of(seen.row)] = None
    return replace(look.suspect, verdict=verdict, truth_keys=tuple(keys))

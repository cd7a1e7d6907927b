"""Looking at one message or mailbox without any scan by Spark: an engine whose scan is a few reads by key.

A message is exact: the truth is keyed by it. A mailbox shows what its own partitions show: rows that differ from their
truth and rows without one (AMEND, WITHDRAW); a truth that is not projected at all is found only by paging the truth
(`scan`), because the truth is keyed by message. What is found goes the way of every suspect: wait, look again, mend.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from uuid import UUID

from model.catalog import MAILBOX_PATH
from model.errors import MailmendError, WrongUse
from model.ids import MailboxId, MessageId
from model.operations import Read, Scan
from model.projections import Family, Union
from model.table import Key, Row, Table
from repair.decide import Verdict
from repair.findings import Detection, Errand, Outcome, Progress, Survey, Suspect
from repair.fixer import BATCH_SUSPECTS, Fixer
from repair.fixes import Sight, restored
from repair.journal import Journal
from repair.looks import SecondLook
from repair.pace import Pace
from repair.ports import Clock, Tables
from repair.recheck import verdict_of

PRIVATE = "#private"
"""The namespace of users' own mailboxes, as James spells it."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message, wherever it is."""

    id: MessageId


@dataclass(frozen=True, slots=True)
class Mailboxes:
    """Some mailboxes; with `scan` the whole truth is paged for messages that should be in them."""

    ids: tuple[MailboxId, ...]
    scan: bool = False


Target = Message | Mailboxes


def mailboxes_of(mail: Tables, user: str, namespace: str = PRIVATE) -> tuple[MailboxId, ...]:
    """The mailboxes that are registered under a user's paths.

    Raises:
        WrongUse: there are none.
    """
    rows = mail.read(Read(MAILBOX_PATH, (namespace, user)))
    ids = tuple(MailboxId(seen.row["mailboxid"]) for seen in rows if seen.row.get("mailboxid"))
    if not ids:
        raise WrongUse(f"user {user!r} has no mailbox", mend="See which users have: mailboxPathV3 lists them.")
    return ids


@dataclass(frozen=True, slots=True)
class Targeted:
    """Looks at a target only. Implements `repair.findings.Engine`.

    Args:
        journal: where the second look's fixes are recorded; never touched by a check.
    """

    mail: Tables
    journal: Journal
    clock: Clock
    target: Target
    serial: bool = True

    def detect(self, survey: Survey, progress: Progress) -> "Found":
        """Look at everything that the target's own keys lead to."""
        found = Found(self, survey)
        for family in survey.families:
            if family.mirror.report_only:
                continue
            progress.stage(f"look at {family.truth.spelling}")
            self._look(family, survey, progress, found)
        return found

    def _look(self, family: Family, survey: Survey, progress: Progress, found: "Found") -> None:
        errand = Errand(None, 0, 0.0, frozenset(), accept_torn=survey.accept_torn, serial=self.serial)
        looks = SecondLook(self.mail, (family,), errand)
        candidates = self._candidates(family, found)
        while batch := list(islice(candidates, BATCH_SUSPECTS)):
            for sight in looks.at(batch):
                found.take(sight)
            progress.advance(len(batch))

    def _candidates(self, family: Family, found: "Found") -> Iterator[Suspect]:
        match self.target:
            case Message(id=message):
                truths = self._rows(family.truth, (message,), found)
                yield from _of_truths(family, truths)
                yield from _of_content(family, (message,))
            case Mailboxes(ids=ids, scan=scan):
                yield from self._of_mailboxes(family, ids, found)
                if scan:
                    yield from _of_truths(family, self._paged(family.truth, frozenset(ids), found))

    def _of_mailboxes(self, family: Family, ids: Iterable[UUID], found: "Found") -> Iterator[Suspect]:
        """What the mailboxes' partitions hold: mirror rows, and at each of their places the filters' rows."""
        for mailbox in ids:
            rows = self._rows(family.mirror.table, (mailbox,), found)
            told = [restored(family.mirror, row) for row in rows]
            yield from _of_truths(family, told)

    def _rows(self, table: Table, key: Key, found: "Found") -> list[Row]:
        rows = [seen.row for seen in self.mail.read(Read(table, key))]
        found.saw(table, len(rows))
        return rows

    def _paged(self, truth: Table, ids: frozenset[UUID], found: "Found") -> Iterator[Row]:
        columns = tuple(column.name for column in truth.columns)
        for row in self.mail.scan(Scan(truth, columns)):
            found.saw(truth, 1)
            if row["mailboxid"] in ids:
                yield row


class Found(Detection):
    """What was found of a target, in memory: a message or a mailbox is small."""

    def __init__(self, engine: Targeted, survey: Survey) -> None:
        self._engine, self._survey = engine, survey
        self._suspects: dict[tuple[str, Key], Suspect] = {}
        self._scanned: Counter[str] = Counter()

    @property
    def scanned(self) -> Mapping[str, int]:
        """Rows read, per table in James's spelling."""
        return self._scanned

    @property
    def counts(self) -> Mapping[str, Mapping[Verdict, int]]:
        """Suspects per projection and verdict."""
        counts: dict[str, Counter[Verdict]] = {}
        for suspect in self._suspects.values():
            counts.setdefault(suspect.projection, Counter())[suspect.verdict] += 1
        return counts

    def suspects(self) -> Iterator[Suspect]:
        """Every suspect."""
        return iter(self._suspects.values())

    def revisit(self, errand: Errand, progress: Progress) -> Iterator[Outcome]:
        """Look at every suspect again, and mend what the errand allows."""
        engine = self._engine
        pace = Pace(errand.rows_per_second, engine.clock)
        fixer = Fixer(engine.mail, engine.journal, engine.clock, self._survey.families, errand, pace)
        for outcome in fixer.revisit(self.suspects()):
            progress.advance(1)
            yield outcome

    def close(self) -> None:
        """Nothing is held."""

    def saw(self, table: Table, rows: int) -> None:
        """So many more rows of a table were read."""
        self._scanned[table.spelling] += rows

    def take(self, sight: Sight | MailmendError) -> None:
        """Keep a sight that does not agree.

        Raises:
            MailmendError: it could not be read.
        """
        if isinstance(sight, MailmendError):
            raise sight
        verdict = verdict_of(sight.look)
        if verdict is not Verdict.AGREE:
            self._suspects[sight.suspect.projection, sight.suspect.key] = _suspect(sight, verdict)


def _suspect(sight: Sight, verdict: Verdict) -> Suspect:
    column = sight.family.truth.partition[0].name
    ids = tuple(dict.fromkeys((*sight.suspect.truth_ids, *(seen.row[column] for seen in sight.look.truths))))
    wanted = {}
    if isinstance(sight.look.projection, Union):
        wanted = {sight.look.projection.column: sight.look.truths[0].row[sight.look.projection.column]}
    return Suspect(sight.suspect.projection, sight.suspect.key, verdict, ids if not wanted else (), wanted)


def _of_truths(family: Family, rows: Iterable[Row]) -> Iterator[Suspect]:
    """A candidate for each projection of each row; a row may be a truth, or what a mirror says of one."""
    column = family.truth.partition[0].name
    for row in rows:
        ids = (row[column],) if row.get(column) is not None else ()
        for one in (family.mirror, *family.filters):
            yield Suspect(one.name, one.key_of(row), Verdict.WITHDRAW, ids)
        if ids:
            yield from (Suspect(one.name, one.key_of(row), Verdict.AMEND, ids) for one in family.unions)


def _of_content(family: Family, lead: Key) -> Iterator[Suspect]:
    if family.content is not None:
        row = {column.name: part for column, part in zip(family.truth.partition, lead, strict=True)}
        yield Suspect(family.content.name, family.content.key_of(row), Verdict.LEAK)

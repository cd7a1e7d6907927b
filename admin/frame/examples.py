"""What a person sees of findings: a few of each kind, in whose mailboxes they are, and when their rows were written.

Kept while findings are streamed, within bounds: a report stays small whatever was found. Owners of
mailboxes are personal data: looked up for what a person asked to see, never kept in the ledger and
never logged.
"""

from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, NamedTuple
from uuid import UUID

from mailmend.admin.frame.caller import Caller, ignore
from mailmend.admin.frame.run_scopes import MAIL, RunScope
from mailmend.model.catalog.mail import PATHS, PRIVATE
from mailmend.model.errors import MailmendError
from mailmend.model.instants import MICROS
from mailmend.model.operations import Level, Read
from mailmend.model.ports import Tables
from mailmend.model.projections.findings import Finding
from mailmend.model.projections.projection import Projection
from mailmend.model.projections.verdicts import MENDABLE, Verdict, Why
from mailmend.model.table import Key, Row
from mailmend.repair.ledger.runs import Run

MAILBOXES_AT_ONCE: Final = 100
"""Mailboxes that are looked up in one batch."""


class Owner(NamedTuple):
    """Whose a mailbox is, and its path below that user."""

    user: str
    path: str


def owners_of(
    mail: Callable[[], Tables], mailboxes: Iterable[UUID], remark: Callable[[str], None]
) -> dict[UUID, Owner]:
    """The owners that are known; where they cannot be asked for, that is remarked, and who is left stays an id."""
    found = dict[UUID, Owner]()
    waiting = iter(dict.fromkeys(mailboxes))
    try:
        while batch := tuple(islice(waiting, MAILBOXES_AT_ONCE)):
            reads = [Read(PATHS.mirror.table, (id_,), Level.LOCAL_QUORUM, joinable=True) for id_ in batch]
            for mailbox, answer in zip(batch, mail().read_all(reads), strict=True):
                if isinstance(answer, MailmendError):
                    raise answer
                if answer:
                    found[mailbox] = owner_in(PATHS.mirror.restored(answer[0].row))
    except MailmendError as error:
        remark(f"The owners of the mailboxes are not known: {error.what}.")
    return found


def owner_in(path: Row) -> Owner:
    """The owner that a row of mailboxPathV3 names."""
    names: Mapping[str, str] = {name: path.get(name) or "" for name in ("namespace", "user", "mailboxname")}
    mailbox = names["mailboxname"]
    if names["namespace"] != PRIVATE:
        mailbox = f"{names['namespace']}:{mailbox}"
    return Owner(names["user"], mailbox)


EXAMPLES_MAX: Final = 5
"""Examples kept per projection and verdict."""

MAILBOXES_MAX: Final = 10_000
"""Mailboxes whose findings are counted apart: the first that come."""

MAILBOXES_SHOWN: Final = 100
"""How many mailboxes are named: those with the most findings."""

HOURS_MAX: Final = 20_000
"""Hours in which rows of findings were written that are counted apart: more than two years without a gap."""

_HOUR: Final = 3600 * MICROS


@dataclass(frozen=True, slots=True)
class Example:
    """One finding that is shown, without what it would have written.

    Attributes:
        mailbox: in which it is; None for content, mails in queues and rows that are not mail.
        is_mail: whether it is of James's tables.
        undoes: whether it is of an undo, which puts rows back.
    """

    finding: Finding
    mailbox: UUID | None = None
    is_mail: bool = True
    undoes: bool = False

    @property
    def projection(self) -> str:
        return self.finding.suspect.projection

    @property
    def verdict(self) -> Verdict:
        return self.finding.verdict

    @property
    def key(self) -> str:
        return key_text(self.finding.suspect.key)

    @property
    def result(self) -> str:
        if self.undoes and self.finding.error is None and self.finding.result is Verdict.FIXED:
            return "put back"
        return result_text(self.finding)


@dataclass(frozen=True, slots=True)
class MailboxFindings:
    """The findings in one mailbox by verdict, how many are not mended, and how many of them a repair mends."""

    counts: Counter[Verdict] = field(default_factory=Counter)
    left: Counter[Verdict] = field(default_factory=Counter)
    due: set[Verdict] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Affected:
    """In whose mailboxes findings are, and when their rows were written.

    Attributes:
        mailboxes: those with the most findings first.
        elsewhere: findings in other mailboxes.
        hours: findings by the hour (since 1970) of the newest write of their rows, and verdict.
        runs: of the ledger, the newest first.
        owners: of these mailboxes and of the examples' mailboxes, as far as they are known.
        anonymous: whether names are left out.
    """

    mailboxes: Mapping[UUID, MailboxFindings] = field(default_factory=dict)
    elsewhere: int = 0
    hours: Mapping[tuple[int, Verdict], int] = field(default_factory=dict)
    owners: Mapping[UUID, Owner] = field(default_factory=dict)
    anonymous: bool = False
    runs: tuple[Run, ...] = ()


@dataclass(slots=True)
class Examples:
    """A few outcomes of each kind: the first by their keys, in whatever order an engine finds them; and sums.

    Attributes:
        caller: gets each finding too.
        scope: what the run looks at.
        plan: adds each finding to a plan that is made.
        undoes: whether the run is an undo.
    """

    caller: Caller = field(default_factory=Caller)
    scope: RunScope = MAIL
    plan: Callable[[Finding], None] = ignore
    undoes: bool = False
    kept: dict[tuple[str, str], list[tuple[str, Example]]] = field(default_factory=dict)
    mailboxes: dict[UUID, MailboxFindings] = field(default_factory=dict)
    elsewhere: int = 0
    hours: Counter[tuple[int, Verdict]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        if not self.scope.is_mail:
            for name, projection in self.scope.projections.items():
                self.caller.tables[name] = projection.table

    def take(self, finding: Finding) -> None:
        """Keep the finding where it is one of the first, and give it to the caller and to the plan."""
        self.add(finding)
        self.caller.finding(finding)
        self.plan(finding)

    def _example(self, finding: Finding) -> Example:
        return Example(finding, self._mailbox(finding), self.scope.is_mail, self.undoes)

    def _mailbox(self, finding: Finding) -> UUID | None:
        if not self.scope.is_mail:
            return None
        return mailbox_in(finding, self.scope.projections.get(finding.suspect.projection))

    def add(self, outcome: Finding) -> None:
        if outcome.verdict is Verdict.AGREE and outcome.error is None:
            return
        self._count(outcome)
        name = outcome.suspect.projection
        key = key_text(outcome.suspect.key)
        seen = self.kept.setdefault((name, outcome.verdict.value), [])
        if len(seen) < EXAMPLES_MAX or key < seen[-1][0]:
            few = outcome.truths[:TRUTHS_SHOWN]
            kept = replace(outcome, truths=few, writes=(), condition=None, beside=())
            insort(seen, (key, self._example(kept)), key=lambda one: one[0])
            del seen[EXAMPLES_MAX:]

    def _count(self, outcome: Finding) -> None:
        mailbox = self._mailbox(outcome)
        if mailbox in self.mailboxes or (mailbox is not None and len(self.mailboxes) < MAILBOXES_MAX):
            found = self.mailboxes.setdefault(mailbox, MailboxFindings())
            found.counts[outcome.verdict] += outcome.number
            if outcome.result is not Verdict.FIXED:
                found.left[outcome.verdict] += outcome.number
                is_path = outcome.suspect.projection == PATHS.mirror.name
                if outcome.verdict in MENDABLE and not is_path:
                    found.due.add(outcome.verdict)
        elif mailbox is not None:
            self.elsewhere += outcome.number
        if (newest := outcome.newest) is not None and outcome.result is not Verdict.AHEAD:
            hour = (newest // _HOUR, outcome.verdict)
            if hour in self.hours or len(self.hours) < HOURS_MAX:
                self.hours[hour] += outcome.number

    def sorted(self) -> tuple[Example, ...]:
        return tuple(example for kind in sorted(self.kept) for _, example in self.kept[kind])

    def affected(self, mail: Callable[[], Tables]) -> Affected:
        """The sums; with the owners, unless the caller wants no names. Who cannot be asked for stays an id."""
        most = sorted(self.mailboxes.items(), key=_most_first)
        shown = dict(most[:MAILBOXES_SHOWN])
        beyond = sum(found.counts.total() for _, found in most[MAILBOXES_SHOWN:])
        owners: dict[UUID, Owner] = {}
        if not self.caller.anonymous:
            examples = self.sorted()
            ids = (*shown, *(example.mailbox for example in examples if example.mailbox))
            owners = owners_of(mail, ids, self.caller.remark)
            for example in examples:
                truths = example.finding.truths
                if example.mailbox and truths and example.projection == PATHS.mirror.name:
                    owners[example.mailbox] = owner_in(truths[0].row)
        return Affected(shown, self.elsewhere + beyond, self.hours, owners, self.caller.anonymous)


def key_text(key: Key) -> str:
    return " ".join(str(value) for value in key)


def result_text(outcome: Finding) -> str:
    if outcome.error:
        return outcome.error.splitlines()[0]
    words = "as found"
    if outcome.result:
        words = outcome.result.value
    if outcome.reason and outcome.reason.why not in {Why.DUE, Why.RAW}:
        words += f": {outcome.reason.text}"
    if outcome.last_trace:
        words += "; its content still exists"
    return words


def _most_first(entry: tuple[UUID, MailboxFindings]) -> tuple[int, str]:
    mailbox, found = entry
    return -found.counts.total(), str(mailbox)


TRUTHS_SHOWN: Final = 3
"""The largest number of clashing truth rows that are shown."""

_MAILBOX: Final = "mailboxid"


def mailbox_in(finding: Finding, projection: Projection | None) -> UUID | None:
    """The mailbox that the finding's place is in; None for content and for mails in queues."""
    if projection is None:
        return None
    for (_, truth), value in zip(projection.key, finding.suspect.key, strict=False):
        if truth == _MAILBOX:
            mailbox: UUID = value
            return mailbox
    return None

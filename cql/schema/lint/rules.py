"""All rules, the search for findings with their places, and the findings that are ignored.

Each ignored finding has a reason: from settings, from a comment in a file, or from our catalog. `schema lint` shows it
next to its findings, with the reason; a test says that nothing else is found.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Final

from mailmend.cql.schema.lint import statements, tables
from mailmend.cql.schema.lint.rule import Hit, LintFinding, LintRule
from mailmend.cql.schema.lint.subject import Subject, window_of
from mailmend.cql.statements import Parsed, Span
from mailmend.model.catalog.james_tables import EMAIL_QUERY_VIEW
from mailmend.model.catalog.ledger import (
    ADMIN_TASK,
    DELIVERY_ATTEMPT,
    DELIVERY_ORDER_HISTORY,
    JOB_RUN,
    JOB_TURN,
    LEDGER_TABLES,
    REPAIR_FINDING,
    REPAIR_LAG,
    REPAIR_RUN,
    RUN_LIMIT,
)
from mailmend.model.catalog.mail import IMAP_UID, MAILBOX_COUNTERS, MAILBOX_RECENTS, MESSAGE_ID, MESSAGE_V3, SCHEMA
from mailmend.model.catalog.mail_queue import DELETED_MAILS, ENQUEUED_MAILS, SLICE_TALLIES
from mailmend.model.errors import WrongUse
from mailmend.model.keyspace import Schema, by_name
from mailmend.model.names import name_of
from mailmend.model.table import Table


def _rules_in(*modules: ModuleType) -> list[LintRule]:
    rules: list[LintRule] = []
    for module in modules:
        for variable in vars(module).values():
            if isinstance(variable, LintRule):
                rules.append(variable)
    return rules


def _order(rule: LintRule) -> tuple[bool, int]:
    return rule.id[0] == "K", int(rule.id[1:])


_FOUND = _rules_in(statements, tables)
RULES: Final[tuple[LintRule, ...]] = tuple(sorted(_FOUND, key=_order))
"""All rules: T1 to T25, then K1 and K2."""

Defining = Mapping[str, Sequence[int]]
"""For each table the numbers of the statements that define it, the one that creates it first."""


def rules_named(wanted: Iterable[str] = (), excluded: Iterable[str] = ()) -> tuple[LintRule, ...]:
    """The wanted rules (all where none are named), without the excluded ones."""
    ids = frozenset(rule.id for rule in RULES)
    names = _normal(wanted) or ids
    without = _normal(excluded)
    unknown = sorted((names | without) - ids)
    if unknown:
        raise WrongUse(f"there is no rule {unknown[0]!r}", mend="List the rules: mailmend schema lint --rules")
    chosen = names - without
    return tuple(rule for rule in RULES if rule.id in chosen)


def _normal(ids: Iterable[str]) -> frozenset[str]:
    return frozenset(text.strip().upper() for text in ids)


def lint(subject: Subject, rules: Sequence[LintRule] = RULES) -> tuple[LintFinding, ...]:
    """All findings of the rules, in the order of the text; findings without a place come last."""
    defining = _defining(subject)
    found = []
    for rule in rules:
        for hit in rule.check(subject):
            found.append(_finding(subject, rule, hit, defining))
    return tuple(sorted(found, key=_place))


def _finding(subject: Subject, rule: LintRule, hit: Hit, defining: Defining) -> LintFinding:
    number, span = _spot(subject, hit, defining)
    severity = hit.severity
    if severity is None:
        severity = rule.severity
    file = None
    if number is not None:
        file = subject.statements[number].file or None
    return LintFinding(
        rule,
        subject.keyspace,
        hit.table,
        hit.subject,
        severity,
        hit.text,
        hit.fix or rule.fix,
        file=file,
        span=span,
        statement=number,
    )


def _place(finding: LintFinding) -> tuple[bool, int, int, str, str, str]:
    number = finding.statement
    start = 0
    if finding.span:
        start = finding.span.start
    table = finding.table.lower()
    return (number is None, number or 0, start, table, f"{finding.rule.id:0>3}", finding.text)


def _defining(subject: Subject) -> Defining:
    found = defaultdict(list)
    for number, parsed in enumerate(subject.statements):
        if parsed.statement.defines_table:
            found[name_of(parsed.statement.about)].append(number)
    return found


def _spot(subject: Subject, hit: Hit, defining: Defining) -> tuple[int | None, Span | None]:
    """The number of a statement and a piece of its file; (None, None) where no text says it."""
    if hit.statement is not None:
        numbers: Sequence[int] = (hit.statement,)
    else:
        numbers = defining.get(name_of(hit.table), ())
    for wanted in hit.places:
        for number in reversed(numbers):
            if (found := subject.statements[number].places.get(wanted)) is not None:
                return number, found
    if not numbers:
        return None, None
    parsed = subject.statements[numbers[0]]
    return numbers[0], parsed.name_at or parsed.span


_NOTE: Final = re.compile(r"lint:\s*ignore\b\s*(?P<rules>[^:]*)(?::(?P<reason>.*))?", re.IGNORECASE)
_RULE: Final = re.compile(r"[TK][1-9][0-9]?")
_MEND: Final = "Write it like: -- lint: ignore T5: rows change for a day at most"


@dataclass(frozen=True, slots=True)
class Ignore:
    """A rule that is ignored for a table; where it comes from a comment in a file, for that statement only.

    Attributes:
        table: the table's spelling; "" for all tables and the keyspace. Of a comment: the table of its statement.
        statement: of a comment, the number of its statement.
        file: of a comment, the name of its file.
    """

    rule: str
    table: str
    reason: str
    statement: int | None = None
    file: str = ""

    @property
    def noted(self) -> bool:
        return self.statement is not None

    def __str__(self) -> str:
        if self.file:
            return f"{self.file}: {self.rule}"
        if self.table and not self.noted:
            return f"{self.rule} at {self.table}"
        return self.rule

    def covers(self, finding: LintFinding) -> bool:
        everywhere = not self.table and not self.noted
        here = self.noted and finding.statement == self.statement
        at_table = bool(self.table) and name_of(self.table) == name_of(finding.table)
        return self.rule == finding.rule.id and (everywhere or here or at_table)


def parse_ignore(rule: object, table: object, reason: object) -> Ignore:
    """An ignore from settings.

    Raises:
        WrongUse: the rule is unknown, the reason is missing, or a value is no text.
    """
    if not isinstance(rule, str) or not _RULE.fullmatch(rule.strip()):
        raise WrongUse(f"an ignore names {rule!r} as its rule", mend="List the rules: mailmend schema lint --rules")
    if not isinstance(table, str):
        raise WrongUse(f"the ignore of {rule} names {table!r} as its table", mend='Write it like table = "mytable".')
    if not isinstance(reason, str) or not reason.strip():
        raise WrongUse(
            f"the ignore of {rule} gives no reason", mend="Give the reason why it may stay, for the next reader."
        )
    return Ignore(rule.strip(), table.strip(), " ".join(reason.split()))


def notes_among(statements: Sequence[Parsed]) -> tuple[Ignore, ...]:
    """The ignores in the comments right before each statement: `-- lint: ignore T5, T6: reason`."""
    ignores = []
    for number, parsed in enumerate(statements):
        for line in parsed.notes:
            for ignore in _in_note(parsed, line):
                ignores.append(replace(ignore, table=_creates(parsed), statement=number, file=parsed.file))
    return tuple(ignores)


def _in_note(parsed: Parsed, line: str) -> Iterator[Ignore]:
    found = _NOTE.fullmatch(line.strip())
    if found is None:
        return
    for rule in re.split(r"[,\s]+", found["rules"].strip()):
        try:
            yield parse_ignore(rule, "", found["reason"])
        except WrongUse as error:
            where = f"the comment {line.strip()!r}"
            if parsed.file:
                where = f"{parsed.file}: {where}"
            raise WrongUse(f"{where}: {error.what}", mend=_MEND) from error


def _creates(parsed: Parsed) -> str:
    statement = parsed.statement
    if not statement.creates or not statement.defines_table:
        return ""
    return statement.about


def with_reasons(findings: Sequence[LintFinding], ignores: Sequence[Ignore]) -> tuple[LintFinding, ...]:
    """The findings, where those that an ignore covers have the reason of the first such ignore."""
    judged = []
    for finding in findings:
        judged.append(_with_reason(finding, ignores))
    return tuple(judged)


def _with_reason(finding: LintFinding, ignores: Sequence[Ignore]) -> LintFinding:
    for ignore in ignores:
        if ignore.covers(finding):
            return replace(finding, ignored=ignore.reason, noted=ignore.noted)
    return finding


def unused_among(ignores: Sequence[Ignore], findings: Sequence[LintFinding]) -> tuple[Ignore, ...]:
    """The ignores that cover no finding."""
    unused = []
    for ignore in ignores:
        if not any(map(ignore.covers, findings)):
            unused.append(ignore)
    return tuple(unused)


_BIG: Final = (IMAP_UID, MESSAGE_ID, MESSAGE_V3)
_LEDGER: Final = (
    REPAIR_RUN,
    REPAIR_FINDING,
    REPAIR_LAG,
    JOB_RUN,
    JOB_TURN,
    RUN_LIMIT,
    ADMIN_TASK,
    DELIVERY_ATTEMPT,
    DELIVERY_ORDER_HISTORY,
)

_NO_TTL: Final = (
    "mail stays until its owner deletes it; the design asks for time windows here, and 30 days leave a dozen SSTables "
    "a year; `schema advise` measures what that costs, and --compaction chooses otherwise"
)
_DELETED: Final = (
    "an expunge deletes; its space comes back with a major compaction or nodetool garbagecollect; `schema advise` "
    "measures what that costs, and --compaction chooses otherwise"
)
_UPDATED: Final = (
    "flags of old messages do change; windows of 30 days keep a row within few of them; `schema advise` measures the "
    "SSTables per read, and --compaction chooses otherwise"
)
_MONOTONIC: Final = "flags and uids must never be read older than before, which blocking read repair sees to"
_LOOKED_UP: Final = "30 days leave a dozen filters a year to ask: one false positive in eight lookups after a year"
_LEDGER_READS: Final = "a run that was recorded must be read back so, also after a failed write; the tables are small"


def _ignored_at(tables: Iterable[Table], rule: str, reason: str) -> Iterator[Ignore]:
    for table in tables:
        yield Ignore(rule, table.spelling, reason)


CATALOG_IGNORES: Final[tuple[Ignore, ...]] = (
    *_ignored_at(_BIG, "T1", _NO_TTL),
    *_ignored_at(_BIG, "T4", _DELETED),
    *_ignored_at((IMAP_UID, MESSAGE_ID), "T5", _UPDATED),
    Ignore(
        "T6",
        MESSAGE_ID.spelling,
        "the stamp of a projection is the truth's own, or the beginning of the repair: hours old, windows take 30 days",
    ),
    *_ignored_at(_BIG, "T7", _MONOTONIC),
    *_ignored_at((IMAP_UID, MESSAGE_V3), "T13", _LOOKED_UP),
    Ignore(
        "T14",
        MESSAGE_ID.spelling,
        "a row is written whole once when the message comes, and again only by a repair of just that row",
    ),
    Ignore("T20", MESSAGE_V3.spelling, "the list is content: it is written once, and no repair ever writes it"),
    Ignore(
        "T21",
        MAILBOX_COUNTERS.spelling,
        "counters are mended by one difference under a lease, after two looks that agree, and it is never sent again",
    ),
    Ignore(
        "T8",
        MAILBOX_RECENTS.spelling,
        "James has it so; whatever is lost or comes back is drift of a projection, which check finds and repair mends",
    ),
    Ignore(
        "T15", EMAIL_QUERY_VIEW.spelling, "James's own key; a partition grows as its mailbox does, as the mail does"
    ),
    Ignore(
        "T4",
        ENQUEUED_MAILS.spelling,
        "a finished slice is deleted by partition, so its mails are not read any more; the space "
        "comes back when its window expires",
    ),
    Ignore(
        "T4",
        DELETED_MAILS.spelling,
        "mailmend leaves marks to expire; a James on the same queue removes some, and those tombstones expire too",
    ),
    Ignore("T4", SLICE_TALLIES.spelling, "one tombstone for each slice that is swept, and everything here expires"),
    Ignore(
        "T5",
        SLICE_TALLIES.spelling,
        "a tally changes while its slice is worked off, mostly within one window; each change writes the row whole",
    ),
    Ignore(
        "T6",
        SLICE_TALLIES.spelling,
        "a tally is renewed as of its last change, so that a newer one stays; that may hold back what expired for some "
        "days more, in a table of a few rows for each slice",
    ),
    *_ignored_at(_LEDGER, "T7", _LEDGER_READS),
    Ignore("T5", REPAIR_RUN.spelling, "a run is written again while it goes on: hours, and windows take a day"),
    Ignore("T5", REPAIR_FINDING.spelling, "what became of a finding is written minutes after it, mostly the same day"),
    Ignore("T6", REPAIR_FINDING.spelling, "the stamps lie around the beginning of the run: hours, and it all expires"),
    Ignore("T2", DELIVERY_ATTEMPT.spelling, "a day is the stretch that is replayed, and a week of it is kept"),
    Ignore("T5", DELIVERY_ATTEMPT.spelling, "urgent is as the mail was then: a row is written with it, and it stays"),
    Ignore("T4", REPAIR_LAG.spelling, "lags are few and mended soon; row and tombstone expire within the same 30 days"),
)
"""The findings in our own tables that are ignored, each with its reason."""

_OURS: Final = by_name((*SCHEMA.tables, *LEDGER_TABLES))


def ignores_for(schema: Schema) -> tuple[Ignore, ...]:
    """The ignores for a schema; reasons that count windows are left out for tables with other windows."""
    ignores = []
    for ignore in CATALOG_IGNORES:
        if _holds(schema.table(ignore.table), _OURS[ignore.table.lower()]):
            ignores.append(ignore)
    return tuple(ignores)


def _holds(found: Table | None, ours: Table) -> bool:
    return found is not None and window_of(found) in (None, window_of(ours))

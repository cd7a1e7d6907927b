"""In whose mailboxes findings are, and both rows of each side by side: what a person needs to act on them."""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Final
from uuid import UUID

from mailmend.admin.frame.document import DIFFERS, Grid, GridCell, Heading, Part, Styled
from mailmend.admin.frame.examples import TRUTHS_SHOWN, Affected, Example, Owner
from mailmend.admin.frame.run_scopes import MAIL, RunScope
from mailmend.admin.frame.values import counts_json, instant_text, plain, printable
from mailmend.model.catalog.mail import MESSAGES, PATHS
from mailmend.model.instants import MICROS
from mailmend.model.operations import Seen
from mailmend.model.projections.findings import Finding
from mailmend.model.projections.projection import Projection
from mailmend.model.projections.verdicts import MENDABLE, NEEDS_SCAN, Verdict
from mailmend.model.texts import keyspace_option

LEFT_OUT: Final = "left out"
_PERSONAL: Final = frozenset({"mailboxbase.user", "name", "user", "mailboxname"})
"""Columns of mailboxes' paths that name a person."""


_NOTHING: Final[tuple[Any, ...]] = (None, frozenset(), "")


@dataclass(frozen=True, slots=True)
class ComparedColumn:
    """One column over all rows that are compared.

    Attributes:
        values: in each row, the truth's first; None where it is null, "" where there is no row or
            no such column.
        written_at: microseconds; None where that cannot be read.
    """

    name: str
    values: tuple[Any, ...]
    written_at: tuple[int | None, ...]
    differs: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """The rows of a finding side by side.

    Attributes:
        sides: the table that each row is of, the truth's first.
        present: whether the row is there.
        columns: those with a value in any row, in the projection's order.
    """

    sides: tuple[str, ...]
    present: tuple[bool, ...]
    columns: tuple[ComparedColumn, ...]


def compared(finding: Finding, projection: Projection) -> Comparison:
    """Compare the truth's rows (one, or a few that clash) with the projection's row."""
    truths: Sequence[Seen | None] = projection.truth_rows(finding)[:TRUTHS_SHOWN] or (None,)
    rows = (*truths, finding.projected)
    there = [seen.row for seen in rows if seen]
    names = dict.fromkeys(projection.table.names)
    differing: set[str] = set()
    for row in there:
        names.update(dict.fromkeys(row))
    for other in there[1:]:
        differing.update(projection.differing(there[0], other))
    lines = []
    for name in names:
        line = _column(name, rows, projection, differs=name in differing)
        if line.differs or any(value not in _NOTHING for value in line.values):
            lines.append(line)
    tables = (*[projection.truth.spelling] * len(truths), projection.name)
    return Comparison(tables, tuple(seen is not None for seen in rows), tuple(lines))


def _column(name: str, rows: Sequence[Seen | None], projection: Projection, *, differs: bool) -> ComparedColumn:
    spelling = name
    if name in projection.table:
        spelling = projection.table.column(name).spelling
    elif name in projection.truth:
        spelling = projection.truth.column(name).spelling
    values: list[Any] = []
    times: list[int | None] = []
    for seen in rows:
        if seen is None:
            values.append("")
            times.append(None)
        else:
            values.append(seen.row.get(name, ""))
            times.append(seen.written_at.get(name))
    return ComparedColumn(spelling, tuple(values), tuple(times), differs)


def affected_json(affected: Affected) -> dict[str, Any]:
    mailboxes = []
    for mailbox, found in affected.mailboxes.items():
        fields: dict[str, Any] = {"mailbox": str(mailbox)}
        if not affected.anonymous:
            fields |= _named(affected, mailbox)
        fields["findings"] = counts_json(found.counts)
        fields["left"] = counts_json(found.left)
        mailboxes.append(fields)
    return {"mailboxes": mailboxes, "in_other_mailboxes": affected.elsewhere}


def _named(affected: Affected, mailbox: UUID) -> dict[str, str | None]:
    owner = affected.owners.get(mailbox)
    if owner is None:
        return {"user": None, "path": None}
    return owner._asdict()


def mailboxes_part(affected: Affected, keyspace: str) -> Iterator[Part]:
    """Mailboxes by user, those with most findings first, each with the command that looks at it alone."""
    if not affected.mailboxes:
        return
    by_user: dict[str, list[UUID]] = {}
    for mailbox in affected.mailboxes:
        by_user.setdefault(_user(affected, mailbox), []).append(mailbox)
    columns = ["mailbox id", "findings", "still so", "next"]
    if not affected.anonymous:
        columns = ["user", "mailbox", *columns]
    rows = []
    for user, mailboxes in by_user.items():
        for mailbox in mailboxes:
            found = affected.mailboxes[mailbox]
            command = _command(found.due, keyspace, mailbox)
            row = [str(mailbox), _counts_text(found.counts), _counts_text(found.left), command]
            if not affected.anonymous:
                row = [user, _path(affected, mailbox), *row]
            rows.append(row)
    yield Grid("Whose mail it is", columns, rows, frozenset({"user", "mailbox", "findings", "still so"}))
    if affected.elsewhere:
        yield f"And {affected.elsewhere:,} findings in other mailboxes."


def _counts_text(counts: Mapping[Verdict, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts_json(counts).items())


def _command(due: AbstractSet[Verdict], keyspace: str, mailbox: UUID) -> str:
    if not due:
        return ""
    scan = ""
    if due & NEEDS_SCAN:
        scan = " --scan"
    return f"mailmend repair messages {keyspace_option(keyspace)} --mailbox {mailbox}{scan} --dry-run"


def _user(affected: Affected, mailbox: UUID | None) -> str:
    owner = _owner(affected, mailbox)
    if owner is None:
        return ""
    return printable(owner.user)


def _path(affected: Affected, mailbox: UUID) -> str:
    owner = _owner(affected, mailbox)
    if owner is None:
        return "not known"
    return printable(owner.path)


def _owner(affected: Affected, mailbox: UUID | None) -> Owner | None:
    if mailbox is None:
        return None
    return affected.owners.get(mailbox)


def findings_parts(
    examples: Sequence[Example],
    affected: Affected,
    keyspace: str,
    scope: RunScope = MAIL,
    *,
    whole: bool,
) -> Iterator[Part]:
    """Examples by user and mailbox, with both rows side by side.

    Args:
        examples: of the findings.
        affected: whose mailboxes they are in.
        keyspace: in which they are.
        scope: of their run.
        whole: every column; else only what differs, where both rows are there.
    """

    def place(example: Example) -> tuple[bool, bool, Owner, str]:
        owner = _owner(affected, example.mailbox)
        where = str(example.mailbox)
        if not example.is_mail:
            where = example.projection
        return (example.mailbox is None, owner is None, owner or Owner("", ""), where)

    if examples:
        yield Heading("Findings, for example")
    for _, found in groupby(sorted(examples, key=place), place):
        group = list(found)
        yield Heading(_place_text(affected, group[0]), 3)
        for example in group:
            anonymous = affected.anonymous
            yield from _side_by_side(example, keyspace, scope, anonymous=anonymous, whole=whole)


def _place_text(affected: Affected, example: Example) -> str:
    mailbox = example.mailbox
    if not example.is_mail:
        return f"Rows of {example.projection}"
    if mailbox is None:
        return "Without a mailbox"
    owner = affected.owners.get(mailbox)
    if affected.anonymous or owner is None:
        return f"Mailbox {mailbox}"
    return f"{printable(owner.user)}, {printable(owner.path)} ({mailbox})"


def _side_by_side(
    one: Example,
    keyspace: str,
    scope: RunScope,
    *,
    anonymous: bool,
    whole: bool,
) -> Iterator[Part]:
    projection = scope.projections.get(one.projection)
    title = f"{one.verdict.value} in {one.projection}: {one.key} ({one.result})"
    if projection is None or not _rows_are_there(one, projection):
        yield title
        return
    found = compared(one.finding, projection)
    both = all(found.present) and any(column.differs for column in found.columns)
    shown = [column for column in found.columns if whole or column.differs or not both]
    hidden = frozenset[str]()
    if anonymous and one.is_mail and one.projection == PATHS.mirror.name:
        hidden = _PERSONAL
    heads = _heads(found, projection)
    timed = [any(column.written_at[side] is not None for column in shown) for side in range(len(heads))]
    columns = ["column"]
    for head, has_times in zip(heads, timed, strict=True):
        columns.append(head)
        if has_times:
            columns.append("written (UTC)")
    rows = [_cells(column, timed, left_out=column.name.lower() in hidden) for column in shown]
    yield Grid(title, columns, rows, frozenset(heads), level=4)
    if command := _exact_command(one, keyspace):
        yield f"Next: {command}"


def _heads(found: Comparison, projection: Projection) -> list[str]:
    """The table of each row, and where the row is not there, that it is not."""
    *_, last = range(len(found.sides))
    heads = []
    for side, (table, there) in enumerate(zip(found.sides, found.present, strict=True)):
        if there:
            heads.append(table)
        elif projection.by_row or side == last:
            heads.append(f"{table}: no row")
        else:
            heads.append(f"{table}: not counted")
    return heads


def _rows_are_there(one: Example, projection: Projection) -> bool:
    return one.finding.projected is not None or bool(projection.truth_rows(one.finding))


def _cells(column: ComparedColumn, timed: Sequence[bool], *, left_out: bool) -> list[GridCell]:
    cells: list[GridCell] = [column.name]
    if column.differs:
        cells = [Styled(f"≠ {column.name}", DIFFERS)]
    for value, micros, has_times in zip(column.values, column.written_at, timed, strict=True):
        text = LEFT_OUT
        if not left_out or value in (None, ""):
            text = value_text(value)
        if column.differs and text:
            cells.append(Styled(text, DIFFERS))
        else:
            cells.append(text)
        if has_times:
            cells.append(written_text(micros))
    return cells


def _exact_command(one: Example, keyspace: str) -> str:
    """A message whose truth is there is looked at by its id, at once and exactly."""
    truths = one.finding.truths
    mended = one.finding.result is Verdict.FIXED or one.verdict not in MENDABLE
    is_message = one.is_mail and one.projection == MESSAGES.mirror.name
    if mended or not is_message or len(truths) != 1:
        return ""
    return f"mailmend repair messages {keyspace_option(keyspace)} --message {truths[0].row.get('messageid')} --dry-run"


def value_text(value: Any) -> str:
    """A cell in one line."""
    match value:
        case None:
            return "null"
        case datetime():
            return instant_text(value) or ""
        case set() | frozenset():
            return "{" + ", ".join(sorted(map(value_text, value))) + "}"
        case tuple() | list():
            return "[" + ", ".join(map(value_text, value)) + "]"
        case bool():
            return str(value).lower()
        case _:
            return printable(str(plain(value)))


def written_text(micros: int | None) -> str:
    """A write time to the microsecond; as a number where it is outside the calendar."""
    if micros is None:
        return ""
    try:
        at = datetime.fromtimestamp(micros // MICROS, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{micros} µs"
    return f"{at:%Y-%m-%d %H:%M:%S}.{micros % MICROS:06}"

"""A table on a terminal that is too narrow for it, and where no terminal is."""

import io

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console

from mailmend.admin.frame.document import Document, Grid
from mailmend.admin.frame.presenter import show
from tests.support.narrow_terminal import on_terminal, problems_of

FIRST = "6e0ab5e0-8d1c-11f0-9a5e-0242ac120002"
OTHER = "7f1bc6f1-8d1c-11f0-9a5e-0242ac120002"
NEIGHBOUR = "6e0ab5e0-9999-11f0-9a5e-0242ac120002"
COLUMNS = ("run", "started", "command", "state", "fixed", "left")


@pytest.fixture(autouse=True)
def _tables_fit_on_a_terminal() -> None:
    """Some tables of these tests are too wide on purpose."""


def runs(*ids: str) -> Grid:
    rows = [(run, "2026-09-01 10:00:00", "repair messages", "finished", "12", "3") for run in ids]
    return Grid("Runs of mail", COLUMNS, rows, short_ids=frozenset({"run"}))


def test_ids_that_commands_take_by_their_beginning_are_short_where_the_table_would_not_fit() -> None:
    shown = on_terminal(runs(FIRST, OTHER)).splitlines()

    assert shown[-3:] == [
        "6e0ab5e0  2026-09-01 10:00:00  repair messages  finished     12     3",
        "7f1bc6f1  2026-09-01 10:00:00  repair messages  finished     12     3",
        "",
    ]


def test_ids_that_begin_alike_are_shown_until_they_differ() -> None:
    shown = on_terminal(runs(FIRST, NEIGHBOUR))

    assert "6e0ab5e0-8d1c  " in shown
    assert "6e0ab5e0-9999  " in shown


def test_a_terminal_that_is_wide_enough_has_the_whole_ids() -> None:
    assert FIRST in on_terminal(runs(FIRST), 120)


def test_the_last_columns_move_below_their_row_where_the_table_would_not_fit() -> None:
    sender = "a.person.with.a.long.name@a-long-domain.example"
    rows = [(FIRST, sender, "waiting", "mail-1"), (OTHER, "", "", "")]

    shown = on_terminal(Grid("Mails", ("id", "sender", "where", "name"), rows))

    assert [line.rstrip() for line in shown.splitlines()] == [
        "Mails",
        "",
        "id",
        "─" * 36,
        FIRST,
        f"    sender: {sender}",
        "    where: waiting",
        "    name: mail-1",
        OTHER,
        "",
    ]


def test_a_command_below_its_row_is_one_line_to_be_copied() -> None:
    command = f"mailmend repair messages --keyspace apache_james --mailbox {FIRST} --scan --dry-run"
    grid = Grid("Whose mail it is", ("mailbox", "found", "next"), [(OTHER, "3", command)])

    assert f"    next: {command}" in on_terminal(grid).splitlines()


def test_headers_are_broken_between_words_before_a_column_moves() -> None:
    columns = ("table", "partitions there", "mean partition", "largest partition", "tombstones at p99")
    grid = Grid("Statistics", columns, [("messageIdTable", "1,000,000", "12 kB", "1 MB", "12")])

    shown = on_terminal(grid)

    assert ": " not in shown
    assert problems_of(grid) == []


def test_text_is_broken_between_words_where_no_column_has_to_move() -> None:
    question = "A repair was killed while it wrote: what is left, and how does it go on from there?"

    shown = on_terminal(Grid("Runbooks", ("name", "question"), [("a-repair-was-killed", question)]))

    assert [line.rstrip() for line in shown.splitlines()[4:]] == [
        "a-repair-was-killed  A repair was killed while it wrote: what is left, and how",
        "                     does it go on from there?",
        "",
    ]


def test_numbers_and_commands_are_not_broken() -> None:
    command = "mailmend runs show 6e0ab5e0-8d1c-11f0-9a5e-0242ac120002 --keyspace mail"

    shown = on_terminal(Grid("Any", ("name", "next"), [("a-longer-name", command)]))

    assert f"    next: {command}" in shown.splitlines()


@pytest.mark.parametrize(("terminal", "wraps"), [(True, False), (True, True), (False, False)])
def test_only_a_terminal_has_narrow_tables(*, terminal: bool, wraps: bool) -> None:
    """A script that reads a pipe sees the same lines whatever COLUMNS and FORCE_COLOR say."""
    stream = io.StringIO()
    console = Console(file=stream, width=80, force_terminal=terminal, soft_wrap=wraps, color_system=None)

    show(Document(body=(runs(FIRST),)), console)

    row = f"{FIRST}   2026-09-01 10:00:00   repair messages   finished      12      3"
    assert (row in stream.getvalue()) is (wraps or not terminal)


WORDS = st.text("abcdefghijklmnopqrstuvwxyz0123456789@.-", min_size=1, max_size=36)
CELLS = st.lists(WORDS, max_size=6).map(" ".join)


@st.composite
def grids(draw: st.DrawFn) -> Grid:
    columns = draw(st.lists(WORDS, min_size=1, max_size=8, unique=True))
    rows = draw(st.lists(st.tuples(*[CELLS] * len(columns)), max_size=3))
    wrapped = draw(st.frozensets(st.sampled_from(columns)))
    return Grid("Any", columns, rows, wrapped)


@given(grids())
@example(
    Grid(
        "Its library alone makes it 82 columns wide",
        ("a", "b", "c", "d"),
        [("hdst 0 0 l@h5c9q1-rzm", "client 0", "8-91injv7bddqmx4 0 0", "3eo-kraheb8hshke.tfxrd")],
        frozenset({"a", "b", "c", "d"}),
    )
)
def test_any_table_fits_unless_its_first_column_is_too_wide_and_loses_no_word(grid: Grid) -> None:
    first = [str(row[0]) for row in grid.rows]
    found = problems_of(grid)

    if max(map(len, [grid.columns[0], *first])) <= 80:
        assert found == []
    assert not [problem for problem in found if "lacks" in problem]

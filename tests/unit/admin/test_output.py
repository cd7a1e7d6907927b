"""Results: names that scripts rely on, tables and hints that people read."""

import io
import json
import re
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console

from mailmend.admin.frame.document import Document, Grid, Heading, Line, Markdown, Part, Styled, Verbatim, Wrapped
from mailmend.admin.frame.examples import EXAMPLES_MAX, Examples
from mailmend.admin.frame.presenter import exit_meaning, show, write_json
from mailmend.admin.frame.run_scopes import RunScope
from mailmend.admin.frame.tables import grid_of
from mailmend.admin.frame.values import counts_json
from mailmend.admin.frame.verdict_texts import MEANINGS, STYLES, steps_lines
from mailmend.admin.messages.mending import CommandResult
from mailmend.admin.messages.next_steps import next_lines
from mailmend.admin.messages.shared_document import closing_lines, document_of, summary_json
from mailmend.model.errors import ExitCode
from mailmend.model.projections.verdicts import Verdict, Why
from mailmend.repair.ledger.runs import RunKind
from mailmend.repair.mending.engine import RepairResult
from tests.support.checkout import CHECKOUT
from tests.support.small_family import SMALL
from tests.unit.admin.outcomes import MAILBOX, RUN, check_summary, outcome, repair_summary


def _shown(summary: RepairResult, examples: Examples | None = None) -> str:
    stream = io.StringIO()
    document = document_of(CommandResult(summary, (examples or Examples()).sorted()))
    show(document, Console(file=stream, width=120, highlight=False))
    return stream.getvalue()


def test_the_json_has_exactly_the_names_of_the_contract() -> None:
    assert set(summary_json(check_summary())) == {
        "run",
        "keyspace",
        "command",
        "scanned",
        "findings",
        "suspects",
        "fixed",
        "left",
        "moved",
        "failed",
        "untried",
        "last_traces",
        "due",
        "seconds",
        "again_seconds",
        "gaps",
        "generators",
        "engine",
        "pace",
        "staging",
        "snapshot",
        "missing_columns",
        "missing_tables",
        "reasons",
        "too_young",
        "unseen",
        "exit",
    }


def test_the_json_is_one_object_on_one_line() -> None:
    stream = io.StringIO()

    write_json(summary_json(repair_summary()), stream)

    assert stream.getvalue().count("\n") == 1
    assert json.loads(stream.getvalue())["fixed"] == {"PROJECT": 9, "WITHDRAW": 3}
    assert json.loads(stream.getvalue())["run"] == str(RUN)


def test_a_check_has_no_run() -> None:
    assert summary_json(check_summary())["run"] is None


def test_zeros_are_left_out_of_counts() -> None:
    assert counts_json({Verdict.AMEND: 0, Verdict.PROJECT: 2}) == {"PROJECT": 2}


def test_every_verdict_has_a_meaning_and_every_exit_code_a_name() -> None:
    assert set(MEANINGS) == set(STYLES) == set(Verdict)
    assert all(exit_meaning(code) for code in ExitCode)


def test_a_check_shows_counts_with_what_they_mean() -> None:
    shown = _shown(check_summary())

    assert "PROJECT" in shown
    assert MEANINGS[Verdict.PROJECT] in shown
    assert "83" in shown


def test_examples_are_few_and_carry_whole_keys() -> None:
    examples = Examples()
    for uid in range(100):
        examples.add(outcome(uid=uid))

    shown = _shown(check_summary(), examples)

    assert f"{MAILBOX} 0" in shown
    assert shown.count(str(MAILBOX)) == EXAMPLES_MAX


def test_what_settled_by_itself_is_no_example() -> None:
    """AGREE at the second look is a lag that went away."""
    examples = Examples()
    examples.add(outcome(Verdict.AGREE))

    assert examples.sorted() == ()


def test_examples_say_what_became_of_them() -> None:
    examples = Examples()
    examples.add(outcome(Verdict.AMEND, Verdict.FIXED))
    examples.add(outcome(Verdict.WITHDRAW, last_trace=True))
    examples.add(outcome(Verdict.PROJECT, error="it timed out\nmend it"))

    assert [one.result for one in examples.sorted()] == ["FIXED", "it timed out", "as found; its content still exists"]


def test_a_check_with_drift_names_the_next_command() -> None:
    lines = next_lines(check_summary())

    assert lines[0] == "Next: mailmend repair messages --keyspace apache_james --dry-run"
    assert "content-is-lost" in lines[1]


@pytest.mark.parametrize(("rows", "lacking", "is_named"), [(0, 3, True), (0, 0, False), (1, 3, False)])
def test_recents_that_james_does_not_write_are_noticed(rows: int, lacking: int, *, is_named: bool) -> None:
    summary = check_summary()
    summary.scanned["mailboxRecents"] = rows
    summary.findings = {"mailboxRecents": Counter({Verdict.PROJECT: lacking})}

    named = [line for line in next_lines(summary) if "handleRecent=false" in line]

    assert [line.startswith("mailboxRecents has no row, and 3 messages are recent.") for line in named] == (
        [True] * is_named
    )
    assert all(line.endswith("use --without mailboxRecents") for line in named)


def test_a_check_that_finds_only_mailboxes_without_a_path_advises_no_repair() -> None:
    """Whether they were looked at twice, which gives the reason, or once."""
    summary = check_summary()
    summary.findings = {"mailbox": Counter({Verdict.WITHDRAW: 1_002})}
    why = "only reported (1,002)"
    said = f"A repair with these options would change nothing: {why}."

    assert next_lines(summary) == [said]
    summary.reasons = {Verdict.WITHDRAW: Counter({Why.ONLY_REPORTED: 1_002})}
    assert next_lines(summary) == [said]


def test_a_check_that_finds_messages_and_mailboxes_advises_both_repairs() -> None:
    summary = check_summary()
    summary.findings = {
        "mailbox": Counter({Verdict.PROJECT: 2, Verdict.WITHDRAW: 3}),
        "messageIdTable": Counter({Verdict.PROJECT: 1}),
    }
    summary.reasons = {
        Verdict.PROJECT: Counter({Why.DUE: 3}),
        Verdict.WITHDRAW: Counter({Why.ONLY_REPORTED: 3}),
    }

    assert next_lines(summary) == [
        "Next: mailmend repair messages --keyspace apache_james --dry-run",
        "Next: mailmend repair mailboxes --keyspace apache_james --dry-run",
    ]


def test_a_check_names_the_options_without_which_a_repair_changes_nothing() -> None:
    summary = check_summary()
    summary.findings = {"messageIdTable": Counter({Verdict.WITHDRAW: 3, Verdict.AMEND: 1})}
    summary.reasons = {
        Verdict.WITHDRAW: Counter({Why.NEEDS_DANGLING: 3}),
        Verdict.AMEND: Counter({Why.NEEDS_ONLY: 1}),
    }

    whys = "needs --dangling withdraw or restore (3), left out by --only (1)"
    assert next_lines(summary) == [f"A repair with these options would change nothing: {whys}."]


def test_a_check_of_a_mailbox_advises_the_scan_without_which_its_repair_changes_nothing() -> None:
    summary = check_summary()
    summary.findings = {"messageIdTable": Counter({Verdict.WITHDRAW: 3})}
    summary.reasons = {Verdict.WITHDRAW: Counter({Why.NEEDS_SCAN: 3})}

    assert next_lines(summary, "--mailbox abc") == [
        "Next: mailmend repair messages --keyspace apache_james --mailbox abc --scan --dry-run"
    ]


def test_a_repair_does_not_advise_a_second_run_for_what_its_options_leave_out() -> None:
    summary = repair_summary()
    summary.moved = 0
    summary.left = Counter({Verdict.WITHDRAW: 4})
    summary.reasons = {Verdict.WITHDRAW: Counter({Why.NEEDS_ONLY: 4})}

    assert [line for line in next_lines(summary) if line.startswith("Next:")] == []
    summary.left[Verdict.WITHDRAW] = 5
    assert [line for line in next_lines(summary) if line.startswith("Next:")] == [
        "Next: mailmend repair messages --keyspace apache_james (a second run mends what moved or was left)"
    ]


def test_rows_that_were_deleted_within_the_margin_are_named_as_hidden_with_their_command() -> None:
    summary = repair_summary()
    summary.moved = 0
    summary.left = Counter({Verdict.HIDDEN: 2})

    assert next_lines(summary)[:2] == [
        "2 HIDDEN were deleted within the margin, or by a clock that is ahead.",
        "Next: mailmend repair lags --keyspace apache_james (it mends them after that time)",
    ]


SHOP = RunScope((SMALL,), is_mail=False, checked="--projections shop.toml", repair="repair --projections shop.toml")


def test_rows_of_views_that_do_not_show_lead_to_a_check_and_not_to_a_second_repair() -> None:
    summary = repair_summary()
    summary.moved = 0
    summary.left = Counter({Verdict.HIDDEN: 3})
    summary.reasons = {Verdict.HIDDEN: Counter({Why.HIDDEN: 1, Why.HIDDEN_IN_VIEW: 2})}
    check = "mailmend check --projections shop.toml --keyspace apache_james"

    assert next_lines(summary, scope=SHOP)[:4] == [
        "1 HIDDEN were deleted within the margin, or by a clock that is ahead.",
        "Next: mailmend repair --projections shop.toml --keyspace apache_james (it mends them after that time)",
        "2 HIDDEN are rows of views that do not show after a touch of their base.",
        f"Next: {check} (the view of rows that it still finds has to be built anew)",
    ]


def test_rows_of_views_alone_are_not_called_deleted() -> None:
    summary = repair_summary()
    summary.moved = 0
    summary.left = Counter({Verdict.HIDDEN: 2})
    summary.reasons = {Verdict.HIDDEN: Counter({Why.HIDDEN_IN_VIEW: 2})}

    assert "deleted" not in " ".join(next_lines(summary, scope=SHOP))


def test_a_run_that_left_rows_of_views_leads_to_a_check() -> None:
    left = {Verdict.HIDDEN: 3}

    in_views, deleted = steps_lines(left, "shop", SHOP, in_views=2)
    assert in_views.startswith("Left, HIDDEN 2 in views: mailmend runbook show check-found-inconsistencies; ")
    assert in_views.endswith("; next: mailmend check --projections shop.toml --keyspace shop")
    assert deleted.startswith("Left, HIDDEN 1: mailmend runbook show clocks-differ; ")
    assert deleted.endswith("; next: mailmend repair --projections shop.toml --keyspace shop --dry-run")
    assert len(list(steps_lines(left, "shop", SHOP, in_views=3))) == 1


@pytest.mark.parametrize(
    ("scope", "said"),
    [
        (SHOP, "rows with the same box differ: counters are mended once they agree"),
        (RunScope(()), "rows of its group differ: counters are mended once they agree"),
    ],
)
def test_groups_are_named_by_their_key(scope: RunScope, said: str) -> None:
    assert scope.text_of(Why.GROUP_DIFFERS) == said
    assert scope.text_of(Why.ROWS_DIFFER) == Why.ROWS_DIFFER.value


def test_a_plan_names_the_counters_that_wait() -> None:
    summary = repair_summary()
    summary.reasons = {Verdict.AMEND: Counter({Why.ROWS_DIFFER: 1, Why.GROUP_DIFFERS: 2})}

    assert next_lines(summary, plan=Path("plan.jsonl"))[:2] == [
        "The plan has 1 counters that wait until the rows of their mailboxes agree.",
        "The plan has 2 counters that wait until the rows of their groups agree.",
    ]


@pytest.mark.parametrize(
    ("summary", "named"),
    [(check_summary(), True), (check_summary(0), False), (check_summary(3), False), (repair_summary(), False)],
    ids=lambda one: f"{one.kind} {one.exit}" if isinstance(one, RepairResult) else "",
)
def test_a_check_that_ends_with_1_names_its_page_on_stderr_and_in_the_report(
    summary: RepairResult, named: bool
) -> None:
    document = document_of(CommandResult(summary, ()))

    page = "More: mailmend runbook show check-found-inconsistencies"
    assert [page in parts for parts in (document.remarks, document.report or ())] == [named, named]


def test_a_check_without_drift_says_so() -> None:
    summary = check_summary(0)
    summary.findings.pop("messageIdTable")

    assert next_lines(summary) == ["No drift."]


def test_lags_go_on_with_lags() -> None:
    summary = repair_summary()
    summary.kind = RunKind.LAGS

    assert any(line.startswith("Next: mailmend repair lags --keyspace") for line in next_lines(summary))
    summary.run, summary.due[Verdict.PROJECT] = None, 2
    assert next_lines(summary)[:2] == [
        "Nothing was written. A repair would mend 2.",
        "Next: mailmend repair lags --keyspace apache_james",
    ]


def test_an_undo_never_suggests_a_repair() -> None:
    """It would mend anew what was just taken back; how to take the undo back is said."""
    summary = repair_summary()
    summary.kind = RunKind.UNDO

    lines = closing_lines(summary)

    assert not any("repair" in line for line in lines)
    assert f"To put it back: mailmend undo {RUN} --keyspace apache_james" in lines


def test_a_check_whose_looks_failed_does_not_say_that_there_is_no_drift() -> None:
    summary = check_summary(3)
    summary.findings.clear()
    summary.failed = 4

    lines = closing_lines(summary)

    assert "No drift." not in lines
    assert "4 failed: see the examples above, or all of them with --findings." in lines


def test_a_check_that_lost_its_cluster_does_not_say_that_there_is_no_drift() -> None:
    summary = RepairResult("mail", RunKind.CHECK)
    summary.untried = 12_345

    lines = closing_lines(summary)

    assert "No drift." not in lines
    assert any("12,345 were left as they are" in line and "the same command goes on" in line for line in lines)


def test_a_repair_names_how_to_go_on_and_how_to_undo() -> None:
    lines = closing_lines(repair_summary())

    assert any(line.startswith("Next: mailmend repair messages") for line in lines)
    assert f"To put it back: mailmend undo {RUN} --keyspace apache_james" in lines
    assert any("last trace" in line for line in lines)


def test_a_repair_that_left_nothing_names_no_next_repair() -> None:
    summary = repair_summary()
    summary.left.clear()
    summary.moved = 0

    assert not any(line.startswith("Next:") for line in closing_lines(summary))


@pytest.mark.parametrize("text", ["[red]x[/red]", "[/]", "ünï"])
def test_what_stands_in_a_table_is_no_markup(text: str) -> None:
    stream = io.StringIO()

    Console(file=stream, width=80).print(grid_of(Grid("x", ("a",), [(text,)])))

    assert text in stream.getvalue()


@pytest.mark.parametrize("columns", [30, 80, 120])
@pytest.mark.parametrize("prose", [frozenset(), frozenset({"what"})])
def test_a_table_cuts_no_word_however_narrow_the_terminal(columns: int, prose: frozenset[str]) -> None:
    """Prose goes to the next line between words; else the table is wider than the terminal."""
    cells = (str(RUN), "INTERRUPTED", "changed less than the margin before the scan; come again in 12 s")
    grid = Grid("Runs", ("run", "state", "what"), [cells], prose)
    stream = io.StringIO()

    show(Document(body=(grid,)), Console(file=stream, width=columns))

    assert set(" ".join(cells).split()) <= set(stream.getvalue().split())


def test_examples_are_the_first_by_key_in_whatever_order_an_engine_finds_them() -> None:
    found = [outcome(uid=uid) for uid in range(1, 10)]
    kept = [Examples(), Examples()]
    for one, other in zip(found, reversed(found), strict=True):
        kept[0].add(one)
        kept[1].add(other)

    assert [one.key for one in kept[0].sorted()] == [one.key for one in kept[1].sorted()]
    assert [one.key for one in kept[0].sorted()] == [f"{MAILBOX} {uid}" for uid in range(1, 1 + EXAMPLES_MAX)]


HOSTILE = "a\x1b]0;title\x07\x9b2J\rb"
SAFE = "a\ufffd]0;title\ufffd\ufffd2J\ufffdb"


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize(
    "part",
    [
        HOSTILE,
        Styled(HOSTILE, ""),
        Heading(HOSTILE),
        Line((HOSTILE,)),
        Wrapped("- ", HOSTILE),
        Verbatim(HOSTILE),
        Markdown(HOSTILE),
        Grid(HOSTILE, (HOSTILE,), [(HOSTILE,)]),
    ],
    ids=lambda part: type(part).__name__,
)
def test_no_words_of_others_steer_the_terminal(part: Part, *, terminal: bool) -> None:
    """File names, reasons, owners and ids are in every kind of part."""
    stream = io.StringIO()

    show(Document(body=(part,)), Console(file=stream, width=120, force_terminal=terminal, color_system=None))

    assert SAFE in stream.getvalue()
    assert not set(stream.getvalue()) & set("\x07\x9b\r")
    assert "\x1b]0" not in stream.getvalue()


def test_json_holds_such_words_escaped() -> None:
    stream = io.StringIO()

    write_json({"owner": HOSTILE + "\x7f\ud800"}, stream)

    assert stream.getvalue().isascii()
    assert json.loads(stream.getvalue()) == {"owner": HOSTILE + "\x7f\ud800"}


def test_one_function_writes_the_messages_of_all_commands() -> None:
    """`echo` makes words of others printable; `completion` prints a script of click's own."""
    writers = [
        str(file.relative_to(CHECKOUT))
        for file in sorted((CHECKOUT / "admin").rglob("*.py"))
        if re.search(r"click\.(?:echo|secho|echo_via_pager)\(|(?<![.\w])print\((?!.*python_version)", file.read_text())
    ]

    assert writers == ["admin/frame/completion.py", "admin/frame/logs.py"]

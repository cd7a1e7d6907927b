"""What lint reads and what counts: files, folders and pipes as one history, rules chosen, ignores that are idle."""

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.admin.schema.lint import LintSettings, lint_files, report_json
from mailmend.admin.schema.lint_page import LintReport
from mailmend.cql.schema.lint.rule import LintFinding, Severity
from mailmend.cql.schema.lint.rules import RULES, Ignore, rules_named
from mailmend.cql.schema.lint.servers import ServerRelease
from mailmend.model.errors import ExitCode, WrongUse
from tests.support.linting import DAY, table, windows

BAD = table("events", "sensor text, at timestamp, PRIMARY KEY (sensor, at)", compaction=windows(1, "HOURS"))
MENDED = f"ALTER TABLE events WITH default_time_to_live = {DAY};"
REASON = "it is read once"


def file_of(folder: Path, text: str, name: str = "a.cql") -> Path:
    """A file of that text."""
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def order(*rules: str, ignores: tuple[Ignore, ...] = ()) -> LintSettings:
    """To look with these rules only."""
    return LintSettings("ks", rules_named(rules) if rules else RULES, ignores=ignores)


def piped(monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    """What somebody pipes in."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))


def test_files_and_pipes_are_one_history_in_the_order_of_their_naming(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes later mends what came before, wherever it stands."""
    file = file_of(tmp_path, BAD)
    piped(monkeypatch, MENDED.encode())
    assert lint_files([file, Path("-")], order("T1")).exit is ExitCode.FINE
    piped(monkeypatch, b"\xef\xbb\xbf" + BAD.encode())
    alone = lint_files([Path("-")], order("T1"))
    assert [one.file for one in alone.open] == ["stdin"]
    assert alone.texts == {"stdin": BAD}


def test_a_folder_in_a_files_place_is_walked_and_not_read(tmp_path: Path) -> None:
    """Folders below it too, by their names; only what is called .cql."""
    for name in ("odd.cql/0001.cql", "odd.cql/deeper/0002.cql"):
        file_of(tmp_path, BAD if "0001" in name else MENDED, name)
    file_of(tmp_path, "this is no CQL", "odd.cql/notes.txt")
    report = lint_files([tmp_path], order("T1"))
    assert (report.exit, list(report.texts)) == (
        ExitCode.FINE,
        [str(tmp_path / "odd.cql/0001.cql"), str(tmp_path / "odd.cql/deeper/0002.cql")],
    )


@pytest.mark.parametrize(
    ("name", "expected"), [("nowhere.cql", "cannot be read: No such file"), ("empty", "holds no .cql file")]
)
def test_what_cannot_be_looked_at_is_named_with_what_to_do(tmp_path: Path, name: str, expected: str) -> None:
    """A folder without CQL is a mistake in a pipeline, not a clean result."""
    (tmp_path / "empty").mkdir()
    with pytest.raises(WrongUse, match=expected) as refused:
        lint_files([tmp_path / name], order())
    assert str(tmp_path / name) in refused.value.what
    assert name != "empty" or refused.value.mend == "Name a file, or a folder of migrations."


def test_a_pipe_of_no_text_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a file would be."""
    piped(monkeypatch, b"\xff\xfe")
    with pytest.raises(WrongUse, match="the standard input cannot be read: it is not UTF-8 text"):
        lint_files([Path("-")], order())


def test_an_ignore_of_a_rule_that_was_not_asked_is_not_called_idle(tmp_path: Path) -> None:
    """Whoever looks with one rule does not hear about the reasons for the others; with it, one that is idle is told."""
    noted = file_of(tmp_path, f"-- lint: ignore T1: {REASON}\n-- lint: ignore T18: {REASON}\n{BAD}")
    ignores = (Ignore("T3", "elsewhere", REASON),)
    one = lint_files([noted], order("T1", ignores=ignores))
    assert (one.unused, [finding.ignored for finding in one.ignored]) == ((), [REASON])
    several = lint_files([noted], order("T1", "T3", "T18", ignores=ignores))
    assert len(several.unused) == 2
    assert several.unused[1] == "the settings: T3 at elsewhere"
    assert str(noted) in several.unused[0]


def test_the_release_is_the_newest_unless_one_is_named(tmp_path: Path) -> None:
    """A schema is written for the server that comes."""
    file = file_of(tmp_path, table("t", compaction="{'class': 'UnifiedCompactionStrategy'}"))
    assert lint_files([file], order("T11")).exit is ExitCode.FINE
    older = LintSettings("ks", rules_named(["T11"]), release=ServerRelease.CASSANDRA_4_1)
    assert [one.text for one in lint_files([file], older).open] == [
        "Cassandra 4.1 has no compaction class UnifiedCompactionStrategy"
    ]


def finding(severity: Severity, *, ignored: bool) -> LintFinding:
    """A finding of that weight."""
    return LintFinding(RULES[0], "ks", "t", "c", severity, "text", "fix", ignored=REASON if ignored else None)


@given(st.lists(st.tuples(st.sampled_from(Severity), st.booleans()), max_size=8), st.sampled_from(Severity))
def test_it_fails_by_what_is_open_at_the_level_or_above(found: list[tuple[Severity, bool]], level: Severity) -> None:
    """What has a reason never counts; every finding stands in the report, once, whatever counts."""
    findings = tuple(finding(severity, ignored=ignored) for severity, ignored in found)
    report = LintReport(("ks",), findings, level)
    counts = any(severity >= level and not ignored for severity, ignored in found)
    assert report.exit is (ExitCode.DRIFT if counts else ExitCode.FINE)
    document = report_json(report)
    assert document["exit"] == int(report.exit)
    assert len(document["findings"]) + len(document["ignored"]) == len(found)
    assert {one["level"] for one in document["findings"]} == {one.word for one, ignored in found if not ignored}
    assert all(one["because"] == REASON for one in document["ignored"])


@given(st.lists(st.sampled_from(Severity), max_size=6))
def test_a_higher_level_never_fails_what_a_lower_one_lets_pass(found: list[Severity]) -> None:
    """From note over warning to error."""
    findings = tuple(finding(severity, ignored=False) for severity in found)
    codes = [int(LintReport(("ks",), findings, level).exit) for level in sorted(Severity)]
    assert codes == sorted(codes, reverse=True)

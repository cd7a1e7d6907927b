"""The page of the rules says what the rules say."""

from pathlib import Path

import pytest

from mailmend.admin.schema import lint_page
from mailmend.cql.schema.lint.rules import CATALOG_IGNORES, RULES
from mailmend.delivery.policy.lint import POLICY_RULES


def test_the_page_is_up_to_date() -> None:
    assert lint_page.main(["--check"]) == 0


def test_every_rule_and_every_reason_is_on_it() -> None:
    page = lint_page.page_text()
    for rule in RULES:
        assert f"### {rule.id}: {rule.title}" in page
        assert rule.reason in page
        assert rule.fix in page
        assert rule.reference in page
    assert all(f"| {one.rule} | `{one.table}` | {one.reason} |" in page for one in CATALOG_IGNORES)
    for one in POLICY_RULES:
        assert f"### {one.id}: {one.title}\n\n{one.reason}\n\n*Fix:* {one.fix}\n" in page
    assert not {one.id for one in RULES} & {one.id for one in POLICY_RULES}


def test_a_page_that_is_not_is_reported_and_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lint_page, "PAGE", tmp_path / "lint.md")
    assert lint_page.main(["--check"]) == 1
    assert "python -m mailmend.admin.schema.lint_page" in capsys.readouterr().err
    assert lint_page.main([]) == 0
    assert lint_page.main(["--check"]) == 0

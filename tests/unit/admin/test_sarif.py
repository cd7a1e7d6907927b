"""SARIF 2.1.0: every field that its schema requires, in the form that it requires; places that lead to the text."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.admin.schema.lint import LintSettings, lint_files, lint_schema
from mailmend.admin.schema.lint_page import FINGERPRINT, SCHEMA, LintReport, sarif, uri_of
from mailmend.cql.schema.lint.rule import Severity
from mailmend.cql.schema.lint.rules import RULES, Ignore, rules_named
from mailmend.cql.schema.lint.subject import Subject, known_of
from mailmend.model.catalog.mail import SCHEMA as CATALOG
from tests.support.linting import table, windows

ORDER = LintSettings("ks", level=Severity.NOTE)
TEXT = (
    "-- Gr\u00fc\u00dfe \U0001f600\n-- lint: ignore T13: few lookups\n"
    + table("a", compaction=windows())
    + "\tUPDATE a\n  USING TIMESTAMP 5\n  SET v = 1 WHERE k = 1;\r\n"
    + "BEGIN BATCH\n DELETE FROM a WHERE k = 1;\nAPPLY BATCH;\n"
)


def reported(tmp_path: Path, order: LintSettings = ORDER, text: str = TEXT) -> tuple[LintReport, dict[str, Any], str]:
    file = tmp_path / "a b.cql"
    file.write_bytes(text.encode())
    report = lint_files([file], order)
    return report, sarif(report), file.read_text(encoding="utf-8")


def required(value: dict[str, Any], *names: str) -> None:
    assert all(value.get(name) not in (None, "") for name in names), value


def check_log(log: dict[str, Any]) -> None:
    assert (log["$schema"], log["version"]) == (SCHEMA, "2.1.0")
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    required(driver, "name", "semanticVersion")
    assert run["columnKind"] == "unicodeCodePoints"
    ids = [rule["id"] for rule in driver["rules"]]
    assert len(set(ids)) == len(ids)
    for rule in driver["rules"]:
        required(rule, "id", "helpUri")
        required(rule["help"], "text", "markdown")
        required(rule["shortDescription"], "text")
        required(rule["fullDescription"], "text")
        assert rule["defaultConfiguration"]["level"] in {"note", "warning", "error"}
    for result in run["results"]:
        check_result(result, ids)


def check_result(result: dict[str, Any], ids: list[str]) -> None:
    assert ids[result["ruleIndex"]] == result["ruleId"]
    assert result["level"] in {"note", "warning", "error"}
    required(result["message"], "text")
    required(result["partialFingerprints"], FINGERPRINT)
    for suppression in result["suppressions"]:
        assert suppression["kind"] in {"inSource", "external"}
        required(suppression, "justification")
    (location,) = result["locations"]
    required(location["logicalLocations"][0], "fullyQualifiedName", "name")
    physical = location.get("physicalLocation")
    if physical is not None:
        required(physical["artifactLocation"], "uri")
        region = physical["region"]
        assert all(region[name] >= 1 for name in ("startLine", "startColumn", "endLine", "endColumn"))
        assert (region["startLine"], region["startColumn"]) <= (region["endLine"], region["endColumn"])


def piece(text: str, region: dict[str, int]) -> str:
    lines = text.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    begin = starts[region["startLine"] - 1] + region["startColumn"] - 1
    return text[begin : starts[region["endLine"] - 1] + region["endColumn"] - 1]


def test_the_log_is_as_the_schema_requires(tmp_path: Path) -> None:
    report, log, _ = reported(tmp_path)
    check_log(log)
    assert len(log["runs"][0]["results"]) == len(report.findings) > 5
    live = sarif(lint_schema(Subject(CATALOG, "mail", knowledge=known_of(CATALOG)), ORDER))
    check_log(live)
    assert all("physicalLocation" not in one["locations"][0] for one in live["runs"][0]["results"])
    assert json.loads(json.dumps(log)) == log


def test_regions_are_the_pieces_that_are_meant(tmp_path: Path) -> None:
    report, log, text = reported(tmp_path)
    for finding, result in zip(report.findings, log["runs"][0]["results"], strict=True):
        region = result["locations"][0]["physicalLocation"]["region"]
        assert finding.span is not None
        meant = text[finding.span.start : finding.span.end]
        assert meant == piece(text, region)
        assert meant == text[region["charOffset"] :][: region["charLength"]]


def test_what_is_ignored_is_there_suppressed_with_its_reason(tmp_path: Path) -> None:
    order = LintSettings("ks", rules=rules_named(["T1", "T13", "T4"]), ignores=(Ignore("T1", "a", "it may"),))
    _, log, _ = reported(tmp_path, order)
    by_rule = {one["ruleId"]: one["suppressions"] for one in log["runs"][0]["results"]}
    assert by_rule == {
        "T1": [{"kind": "external", "justification": "it may"}],
        "T13": [{"kind": "inSource", "justification": "few lookups"}],
        "T4": [],
    }
    assert [rule["id"] for rule in log["runs"][0]["tool"]["driver"]["rules"]] == ["T1", "T4", "T13"]


def test_every_rule_is_reported_also_when_nothing_is_found(tmp_path: Path) -> None:
    _, log, _ = reported(tmp_path, text="")
    check_log(log)
    assert log["runs"][0]["results"] == []
    assert len(log["runs"][0]["tool"]["driver"]["rules"]) == len(RULES)


def test_fingerprints_stay_when_lines_move_and_differ_from_one_another(tmp_path: Path) -> None:
    first, moved = (
        [one["partialFingerprints"][FINGERPRINT] for one in reported(tmp_path, text=text)[1]["runs"][0]["results"]]
        for text in (TEXT, "\n\n" + TEXT + "\n")
    )
    assert first == moved
    assert len(set(first)) == len(first)


@pytest.mark.parametrize(
    ("file", "uri"),
    [
        ("cql/schema.cql", "cql/schema.cql"),
        ("a b/\u00fc.cql", "a%20b/%C3%BC.cql"),
        ("/tmp/a b.cql", "file:///tmp/a%20b.cql"),
    ],
)
def test_files_are_named_as_uris(file: str, uri: str) -> None:
    assert uri_of(file) == uri


@given(st.text(alphabet="ab \n\r\t\u00fc\U0001f600", max_size=30), st.data())
def test_a_place_leads_back_to_its_text(text: str, data: st.DataObject) -> None:
    from mailmend.admin.schema.lint_page import _region  # noqa: PLC0415 - the piece under test
    from mailmend.cql.statements import Span  # noqa: PLC0415

    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    assert piece(text, _region(text, Span(start, end))) == text[start:end]

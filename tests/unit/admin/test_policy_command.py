"""`mailmend policy` as a person types it: no server, no cluster."""

from pathlib import Path

import pytest

from tests.support.commands import CommandLine, command_line

DOUBTFUL = """\
policies:
  - fields: [recipientdomain]
    conditions:
      - if: {recipientdomain: '*.example.org'}
        then: {concurrency: 2}
      - if: {recipientdomain: a.example.org}
        then: {concurrency: 3}
    default: {concurrency: 5}
lists:
  vip: [one.example]
"""

EVERY_RULE = """\
lists: {old: [x.org]}
policies:
  - fields: [recipientdomain: {
      g: ['*.g.org'],
      h: ['*.h.g.org']}]
    conditions:
      - {if: {recipientdomain: '*.a.org'}, then: {concurrency: 1}}
      - {if: {recipientdomain: x.a.org}, then: {concurrency: 2}}
      - {if: {recipientdomain: [b.org, '*']}, then: {concurrency: 3}}
      - {if: {recipientdomain: c.org}, then: {rate: 1, connectinterval: 1}}
    default: {rate: 1, connectinterval: 1}
  - conditions:
      - then: {concurrency: 9, stop: true}
    default: {concurrency: 8}
  - default: {concurrency: 7}
  - fields: [jobid]
suspends:
  - {recipientdomain: q.org}
  - {recipientdomain: '*.org'}
"""


@pytest.fixture
def shell(tmp_path: Path) -> CommandLine:
    return command_line(tmp_path)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "policies.yaml"
    file.write_text(DOUBTFUL)
    return file


class TestLint:
    """`mailmend policy lint`."""

    def test_what_is_surely_not_meant_has_its_place_and_code(self, shell: CommandLine, file: Path) -> None:
        """In the order of the file, with the lines that make it so."""
        ended = shell("policy", "lint", str(file))
        assert ended.code == 1, ended.err
        rows = [line.split() for line in ended.out.splitlines()]
        assert [row[:2] for row in rows if row and row[0][:1].isdigit() and ":" in row[0]] == [
            ["6:9", "P1"],
            ["10:3", "P5"],
        ]
        assert "(line 4)" in ended.out
        assert "2 found." in ended.out

    def test_a_script_gets_the_same(self, shell: CommandLine, file: Path) -> None:
        found = shell("policy", "lint", str(file), "--json")
        assert (found.code, found.json["exit"], found.json["file"]) == (1, 1, str(file))
        first, second = found.json["findings"]
        assert (first["rule"], first["line"], first["column"]) == ("P1", 6, 9)
        assert first["because"] == [{"line": 4, "column": 9}]
        assert first["text"] == "an earlier one holds for all of its mails"
        assert {"title", "reason", "fix"} < set(first)
        assert (second["rule"], second["line"], second["column"], second["because"]) == ("P5", 10, 3, [])

    def test_each_rule_points_to_lines_of_the_file(self, shell: CommandLine, file: Path) -> None:
        """What is found, and what makes it so."""
        file.write_text(EVERY_RULE)
        found = shell("policy", "lint", str(file), "--json").json["findings"]
        places = [(one["rule"], one["line"], [other["line"] for other in one["because"]]) for one in found]
        assert places == [
            ("P5", 1, []),
            ("P6", 5, [4]),
            ("P1", 8, [7]),
            ("P4", 9, []),
            ("P2", 10, [11]),
            ("P8", 10, [10]),
            ("P8", 11, [11]),
            ("P3", 14, [13]),
            ("P9", 15, [12]),
            ("P9", 16, [12]),
            ("P10", 16, []),
            ("P7", 18, [19]),
        ]

    def test_a_file_that_means_what_it_says_ends_with_0(self, shell: CommandLine, file: Path) -> None:
        file.write_text("- fields: [localip]\n  default: {concurrency: 10}\n")
        ended = shell("policy", "lint", str(file))
        assert (ended.code, ended.out) == (0, f"{file}: nothing found.\n")

    def test_what_the_server_would_refuse_is_refused(self, shell: CommandLine, file: Path) -> None:
        """With its place, as the server says it."""
        file.write_text("- fields: [domain]\n")
        ended = shell("policy", "lint", str(file))
        assert (ended.code, ended.out) == (2, "")
        assert f"{file}, line 1, column 12: 'domain' is no field" in ended.err
        assert shell("policy", "lint", str(file.with_name("none.yaml"))).code == 2

"""`mailmend policy` as a person types it: no server, no cluster."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import CommandLine, command_line
from tests.support.queue_commands import QueueShell, queue_shell

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
      - {if: {recipientdomain: []}, then: {concurrency: 3}}
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

    def test_what_becomes_of_a_mail_as_it_comes_in_is_explained(self, shell: CommandLine, file: Path) -> None:
        rules = (
            "- {if: {client: 10.0.0.0/8}, set: {tenantid: acme}}",
            "- {if: {senderdomain: a.org, header: {X-Job: daily}}, delay: 10m, remove: X-Job}",
            "- {if: {recipientdomain: b.org}, reject: 550 5.7.1 no, stop: true}",
            "- {set: {jobid: late}, hold: true}",
        )
        file.write_text("\n".join(["incoming:", *rules]))
        comes = ("--client", "10.0.0.7", "--sender", "ann@A.org", "--header", "X-Job=daily")
        asked = ("policy", "explain", str(file), *comes)
        refused = shell(*asked, "--recipient", "cy@b.org", "--json").json["incoming"]
        held = shell(*asked)

        assert refused == {
            "rules": [{"rule": 1, "line": 2}, {"rule": 2, "line": 3}, {"rule": 3, "line": 4}],
            "set": {"tenantid": "acme"},
            "remove": ["x-job"],
            "hold": None,
            "delay_seconds": 600.0,
            "reject": "550 5.7.1 no",
            "refused_at_once": True,
            "unusable": [],
        }
        assert "As it comes in it gets jobid: late." in held.out
        assert "It is held: a rule of incoming holds such mails." in held.out

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

    def test_every_refused_value_is_one_entry_for_scripts(self, shell: CommandLine, file: Path) -> None:
        file.write_text("suspends:\n- {recipientdomain: .example.org}\n- {recipientdomain: 'example.org:25'}\n")
        ended = shell("policy", "lint", str(file), "--json")
        assert ended.code == 2
        assert ended.err.count("column 21") == 2
        found = json.loads(ended.out)
        assert (found["findings"], found["exit"]) == ([], 2)
        assert [(one["line"], one["column"], one["text"]) for one in found["refused"]] == [
            (2, 21, "'.example.org' is no domain"),
            (3, 21, "'example.org:25' is no domain"),
        ]
        assert found["refused"][1]["fix"] == "Did you mean 'example.org'?"

    def test_one_refused_value_is_an_entry_as_well(self, shell: CommandLine, file: Path) -> None:
        file.write_text("- fields: [domain]\n")
        found = json.loads(shell("policy", "lint", str(file), "--json").out)
        assert [(one["line"], one["column"]) for one in found["refused"]] == [(1, 12)]

    def test_a_person_sees_all_errors_of_a_file_with_their_number(self, shell: CommandLine, file: Path) -> None:
        file.write_text("suspends:\n" + "- {recipientdomain: .example.org}\n" * 30)

        ended = shell("policy", "lint", str(file))

        assert ended.code == 2
        assert ended.err.count("column 21: '.example.org' is no domain") == 30
        assert ended.err.splitlines()[-1] == f"{file}: 30 errors."

    def test_beyond_a_thousand_errors_the_file_is_not_read_on(self, shell: CommandLine, file: Path) -> None:
        file.write_text("suspends:\n" + "- {recipientdomain: .example.org}\n" * 1_001)

        ended = shell("policy", "lint", str(file))

        assert ended.err.splitlines()[-1] == f"{file}: 1,000 errors; the rest of the file was not read."

    def test_of_several_files_each_is_looked_at(self, shell: CommandLine, file: Path) -> None:
        """One that means what it says, one with a mistake, one with errors, and one that is not there."""
        fine = file.with_name("fine.yaml")
        fine.write_text("- fields: [localip]\n  default: {concurrency: 10}\n")
        wrong = file.with_name("wrong.yaml")
        wrong.write_text("- feilds: [jobid]\n- {default: {rate: 0}}\n")
        missing = file.with_name("missing.yaml")
        names = [str(path) for path in (fine, file, wrong, missing)]

        ended = shell("policy", "lint", *names)

        assert ended.code == 2
        assert f"{fine}: nothing found." in ended.out
        assert "2 found." in ended.out
        assert f"{wrong}, line 1, column 3: a policy has no 'feilds'" in ended.err
        assert "Did you mean 'fields'?" in ended.err
        assert f"{wrong}, line 2, column 20: a rate must allow at least 1 delivery" in ended.err
        assert f"the policy file {missing} cannot be read: No such file or directory" in ended.err

    def test_a_script_gets_the_file_of_each_finding_and_each_error(self, shell: CommandLine, file: Path) -> None:
        wrong = file.with_name("wrong.yaml")
        wrong.write_text("- feilds: [jobid]\n")
        missing = file.with_name("missing.yaml")

        ended = shell("policy", "lint", str(file), str(wrong), str(missing), "--json")

        found = json.loads(ended.out)
        assert (ended.code, found["exit"], found["file"]) == (2, 2, None)
        assert found["files"] == [str(file), str(wrong), str(missing)]
        assert {finding["file"] for finding in found["findings"]} == {str(file)}
        assert [(error["file"], error["line"], error["column"]) for error in found["refused"]] == [
            (str(wrong), 1, 3),
            (str(missing), None, None),
        ]

    def test_several_files_without_errors_end_with_1_where_one_has_a_mistake(
        self, shell: CommandLine, file: Path
    ) -> None:
        fine = file.with_name("fine.yaml")
        fine.write_text("- fields: [localip]\n  default: {concurrency: 10}\n")

        assert shell("policy", "lint", str(file), str(fine)).code == 1
        assert shell("policy", "lint", str(fine), str(fine)).code == 0

    def test_a_key_that_cannot_be_read_is_an_error_with_its_place(self, shell: CommandLine, file: Path) -> None:
        """Relative names start at the policy file."""
        file.write_text("transports:\n  a: {dkim: {example.org: {selector: s, key: none.pem}}}\n")
        ended = shell("policy", "lint", str(file), "--json")
        assert ended.code == 2
        (refused,) = ended.json["refused"]
        assert (refused["line"], refused["column"]) == (2, 46)
        assert refused["text"] == f"{file.parent / 'none.pem'} cannot be read: No such file or directory"


LAYERED = """\
policies:
  - fields: [localip, remotemx: {google: ['*.google.com']}]
    conditions:
      - if: {remotemx: '#google'}
        then: {concurrency: 10, rate: 100/60, connectinterval: 0.5}
    default: {concurrency: 5}
  - fields: [recipientdomain]
    conditions:
      - if: {recipientdomain: last.org}
        then: {concurrency: 3, stop: true}
  - default: {concurrency: 1000}
suspends:
  - {localip: 192.0.2.1, recipientdomain: example.org}
  - {jobid: paused}
"""


class TestExplain:
    """`mailmend policy explain`."""

    @pytest.fixture
    def file(self, file: Path) -> Path:
        file.write_text(LAYERED)
        return file

    def test_a_person_sees_limits_their_lines_and_the_addresses_that_are_left(
        self, shell: CommandLine, file: Path
    ) -> None:
        """For each address that was named; what was not named is said."""
        sources = ("--local-ip", "192.0.2.1", "--local-ip", "192.0.2.2")
        ended = shell(
            "policy", "explain", str(file), *sources, "--domain", "Example.ORG.", "--remote-mx", "a.google.com"
        )
        assert ended.code == 0, ended.err
        first, second = ended.out.split("From 192.0.2.2")
        assert "From 192.0.2.1" in first
        assert "Held by the suspension at line 13." in first
        assert "suspension" not in second
        rows = [" ".join(line.split()) for line in second.splitlines()]
        assert rows[4:7] == [
            "1, line 2 localip 192.0.2.2, remotemx #google the condition at line 4 10 100/60 0.5 s",
            "2, line 7 recipientdomain example.org nothing no limit no limit none",
            "3, line 11 every mail the default at line 11 1,000 no limit none",
        ]
        assert rows[-1] == "It may be sent from: 192.0.2.2."
        assert "Not named, so taken as empty: jobid." in ended.err

    def test_a_script_gets_the_same(self, shell: CommandLine, file: Path) -> None:
        """With the values in their normal form, and numbers of policies as people count."""
        options = ("--domain", "last.org", "--local-ip", "192.0.2.1", "--job", "paused", "--transport", "", "--json")
        found = shell("policy", "explain", str(file), *options).json
        (source,) = found.pop("sources")
        assert found == {
            "file": str(file),
            "mail": {"transportid": "", "recipientdomain": "last.org", "jobid": "paused"},
            "unsaid": ["remotemx"],
            "other_family": [],
            "left": [],
            "parked": [],
            "queue": None,
            "quotas": [],
            "sources_of": None,
            "incoming": None,
            "exit": 0,
        }
        assert (source["localip"], source["is_left"]) == ("192.0.2.1", False)
        assert source["not_consulted"] == [{"policy": 3, "line": 11}]
        assert source["suspensions"] == [{"suspension": 2, "line": 14}]
        first, second = source["policies"]
        assert first == {
            "policy": 1,
            "line": 2,
            "key": {"localip": "192.0.2.1", "remotemx": ""},
            "condition": None,
            "limits_line": 6,
            "concurrency": 5,
            "rate": None,
            "connect_interval_seconds": None,
            "stop": False,
            "cluster": True,
            "set_by": None,
            "lets_none": False,
        }
        assert (second["condition"], second["limits_line"], second["stop"]) == (1, 9, True)
        google = shell("policy", "explain", str(file), "--remote-mx", "x.google.com", "--json").json["sources"][0]
        assert google["policies"][0]["rate"] == {"count": 100, "seconds": 60.0}
        assert google["policies"][0]["connect_interval_seconds"] == 0.5

    def test_a_policy_behind_one_that_stops_is_not_consulted(self, shell: CommandLine, file: Path) -> None:
        out = shell("policy", "explain", str(file), "--domain", "last.org").out
        assert "3, line 11 not consulted" in [" ".join(line.split()) for line in out.splitlines()]
        assert out.splitlines()[-1] == "Nothing holds it back for good."

    def test_a_limit_of_none_and_a_field_that_is_empty_are_shown(self, shell: CommandLine, file: Path) -> None:
        """Neither looks as if there were no limit, or no field."""
        file.write_text("- fields: [localip]\n  default: {concurrency: 0}\n")
        rows = [" ".join(line.split()) for line in shell("policy", "explain", str(file)).out.splitlines()]
        assert "1, line 1 localip (empty) the default at line 2 0 no limit none" in rows
        assert rows[-1] == "It is held back, from wherever it is sent."

    def test_what_is_held_back_from_everywhere_is_said(self, shell: CommandLine, file: Path) -> None:
        """With addresses, and without."""
        paused = ("policy", "explain", str(file), "--job", "paused")
        assert shell(*paused).out.splitlines()[-1] == "It is held back, from wherever it is sent."
        none_left = "None of these addresses is left to send it from: it is held back."
        assert shell(*paused, "--local-ip", "::1").out.splitlines()[-1] == none_left

    def test_nothing_is_sent_from_addresses_of_another_family_than_the_servers(
        self, shell: CommandLine, file: Path
    ) -> None:
        """They are named apart from those that are left."""
        both = ("--local-ip", "192.0.2.7", "--local-ip", "2001:DB8::1")
        found = shell("policy", "explain", str(file), *both, "--remote-ip", "2001:db8::2", "--json").json
        assert (found["left"], found["other_family"]) == (["2001:db8::1"], ["192.0.2.7"])
        out = shell("policy", "explain", str(file), *both, "--remote-ip", "198.51.100.1").out
        assert "Of another family than the server, so nothing is sent from: 2001:db8::1." in out

    def test_a_mail_is_sent_from_the_addresses_of_its_transport(self, shell: CommandLine, file: Path) -> None:
        """Unless others were named; keys and passwords are not looked for."""
        file.write_text(
            "policies: [{fields: [localip], default: {concurrency: 5}}]\ntransports:\n  '*':\n"
            "    sources: [{address: 192.0.2.10}, {address: '2001:db8::1'}]\n"
            "    dkim: {example.org: {selector: s, key: nowhere.pem}}\n"
        )
        command = ("policy", "explain", str(file), "--transport", "bulk", "--remote-ip", "198.51.100.1")
        found = shell(*command, "--json").json
        assert (found["left"], found["other_family"]) == (["192.0.2.10"], ["2001:db8::1"])
        assert found["sources_of"] == {"transport": "*", "line": 3}
        lines = shell(*command).out.splitlines()
        assert "Transport '*' at line 3 names its addresses." in lines
        assert lines[-1] == "It may be sent from: 192.0.2.10."
        assert shell(*command, "--local-ip", "192.0.2.1", "--json").json["sources_of"] is None

    def test_quotas_that_count_the_mail_are_shown(self, shell: CommandLine, file: Path) -> None:
        """As what, and the limit of which line."""
        file.write_text(
            "quotas:\n- name: per-domain\n  fields: [recipientdomain, tenantid]\n  conditions:\n"
            "  - {if: {recipientdomain: a.org}, then: {messages: 1000}}\n  default: {bytes: 5K}\n- {name: idle}\n"
        )
        out = shell("policy", "explain", str(file), "--domain", "b.org").out
        rows = [" ".join(line.split()) for line in out.splitlines()]
        assert "per-domain, line 2 recipientdomain b.org, tenantid (empty) the default at line 6 no limit 5,120" in rows
        assert "idle, line 7 every mail nothing no limit no limit" in rows
        found = shell("policy", "explain", str(file), "--domain", "a.org", "--json").json
        assert found["unsaid"] == ["tenantid"]
        assert found["quotas"][0] == {
            "name": "per-domain",
            "line": 2,
            "key": {"recipientdomain": "a.org", "tenantid": ""},
            "condition": 1,
            "limits_line": 5,
            "messages": 1000,
            "bytes": None,
            "used": None,
            "refuses": False,
        }

    @pytest.mark.parametrize("option", ["--local-ip", "--remote-ip"])
    def test_an_address_that_is_none_is_refused(self, shell: CommandLine, file: Path, option: str) -> None:
        ended = shell("policy", "explain", str(file), option, "nowhere")
        assert (ended.code, "'nowhere' is no address" in ended.err) == (2, True)

    def test_a_file_that_the_server_would_refuse_is_refused(self, shell: CommandLine, file: Path) -> None:
        file.write_text("- default: 5\n")
        ended = shell("policy", "explain", str(file))
        assert (ended.code, "line 1, column 12" in ended.err) == (2, True)


BESIDE = """\
policies:
  - fields: [recipientdomain: {big: [a.org, c.org]}]
    conditions:
      - {if: {recipientdomain: b.org}, then: {concurrency: 2}}
    default: {concurrency: 5}
quotas:
  - {name: few, fields: [recipientdomain], default: {messages: 2}}
"""


class TestExplainBesideAQueue:
    """`mailmend policy explain FILE QUEUE`."""

    @pytest.fixture
    def queue(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> QueueShell:
        (tmp_path / "policies.yaml").write_text(BESIDE)
        return queue_shell(monkeypatch, tmp_path)

    def explained(self, queue: QueueShell, tmp_path: Path, *options: str) -> Any:
        ended = queue.line("policy", "explain", str(tmp_path / "policies.yaml"), *options, "--json")
        assert ended.code == 0, ended.err
        return ended.json

    def test_what_people_set_holds_before_the_file(self, queue: QueueShell, tmp_path: Path) -> None:
        """For a group too; the file's own conditions keep their numbers; what has ended, and without QUEUE, not."""
        why = ("--why", "they throttle us")
        to_a = ("--fields", "recipientdomain", "--if", "recipientdomain=a.org", "--concurrency", "0")
        made = queue.line("policy", "add", "spool", *to_a, "--for", "1h", *why, "--json").json["condition"]
        queue.line("policy", "add", "spool", "--fields", "jobid", "--all", "--unlimited", *why)
        found = self.explained(queue, tmp_path, "spool", "--domain", "c.org")
        (share,) = found["sources"][0]["policies"]
        assert (share["set_by"]["id"], share["concurrency"], share["limits_line"]) == (made["id"], 0, None)
        assert (found["queue"], found["left"], found["sources"][0]["is_left"]) == ("spool", [], False)
        assert [one["parked"] for one in found["parked"]] == ["no policy counts by exactly jobid"]
        (file_own,) = self.explained(queue, tmp_path, "--queue", "spool", "--domain", "b.org")["sources"][0]["policies"]
        assert (file_own["set_by"], file_own["condition"], file_own["limits_line"]) == (None, 1, 4)
        out = " ".join(
            queue.line("policy", "explain", str(tmp_path / "policies.yaml"), "spool", "--domain", "a.org").out.split()
        )
        assert "(they throttle us)" in out
        assert "It is held back" in out
        assert self.explained(queue, tmp_path, "--domain", "a.org")["sources"][0]["is_left"]
        queue.pass_time(hours=1)
        assert self.explained(queue, tmp_path, "spool", "--domain", "a.org")["sources"][0]["is_left"]

    def test_what_people_suspended_holds_a_mail(self, queue: QueueShell, tmp_path: Path) -> None:
        """From the address that it names alone; it is said how to end it."""
        options = ("--local-ip", "192.0.2.1", "--why", "listed", "--json")
        made = queue.line("suspend", "add", "spool", *options).json["suspension"]
        both = ("spool", "--local-ip", "192.0.2.1", "--local-ip", "192.0.2.2")
        found = self.explained(queue, tmp_path, *both)
        assert (found["left"], found["sources"][0]["suspended_by"]) == (["192.0.2.2"], [made])
        out = queue.line("policy", "explain", str(tmp_path / "policies.yaml"), *both).out
        assert f"mailmend suspend remove spool {made['id']}" in " ".join(out.split())

    def test_the_queue_is_counted_where_the_file_has_quotas(self, queue: QueueShell, tmp_path: Path) -> None:
        """A quota that has no room for one more is said to be full; no message is taken from the broker."""
        queue.put("one", "two", recipients=("bob@a.org", "al@b.org"))
        queue.put("three", recipients=("cy@c.org",))
        queue.asked.clear()
        full = self.explained(queue, tmp_path, "spool", "--domain", "a.org")["quotas"][0]
        assert (full["used"]["messages"], full["refuses"]) == (2, True)
        room = self.explained(queue, tmp_path, "spool", "--domain", "c.org")["quotas"][0]
        assert (room["used"]["messages"], room["refuses"]) == (1, False)
        alone = self.explained(queue, tmp_path, "--domain", "a.org")["quotas"][0]
        assert (alone["used"], alone["refuses"]) == (None, False)
        out = queue.line("policy", "explain", str(tmp_path / "policies.yaml"), "spool", "--domain", "b.org").out
        assert "Quota few is full: spool takes no such mail now." in out
        assert not queue.asked


class TestSchema:
    """`mailmend policy schema`."""

    def test_it_is_the_one_that_is_published(self, shell: CommandLine) -> None:
        """Byte for byte; as one line for scripts."""
        published = Path("docs/policy.schema.json").read_text()
        ended = shell("policy", "schema")
        assert (ended.code, ended.out) == (0, published)
        assert shell("policy", "schema", "--json").json == json.loads(published)

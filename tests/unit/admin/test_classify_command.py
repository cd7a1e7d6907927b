"""`mailmend policy classify` as a person types it: no server, no cluster."""

from pathlib import Path

import pytest

from mailmend.admin.delivery import serve as delivery
from tests.support.commands import CommandLine, command_line
from tests.support.deliveries import LATER
from tests.support.queue_commands import queue_shell
from tests.unit.admin.test_delivery_command import HOP, StoppingRelay

OWN = """\
policies:
  - {fields: [recipientdomain], default: {concurrency: 20}}
classes:
  - {class: OurBlock, code: 5xx, reply: 'see our page'}
  - {class: Patience, enhanced: 4.2.0}
automation:
  - {name: blocked, class: OurBlock, fields: [localip], trigger: 5/60, then: suspend, for: 10m}
  - {name: slow, class: OurBlock, fields: [recipientdomain], trigger: 2/1, then: {concurrency: 1}, for: 1h}
  - {name: other, class: RateLimited, fields: [localip], trigger: 5/60, then: suspend, for: 10m}
"""


@pytest.fixture
def line(tmp_path: Path) -> CommandLine:
    return command_line(tmp_path)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "policies.yaml"
    file.write_text(OWN)
    return file


def test_a_reply_has_its_class_by_a_rule_that_is_named(line: CommandLine, file: Path) -> None:
    """Of the package, or of a file; the automatic rules that count it are named with what they do."""
    shipped = line("policy", "classify", "421 4.7.0 too many connections")
    own = line("policy", "classify", "550 5.7.1 See our page", "--policies", str(file))
    assert shipped.out == "TooManyConnections: shipped rule 1.\n"
    assert own.out.splitlines() == [
        f"OurBlock: rule 1 of {file} (line 4).",
        "The automatic rule blocked counts it by localip: OurBlock 5 times in 60 s, and it is suspended for 10m.",
        "The automatic rule slow counts it by recipientdomain: OurBlock 2 times in 1 s, and concurrency 1 for 1h.",
    ]


def test_scripts_get_its_parts_and_the_rule(line: CommandLine, file: Path) -> None:
    found = line("policy", "classify", "550-5.7.1 See\n550 5.7.1 our page", "--policies", str(file), "--json").json
    assert (found["reply"], found["class"], found["automation"]) == (
        {"code": "550", "enhanced": "5.7.1", "text": "See our page"},
        "OurBlock",
        ["blocked", "slow"],
    )
    assert found["rule"] == {
        "class": "OurBlock",
        "code": ["5xx"],
        "enhanced": [],
        "reply": ["see our page"],
        "file": str(file),
        "rule": 1,
        "line": 4,
    }


def test_a_reply_that_no_rule_knows_is_uncategorised(line: CommandLine) -> None:
    found = line("policy", "classify", "hello", "--json").json
    assert (found["class"], found["rule"]) == ("Uncategorised", None)


def test_without_a_reply_all_rules_are_listed_in_their_order(line: CommandLine, file: Path) -> None:
    found = line("policy", "classify", "--policies", str(file), "--json").json["rules"]
    assert [one["class"] for one in found[:3]] == ["OurBlock", "Patience", "TooManyConnections"]
    assert [one["file"] for one in found[:3]] == [str(file), str(file), None]
    assert "shipped rule 1" in line("policy", "classify").out


def test_a_file_that_the_server_would_refuse_is_refused(line: CommandLine, file: Path) -> None:
    file.write_text("classes: [{code: 421}]")
    ended = line("policy", "classify", "421 no", "--policies", str(file))
    assert (ended.code, "a rule of classes lacks its class" in ended.err) == (2, True)


def test_a_mail_is_shown_with_the_class_of_its_reply(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the shipped rules, or by a file's; an attempt has the class of its status, if that alone gives one."""
    shell = queue_shell(monkeypatch, tmp_path)
    relay = StoppingRelay(shell.clock, {"bob@example.org": [LATER]})
    monkeypatch.setattr(delivery, "relay_of", lambda *_: relay)
    (mail,) = shell.put("one", recipients=("bob@example.org", "cy@example.com"))
    assert shell.line("delivery", "serve", *HOP).code == 0
    shipped = shell.line("delivery", "show", "spool", str(mail), "--json").json
    own = shell.line("delivery", "show", "spool", str(mail), "--policies", str(file), "--json").json
    assert [one["class"] for one in shipped["entries"]] == ["Uncategorised"]
    assert [one["class"] for one in own["entries"]] == ["Patience"]
    assert {one["number"]: one["class"] for one in own["attempts"]} == {0: "Patience", 1: None}
    assert {one["number"]: one["class"] for one in shipped["attempts"]} == {0: None, 1: None}
    shown = shell.line("delivery", "show", "spool", str(mail), "--policies", str(file))
    assert "Patience: " in shown.out

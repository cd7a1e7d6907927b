"""What the command line offers beside its commands: help in groups, similar names, versions, completion."""

import os
import re
import tomllib
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from mailmend.admin.frame.runbooks import pages
from mailmend.cql.driver import session
from mailmend.model.errors import CannotReach
from tests.support.cluster_twin import ClusterTwin
from tests.support.commands import CommandLine, Ended
from tests.support.mail_states import MailKeyspace

QUICK = ("--engine", "local", "--delay", "0", "--json")


@pytest.mark.parametrize("command", ["check", "repair messages", "schema apply", "queue reconcile"])
def test_a_help_begins_with_the_commands_own_options(mailmend: CommandLine, command: str) -> None:
    """Those of connection, broker, blobs and output stand below titles of their own, after them."""
    titles = re.findall(r"^(\w+):$", mailmend(*command.split(), "-h").out, re.MULTILINE)
    assert titles[0] == "Options"
    assert titles[-1] == "Output"
    wanted = {"check": {"Connection", "Broker", "Blobs"}, "queue reconcile": {"Connection", "Broker", "Blobs"}}
    assert set(titles[1:-1]) == wanted.get(command, {"Connection"})


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("chek", "check"), ("runs lst", "list"), ("schema aply", "apply"), ("check --keyspce x", "--keyspace")],
)
def test_a_slip_of_the_finger_is_answered_with_what_was_meant(mailmend: CommandLine, typed: str, meant: str) -> None:
    ended = mailmend(*typed.split())
    assert (ended.code, f"'{meant}'" in ended.err) == (2, True), ended.err


def test_what_no_help_shows_is_not_offered_either(mailmend: CommandLine) -> None:
    """`schema lint` has a hidden option `--format`."""
    reported = mailmend("schema", "lint", "--fomat").err
    assert ("'--format'" in reported, "'--log-" in reported) == (False, True)


class TestVersion:
    """`mailmend version`."""

    def test_everything_that_takes_part_is_named(self, mailmend: CommandLine, cluster: ClusterTwin) -> None:
        found = mailmend("version", "--json").json
        project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
        named = chain(project["dependencies"], *project["optional-dependencies"].values())
        assert {Requirement(one).name for one in named} | {"mailmend", "python", "connector", "java"} <= set(found)
        assert found["server"] == cluster.release_version
        assert f"server {cluster.release_version}" in " ".join(mailmend("version").out.split())

    def test_a_server_that_does_not_answer_is_no_error(
        self, mailmend: CommandLine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(_: object) -> None:
            raise CannotReach("10.0.0.1:9042 gives no answer")

        monkeypatch.setattr(session, "connect", refuse)
        ended = mailmend("version", "--json")
        assert (ended.code, ended.json["server"]) == (0, None)
        assert "gives no answer" in ended.json["unanswered"]


class TestCompletion:
    """`mailmend completion`, and what a shell is offered."""

    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_each_shell_has_its_script(self, mailmend: CommandLine, shell: str) -> None:
        ended = mailmend("completion", shell)
        assert (ended.code, "_MAILMEND_COMPLETE" in ended.out) == (0, True)

    def test_runs_are_offered_newest_first(self, mailmend: CommandLine, mail: MailKeyspace) -> None:
        runs = []
        for number in (0, 1):
            mail.lose_projection(mail.truths[number])
            runs.append(mailmend("repair", "messages", *QUICK).json["run"])
        assert sorted(mailmend.completed("mailmend undo ")) == sorted(runs)
        assert mailmend.completed(f"mailmend runs show {runs[0][:-4]}")[:1] == [runs[0]]

    def test_runbooks_are_offered_by_how_they_begin(self, mailmend: CommandLine) -> None:
        wanted = [page.name for page in pages() if page.name.startswith("queue")]
        assert mailmend.completed("mailmend runbook show queue") == wanted

    def test_where_nothing_can_be_found_out_nothing_is_offered(
        self, mailmend: CommandLine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(_: object) -> None:
            raise CannotReach("10.0.0.1:9042 gives no answer")

        monkeypatch.setattr(session, "connect", refuse)
        assert mailmend.completed("mailmend undo ") == []
        assert mailmend.completed("mailmend queue size ") == []


def test_findings_of_a_check_may_go_to_stdout(mailmend: CommandLine, mail: MailKeyspace) -> None:
    mail.lose_projection(mail.truths[0])
    ended: Ended = mailmend("check", *QUICK, "--findings", "-")
    assert (ended.code, ended.json["verdict"]) == (1, "PROJECT")


def test_findings_of_a_run_may_go_to_a_file(mailmend: CommandLine, mail: MailKeyspace, tmp_path: Path) -> None:
    mail.lose_projection(mail.truths[0])
    run = mailmend("repair", "messages", *QUICK).json["run"]
    mailmend("runs", "show", run, "--findings", str(tmp_path / "found.jsonl"))
    shown = [mailmend("runs", "show", run, "--findings", *words).out for words in (("-",), ())]
    assert shown == [(tmp_path / "found.jsonl").read_text()] * 2


@pytest.mark.parametrize(
    "line",
    [
        ("load", "FILE", "--user", "ann", "--mailbox", "INBOX"),
        ("queue", "enqueue", "FILE", "--recipient", "b@example.org"),
    ],
)
def test_arguments_that_are_not_utf_8_are_refused(mailmend: CommandLine, tmp_path: Path, line: tuple[str, ...]) -> None:
    """The file is there; its name is no text that could be written down."""
    file = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.eml")
    Path(file).write_bytes(b"A: b\n\nBody\n")

    ended = mailmend(*(file if word == "FILE" else word for word in line))

    assert (ended.code, "caf\\xe9.eml' is not UTF-8" in ended.err) == (2, True), ended.err

"""Rows of mailboxes: what `repair mailboxes` writes from the registry of paths, and what it leaves to a person."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from mailmend.cql.row_statements import Operation
from mailmend.model.catalog.james_tables import ACL
from mailmend.model.catalog.mail import MAILBOX, MAILBOX_PATH
from mailmend.model.errors import AccessDenied
from mailmend.model.operations import Put, Read, Remove, Seen
from tests.support.cluster_twin import ClusterTwin
from tests.support.commands import QUICK, CommandLine, Ended, Typed
from tests.support.mail_states import MailKeyspace, register
from tests.support.repairing import message

LOST = message(1)
RENAMED = message(2)
TWICE = message(3)
GONE = message(4)


@pytest.fixture
def mend(mailmend: CommandLine, cluster: ClusterTwin) -> Typed:
    """`repair mailboxes` at once, a second after whatever happened before."""

    def call(*arguments: str) -> Ended:
        cluster.clock.advance(1)
        return mailmend("repair", "mailboxes", *QUICK, "--no-writers", "--json", *arguments)

    return call


@pytest.fixture
def damaged(mail: MailKeyspace) -> MailKeyspace:
    """A mailbox without its row, a stale row, a rename that left its old path, and a row without a path."""
    register(mail, 1, "Lost", row_says=None)
    register(mail, 2, "New name", row_says="Old name")
    register(mail, 3, "Before", row_says="After")
    register(mail, 3, "After", row_says="After")
    register(mail, 4, "Gone", row_says="Gone")
    mail.tables.write(Remove(MAILBOX_PATH, ("#private", "bob", "Gone")))
    return mail


def row(mail: MailKeyspace, mailbox: UUID) -> Seen | None:
    return next(iter(mail.tables.read(Read(MAILBOX, (mailbox,), times=True))), None)


def named(mail: MailKeyspace, mailbox: UUID) -> Any:
    found = row(mail, mailbox)
    return found and (found.row["mailboxbase"]["user"], found.row["name"], found.row["uidvalidity"])


def findings(file: Path) -> Iterator[dict[str, Any]]:
    for line in file.read_text().splitlines():
        yield json.loads(line)


def test_rows_that_one_path_tells_are_written(damaged: MailKeyspace, mend: Typed) -> None:
    ended = mend()

    assert ended.json["fixed"] == {"PROJECT": 1, "AMEND": 1}
    assert named(damaged, LOST) == ("bob", "Lost", 1)
    assert named(damaged, RENAMED) == ("bob", "New name", 1)


def test_a_mailbox_with_two_paths_or_none_is_left(damaged: MailKeyspace, mend: Typed) -> None:
    before = [row(damaged, mailbox) for mailbox in (TWICE, GONE)]

    ended = mend()

    assert (ended.code, ended.json["left"]) == (1, {"CLASH": 1, "WITHDRAW": 1})
    assert [row(damaged, mailbox) for mailbox in (TWICE, GONE)] == before
    assert ended.json["reasons"] == {
        "CLASH": {"two rows of truth claim it: a person decides which one stays": 1},
        "WITHDRAW": {"only reported": 1},
    }


def test_both_paths_of_a_mailbox_are_named(damaged: MailKeyspace, mend: Typed, tmp_path: Path) -> None:
    mend("--findings", str(tmp_path / "found"))

    (clash,) = [one for one in findings(tmp_path / "found") if one["verdict"] == "CLASH"]
    assert [truth["row"]["mailboxname"] for truth in clash["truths"]] == ["After", "Before"]


def test_a_dry_run_writes_nothing_and_says_what_is_due(damaged: MailKeyspace, mend: Typed) -> None:
    ended = mend("--dry-run")

    assert (ended.code, ended.json["due"], ended.json["run"]) == (1, {"PROJECT": 1, "AMEND": 1}, None)
    assert row(damaged, LOST) is None


def test_an_undo_puts_back_each_row_to_the_byte(damaged: MailKeyspace, mend: Typed, mailmend: CommandLine) -> None:
    stale = row(damaged, RENAMED)
    run = mend().json["run"]

    undone = mailmend("undo", run, "--json")

    assert (undone.code, undone.json["fixed"]) == (0, {"PROJECT": 1, "AMEND": 1})
    back = row(damaged, RENAMED)
    assert back is not None
    assert stale is not None
    assert (back.row, row(damaged, LOST)) == (stale.row, None)


def test_an_undo_is_undone(damaged: MailKeyspace, mend: Typed, mailmend: CommandLine) -> None:
    run = mend().json["run"]
    undo = mailmend("undo", run, "--json").json["run"]

    assert mailmend("undo", undo).code == 0
    assert named(damaged, LOST) == ("bob", "Lost", 1)


def test_a_row_whose_path_was_null_is_null_again(mail: MailKeyspace, mend: Typed, mailmend: CommandLine) -> None:
    register(mail, 1, "Half", row_says=None)
    mail.tables.write(Put(MAILBOX, {"id": LOST, "uidvalidity": 1}))
    run = mend().json["run"]
    assert named(mail, LOST) == ("bob", "Half", 1)

    mailmend("undo", run)

    found = row(mail, LOST)
    assert found is not None
    assert (found.row["mailboxbase"], found.row["name"]) == (None, None)


def test_a_mailbox_that_was_just_renamed_is_left_to_the_next_run(
    mail: MailKeyspace, mailmend: CommandLine, cluster: ClusterTwin
) -> None:
    register(mail, 1, "Lost", row_says=None)
    cluster.clock.advance(100)
    register(mail, 2, "New", row_says="Old")
    cluster.clock.advance(1)

    ended = mailmend("repair", "mailboxes", *QUICK, "--json")

    assert (ended.code, ended.json["fixed"], ended.json["moved"]) == (0, {"PROJECT": 1}, 1)
    assert named(mail, RENAMED) == ("bob", "Old", 1)


def test_no_uid_validity_is_made_up(mail: MailKeyspace, mend: Typed) -> None:
    path = {"namespace": "#private", "user": "bob", "mailboxname": "Half", "mailboxid": LOST}
    mail.tables.write(Put(MAILBOX_PATH, path))

    ended = mend()

    assert (ended.json["fixed"], ended.json["left"]) == ({}, {"TORN": 1})
    assert row(mail, LOST) is None


def test_messages_are_not_looked_at(damaged: MailKeyspace, mend: Typed) -> None:
    damaged.lose_projection(damaged.truths[0])

    ended = mend()

    assert set(ended.json["scanned"]) == {"mailboxPathV3", "mailbox"}
    assert set(ended.json["findings"]) == {"mailbox"}


def test_a_plan_of_mailboxes_is_applied(
    damaged: MailKeyspace, mend: Typed, mailmend: CommandLine, tmp_path: Path
) -> None:
    plan = str(tmp_path / "plan.jsonl")
    assert mend("--plan", plan).json["due"] == {"PROJECT": 1, "AMEND": 1}
    assert row(damaged, LOST) is None

    applied = mailmend("apply", plan, "--json")

    assert applied.json["fixed"] == {"PROJECT": 1, "AMEND": 1}
    assert named(damaged, LOST) == ("bob", "Lost", 1)
    assert mailmend("undo", applied.json["run"]).code == 0
    assert row(damaged, LOST) is None


def test_a_check_names_the_repair(damaged: MailKeyspace, mailmend: CommandLine, cluster: ClusterTwin) -> None:
    cluster.clock.advance(1)

    ended = mailmend("check", "all", *QUICK)

    assert f"Next: mailmend repair mailboxes --keyspace {damaged.name} --dry-run" in ended.out.splitlines()


def test_after_the_repair_nothing_is_left_to_mend(damaged: MailKeyspace, mend: Typed) -> None:
    mend()

    again = mend()

    assert (again.json["fixed"], again.json["left"]) == ({}, {"CLASH": 1, "WITHDRAW": 1})


def test_rows_of_mailboxes_that_are_no_more_are_named_and_kept(mail: MailKeyspace, mend: Typed) -> None:
    mail.tables.write(Put(ACL, {"id": GONE, "key": "ann", "rights": frozenset("lr")}))

    gone = mend().json["gone_mailboxes"]

    assert (gone["number"], gone["in"]["aclv2"]) == (2, 1)
    assert {"mailbox": str(GONE), "tables": ["aclv2"]} in gone["first"]
    assert str(mail.mailbox) in [one["mailbox"] for one in gone["first"]]
    assert mail.get(ACL, (GONE, "ann")) is not None


def test_they_are_lines_of_the_result_and_change_no_exit_code(mail: MailKeyspace, mailmend: CommandLine) -> None:
    assert mail.mirrored() > 0

    ended = mailmend("repair", "mailboxes", *QUICK, "--no-writers")

    assert ended.code == 0
    assert "Mailboxes that are no more, with rows that are left: 1 (messageIdTable 1" in ended.out


@pytest.mark.usefixtures("mail")
def test_the_page_about_them_is_the_next_command(mailmend: CommandLine) -> None:
    ended = mailmend("repair", "mailboxes", *QUICK, "--no-writers", "--dry-run")

    (line,) = [
        text for text in ended.out.splitlines() if text.startswith("Rows of mailboxes that are no more: mailmend ")
    ]
    words = line.partition(": mailmend ")[2].split()
    assert "mailboxes that are no more" in mailmend(*words).out


def test_without_them_no_command_is_about_them(mail: MailKeyspace, mailmend: CommandLine) -> None:
    register(mail, 9, "INBOX", row_says="INBOX", mailbox=mail.mailbox)

    ended = mailmend("repair", "mailboxes", *QUICK, "--no-writers")

    assert (ended.code, "are no more" in ended.out) == (0, False)


def test_a_mailbox_that_is_registered_again_is_mended(mail: MailKeyspace, mend: Typed) -> None:
    """As the page says: the path first, then this repair."""
    register(mail, 9, "Restored", row_says=None, mailbox=mail.mailbox)

    ended = mend()

    assert (ended.json["fixed"], ended.json["gone_mailboxes"]["number"]) == ({"PROJECT": 1}, 0)
    assert named(mail, mail.mailbox) == ("bob", "Restored", 1)


@pytest.mark.usefixtures("damaged")
def test_one_command_connects_once(mend: Typed, cluster: ClusterTwin, monkeypatch: pytest.MonkeyPatch) -> None:
    connected: list[object] = []

    def connect(contact: object) -> ClusterTwin:
        connected.append(contact)
        return cluster

    monkeypatch.setattr("mailmend.cql.driver.session.connect", connect)

    assert mend().json["fixed"] == {"PROJECT": 1, "AMEND": 1}
    assert len(connected) == 1


def test_a_role_that_may_not_read_rights_mends_mailboxes_all_the_same(
    damaged: MailKeyspace, cluster: ClusterTwin, mailmend: CommandLine
) -> None:
    def refuse(operation: Operation, carry_out: Callable[[], Any]) -> Any:
        if operation.table.name == ACL.name:
            raise AccessDenied("the role may not read aclv2")
        return carry_out()

    cluster.keyspace("mail").surround = refuse
    cluster.clock.advance(1)

    ended = mailmend("repair", "mailboxes", *QUICK, "--no-writers", "--json")

    assert ended.json["fixed"] == {"PROJECT": 1, "AMEND": 1}
    assert ended.json["gone_mailboxes"] is None
    assert "were not looked for: the role may not read aclv2" in ended.err

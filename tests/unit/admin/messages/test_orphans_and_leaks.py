"""Rows and contents of which the other half is gone: reported, withdrawn, restored, quarantined, collected."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from mailmend.admin.frame.runbooks import page_named
from mailmend.model.catalog.james_tables import BLOB_PARTS, BLOBS
from mailmend.model.catalog.mail import IMAP_UID, MESSAGE_ID, MESSAGE_V3
from mailmend.model.instants import MICROS
from mailmend.model.operations import Change, Put, Remove, Scan
from tests.support.clock import START
from tests.support.cluster_twin import ClusterTwin
from tests.support.commands import QUICK, CommandLine, Ended, Typed
from tests.support.mail_states import MailKeyspace
from tests.support.repairing import DAY_SECONDS, content_row, message


class TestDangling:
    """Projections without truth."""

    @pytest.fixture(autouse=True)
    def _half_deleted(self, mail: MailKeyspace) -> None:
        mail.lose_truth(mail.truths[0])

    def is_back(self, mail: MailKeyspace) -> bool:
        return mail.get(IMAP_UID, IMAP_UID.key_of(mail.truths[0])) is not None

    def test_withdrawn_they_are_counted_as_last_traces(self, mail: MailKeyspace, mend: Typed) -> None:
        """The content still exists: a person may want to look before it is a leak."""
        ended = mend()

        assert (ended.json["last_traces"], mail.mirror(mail.truths[0])) == (1, None)
        assert not self.is_back(mail)

    def test_reported_they_stay(self, mail: MailKeyspace, mend: Typed) -> None:
        ended = mend("--dangling", "report", "--only", "WITHDRAW")

        assert (ended.code, ended.json["left"].get("WITHDRAW", 0) >= 1) == (1, True)
        assert mail.mirror(mail.truths[0]) is not None

    def test_restoring_needs_a_person(self, mail: MailKeyspace, mend: Typed) -> None:
        """Nobody at the terminal: refused before anything is dialled; a dry run and --yes are fine."""
        refused = mend("--dangling", "restore")
        assert (refused.code, "--yes" in refused.err, self.is_back(mail)) == (2, True, False)

        assert mend("--dangling", "restore", "--dry-run").json["due"]["WITHDRAW"] >= 1
        assert not self.is_back(mail)

        assert mend("--dangling", "restore", "--yes").code in {0, 1}
        assert self.is_back(mail)

    @pytest.mark.parametrize(("answer", "code", "back"), [("n\n", 2, False), ("\n", 2, False), ("y\n", 0, True)])
    def test_a_person_at_a_terminal_is_asked(  # noqa: PLR0917 - fixtures
        self, mail: MailKeyspace, mend: Typed, monkeypatch: pytest.MonkeyPatch, answer: str, code: int, back: bool
    ) -> None:
        monkeypatch.setattr("mailmend.admin.frame.terminal.someone_is_there", lambda: True)
        monkeypatch.setattr("click.termui.visible_prompt_func", lambda *_: answer.strip())

        ended = mend("--dangling", "restore", "--only", "WITHDRAW")

        assert (ended.code, self.is_back(mail)) == (code, back), ended.err


class TestLeaks:
    """Content that no truth names."""

    def leak(self, mail: MailKeyspace, age_seconds: int) -> tuple[Any, ...]:
        """Content of a message that nobody names, born and written so long ago."""
        born = START - age_seconds * MICROS
        row = content_row(message(77, born))
        mail.tables.write(Put(MESSAGE_V3, row, at=born))
        return (row["messageid"],)

    def test_they_are_reported_and_never_fail_a_check(self, mailmend: CommandLine, mail: MailKeyspace) -> None:
        self.leak(mail, 10 * DAY_SECONDS)

        ended = mailmend("check", *QUICK, "--json")

        assert (ended.code, ended.json["findings"]) == (0, {"messageV3": {"LEAK": 1}})

    def test_collected_they_go_and_can_be_brought_back(
        self, mailmend: CommandLine, mail: MailKeyspace, mend: Typed
    ) -> None:
        key = self.leak(mail, 10 * DAY_SECONDS)
        before = mail.get(MESSAGE_V3, key)

        ended = mend("--leaks", "collect")
        assert (ended.json["fixed"], mail.get(MESSAGE_V3, key)) == ({"LEAK": 1}, None)

        assert mailmend("undo", ended.json["run"]).code == 0
        assert mail.get(MESSAGE_V3, key) == before

    def test_young_ones_are_left(self, mail: MailKeyspace, mend: Typed) -> None:
        key = self.leak(mail, DAY_SECONDS // 2)

        ended = mend("--leaks", "collect")

        assert (ended.json["fixed"], mail.get(MESSAGE_V3, key) is not None) == ({}, True)

    def test_a_truth_that_comes_between_the_two_looks_saves_it(
        self, mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin
    ) -> None:
        """A copy of an old message: its content is named again before the second look."""
        key = self.leak(mail, 10 * DAY_SECONDS)
        sleep = cluster.clock.sleep

        def copied_meanwhile(seconds: float) -> None:
            sleep(seconds)
            copy = {**mail.truths[0], "messageid": key[0], "uid": 50}
            mail.tables.write(Put(IMAP_UID, copy))

        cluster.clock.sleep = copied_meanwhile  # type: ignore[method-assign]

        ended = mailmend("repair", "messages", "--engine", "local", "--delay", "1", "--leaks", "collect", "--json")

        assert ended.json["fixed"].get("LEAK") is None
        assert mail.get(MESSAGE_V3, key) is not None


class TestOrphans:
    """Truth rows whose content is lost."""

    def test_quarantine_takes_only_old_ones_and_undo_brings_them_back(
        self, mailmend: CommandLine, mail: MailKeyspace, mend: Typed
    ) -> None:
        """They leave truth, mirror and filters; each has its before-image."""
        truth = mail.truths[0]
        mail.lose_content(truth)
        assert mend().json["left"] == {"LOST_CONTENT": 1}

        ended = mend("--orphans", "quarantine")
        assert ended.json["fixed"]["LOST_CONTENT"] == 1, ended.err
        assert mail.get(IMAP_UID, IMAP_UID.key_of(truth)) is None
        assert mail.mirror(truth) is None

        assert mailmend("undo", ended.json["run"]).code == 0
        assert mail.get(IMAP_UID, IMAP_UID.key_of(truth)) is not None

    def test_torn_rows_are_reported_or_accepted(self, mailmend: CommandLine, mail: MailKeyspace) -> None:
        key = IMAP_UID.key_of(mail.truths[0])
        mail.tables.write(Change(IMAP_UID, key, assign={"headercontent": None}))
        mail.tables.write(Change(MESSAGE_ID, (mail.mailbox, 1), assign={"headercontent": None}))

        torn = mailmend("check", "messages", *QUICK, "--json")
        accepted = mailmend("check", "messages", *QUICK, "--json", "--torn", "accept")

        assert torn.json["findings"].get("messageIdTable") == {"TORN": 1}
        assert (accepted.code, accepted.json["findings"]) == (0, {})

    def test_torn_rows_are_filled_from_their_contents_and_undo_empties_them_again(
        self, mailmend: CommandLine, mail: MailKeyspace, mend: Typed
    ) -> None:
        """As in a keyspace from before JAMES-4225: truth and mirror lack what messageV3 has."""
        truth = mail.truths[0]
        key = IMAP_UID.key_of(truth)
        mail.tables.write(Change(IMAP_UID, key, assign={"headercontent": None}))
        mail.tables.write(Change(MESSAGE_ID, (mail.mailbox, 1), assign={"headercontent": None}))

        offered = mailmend("check", "messages", *QUICK, "--json", "--torn", "fill")
        ended = mend("--torn", "fill")
        clean = mailmend("check", "messages", *QUICK)
        undone = mailmend("undo", ended.json["run"], "--json")
        torn = mailmend("check", "messages", *QUICK, "--json")
        redone = mailmend("undo", undone.json["run"], "--json")
        again = mailmend("check", "messages", *QUICK)

        assert (offered.code, offered.json["due"]) == (1, {"TORN": 1})
        assert (ended.code, ended.json["fixed"]) == (0, {"TORN": 1}), ended.err
        assert (undone.code, undone.json["fixed"]) == (0, {"TORN": 1}), undone.err
        assert torn.json["findings"] == {"messageIdTable": {"TORN": 1}}
        assert (redone.code, redone.json["fixed"]) == (0, {"TORN": 1}), redone.err
        assert (clean.code, again.code) == (0, 0)
        assert (mail.get(IMAP_UID, key) or {})["headercontent"] == truth["headercontent"]


def test_a_lost_delete_is_withdrawn_with_its_filters(mail: MailKeyspace, mend: Typed) -> None:
    mail.lose_truth(mail.truths[0])
    mail.tables.write(Remove(MESSAGE_V3, (mail.truths[0]["messageid"],)))

    ended = mend()

    assert ended.json["fixed"]["WITHDRAW"] == 2
    assert ended.json["last_traces"] == 0
    assert mend().json["suspects"] == 0


class TestWaysBack:
    """What runbooks/content-is-lost.md says of content that is somewhere else, walked with its own commands."""

    page = page_named("content-is-lost")

    @pytest.fixture
    def typed(
        self, mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin, monkeypatch: pytest.MonkeyPatch
    ) -> Callable[[str], Ended]:
        """A command of the page, a second after whatever happened before."""
        monkeypatch.chdir(mailmend.home)

        def call(command: str) -> Ended:
            cluster.clock.advance(1)
            words = shlex.split(command.replace("$KEYSPACE", mail.name), comments=True)[1:]
            return mailmend(*words, *(() if words[0] == "load" else QUICK))

        return call

    def test_a_row_and_its_blobs_copied_from_a_backup_are_clean_without_any_repair(
        self, mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin, typed: Callable[[str], Ended]
    ) -> None:
        """With an INSERT of now: loaded as they were written, they stay behind the newer tombstone."""
        old, lost = cluster.clock.micros(), mail.truths[0]["messageid"]
        backup = {lost: content_row(lost)}
        cluster.clock.advance(1)
        mail.lose_content(mail.truths[0])
        (look,) = self.page.commands("Check")
        assert typed(look).code == 1
        (line,) = (mailmend.home / "lost.jsonl").read_text().splitlines()
        ((key, row),) = [(UUID(one["row"]["messageid"]), one["row"]) for one in json.loads(line)["truths"]]
        assert (key, row["uid"]) == (lost, mail.truths[0]["uid"])

        mail.tables.write(Put(MESSAGE_V3, backup[key], at=old))
        assert typed(look).code == 1
        for write in (
            Put(MESSAGE_V3, backup[key]),
            Put(BLOBS, {"id": backup[key]["headercontent"], "position": 1}),
            Put(BLOB_PARTS, {"id": backup[key]["headercontent"], "chunknumber": 0, "data": b"Subject: one"}),
        ):
            mail.tables.write(write)

        (verify,) = self.page.commands("Verify")
        assert (typed(verify).code, typed(look).code) == (0, 0)

    def test_a_clients_copy_is_loaded_and_the_row_without_content_taken_out(
        self, mail: MailKeyspace, typed: Callable[[str], Ended]
    ) -> None:
        """Under an id of its own; where most contents are gone, the store has to be named as the page says."""
        for truth in mail.truths:
            blobs = {"headercontent": f"1_300_{truth['messageid']}", "bodycontent": f"1_600_{truth['messageid']}"}
            mail.tables.write(Put(MESSAGE_V3, content_row(truth["messageid"]) | blobs))
        for truth in mail.truths[:3]:
            mail.lose_content(truth)
        Path("COPY.eml").write_bytes(b"Subject: one\r\n\r\nhello\r\n")
        way_back = re.sub(r"\s+", " ", self.page.section("Check"))
        (load, store) = re.findall("`(mailmend load [^`]+|--blobs cassandra:)`", way_back)

        unasked, named = typed(load), typed(f"{load} {store}")
        assert (unasked.code, named.code) == (2, 0), (unasked.err, named.err)
        for command in (*self.page.commands("Do"), *self.page.commands("Verify")):
            assert typed(command).code == 0, command
        assert [mail.get(IMAP_UID, IMAP_UID.key_of(truth)) is None for truth in mail.truths] == [True] * 3 + [False]
        (added,) = (row for row in mail.tables.scan(Scan(IMAP_UID, IMAP_UID.names)) if row["mailboxid"] != mail.mailbox)
        assert mail.get(MESSAGE_V3, (added["messageid"],)) is not None

"""Rows and contents of which the other half is gone: reported, withdrawn, restored, quarantined, collected."""

from typing import Any

import pytest

from model.catalog.mail import IMAP_UID, MESSAGE_ID, MESSAGE_V3
from model.instants import MICROS
from model.operations import Change, Put, Remove
from tests.support.clock import START
from tests.support.cluster_twin import ClusterTwin
from tests.support.commands import QUICK, CommandLine, Typed
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
        monkeypatch.setattr("admin.cli.asking.someone_is_there", lambda: True)
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


def test_a_lost_delete_is_withdrawn_with_its_filters(mail: MailKeyspace, mend: Typed) -> None:
    mail.lose_truth(mail.truths[0])
    mail.tables.write(Remove(MESSAGE_V3, (mail.truths[0]["messageid"],)))

    ended = mend()

    assert ended.json["fixed"]["WITHDRAW"] == 2
    assert ended.json["last_traces"] == 0
    assert mend().json["suspects"] == 0

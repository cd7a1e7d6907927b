"""delete, purge and restore: what leaves a queue at a person's word is kept first, and comes back at another."""

import gzip
import json
import stat
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from mailmend.mailqueue import admission
from mailmend.mailqueue.rules.mails import Whereabouts
from mailmend.model.errors import TimedOut
from mailmend.model.ids import QueueName
from mailmend.model.operations import Put
from tests.support.mortal_commands import Shells, killed
from tests.support.queue_commands import KEYSPACE, QueueShell, ids_in
from tests.support.queue_reconciled import Moving
from tests.support.queues import CONTENT
from tests.support.striking import passing
from tests.support.writing import Faults

OUTGOING = QueueName("outgoing")


def kept_in(answer: dict[str, Any]) -> list[dict[str, Any]]:
    with gzip.open(answer["kept"], "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def killed_before_marks(queue: QueueShell, *arguments: str) -> str:
    """The file of a removal that was killed after keeping, before it removed anything."""
    assert killed(queue, 1, *arguments) is None
    (file,) = (queue.line.home / "data").rglob("*.jsonl.gz")
    return str(file)


class TestDelete:
    """Mails that match."""

    def test_they_are_gone_from_listing_and_delivery(self, queue: QueueShell) -> None:
        """The others are not; the broker's messages of those removed are dropped, none is a dead letter."""
        queue.put("spam", sender="eve@other.org")
        queue.put("letter")

        ended = queue("delete", "--sender", "EVE@other.org", "--json")

        assert (ended.code, ended.json["removed"]) == (0, 1)
        assert queue.names() == ["letter"]
        assert queue.delivered(1) == ["letter"]
        assert queue.delivers_nothing()
        assert queue.broker.dead(queue.name) == []

    def test_they_are_kept_first_for_their_owner_alone(self, queue: QueueShell) -> None:
        """Envelope and bytes; the answer names the file, for people too."""
        (spam,) = queue.put("spam")

        answer = queue("delete", "--name", "spam", "--json").json

        (kept,) = kept_in(answer)
        payload = json.loads(kept["payload"])
        assert (payload["enqueueId"], payload["name"], kept["queue"]) == (str(spam), "spam", "spool")
        assert stat.S_IMODE(Path(answer["kept"]).stat().st_mode) == 0o600
        queue.put("spam")
        ended = queue("delete", "--name", "spam")
        assert "To put them back: mailmend queue restore " in ended.out
        assert "Kept in" in ended.err

    def test_for_privacy_they_can_be_forgotten(self, queue: QueueShell, tmp_path: Path) -> None:
        queue.put("secret")

        answer = queue("delete", "--name", "secret", "--no-keep", "--json").json

        assert (answer["removed"], answer["kept"]) == (1, None)
        assert not list((tmp_path / "data").rglob("*.gz"))
        assert not queue.blobs.ids

    def test_a_dry_run_names_them_and_writes_nothing(self, queue: QueueShell) -> None:
        (spam, _) = queue.put("spam", "letter")

        ended = queue("delete", "--name", "spam", "--dry-run", "--json", MAILMEND_BROKER="", MAILMEND_BLOBS="")

        assert (ended.code, ended.json["would_remove"], ended.json["removed"]) == (0, 1, 0)
        assert (ids_in(ended.json["mails"]), ended.json["kept"]) == ([str(spam)], None)
        assert len(queue.names()) == 2
        assert "1 would be removed" in queue("delete", "--name", "spam", "--dry-run").out

    def test_delayed_ones_too(self, queue: QueueShell) -> None:
        queue.put_later("later", timedelta(hours=1))

        assert queue("delete", "--where", "delayed", "--json").json["removed"] == 1
        assert queue.listed() == []
        queue.pass_time(hours=2)
        queue("tend", "--once")
        assert queue.delivers_nothing()

    def test_without_a_filter_it_is_refused(self, queue: QueueShell) -> None:
        queue.put("one")

        ended = queue("delete")

        assert (ended.code, "mailmend queue purge" in ended.err) == (2, True)
        assert queue.names() == ["one"]

    def test_nothing_that_matches_is_no_error(self, queue: QueueShell) -> None:
        answer = queue("delete", "--name", "none", "--json")

        assert (answer.code, answer.json["removed"], answer.json["kept"]) == (0, 0, None)

    def test_one_whose_bytes_are_missing_goes_too_and_its_envelope_is_kept(self, queue: QueueShell) -> None:
        (lost,) = queue.put("lost")
        queue.lose_content(lost)

        answer = queue("delete", "--id", str(lost), "--json").json

        assert (answer["removed"], answer["kept_without_content"]) == (1, 1)
        assert kept_in(answer)[0]["content"] is None
        assert queue.listed() == []

    def test_what_cannot_be_kept_is_not_removed(self, queue: QueueShell, tmp_path: Path) -> None:
        queue.put("one")
        (tmp_path / "data" / "mailmend").mkdir(parents=True)
        (tmp_path / "data" / "mailmend" / "queue").write_text("no folder")

        ended = queue("delete", "--name", "one")

        assert (ended.code, "left in its queue" in ended.err, "--no-keep" in ended.err) == (3, True, True)
        assert queue.names() == ["one"]

    def test_one_that_cannot_be_marked_is_named(self, queue: QueueShell) -> None:
        (stays, _) = queue.put("stays", "goes")
        faults = Faults()
        queue.cluster.keyspace(KEYSPACE).surround = faults
        faults.fail(
            lambda one: isinstance(one, Put) and one.row.get("enqueueid") == stays and len(one.row) == 2,
            TimedOut("no answer in time"),
            times=100,
        )

        ended = queue("delete", "--name", "*s", "--json")

        assert (ended.code, ended.json["removed"]) == (3, 1)
        assert [one["id"] for one in ended.json["failed"]] == [str(stays)]
        assert queue.names() == ["stays"]


class TestPurge:
    """Every mail of a queue."""

    def test_nobody_purges_by_accident(self, queue: QueueShell) -> None:
        """Without a terminal it needs --yes; a dry run asks nothing, and only counts."""
        queue.put("one")

        refused = queue("purge")

        assert (refused.code, "--yes" in refused.err, queue.names()) == (2, True, ["one"])
        assert queue("purge", "--dry-run", "--json").json["would_remove"] == 1
        assert queue.names() == ["one"]

    def test_all_of_one_queue_and_none_of_another(self, queue: QueueShell) -> None:
        """Delayed ones too; nothing is delivered afterwards, even after a sweep, whatever the broker still holds."""
        queue.put("one", "two")
        queue.put_later("later", timedelta(hours=3))
        queue.put("other", queue=OUTGOING)

        ended = queue("purge", "--yes", "--json")

        assert (ended.code, ended.json["removed"]) == (0, 3)
        queue.pass_time(hours=5)
        assert queue("tend", "--once").code == 0
        assert queue.delivers_nothing()
        assert queue.broker.dead(queue.name) == []
        assert queue.names(OUTGOING) == ["other"]

    @pytest.mark.parametrize("looks", range(6))
    def test_mails_that_become_due_meanwhile_do_not_slip_past(self, queue: QueueShell, looks: int) -> None:
        """They wait by the time that those that wait are looked for; none is removed twice."""
        queue.put_later("one", timedelta(hours=3))
        queue.put_later("two", timedelta(hours=9))
        tables = queue.cluster.keyspace(KEYSPACE)
        moving = tables.surround = Moving(queue, looks)

        ended = queue("purge", "--yes", "--json")

        tables.surround = passing
        assert moving.done
        assert (ended.code, ended.json["removed"]) == (0, 2)
        assert queue.names() == []
        queue.pass_time(hours=10)
        queue("flush")
        assert queue.delivers_nothing()


class TestRestore:
    """Back into the queue."""

    def removed(self, queue: QueueShell) -> str:
        queue.put("one", "two")
        queue.put_later("later", timedelta(hours=3))
        file: str = queue("purge", "--yes", "--json").json["kept"]
        return file

    def test_every_mail_is_back_under_a_new_id(self, queue: QueueShell) -> None:
        """Delivered with its bytes; the delayed one waits for its time again."""
        file = self.removed(queue)

        ended = queue("restore", file, "--json")

        assert (ended.code, ended.json["restored"], ended.json["queues"]) == (0, 3, ["spool"])
        listed = {one.queued.mail.name: one for one in queue.listed()}
        assert set(listed) == {"one", "two", "later"}
        assert listed["later"].whereabouts is Whereabouts.DELAYED
        assert sorted(queue.delivered(2)) == ["one", "two"]

    @pytest.mark.parametrize("name", ["", ".", "/"])
    def test_a_name_of_no_file_is_refused(self, queue: QueueShell, name: str) -> None:
        ended = queue("restore", name)

        assert (ended.code, "cannot be read: Is a directory" in ended.err) == (2, True)

    def test_into_the_queue_that_it_came_from(self, queue: QueueShell) -> None:
        queue.put("other", queue=OUTGOING)
        file = queue("purge", "--queue", "outgoing", "--yes", "--json").json["kept"]

        queue("restore", file)

        assert (queue.names(OUTGOING), queue.names()) == (["other"], [])

    def test_one_whose_time_is_over_is_delivered_at_once(self, queue: QueueShell) -> None:
        file = self.removed(queue)
        queue.pass_time(hours=4)

        queue("restore", file)

        assert {one.whereabouts for one in queue.listed()} == {Whereabouts.WAITING}

    def test_nobody_restores_twice_by_accident(self, queue: QueueShell) -> None:
        file = self.removed(queue)
        queue("restore", file)

        refused = queue("restore", file)

        assert (refused.code, "--again" in refused.err, len(queue.listed())) == (2, True, 3)
        assert queue("restore", file, "--again").code == 0
        assert len(queue.listed()) == 6

    def test_a_mail_that_is_too_large_for_a_new_one_comes_back_again(
        self, queue: QueueShell, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An older version took larger envelopes."""
        file = self.removed(queue)
        queue("restore", file)
        monkeypatch.setattr(admission, "ENVELOPE_BYTES_MAX", 10)

        ended = queue("restore", file, "--again", "--json")

        assert (ended.code, ended.json["restored"], len(queue.listed())) == (0, 3, 6), ended.err

    def test_only_those_that_are_named_come_back(self, queue: QueueShell) -> None:
        """By the ids they had; the others later."""
        ids = dict(zip(("one", "two"), map(str, queue.put("one", "two")), strict=True))
        file = queue("purge", "--yes", "--json").json["kept"]
        looked = queue("restore", file, "--dry-run", "--json").json
        assert looked["would_restore_ids"] == sorted(ids.values())

        ended = queue("restore", file, "--id", ids["two"], "--json")

        assert (ended.code, ended.json["restored"], ended.json["already"], queue.names()) == (0, 1, 0, ["two"])
        refused = queue("restore", file, "--id", ids["two"])
        assert (refused.code, "that --id names were put back before" in refused.err) == (2, True)
        assert queue("restore", file, "--json").json["restored"] == 1
        assert sorted(queue.names()) == ["one", "two"]

    @pytest.mark.parametrize("options", [(), ("--dry-run",)])
    def test_an_id_that_is_not_in_the_file_is_refused(self, queue: QueueShell, options: tuple[str, ...]) -> None:
        (one,) = queue.put("one")
        file, stranger = queue("purge", "--yes", "--json").json["kept"], str(uuid4())

        ended = queue("restore", file, "--id", str(one), "--id", stranger, *options)

        assert (ended.code, f"holds no mail {stranger}" in ended.err, queue.names()) == (2, True, [])

    def test_one_that_was_interrupted_goes_on(self, queue: QueueShell) -> None:
        file = self.removed(queue)
        queue.broker.go_away()
        assert queue("restore", file).code == 4
        queue.broker.come_back()

        ended = queue("restore", file, "--json")

        assert ended.code == 0
        assert ended.json["restored"] + ended.json["already"] == 3
        assert sorted(queue.names()) == ["later", "one", "two"]

    def test_one_that_never_left_stays(self, queue: QueueShell) -> None:
        """A delete that was killed has kept it and not marked it: a second copy would be delivered beside it."""
        queue.put("one")
        file = killed_before_marks(queue, "delete", "--name", "one")

        ended = queue("restore", file, "--json")

        assert (ended.code, ended.json["restored"], len(ended.json["never_left"])) == (0, 0, 1)
        assert "1 never left their queue" in queue("restore", file).out
        assert queue.delivered(1) == ["one"]
        assert queue.delivers_nothing()

    def test_one_that_never_left_and_becomes_due_meanwhile_stays(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        shells, moved = Shells(monkeypatch, tmp_path), True
        while moved:
            number = len(shells.counted)
            queue = shells.fresh()
            queue.put_later("later", timedelta(hours=5))
            file = killed_before_marks(queue, "purge", "--yes")
            moving = queue.cluster.keyspace(KEYSPACE).surround = Moving(queue, number)

            answer = queue("restore", file, "--json").json

            moved, queue.cluster.keyspace(KEYSPACE).surround = moving.done, passing
            assert (answer["restored"], len(answer["never_left"])) == (0, 1)
            assert queue.names() == ["later"]
        assert len(shells.counted) > 3

    def test_of_a_torn_file_all_that_is_whole_comes_back(self, queue: QueueShell) -> None:
        queue.put("one")
        file = queue("purge", "--yes", "--json").json["kept"]
        with Path(file).open("ab") as stream:
            stream.write(gzip.compress(b"x" * 100)[:-9])

        ended = queue("restore", file, "--json")

        assert (ended.code, ended.json["restored"], ended.json["torn"]) == (0, 1, True)
        assert queue.names() == ["one"]

    def test_a_torn_note_brings_no_mail_back_twice(self, queue: QueueShell) -> None:
        file = self.removed(queue)
        queue("restore", file)
        note = Path(f"{file}.restored")
        note.write_text(note.read_text()[:-30])

        ended = queue("restore", file, "--json")

        assert (ended.code, ended.json["already"] + ended.json["restored"]) == (0, 3)
        assert sorted(queue.names()) == ["later", "one", "two"]

    def test_bytes_that_were_not_kept_are_taken_from_where_they_are(self, queue: QueueShell) -> None:
        (one,) = queue.put("one")
        (file,) = queue("reconcile", "--mark", str(one), "--no-blobs", "--json").json["kept"]
        assert kept_in({"kept": file})[0]["content"] is None

        ended = queue("restore", file, "--json")

        assert (ended.code, ended.json["restored"]) == (0, 1)
        assert queue.delivered(1) == ["one"]

    def test_what_had_no_bytes_is_named(self, queue: QueueShell) -> None:
        (lost,) = queue.put("lost")
        queue.lose_content(lost)
        file = queue("purge", "--yes", "--json").json["kept"]

        ended = queue("restore", file, "--json")

        assert (ended.code, ended.json["without_content"], queue.listed()) == (3, [str(lost)], [])

    def test_a_dry_run_puts_nothing_back(self, queue: QueueShell) -> None:
        file = self.removed(queue)

        ended = queue("restore", file, "--dry-run", "--json", MAILMEND_BROKER="", MAILMEND_BLOBS="")

        assert (ended.code, ended.json["would_restore"], queue.listed()) == (0, 3, [])
        assert "3 mails" in queue("restore", file, "--dry-run").out

    @pytest.mark.parametrize("content", [b"", b"no gzip"])
    def test_what_is_no_such_file_is_refused(self, queue: QueueShell, tmp_path: Path, content: bytes) -> None:
        file = tmp_path / "file"
        file.write_bytes(content)

        ended = queue("restore", str(file))

        assert ended.code == (2 if content else 0)
        assert queue.listed() == []

    def test_the_content_survives_whatever_it_is(self, queue: QueueShell) -> None:
        file = self.removed(queue)
        queue("restore", file)

        (listed, *_) = queue.listed()
        assert queue.on_queue(lambda opened: opened.content(listed)) == CONTENT

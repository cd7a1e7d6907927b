"""`mailmend queue reconcile`: three sides compared without stopping traffic; mended where somebody asks for it."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from mailmend.mailqueue.broker import Message
from mailmend.mailqueue.codec import message_of
from mailmend.model.catalog.mail_queue import ENQUEUED_MAILS
from mailmend.model.ids import BlobId
from mailmend.model.operations import Change, Put, Remove
from tests.support.queue_commands import KEYSPACE, QueueShell
from tests.support.queue_reconciled import found, row_of, settled
from tests.support.queues import parts_of


class TestLooking:
    """Nothing is written."""

    def test_a_sound_queue_is_clean(self, queue: QueueShell) -> None:
        """Mails that wait, are done, are delayed, are in somebody's hand: none of it is a finding."""
        settled(queue, "done", "waits")
        queue.put_later("later", timedelta(hours=5))
        queue.delivered(1)

        answer = found(queue, code=0)

        assert (answer["table"]["live"], answer["table"]["marked"], answer["table"]["delayed"]) == (1, 1, 1)
        assert (answer["lacking"], answer["surplus"], answer["findings"]) == (0, 0, {})
        assert answer["broker"] == {
            "ready": 1,
            "unacked": 0,
            "consumers": 0,
            "dead": 0,
            "delivery_limit": None,
            "dead_limit": None,
            "alarms": [],
            "counted": None,
        }
        assert "Nothing is lost" in queue("reconcile").out

    def test_a_broker_that_was_lost_is_seen_by_its_counts(self, queue: QueueShell) -> None:
        """Without a drain nobody knows whose message lacks, but how many surely do."""
        settled(queue, *"abc")
        queue.broker.wipe()
        queue.on_queue(lambda opened: opened.republish(timedelta(0)))
        queue.delivered(1)
        queue.broker.wipe()

        answer = found(queue)

        assert (answer["lacking"], answer["findings"]) == (2, {"lacks_message": 2})
        assert "--drain --republish" in queue("reconcile").out

    def test_a_mail_that_has_just_come_is_not_called_lost(self, queue: QueueShell) -> None:
        queue.put("young")
        queue.broker.wipe()

        assert found(queue, code=0)["lacking"] == 0

    def test_lost_bytes_are_named(self, queue: QueueShell) -> None:
        lost, _ = settled(queue, "lost", "there")
        queue.lose_content(lost)

        answer = found(queue)

        assert answer["blobs"]["missing"] == [str(lost)]
        assert answer["findings"] == {"blob_missing": 1}
        assert str(lost) in queue("reconcile").out

    def test_a_mail_that_is_done_while_one_looks_has_lost_nothing(
        self, queue: QueueShell, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its bytes go when it is acknowledged."""
        settled(queue, "acknowledged")
        exists, asked = queue.blobs.exists, list[BlobId]()

        async def after_it_is_done(blob_id: BlobId) -> bool:
            if not asked:
                asked.append(blob_id)
                await asyncio.to_thread(queue, "dequeue", "--exec", "true", "--limit", "1")
            return await exists(blob_id)

        monkeypatch.setattr(queue.blobs, "exists", after_it_is_done)

        answer = found(queue, code=0)

        assert (answer["table"]["live"], answer["blobs"]["missing"], queue.blobs.ids) == (1, [], set())

    def test_what_is_no_id_of_a_blob_is_lost_bytes_too(self, queue: QueueShell) -> None:
        """One such row, whoever wrote it, neither ends the comparison nor keeps a person from taking the mail out."""
        strange, _ = settled(queue, "strange", "there")
        key = ENQUEUED_MAILS.key_of(row_of(queue, strange))
        queue.cluster.keyspace(KEYSPACE).write(Change(ENQUEUED_MAILS, key, assign={"bodyblobid": "no id"}))

        answer = found(queue)

        assert answer["blobs"]["missing"] == [str(strange)]
        assert answer["findings"] == {"blob_missing": 1}
        removed = queue("delete", "--name", "strange", "--json").json
        assert (removed["removed"], removed["kept_without_content"]) == (1, 1)
        assert queue.names() == ["there"]

    def test_a_row_that_cannot_be_read_is_named(self, queue: QueueShell) -> None:
        (broken,) = settled(queue, "broken")
        key = ENQUEUED_MAILS.key_of(row_of(queue, broken))
        queue.cluster.keyspace(KEYSPACE).write(Change(ENQUEUED_MAILS, key, assign={"headerblobid": None}))

        answer = found(queue)

        assert answer["findings"]["broken_row"] == 1
        (row,) = answer["table"]["broken"]
        assert (row["id"], "headerBlobId" in row["why"] or "headerblobid" in row["why"]) == (str(broken), True)

    def test_dead_letters_are_a_finding(self, queue: QueueShell) -> None:
        settled(queue, "bad")
        queue("dequeue", "--exec", "false", "--limit", "1")

        assert found(queue)["findings"] == {"dead_letter": 1}

    def test_it_writes_nothing(self, queue: QueueShell) -> None:
        settled(queue, "one")
        before = (queue.names(), len(queue.broker.ready(queue.name)), set(queue.blobs.ids))

        queue("reconcile")

        assert (queue.names(), len(queue.broker.ready(queue.name)), set(queue.blobs.ids)) == before
        assert set(queue.asked) <= {"depth", "close"}

    def test_too_many_ids_are_refused_with_the_number(self, queue: QueueShell) -> None:
        settled(queue, *"abc")

        ended = queue("reconcile", "--ids-max", "2")

        assert (ended.code, "more than 2 rows" in ended.err, "--ids-max" in ended.err) == (2, True, True)
        assert queue("reconcile", "--ids-max", "6").code == 0

    def test_delayed_mails_beyond_that_are_counted(self, queue: QueueShell) -> None:
        settled(queue, "one")
        for name in "abc":
            queue.put_later(name, timedelta(hours=5))

        answer = found(queue, "--ids-max", "2", code=0)

        assert (answer["table"]["delayed"], answer["table"]["delayed_beyond_ids_max"]) == (3, 1)
        assert answer["surplus"] == 0
        output = queue("reconcile", "--ids-max", "2").out
        assert "1 delayed mails beyond --ids-max are counted, and not named." in output
        assert found(queue, "--ids-max", "9", code=0)["table"]["delayed_beyond_ids_max"] == 0

    def test_without_blobs_only_the_two_others_are_compared(self, queue: QueueShell) -> None:
        (lost,) = settled(queue, "lost")
        queue.lose_content(lost)

        ended = queue("reconcile", "--no-blobs", "--json", MAILMEND_BLOBS="")

        assert (ended.code, ended.json["blobs"]) == (0, None)


class TestDrain:
    """Every message named."""

    def test_it_names_what_is_only_here_and_only_there(self, queue: QueueShell) -> None:
        lost, there, only = settled(queue, "lost", "there", "only")
        queue.broker.wipe()
        queue.on_queue(lambda opened: opened.republish(timedelta(0)))
        messages = {str(one): one for one in (lost, there, only)}
        queue.broker.wipe()
        for listed in queue.listed():
            if listed.queued.enqueue_id != lost:
                queue("republish", "--id", str(listed.queued.enqueue_id), "--older-than", "1s")
        queue.cluster.keyspace(KEYSPACE).write(Remove(ENQUEUED_MAILS, ENQUEUED_MAILS.key_of(row_of(queue, only))))

        answer = found(queue, "--drain", "--yes")

        assert answer["drained"]["only_in_table"] == [str(lost)]
        assert answer["drained"]["only_in_broker"] == [str(only)]
        assert answer["findings"] == {"lacks_message": 1, "only_in_broker": 1}
        assert len(queue.broker.ready(queue.name)) == 2
        assert set(messages) == {str(lost), str(there), str(only)}

    def test_then_exactly_those_are_published_again(self, queue: QueueShell) -> None:
        settled(queue, "lost", "there")
        queue.broker.wipe()
        queue("republish", "--name", "there")

        answer = found(queue, "--drain", "--yes", "--republish", code=0)

        assert (answer["mended"]["republished"], answer["left"]) == (1, {})
        assert len(queue.broker.ready(queue.name)) == 2
        assert sorted(queue.delivered(2)) == ["lost", "there"]

    def test_a_dry_run_says_who_it_would_be(self, queue: QueueShell) -> None:
        (lost,) = settled(queue, "lost")
        queue.broker.wipe()

        answer = found(queue, "--drain", "--yes", "--republish", "--dry-run")

        assert (answer["mended"]["republished"], answer["drained"]["only_in_table"]) == (1, [str(lost)])
        assert queue.broker.ready(queue.name) == []

    def test_a_rejected_mail_is_not_called_lost(self, james: QueueShell) -> None:
        (bad,) = settled(james, "bad")
        row = row_of(james, bad)
        james("dequeue", "--exec", "false", "--limit", "1")
        james.cluster.keyspace(KEYSPACE).write(Put(ENQUEUED_MAILS, row, at=james.clock.micros() + 10))

        answer = found(james, "--drain", "--yes", "--no-blobs")

        assert answer["findings"] == {"dead_letter": 1}
        assert answer["drained"]["dead"] == [str(bad)]
        assert len(james.broker.dead(james.name)) == 1

    def test_a_message_that_tells_of_no_mail_is_counted(self, queue: QueueShell) -> None:
        settled(queue, "one")
        queue.on_queue(lambda opened: parts_of(opened).broker.publish(queue.name, Message(b"no mail")))

        answer = found(queue, "--drain", "--yes")

        assert (answer["findings"], answer["drained"]["bad"]) == ({"bad_message": 1}, 1)

    def test_marked_mails_in_the_broker_are_no_finding(self, queue: QueueShell) -> None:
        settled(queue, "one")
        queue("delete", "--name", "one")

        assert found(queue, "--drain", "--yes", code=0)["drained"]["messages"] == 1

    @pytest.mark.parametrize("ids_max", [1, 9])
    def test_a_message_of_a_delayed_mail_is_not_called_its_last_trace(self, queue: QueueShell, ids_max: int) -> None:
        """However few ids may be held: whoever marked such a mail would lose it."""
        for name in "abc":
            queue.put_later(name, timedelta(hours=5))
        for listed in queue.listed():
            message = message_of(listed.queued, None)
            queue.on_queue(lambda opened, one=message: parts_of(opened).broker.publish(queue.name, one))  # type: ignore[misc]

        answer = found(queue, "--drain", "--yes", "--no-blobs", "--ids-max", str(ids_max), code=0)

        assert (answer["drained"]["messages"], answer["drained"]["only_in_broker"]) == (3, [])

    def test_consumers_must_be_paused(self, queue: QueueShell) -> None:
        """What is in their hands would be called lost; --force for who knows better."""
        settled(queue, "one")

        async def story(opened: Any) -> tuple[int, int]:
            async with opened.dequeue() as mails:
                await anext(mails)
                refused = await asyncio.to_thread(queue, "reconcile", "--drain", "--yes")
                forced = await asyncio.to_thread(queue, "reconcile", "--drain", "--yes", "--force")
                assert "consumers" in refused.err
                return refused.code, forced.code

        assert queue.on_queue(story) == (2, 1)


class TestRepublish:
    """Without a drain."""

    def test_where_messages_surely_lack_all_of_that_age_are_published(self, queue: QueueShell) -> None:
        settled(queue, "one", "two")
        queue.put("young")
        queue.broker.wipe()

        answer = found(queue, "--republish", code=0)

        assert answer["mended"]["republished"] == 2
        assert sorted(queue.delivered(2)) == ["one", "two"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--drain",), "--yes"),
        (("--drain", "--dry-run"), "--yes"),
        (("--force",), "--force is for --drain"),
    ],
)
def test_nobody_drains_by_accident(queue: QueueShell, arguments: tuple[str, ...], said: str) -> None:
    """A person has to agree, also to taking messages unacked; options that contradict each other are wrong use."""
    ended = queue("reconcile", *arguments)

    assert (ended.code, said in ended.err, queue.asked) == (2, True, [])


def test_who_would_remove_blobs_hears_of_the_command_that_does(queue: QueueShell) -> None:
    """With the store and the broker as they were typed; nothing is asked of them."""
    stores = ("--broker", "amqp://ann@rabbit/mail", "--blobs", "file:///of mails")

    ended = queue("reconcile", "outgoing", "--remove-orphan-blobs", "--dry-run", *stores)

    words = "--keyspace mail --blobs 'file:///of mails' --broker amqp://ann@rabbit/mail --queues outgoing --dry-run"
    assert (ended.code, f"mailmend repair blobs {words}\n" in ended.err, queue.asked) == (2, True, []), ended.err
    secret = queue("reconcile", "--remove-orphan-blobs", "--broker", "amqp://ann:hunter2@rabbit/mail").err
    assert "repair blobs --keyspace mail --queues spool --dry-run" in secret


@pytest.mark.parametrize("side", ["broker", "blobs"])
def test_a_side_that_does_not_answer_is_named(queue: QueueShell, side: str) -> None:
    settled(queue, "one")
    if side == "broker":
        queue.broker.go_away()
        ended = queue("reconcile")
    else:
        ended = queue("reconcile", MAILMEND_BLOBS="")

    assert ended.code == (4 if side == "broker" else 2)
    assert "Traceback" not in ended.err

"""Dead letters go back into their queue, each at least once, under its id."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

from mailmend.cql.applying import ensure_ledger
from mailmend.delivery.ledger.attempts import LedgerAttempts
from mailmend.delivery.mail.attempts import AttemptOutcome, AttemptStage, JournalledAttempt
from mailmend.delivery.mail.entries import EntryId
from mailmend.mailqueue.broker import Message
from mailmend.mailqueue.codec import queued_of
from mailmend.mailqueue.rabbitmq.mail_queue import RabbitMailQueue
from mailmend.mailqueue.rules.blob_ids import BlobNaming, BlobsMode
from mailmend.mailqueue.rules.mails import Listed, Whereabouts
from mailmend.model.catalog.mail_queue import ENQUEUED_MAILS
from mailmend.model.errors import BlobsUnreachable
from mailmend.model.ids import EnqueueId
from mailmend.model.operations import Change, Put, Scan
from tests.support.in_turn import InTurn
from tests.support.memory_blobs import BlobCall
from tests.support.memory_broker import Fate
from tests.support.queue_commands import KEYSPACE, QueueShell
from tests.support.queues import CONTENT, parts_of

LEDGER = "mailmend"


def reject(queue: QueueShell, *names: str) -> None:
    queue.put(*names)
    assert queue("dequeue", "--exec", "false").code == 1
    assert len(queue.broker.dead(queue.name)) == len(names)


def reject_one(queue: QueueShell, name: str) -> None:
    (one,) = queue.put(name)

    async def story(opened: RabbitMailQueue) -> None:
        async with opened.dequeue() as mails:
            while (taken := await anext(mails)).enqueue_id != one:
                continue
            await taken.reject()

    queue.on_queue(story)


def test_they_are_delivered_again_with_their_bytes(queue: QueueShell) -> None:
    reject(queue, "one", "two")

    ended = queue("redrive", "--json")

    assert (ended.code, ended.json["redriven"], queue.broker.dead(queue.name)) == (0, 2, [])
    (listed, _) = queue.listed()
    assert queue.on_queue(lambda opened: opened.content(listed)) == CONTENT
    assert sorted(queue.delivered(2)) == ["one", "two"]
    assert queue.delivers_nothing()


def test_long_after_their_slice_was_swept_too(queue: QueueShell) -> None:
    reject(queue, "one")
    queue.pass_time(days=2)
    queue("sweep")

    queue("redrive")

    assert queue.names() == ["one"]
    assert queue.delivered(1) == ["one"]


def test_a_row_that_james_left_is_used(james: QueueShell) -> None:
    (one,) = james.put("one")
    tables = james.cluster.keyspace(KEYSPACE)
    (row,) = (dict(row) for row in tables.scan(Scan(ENQUEUED_MAILS, ENQUEUED_MAILS.names)))
    james("dequeue", "--exec", "false")
    tables.write(Put(ENQUEUED_MAILS, row, at=james.clock.micros() + 10))
    james.pass_time(hours=5)

    james("redrive")

    assert [listed.queued.enqueue_id for listed in james.listed()] == [one]
    assert james.delivered(1) == ["one"]


def test_what_was_deleted_meanwhile_is_dropped(queue: QueueShell) -> None:
    reject(queue, "one")
    (letter,) = queue.broker.dead(queue.name)
    assert letter.body
    enqueue_id = queue("reconcile", "--drain", "--yes", "--no-blobs", "--json").json["drained"]["dead"][0]
    queue("reconcile", "--mark", enqueue_id)

    ended = queue("redrive", "--json")

    assert (ended.json["redriven"], ended.json["dropped"], queue.broker.dead(queue.name)) == (0, 1, [])
    assert queue.delivers_nothing()
    assert not queue.blobs.ids


def dropped(queue: QueueShell) -> None:
    """A dead letter whose mail was taken out, and nothing else, has its turn."""
    (letter,) = queue.broker.dead(queue.name)
    queue("reconcile", "--mark", str(queued_of(letter.body).enqueue_id), "--no-blobs")
    assert queue("redrive", "--json").json["dropped"] == 1


def test_bytes_that_another_mail_needs_stay(queue: QueueShell) -> None:
    (other,) = queue.put("other")
    reject_one(queue, "one")
    (letter,) = queue.broker.dead(queue.name)
    blobs = queued_of(letter.body).blobs
    tables = queue.cluster.keyspace(KEYSPACE)
    (row,) = (dict(row) for row in tables.scan(Scan(ENQUEUED_MAILS, ENQUEUED_MAILS.names)))
    assert row["enqueueid"] == other
    tables.write(Change(ENQUEUED_MAILS, ENQUEUED_MAILS.key_of(row), {"headerblobid": blobs.header}))

    dropped(queue)

    assert blobs.header in queue.blobs.ids
    assert blobs.body not in queue.blobs.ids


def test_bytes_that_are_kept_once_for_all_stay(queue: QueueShell) -> None:
    queue.blobs._naming = BlobNaming(BlobsMode.DEDUPLICATED)
    reject(queue, "one")

    dropped(queue)

    assert len(queue.blobs.ids) == 2


def test_bytes_that_cannot_be_deleted_keep_their_letter(queue: QueueShell) -> None:
    reject(queue, "one")
    (letter,) = queue.broker.dead(queue.name)
    queue("reconcile", "--mark", str(queued_of(letter.body).enqueue_id), "--no-blobs")
    surround = queue.blobs.store.surround

    def silent(call: BlobCall, carry_out: Callable[[], object]) -> object:
        raise BlobsUnreachable("no answer from the blobs")

    queue.blobs.store.surround = silent
    assert queue("redrive").code == 4
    assert len(queue.broker.dead(queue.name)) == 1
    queue.blobs.store.surround = surround
    assert queue("redrive", "--json").json["dropped"] == 1
    assert not queue.blobs.ids


def test_one_that_is_delayed_needs_no_message(queue: QueueShell) -> None:
    """A redrive was killed before its ack, and a consumer wants the mail later: it comes once, at its time."""
    reject(queue, "one")
    (letter,) = queue.broker.dead(queue.name)

    async def delayed(opened: RabbitMailQueue) -> None:
        listed = Listed(queued_of(letter.body), queue.now, Whereabouts.DELAYED, due_at=queue.now + timedelta(hours=1))
        await parts_of(opened).due_mails.put(opened.name, listed)

    queue.on_queue(delayed)

    assert queue("redrive", "--json").json["redriven"] == 1
    assert (queue.broker.ready(queue.name), queue.broker.dead(queue.name)) == ([], [])
    assert [one.whereabouts for one in queue.listed()] == [Whereabouts.DELAYED]
    queue("flush")
    assert queue.delivered(1) == ["one"]


def test_one_that_is_rejected_once_more_meanwhile_is_not_lost(queue: QueueShell) -> None:
    """Two dead letters of one mail: it is listed once, and both are delivered or dropped."""
    reject(queue, "one")
    (letter,) = queue.broker.dead(queue.name)
    queue.on_queue(lambda opened: parts_of(opened).broker.publish(queue.name, letter))
    assert queue("dequeue", "--exec", "false").code == 1
    assert len(queue.broker.dead(queue.name)) == 2

    queue("redrive")

    assert queue.names() == ["one"]
    assert queue.delivered(1) == ["one"]
    assert queue.delivers_nothing()


@pytest.mark.parametrize("fate", [Fate.REFUSED, Fate.UNCONFIRMED_KEPT, Fate.UNCONFIRMED_LOST, Fate.UNCONFIRMED_LATE])
def test_a_publish_that_failed_keeps_the_letter(queue: QueueShell, fate: Fate) -> None:
    """Whatever the broker kept of it: the same command goes on, and the mail comes once."""
    reject(queue, "one")
    queue.broker.will(fate)
    assert queue("redrive").code == 3
    assert len(queue.broker.dead(queue.name)) == 1

    assert queue("redrive", "--json").json["redriven"] == 1
    queue.broker.let_arrive()

    assert (queue.names(), queue.broker.dead(queue.name)) == (["one"], [])
    assert queue.delivered(1) == ["one"]
    assert queue.delivers_nothing()


def test_memory_has_a_bound(queue: QueueShell) -> None:
    """More mails than may be held are refused, before anything is touched."""
    reject(queue, "one")
    queue.put(*"ab")

    ended = queue("redrive", "--ids-max", "1")

    assert (ended.code, "more than 1 mails" in ended.err, len(queue.broker.dead(queue.name))) == (2, True, 1)
    assert queue("redrive", "--ids-max", "2").code == 0


def test_what_cannot_be_read_stays(queue: QueueShell) -> None:
    queue.on_queue(lambda opened: parts_of(opened).broker.publish(queue.name, Message(b"no mail")))
    queue("dequeue", "--exec", "false")

    ended = queue("redrive")

    assert (ended.code, "1 cannot be read" in ended.out, len(queue.broker.dead(queue.name))) == (1, True, 1)


def test_a_dry_run_counts_and_gives_all_back(queue: QueueShell) -> None:
    reject(queue, *"abc")

    ended = queue("redrive", "--dry-run", "--json")

    assert (ended.json["redriven"], len(queue.broker.dead(queue.name)), queue.listed()) == (3, 3, [])


def test_a_dry_run_that_would_cost_letters_is_refused(queue: QueueShell) -> None:
    """Each look is a return, and this broker drops a dead letter that was returned too often."""
    reject(queue, "one")
    queue.broker._delivery_limit = 20

    ended = queue("redrive", "--dry-run")

    assert (ended.code, "for good after 20 returns" in ended.err) == (2, True)
    assert queue("redrive").code == 0


def test_a_limit_is_kept(queue: QueueShell) -> None:
    reject(queue, *"abc")

    assert queue("redrive", "--limit", "1", "--json").json["redriven"] == 1
    assert (len(queue.broker.dead(queue.name)), len(queue.listed())) == (2, 1)


def test_none_is_no_error(queue: QueueShell) -> None:
    assert "0 dead letters are back" in queue("redrive").out


def test_only_those_that_are_meant_go_back(queue: QueueShell) -> None:
    """The others are looked at, and stay."""
    queue.put("one", recipients=("bob@example.com",))
    queue.put("two")
    queue("dequeue", "--exec", "false")
    assert len(queue.broker.dead(queue.name)) == 2

    ended = queue("redrive", "--recipient", "*@EXAMPLE.com", "--json")

    assert (ended.json["redriven"], len(queue.broker.dead(queue.name))) == (1, 1)
    assert queue.names() == ["one"]


def journalled(queue: QueueShell, mail: EnqueueId, number: int) -> None:
    """The journal of deliveries knows that a recipient has its mail."""
    ensure_ledger(queue.cluster, LEDGER, KEYSPACE)
    attempt = JournalledAttempt(
        entry=EntryId(mail, number),
        mail=mail,
        id=queue.clock.new_uuid(),
        fields={},
        sources=(),
        host="mx.example.org",
        content_bytes=1,
        urgent=False,
        server="server",
        outcome=AttemptOutcome.DELIVERED,
        stage=AttemptStage.DATA,
    )
    asyncio.run(LedgerAttempts(InTurn(queue.cluster.keyspace(LEDGER)), KEYSPACE).put(queue.name, attempt))


def test_recipients_that_have_their_mail_are_left_out(queue: QueueShell) -> None:
    """Given two dead letters: of one a recipient of two has the mail, of the other the only one."""
    ids = queue.put("one", recipients=("ann@example.org", "bob@example.org")) + queue.put("two")
    assert queue("dequeue", "--exec", "false").code == 1
    journalled(queue, ids[0], 1)
    journalled(queue, ids[1], 0)

    looked, said = queue("redrive", "--dry-run", "--json"), queue("redrive", "--dry-run")
    ended = queue("redrive", "--json")

    counts = {"redriven": 1, "dropped": 0, "unreadable": 0, "delivered": 1, "recipients_skipped": 2}
    assert {name: looked.json[name] for name in counts} == {name: ended.json[name] for name in counts} == counts
    assert "2 recipients would be left out" in said.out
    assert [one.queued.mail.recipients for one in queue.listed()] == [("ann@example.org",)]
    assert queue.delivered(1) == ["one"]
    assert queue.broker.dead(queue.name) == []


def test_all_recipients_are_delivered_to_again_where_that_is_asked_for(queue: QueueShell) -> None:
    (mail,) = queue.put("one", recipients=("ann@example.org", "bob@example.org"))
    assert queue("dequeue", "--exec", "false").code == 1
    journalled(queue, mail, 1)

    ended = queue("redrive", "--all-recipients", "--json")

    assert (ended.json["redriven"], ended.json["recipients_skipped"]) == (1, 0)
    assert [one.queued.mail.recipients for one in queue.listed()] == [("ann@example.org", "bob@example.org")]

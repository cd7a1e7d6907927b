"""`mailmend check blobs` and `repair blobs` beside a queue: what the queue needs stays, and what to type next."""

import asyncio
import os
import re
import shutil
import subprocess
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from mailmend.admin.frame.runbooks import page_named
from mailmend.admin.queue import openers
from mailmend.mailqueue.blobs.object_storage import open_s3
from mailmend.mailqueue.blobs.s3 import PAGE_KEYS
from mailmend.mailqueue.codec import queued_of
from mailmend.mailqueue.pulsar.mail_queue import open_queue
from mailmend.mailqueue.pulsar.topics import TopicMessage
from mailmend.mailqueue.rules.mails import Listed
from mailmend.model.catalog.mail_queue import ENQUEUED_MAILS
from mailmend.model.ids import BlobId, EnqueueId, QueueName
from mailmend.model.operations import Remove
from tests.support.memory_topics import MemoryTopics
from tests.support.queue_commands import KEYSPACE, QueueShell
from tests.support.queue_reconciled import row_of, stray_blob
from tests.support.queues import CONTENT, enqueued, listed, mail
from tests.support.s3_twin import s3_twin

AT_ONCE = ("--engine", "local", "--delay", "0s", "--generation", "1h")


def without_row(queue: QueueShell, mail: EnqueueId) -> None:
    queue.cluster.keyspace(KEYSPACE).write(Remove(ENQUEUED_MAILS, ENQUEUED_MAILS.key_of(row_of(queue, mail))))


def test_what_a_queue_needs_stays(queue: QueueShell) -> None:
    """Rows, a dead letter without row, a mail kept without its bytes, and what is younger than the oldest message."""
    (dead,) = queue.put("dead")
    without_row(queue, dead)
    assert queue("dequeue", "--exec", "false").code == 1
    _, lost = queue.put("waits", "lost")
    header = BlobId(row_of(queue, lost)["headerblobid"])
    queue.lose_content(lost)
    assert queue("delete", "--name", "lost", "--json").json["kept_without_content"] == 1
    without_row(queue, lost)
    asyncio.run(queue.blobs.keep(header, b"put back from a backup"))
    stray = stray_blob(queue)
    queue.pass_time(days=4)
    without_row(queue, *queue.put("rowless"))
    queue.pass_time(days=2)
    needed = queue.blobs.ids - {stray}

    ended = queue.line("repair", "blobs", *AT_ONCE, "--oldest-message", "3d", "--pace", "auto", "--json")

    assert (ended.code, ended.json["removed"], queue.blobs.ids) == (0, 1, needed), ended.err
    assert (ended.json["pace"]["auto"], ended.json["pace"]["last"]) == (True, None)
    assert ended.json["findings"] == {"KEEP": 5, "COLLECT": 1, "TOO_YOUNG": 2}
    (letter,) = queue.broker.dead(queue.name)
    assert queued_of(letter.body).enqueue_id == dead


PULSAR = ("--broker", "pulsar://pulsar:6650/public/default")


@pytest.fixture
def topics(queue: QueueShell, monkeypatch: pytest.MonkeyPatch) -> MemoryTopics:
    """Of the Pulsar that commands connect to."""
    found = MemoryTopics(queue.clock)
    monkeypatch.setattr(openers, "topics_behind", lambda *_: found)
    return found


def put_over_pulsar(queue: QueueShell, topics: MemoryTopics, *names: str) -> list[Listed]:
    """Mails that wait, and one that is delayed."""

    async def story() -> list[Listed]:
        async with await open_queue(QueueName("outgoing"), topics, queue.blobs, queue.clock) as opened:
            await enqueued(opened, *names)
            await opened.enqueue(mail("delayed"), CONTENT, delay=timedelta(days=30))
            return await listed(opened)

    return asyncio.run(story())


def test_what_mails_over_pulsar_need_stays(queue: QueueShell, topics: MemoryTopics) -> None:
    """However old they are, and no age is named; a plan is the same, and what is lost is named with its mail."""
    _, lost, _ = put_over_pulsar(queue, topics, "waits", "lost")
    needed, stray = queue.blobs.ids, stray_blob(queue)
    queue.pass_time(days=9)
    asyncio.run(queue.blobs.store.remove(lost.queued.blobs.body))
    plan = str(queue.line.home / "plan.jsonl")

    planned = queue.line("repair", "blobs", *AT_ONCE, *PULSAR, "--plan", plan, "--json")
    assert (planned.json["findings"], queue.blobs.ids >= {stray}) == ({"KEEP": 5, "COLLECT": 1, "MISSING": 1}, True)
    (missing,) = planned.json["missing"]
    assert (missing["blob_id"], missing["source"]) == (lost.queued.blobs.body, "messages at the broker")
    assert missing["referrer"] == f"James-outgoing {lost.place} {lost.queued.enqueue_id}"

    other = queue.line("apply", plan, "--broker", "pulsar://pulsar:6650/public/other", "--json")
    assert (other.code, "public/default" in other.err) == (2, True), other.err
    applied = queue.line("apply", plan, *PULSAR, "--json")
    assert (applied.json["removed"], applied.json["references"]["messages at the broker"]) == (1, 6), applied.err
    assert queue.blobs.ids == needed - {lost.queued.blobs.body}
    assert not queue.asked


def test_a_check_of_queues_looks_for_the_bytes_of_mails_over_pulsar(queue: QueueShell, topics: MemoryTopics) -> None:
    """Beside the queues of the tables; one that cannot be read whole is refused, and hides no drift of messages."""
    queue.put("over RabbitMQ")
    waits, lost, delayed = put_over_pulsar(queue, topics, "waits", "lost")
    how = ("--engine", "local", "--delay", "0s", "--json")
    asyncio.run(queue.blobs.store.remove(lost.queued.blobs.body))
    asyncio.run(queue.blobs.store.remove(delayed.queued.blobs.header))

    checked = queue.line("check", "queues", *how, *PULSAR)

    assert (checked.code, checked.json["queues"][0]["waiting"]) == (1, 1), checked.err
    assert checked.json["findings"] == {"James-outgoing": {"BLOBS_GONE": 1}, "outgoing-scheduled": {"BLOBS_GONE": 1}}
    found = {one["topic"]: (one["place"], one["id"]) for one in checked.json["topics"]["without_blobs"]}
    ids = {one.queued.mail.name: str(one.queued.enqueue_id) for one in (waits, lost, delayed)}
    assert found["James-outgoing"] == (str(lost.place), ids["lost"])
    assert found["outgoing-scheduled"] == (str(delayed.place), ids["delayed"])
    assert checked.json["topics"]["mails"] == 3
    assert ids["lost"] in queue.line("check", "queues", *how[:-1], *PULSAR).out

    assert queue.line("check", "queues", *how).json["topics"] is None
    unasked = queue.line("check", "queues", *how, *PULSAR, MAILMEND_BLOBS="").json
    assert (unasked["topics"], "mails of Pulsar's topics" in unasked["unseen"]) == (None, True)
    topics.away = True
    assert queue.line("check", "queues", *how, *PULSAR).code == 4
    topics.away = False
    asyncio.run(topics.publish("James-outgoing", TopicMessage("no mail")))
    refused = queue.line("check", "queues", *how, *PULSAR)
    assert (refused.code, "is no mail" in refused.err, refused.out) == (3, True, ""), refused.err


def test_a_namespace_that_cannot_be_read_whole_removes_nothing(queue: QueueShell, topics: MemoryTopics) -> None:
    """It is not named, or another one; a message there is no mail; the broker is away; RabbitMQ may have some too."""
    stray = stray_blob(queue)
    queue.pass_time(days=9)
    how = ("repair", "blobs", *AT_ONCE)

    def refused(*words: str) -> str:
        ended = queue.line(*how, *words)
        assert (stray in queue.blobs.ids, ended.code in {2, 3, 4}, "Traceback" in ended.err) == (True, True, False), (
            ended
        )
        return " ".join(ended.err.split())

    assert "names no namespace" in refused("--broker", "pulsar://pulsar:6650")
    assert "no mail queue is in the namespace" in refused(*PULSAR)
    put_over_pulsar(queue, topics, "waits")
    assert "no topic of the queue spool" in refused(*PULSAR, "--queues", "spool")
    topics.away = True
    assert "does not answer" in refused(*PULSAR)
    topics.away = False
    queue.put("over RabbitMQ")
    assert "name queues over RabbitMQ (spool)" in refused(*PULSAR)
    assert queue.line(*how, *PULSAR, "--only-broker").code == 0
    assert stray not in queue.blobs.ids
    stray = stray_blob(queue)
    queue.pass_time(days=9)
    asyncio.run(topics.publish("James-outgoing", TopicMessage("no mail")))
    assert "is no mail" in refused(*PULSAR, "--only-broker")


@pytest.mark.skipif(shutil.which("jq") is None, reason="there is no jq")
def test_what_mails_kept_elsewhere_refer_to_is_named_by_the_line_of_the_page(queue: QueueShell, tmp_path: Path) -> None:
    """Those whose bytes were kept refer to nothing: a restore stores them anew."""
    whole, lost = queue.put("whole", "lost")
    header = BlobId(row_of(queue, lost)["headerblobid"])
    queue.lose_content(lost)
    kept = Path(queue("purge", "--yes", "--json").json["kept"])
    without_row(queue, whole)
    without_row(queue, lost)
    asyncio.run(queue.blobs.keep(header, b"put back from a backup"))
    queue.pass_time(days=9)
    elsewhere = tmp_path / ".local/share/mailmend/queue"
    elsewhere.mkdir(parents=True)
    kept.rename(elsewhere / kept.name)
    how = (*AT_ONCE, "--no-broker", "--json")
    assert queue.line("check", "blobs", *how).json["findings"] == {"COLLECT": 1}

    (line,) = re.findall(
        r"^\$ (zcat .*?)\n```", page_named("collect-unreferenced-blobs").text, re.MULTILINE | re.DOTALL
    )
    subprocess.run(["/bin/sh", "-c", line], cwd=tmp_path, env={**os.environ, "HOME": str(tmp_path)}, check=True)

    ids = ("--references-file", str(tmp_path / "kept-ids"))
    ended = queue.line("check", "blobs", *how, *ids)
    assert ended.json["findings"] == {"KEEP": 1, "MISSING": 1}
    assert (ended.code, "mailmend runbook show blob-is-missing" in ended.err) == (1, True)


@pytest.mark.parametrize(
    ("fault", "code", "why"),
    [
        ("broker away", 4, "does not answer"),
        ("listing cut off", 4, "ends in the middle"),
        ("listing lies", 3, "the listing left out 2 blobs that are there"),
    ],
)
def test_what_cannot_be_read_whole_removes_nothing(
    james: QueueShell, monkeypatch: pytest.MonkeyPatch, fault: str, code: int, why: str
) -> None:
    """A page of a bucket that names no next one, or says that it is the last one; what is needed is behind it."""
    needed, ids = [f"1_689_{uuid4()}" for _ in range(2)], empty(james.line.home)
    ids.write_text("\n".join(needed))
    with s3_twin() as twin:
        twin.objects = dict.fromkeys((*(f"1_600_{uuid4()}" for _ in range(PAGE_KEYS)), *needed), b"x")
        twin.pages_until_cut_off, twin.denies_more = (0 if "listing" in fault else None), "lies" in fault
        monkeypatch.setattr(openers, "blobs_behind", lambda *_, **__: open_s3(twin.settings(), james.clock))
        james.pass_time(days=180)
        james.broker.away = fault == "broker away"
        before = set(twin.objects)

        how = ("--oldest-message", "1d", "--references-file", str(ids))
        ended = james.line("repair", "blobs", *AT_ONCE, *how)

        assert (ended.code, why in " ".join((ended.out + ended.err).split())) == (code, True), ended
        assert set(twin.objects) == before
    assert not list(james.line.home.rglob("removed-*.jsonl"))


def test_what_is_to_be_typed_next_has_what_was_typed(queue: QueueShell) -> None:
    """Store, broker, and every option that a repair takes too; no secret, which no command line holds."""
    stray_blob(queue)
    queue.pass_time(days=9)
    stores = ("--blobs", "s3://mail?endpoint=https://s3.example.org", "--broker", "amqp://ann@rabbit/mail")
    wanted = ("--references", "messagev3.bodycontent", "--queues", "a", "--queues", "b", "--oldest-message", "7d")
    keys = {"MAILMEND_S3_ACCESS_KEY": "AK", "MAILMEND_S3_SECRET_KEY": "geheim"}

    ended = queue.line("check", "blobs", *AT_ONCE, *stores, *wanted, MAILMEND_BROKER_PASSWORD="hunter2", **keys)

    kept = "--keyspace mail --blobs 's3://mail?endpoint=https://s3.example.org' --broker amqp://ann@rabbit/mail"
    own = "--references messagev3.bodycontent --queues a --queues b --oldest-message 7d --generation 1h"
    assert f"Next: mailmend repair blobs {kept} {own} --engine local --delay 0s\n" in ended.out, ended.err
    assert not re.search("hunter2|geheim", ended.out + ended.err)
    alone = queue.line("check", "blobs", *AT_ONCE, "--no-broker", "--references-file", str(empty(queue.line.home)))
    assert f"blobs --keyspace mail --no-broker --references-file {queue.line.home}/ids" in alone.out.replace("\n", "")


def empty(home: Path) -> Path:
    (home / "ids").touch()
    return home / "ids"


@pytest.mark.parametrize("option", ["--no-recheck", "--no-writers", "--findings=f", "--torn=accept", "--without=x"])
def test_what_says_nothing_of_blobs_is_refused(queue: QueueShell, option: str) -> None:
    ended = queue.line("check", "blobs", option)

    assert (ended.code, f"{option.partition('=')[0]} has no effect with blobs" in ended.err) == (2, True)


def test_without_a_store_it_is_asked_for(queue: QueueShell) -> None:
    for command in (("check", "blobs"), ("repair", "blobs", "--dry-run")):
        ended = queue.line(*command, MAILMEND_BLOBS="")
        assert (ended.code, "--blobs file:///folder" in ended.err) == (2, True), ended.err

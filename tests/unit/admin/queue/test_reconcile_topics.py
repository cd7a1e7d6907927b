"""`mailmend queue reconcile` of a queue over Pulsar: its topics against the blobs, and what is taken out."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from mailmend.mailqueue.pulsar.mail_queue import PulsarMailQueue
from mailmend.mailqueue.pulsar.settings import out_topic, scheduled_topic
from mailmend.mailqueue.pulsar.topics import TopicMessage
from mailmend.mailqueue.rules.mails import Listed
from mailmend.mailqueue.rules.places import Backlog
from mailmend.model.ids import BlobId, EnqueueId
from tests.support.pulsar_commands import SPOOL, PulsarShell, pulsar_shell
from tests.support.queues import listed

HOUR = timedelta(hours=1)


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> PulsarShell:
    return pulsar_shell(monkeypatch, tmp_path)


def found(shell: PulsarShell, *arguments: str, code: int = 1) -> dict[str, Any]:
    ended = shell("reconcile", *arguments, "--json")
    assert ended.code == code, ended.err
    return ended.json


def there(shell: PulsarShell) -> dict[str, Listed]:
    return {one.queued.mail.name: one for one in shell.on_queue(listed)}


def id_of(shell: PulsarShell, name: str) -> EnqueueId:
    return there(shell)[name].queued.enqueue_id


def lose_content(shell: PulsarShell, name: str) -> str:
    one = there(shell)[name].queued
    asyncio.run(shell.blobs.store.remove(one.blobs.body))
    return str(one.enqueue_id)


class TestLooking:
    """Nothing is written, and no message is taken."""

    def test_a_sound_queue_is_clean(self, shell: PulsarShell) -> None:
        """Mails that wait, are done, are delayed, are deleted and not acknowledged, are in hand: no finding."""
        shell.put("gone", "done", "waits")
        shell.put("later", delay=HOUR)
        shell.topics.write_acks()
        assert shell("delete", "--name", "gone", "--no-keep").code == 0
        shell.topics.die()

        async def story(opened: PulsarMailQueue) -> dict[str, Any]:
            async with opened.dequeue() as mails:
                await (await anext(mails)).ack()
                await anext(mails)
                return await asyncio.to_thread(found, shell, code=0)

        answer = shell.on_queue(story)
        table = {"live": 1, "marked": 0, "delayed": 1, "delayed_beyond_ids_max": 0, "broken": []}
        assert (answer["table"], answer["findings"], answer["left"]) == (table, {}, {})
        assert (answer["lacking"], answer["surplus"], answer["drained"]) == (0, 0, None)
        assert (answer["bad_messages"], answer["blobs"], answer["broker"]["unacked"]) == ([], {"missing": []}, 1)
        assert "Nothing is lost" in shell("reconcile").out

    def test_what_a_killed_broker_forgot_is_deleted_all_the_same(self, shell: PulsarShell) -> None:
        shell.put("gone", "waits")
        assert shell("delete", "--name", "gone", "--no-keep").code == 0
        shell.topics.die()

        assert found(shell, code=0)["table"]["marked"] == 1
        assert "deleted, not yet acknowledged" in shell("reconcile").out

    def test_lost_bytes_are_named_of_delayed_mails_too(self, shell: PulsarShell) -> None:
        shell.put("lost", "there")
        shell.put("later", delay=HOUR)
        lost = {lose_content(shell, "lost"), lose_content(shell, "later")}

        answer = found(shell)

        assert (set(answer["blobs"]["missing"]), answer["findings"]) == (lost, {"blob_missing": 2})
        assert "mailmend queue reconcile --queue spool --mark ID" in shell("reconcile").out
        assert found(shell, "--no-blobs", code=0)["blobs"] is None

    def test_a_mail_that_is_done_while_one_looks_has_lost_nothing(
        self, shell: PulsarShell, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its bytes go when it is acknowledged, or deleted."""
        shell.put("acknowledged", "deleted")
        exists, asked = shell.blobs.exists, list[BlobId]()

        async def after_it_is_done(blob_id: BlobId) -> bool:
            if not asked:
                asked.append(blob_id)
                await asyncio.to_thread(shell, "dequeue", "--exec", "true", "--limit", "1")
                await asyncio.to_thread(shell, "delete", "--name", "deleted", "--no-keep")
            return await exists(blob_id)

        monkeypatch.setattr(shell.blobs, "exists", after_it_is_done)

        answer = found(shell, code=0)

        assert (answer["table"]["live"], answer["blobs"]["missing"], shell.blobs.ids) == (2, [], set())

    def test_messages_that_are_no_mails_are_named_by_their_places(self, shell: PulsarShell) -> None:
        shell.put("there")
        places = [
            str(asyncio.run(shell.topics.publish(topic, TopicMessage("no mail"))))
            for topic in (scheduled_topic(SPOOL), out_topic(SPOOL))
        ]

        answer = found(shell)

        assert [one["place"] for one in answer["bad_messages"]] == places
        assert [one["topic"] for one in answer["bad_messages"]] == [scheduled_topic(SPOOL), out_topic(SPOOL)]
        assert (answer["findings"], answer["table"]["live"]) == ({"bad_message": 2}, 1)
        assert f"{places[0]} of spool-scheduled" in shell("reconcile").out

    def test_dead_letters_are_a_finding(self, shell: PulsarShell) -> None:
        shell.put("bad")
        shell.reject(1)

        assert found(shell)["findings"] == {"dead_letter": 1}
        assert "mailmend queue redrive --queue spool --dry-run" in shell("reconcile").out

    def test_too_many_ids_are_refused_and_delayed_ones_counted(self, shell: PulsarShell) -> None:
        shell.put(*"ab")
        for _ in range(3):
            shell.put("later", delay=HOUR)

        ended = shell("reconcile", "--ids-max", "1")

        assert (ended.code, "more than 1 mails that wait in spool" in ended.err) == (2, True)
        table = found(shell, "--ids-max", "2", code=0)["table"]
        assert (table["delayed"], table["delayed_beyond_ids_max"]) == (3, 1)

    def test_a_partition_that_is_not_there_is_said(self, shell: PulsarShell, monkeypatch: pytest.MonkeyPatch) -> None:
        shell.put("there")
        backlog = shell.topics.backlog

        async def lacking(topic: str, subscription: str) -> Backlog | None:
            there = await backlog(topic, subscription)
            return there and replace(there, missing=(2,))

        monkeypatch.setattr(shell.topics, "backlog", lacking)
        ended = shell("reconcile")

        assert (ended.code, "the topic James-spool lacks its partition 2" in ended.err) == (4, True), ended.err


class TestMarking:
    """What somebody names is deleted, and kept first."""

    def test_what_has_lost_its_bytes_leaves_the_queue(self, shell: PulsarShell) -> None:
        shell.put("lost", "there")
        shell.put("later", delay=HOUR)
        lost, later = lose_content(shell, "lost"), str(id_of(shell, "later"))
        marks = ("--mark", lost, "--mark", later)

        looked = found(shell, *marks, "--dry-run")
        assert (len(looked["mended"]["marked"]), looked["kept"], len(there(shell))) == (2, [], 3)
        answer = found(shell, *marks, code=0)

        assert (set(answer["mended"]["marked"]), answer["mended"]["unkept"], answer["left"]) == ({lost, later}, [], {})
        assert (list(there(shell)), answer["kept_without_content"], len(answer["kept"])) == (["there"], 1, 1)
        assert found(shell, *marks, code=0)["mended"]["unkept"] == []
        shell("restore", answer["kept"][0])
        assert "later" in there(shell)

    def test_what_is_nowhere_is_said(self, shell: PulsarShell) -> None:
        shell.put("there")
        nowhere = str(UUID(int=7))

        answer = found(shell, "--mark", nowhere, code=0)

        assert (answer["mended"]["unkept"], answer["kept"], list(there(shell))) == ([nowhere], [], ["there"])

    def test_a_dead_letter_stays(self, shell: PulsarShell) -> None:
        shell.put("bad")
        bad = str(id_of(shell, "bad"))
        shell.reject(1)

        answer = found(shell, "--mark", bad, code=3)

        assert (answer["mended"]["marked"], answer["left"]) == ([], {"dead_letter": 1})
        assert f"{bad} could not be marked: it is a dead letter" in shell("reconcile", "--mark", bad).err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--drain", "--yes"), "topics are read as they are"),
        (("--republish",), "has no table"),
        (("--mark", str(UUID(int=7)), "--no-blobs"), "Say one of them"),
    ],
)
def test_what_topics_need_not_is_refused_with_the_reason(
    shell: PulsarShell, arguments: tuple[str, ...], said: str
) -> None:
    ended = shell("reconcile", *arguments)

    assert (ended.code, said in " ".join(ended.err.split())) == (2, True), ended.err

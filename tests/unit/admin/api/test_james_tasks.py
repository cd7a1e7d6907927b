"""James's administrative tasks over HTTP, on a ledger in memory: what each does, how it is told, awaited, cancelled."""

import asyncio
import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from mailmend.repair.ledger.jobs import OPEN_MAX
from tests.support.task_desk import MAILBOX, MESSAGE, RUN, CommandTwin, TaskWorld


def finding(verdict: str, result: str | None = "FIXED", projection: str = "messageIdTable", **more: Any) -> Any:
    seen = {"row": {"messageid": MESSAGE, "mailboxid": MAILBOX, "uid": 7}, "written_at": {}}
    key = {"mailboxid": MAILBOX, "uid": 7}
    found = {"projection": projection, "verdict": verdict, "result": result, "key": key, "truths": [seen]}
    return {**found, "projected": None, "last_trace": False, "reason": None, "error": None, **more}


PATH = {"namespace": "#private", "user": "bob"}
OFFLINE = {"I-KNOW-WHAT-I-M-DOING": "ALL-SERVICES-ARE-OFFLINE"}


def of_mailbox(verdict: str, *paths: str, row: str | None = None, **more: Any) -> Any:
    """A finding of the rows of a mailbox: its registered paths, and the path that its row names."""
    truths = [{"row": {**PATH, "mailboxname": path, "mailboxid": MAILBOX}, "written_at": {}} for path in paths]
    projected = None
    if row is not None:
        cells = {"id": MAILBOX, "mailboxbase.namespace": "#private", "mailboxbase.user": "bob", "name": row}
        projected = {"row": cells, "written_at": {}}
    key = {"id": MAILBOX}
    found = finding(verdict, None, "mailbox", key=key, truths=truths, projected=projected)
    return {**found, **more}


MENDED = {"mailboxId": MAILBOX, "messageId": MESSAGE, "uid": 7}


# Tasks


async def test_a_messages_task_ends_with_james_fields(world: TaskWorld) -> None:
    world.next = CommandTwin(
        result={"run": RUN, "scanned": {"imapUidTable": 12, "messageIdTable": 11}},
        findings=[
            finding("PROJECT"),
            finding("AMEND"),
            finding("WITHDRAW"),
            finding("LOST_CONTENT"),
            finding("PROJECT", projection="firstUnseen"),
            finding("PROJECT", result="MOVED"),
        ],
    )
    async with world.client() as client:
        answer = await client.post("/messages?task=SolveInconsistencies&messagesPerSecond=50")
        assert (answer.status_code, answer.headers["location"]) == (201, f"/tasks/{answer.json()['taskId']}")
        waiting = (await client.get(answer.headers["location"])).json()
        await world.work()
        done = (await client.get(answer.headers["location"])).json()

    assert (waiting["type"], waiting["status"]) == ("solve-message-inconsistencies", "waiting")
    assert waiting["additionalInformation"]["processedImapUidEntries"] == 0
    assert set(waiting) == {"taskId", "type", "status", "submittedFrom", "submitDate", "additionalInformation"}
    assert waiting["submitDate"].endswith("+0000")
    assert (done["status"], done["executedOn"]) == ("completed", "here")
    assert set(done) == {*waiting, "executedOn", "startedDate", "completedDate"}
    reported = done["additionalInformation"]
    assert reported.pop("timestamp").endswith("Z")
    assert reported == {
        "type": "solve-message-inconsistencies",
        "processedImapUidEntries": 12,
        "processedMessageIdEntries": 11,
        "addedMessageIdEntries": 1,
        "updatedMessageIdEntries": 1,
        "removedMessageIdEntries": 1,
        "removedImapUidEntries": 1,
        "runningOptions": {"messagesPerSecond": 50, "cleanupEntriesWithoutContent": False},
        "fixedInconsistencies": [MENDED] * 4,
        "errors": [],
        "run": RUN,
        "exitCode": 0,
        "failure": None,
    }
    assert list(world.folder.iterdir()) == [], "findings go with their task"


@pytest.mark.parametrize(
    ("method", "path", "kind", "words"),
    [
        ("POST", "/messages?task=SolveInconsistencies", "solve-message-inconsistencies", "repair messages"),
        (
            "POST",
            "/messages?task=SolveInconsistencies&cleanupEntriesWithoutContent=true&messagesPerSecond=9",
            "solve-message-inconsistencies",
            "repair messages --rows-per-second 9 --orphans quarantine",
        ),
        (
            "POST",
            "/mailboxes?task=RecomputeMailboxCounters&trustMessageProjection=true",
            "recompute-mailbox-counters",
            (
                "repair messages --without firstUnseen --without messageDeleted --without mailboxRecents "
                "--without applicableFlag"
            ),
        ),
        (
            "POST",
            "/mailboxes?task=SolveMessageDeletedInconsistencies",
            "solve-mailbox-flag-inconsistencies",
            (
                "repair messages --without firstUnseen --without mailboxRecents --without applicableFlag "
                "--without mailboxCounters"
            ),
        ),
        (
            "POST",
            "/mailboxes?task=SolveMessageRecentInconsistencies",
            "solve-mailbox-flag-inconsistencies",
            (
                "repair messages --without firstUnseen --without messageDeleted --without applicableFlag "
                "--without mailboxCounters"
            ),
        ),
        (
            "POST",
            "/mailboxes?task=SolveInconsistencies&maxIterations=5&autoMerge=true",
            "solve-mailbox-inconsistencies",
            "repair mailboxes",
        ),
        ("DELETE", "/blobs?scope=unreferenced&expectedBlobCount=5", "BlobGCTask", "repair blobs"),
    ],
)
async def test_each_task_is_a_command_of_ours(world: TaskWorld, method: str, path: str, kind: str, words: str) -> None:
    async with world.client() as client:
        answer = await client.request(method, path, headers=OFFLINE)
        await world.work()
        (task,) = (await client.get("/tasks")).json()

    assert (answer.status_code, task["type"], task["status"]) == (201, kind, "completed")
    assert " ".join(world.begun[0]).startswith(f"{words} --json")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/mailboxes?task=RecomputeMailboxCounters", {"processedMailboxes": 3, "failedMailboxes": [MAILBOX]}),
        (
            "/mailboxes?task=SolveMessageRecentInconsistencies",
            {"processedMailboxEntries": 4, "errors": [MAILBOX], "targetFlag": "RECENT"},
        ),
        ("/messages?task=SolveInconsistencies", {"errors": [MENDED], "addedMessageIdEntries": 0, "failure": None}),
    ],
)
async def test_what_is_left_is_reported_and_the_task_failed(
    world: TaskWorld, path: str, expected: Mapping[str, Any]
) -> None:
    world.next = CommandTwin(
        code=1,
        result={"scanned": {"mailboxCounters": 3, "mailboxRecents": 4}},
        findings=[finding("TORN", result=None), finding("AGREE", result=None)],
    )
    async with world.client() as client:
        await client.post(path)
        await world.work()
        (task,) = (await client.get("/tasks")).json()

    assert (task["status"], "failedDate" in task) == ("failed", True)
    assert task["additionalInformation"] | expected == task["additionalInformation"]


async def test_a_mailboxes_task_ends_with_james_fields(world: TaskWorld) -> None:
    world.next = CommandTwin(
        code=1,
        result={"run": RUN, "scanned": {"mailbox": 5, "mailboxPathV3": 6}},
        findings=[
            of_mailbox("PROJECT", "Lost", result="FIXED"),
            of_mailbox("AMEND", "New", row="Old", result="FIXED"),
            of_mailbox("CLASH", "After", "Before", row="After"),
            of_mailbox("WITHDRAW", row="Gone"),
            of_mailbox("TORN", "Half"),
            of_mailbox("PROJECT", "Refused", error="the node is overloaded"),
            of_mailbox("AMEND", "New", row="Old", result="MOVED"),
        ],
    )
    async with world.client() as client:
        place = (await client.post("/mailboxes?task=SolveInconsistencies", headers=OFFLINE)).headers["location"]
        waiting = (await client.get(place)).json()
        await world.work()
        done = (await client.get(place)).json()

    assert waiting["additionalInformation"]["runningOptions"] == {"maxIterations": 1, "autoMerge": False}
    assert done["status"] == "failed", "as with James, where conflicts are left"
    reported = done["additionalInformation"]
    assert reported.pop("timestamp").endswith("Z")
    assert reported == {
        "type": "solve-mailbox-inconsistencies",
        "processedMailboxEntries": 5,
        "processedMailboxPathEntries": 6,
        "fixedInconsistencies": [MAILBOX, MAILBOX],
        "conflictingEntries": [
            {
                "mailboxDaoEntry": {"mailboxPath": "#private:bob:After", "mailboxId": MAILBOX},
                "mailboxPathDaoEntry": {"mailboxPath": "#private:bob:Before", "mailboxId": MAILBOX},
            }
        ],
        "errors": 3,
        "runningOptions": {"maxIterations": 1, "autoMerge": False},
        "run": RUN,
        "exitCode": 1,
        "failure": None,
    }


@pytest.mark.parametrize(
    ("row", "by_id"),
    [
        (None, None),
        ("Third", {"mailboxPath": "#private:bob:Third", "mailboxId": MAILBOX}),
    ],
)
async def test_both_paths_of_a_mailbox_are_in_conflict_with_a_row_that_names_neither(
    world: TaskWorld, row: str | None, by_id: Mapping[str, Any] | None
) -> None:
    world.next = CommandTwin(code=1, findings=[of_mailbox("CLASH", "After", "Before", row=row)])
    async with world.client() as client:
        query = "task=SolveInconsistencies&maxIterations=3&autoMerge=true"
        await client.post(f"/mailboxes?{query}", headers=OFFLINE)
        await world.work()
        (task,) = (await client.get("/tasks")).json()

    reported = task["additionalInformation"]
    assert [conflict["mailboxDaoEntry"] for conflict in reported["conflictingEntries"]] == [by_id, by_id]
    paths = [conflict["mailboxPathDaoEntry"]["mailboxPath"] for conflict in reported["conflictingEntries"]]
    assert paths == ["#private:bob:After", "#private:bob:Before"]
    assert (reported["fixedInconsistencies"], reported["errors"]) == ([], 0)
    assert reported["runningOptions"] == {"maxIterations": 3, "autoMerge": True}


async def test_a_row_of_a_mailbox_whose_path_is_null_has_no_path(world: TaskWorld) -> None:
    found = of_mailbox("CLASH", "After", "Before", row="After")
    found["projected"]["row"]["mailboxbase.user"] = None
    world.next = CommandTwin(code=1, findings=[found])
    async with world.client() as client:
        await client.post("/mailboxes?task=SolveInconsistencies", headers=OFFLINE)
        await world.work()
        (task,) = (await client.get("/tasks")).json()

    conflicts = task["additionalInformation"]["conflictingEntries"]
    assert [conflict["mailboxDaoEntry"]["mailboxPath"] for conflict in conflicts] == [None, None]


async def test_a_collection_of_blobs_is_reported_in_james_words(world: TaskWorld) -> None:
    world.next = CommandTwin(result={"references": {"messageV3": 5, "dead letters": 1}, "listed": 9, "removed": 2})
    async with world.client() as client:
        await client.delete("/blobs?scope=unreferenced&associatedProbability=0.5&deletionWindowSize=10")
        await world.work()
        (task,) = (await client.get("/tasks")).json()

    reported = task["additionalInformation"]
    expected = {
        "referenceSourceCount": 6,
        "blobCount": 9,
        "gcedBlobCount": 2,
        "errorCount": 0,
        "bloomFilterExpectedBlobCount": 1_000_000,
        "bloomFilterAssociatedProbability": 0.5,
        "deletionWindowSize": 10,
    }
    assert reported | expected == reported


def logged(event: str, **fields: Any) -> str:
    return json.dumps({"level": "info", "event": event, "run": RUN, **fields})


@pytest.mark.parametrize(
    ("asked", "lines", "expected"),
    [
        (
            ("POST", "/messages?task=SolveInconsistencies"),
            [
                logged("phase goes on", phase="read imapUidTable", steps=7),
                logged("scan ended", scanned={"imapUidTable": 12, "messageIdTable": 11}),
                logged(
                    "phase goes on",
                    phase="look again",
                    steps=5,
                    fixed={"messageIdTable": {"PROJECT": 2, "AMEND": 1}, "firstUnseen": {"PROJECT": 1}},
                ),
            ],
            {"processedImapUidEntries": 12, "addedMessageIdEntries": 2, "updatedMessageIdEntries": 1, "run": RUN},
        ),
        (
            ("POST", "/mailboxes?task=RecomputeMailboxCounters"),
            [logged("phase goes on", phase="read mailboxCounters", steps=7), "not an event"],
            {"processedMailboxes": 7, "exitCode": None},
        ),
        (
            ("POST", "/mailboxes?task=SolveInconsistencies"),
            [
                logged("phase goes on", phase="read mailboxPathV3", steps=7),
                logged("phase goes on", phase="read mailbox", steps=4),
            ],
            {"processedMailboxPathEntries": 7, "processedMailboxEntries": 4, "fixedInconsistencies": []},
        ),
        (
            ("DELETE", "/blobs?scope=unreferenced"),
            [
                logged("phase ended", phase="list blobs", steps=9),
                logged("phase ended", phase="read messageV3", steps=5),
                logged("phase goes on", phase="remove", steps=2),
                logged("phase began", phase="read messageV3"),
            ],
            {"blobCount": 9, "referenceSourceCount": 5, "gcedBlobCount": 2, "errorCount": 0},
        ),
    ],
)
async def test_the_counts_of_a_task_at_work_grow(
    world: TaskWorld, asked: tuple[str, str], lines: list[str], expected: Mapping[str, Any]
) -> None:
    world.next = CommandTwin(waits=True, said="\n".join(lines))
    async with world.client() as client:
        place = (await client.request(*asked, headers=OFFLINE)).headers["location"]
        await world.work()
        reported = []
        for _ in range(2):
            await world.work()
            reported.append((await client.get(place)).json()["additionalInformation"])
            world.clock.advance(5)
        world.next.over.set()
        await world.work()

    assert reported[0] | expected == reported[0]
    assert reported[0] == reported[1], "nothing is written where there is no news"


async def test_a_command_that_could_not_begin_says_why(world: TaskWorld) -> None:
    world.next = CommandTwin(code=2, said="mailmend: no store is named")
    async with world.client() as client:
        await client.delete("/blobs?scope=unreferenced")
        await world.work()
        (task,) = (await client.get("/tasks")).json()

    assert (task["status"], task["additionalInformation"]["failure"]) == ("failed", "mailmend: no store is named")


# Awaiting, cancelling, listing


async def test_a_task_can_be_waited_for(world: TaskWorld) -> None:
    async with world.client() as client:
        place = (await client.post("/messages?task=SolveInconsistencies")).headers["location"]
        late = await client.get(f"{place}/await?timeout=30s")
        awaiting = asyncio.create_task(client.get(f"{place}/await"))
        await asyncio.sleep(0)
        await world.work()
        done = await awaiting

    assert (late.status_code, late.json()["message"]) == (408, "The timeout has been reached")
    assert (done.status_code, done.json()["status"]) == (200, "completed")


@pytest.mark.parametrize("stated", ["", "?timeout=365d", "?timeout=6m"])
async def test_no_call_waits_for_a_task_for_longer_than_minutes(world: TaskWorld, stated: str) -> None:
    """Then it is told to ask again."""
    async with world.client() as client:
        place = (await client.post("/messages?task=SolveInconsistencies")).headers["location"]
        began = world.clock.micros()
        late = await client.get(f"{place}/await{stated}")

    assert late.status_code == 408
    assert world.clock.micros() - began == 300_000_000


async def test_a_task_at_work_is_cancelled_in_good_order(world: TaskWorld) -> None:
    world.next = CommandTwin(waits=True)
    async with world.client() as client:
        place = (await client.post("/messages?task=SolveInconsistencies")).headers["location"]
        await world.work()
        at_work = (await client.get(place)).json()["status"]
        cancelled = await client.delete(place)
        asked = (await client.get(place)).json()
        await world.work()
        done = (await client.get(place)).json()
        again = await client.delete(place)

    assert (at_work, cancelled.status_code, cancelled.content) == ("inProgress", 204, b"")
    assert (asked["status"], asked["cancelledFrom"]) == ("canceledRequested", "here")
    assert (done["status"], "canceledDate" in done) == ("canceled", True)
    assert again.status_code == 204, "no effect on one that is over"


async def test_a_task_that_waits_is_cancelled_without_having_begun(world: TaskWorld) -> None:
    async with world.client() as client:
        place = (await client.post("/messages?task=SolveInconsistencies")).headers["location"]
        await client.delete(place)
        await world.work()
        done = (await client.get(place)).json()

    assert (done["status"], world.begun) == ("canceled", [])


async def test_tasks_of_one_lease_run_one_after_another_others_side_by_side(world: TaskWorld) -> None:
    twin = world.next = CommandTwin(waits=True)
    async with world.client() as client:
        for path in ("/messages?task=SolveInconsistencies", "/mailboxes?task=RecomputeMailboxCounters"):
            await client.post(path)
        await client.delete("/blobs?scope=unreferenced")
        await world.work()
        statuses = [one["status"] for one in (await client.get("/tasks")).json()]
        twin.over.set()
        await world.work()
        await world.work()
        after = {one["status"] for one in (await client.get("/tasks")).json()}

    assert (statuses, after) == (["inProgress", "waiting", "inProgress"], {"completed"})


async def test_a_repair_by_hand_is_waited_for(world: TaskWorld) -> None:
    lease = world.leases.acquire("repair mail", "repair messages by hand")
    async with world.client() as client:
        await client.post("/messages?task=SolveInconsistencies")
        await world.work()
        assert world.begun == []
        world.leases.release(lease)
        await world.work()

    assert len(world.begun) == 1


async def test_a_killed_servers_tasks_and_those_of_one_that_ends_go_on_elsewhere(world: TaskWorld) -> None:
    world.next = CommandTwin(waits=True)
    async with world.client() as client:
        place = (await client.post("/messages?task=SolveInconsistencies")).headers["location"]
        await world.work()
        killed, world.runner = world.runner, world.server()
        await world.work()
        assert len(world.begun) == 2
        world.runner.stop()
        for _ in range(20):
            await asyncio.sleep(0)
        assert (await client.get(place)).json()["status"] == "waiting"
        world.next, world.runner = CommandTwin(), world.server()
        await world.work()
        assert (await client.get(place)).json()["status"] == "completed"
    for task in killed.working:
        task.cancel()


async def test_tasks_are_listed_and_chosen_as_james_does(world: TaskWorld) -> None:
    async with world.client() as client:
        await client.post("/messages?task=SolveInconsistencies")
        await world.work()
        between = world.clock.now + timedelta(seconds=1)
        world.clock.advance(2)
        await client.post("/mailboxes?task=RecomputeMailboxCounters")

        async def chosen(query: str) -> list[str]:
            return [one["status"] for one in (await client.get(f"/tasks{query}")).json()]

        at = between.strftime("%Y-%m-%dT%H:%M:%SZ")
        assert await chosen("") == ["waiting", "completed"]
        assert await chosen("?status=completed") == ["completed"]
        assert await chosen("?type=recompute-mailbox-counters") == ["waiting"]
        assert await chosen("?offset=1") == await chosen("?offset=1&limit=5") == ["completed"]
        assert await chosen("?limit=0") == []
        assert await chosen(f"?submittedAfter={at}") == ["waiting"]
        assert await chosen(f"?submittedBefore={at}") == await chosen(f"?completedBefore={at}") == ["completed"]
        assert await chosen(f"?failedBefore={at}") == await chosen(f"?startedAfter={at}") == []


async def test_no_more_tasks_are_taken_than_may_wait(world: TaskWorld) -> None:
    for _ in range(OPEN_MAX):
        world.tasks.submit("BlobGCTask", {}, "")
    async with world.client() as client:
        answer = await client.post("/messages?task=SolveInconsistencies")

    assert (answer.status_code, answer.json()["type"]) == (429, "WrongState")

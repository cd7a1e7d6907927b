"""Queues over HTTP, on a queue in memory: /v1/queues, and James's /mailQueues with James's forms."""

import asyncio
import logging
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from mailmend.admin.frame.settings import ConnectionSettings, QueueSettings
from mailmend.admin.jobs.james_tasks import KINDS
from mailmend.model.ids import QueueName
from tests.support.api_world import OPERATOR, VIEWER, ApiWorld
from tests.support.queue_commands import KEYSPACE, QueueShell, queue_shell
from tests.support.queues import CONTENT
from tests.support.task_desk import CommandTwin, TaskWorld

HERE = cast("Any", object())
"""A broker and a store that are named; the shell puts the ones in memory in their place."""


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> QueueShell:
    shell = queue_shell(monkeypatch, tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return shell


@pytest.fixture
def api(queue: QueueShell, tmp_path: Path) -> ApiWorld:
    settings = QueueSettings(ConnectionSettings(keyspace=KEYSPACE), QueueName("spool"), HERE, HERE)
    return ApiWorld(TaskWorld(tmp_path, queue.clock), settings)


def no_age(json: dict[str, Any]) -> dict[str, Any]:
    return {**json, "mails": [{**mail, "age_seconds": 0} for mail in json["mails"]]}


class TestReading:
    """What a viewer sees."""

    def put(self, queue: QueueShell) -> None:
        queue.put("one", "two", "three")
        queue.put_later("later", timedelta(hours=1))

    def test_queues_are_as_the_commands_print_them(self, queue: QueueShell, api: ApiWorld) -> None:
        self.put(queue)
        listed = asyncio.run(api.asked("GET", "/v1/queues", token=VIEWER))
        shown = asyncio.run(api.asked("GET", "/v1/queues/spool", token=VIEWER))

        assert listed == queue("list", "--json").json
        health = queue("health", "spool", "--no-broker", "--json").json
        size = queue("size", "spool", "--json").json
        assert shown == {**size, "health": health["queues"][0], "exit": health["exit"]}
        assert set(queue.asked) <= {"close"}

    def test_each_mail_is_on_one_page_without_its_content(self, queue: QueueShell, api: ApiWorld) -> None:
        self.put(queue)
        first = asyncio.run(api.asked("GET", "/v1/queues/spool/mails?limit=3", token=VIEWER))
        last = asyncio.run(api.asked("GET", f"/v1/queues/spool/mails?limit=3&after={first['next']}", token=VIEWER))

        assert no_age(first) == no_age(queue("browse", "--limit", "3", "--json").json)
        assert [mail["name"] for mail in (*first["mails"], *last["mails"])] == ["one", "two", "three", "later"]
        assert last["next"] is None
        assert not {"content_base64", "attributes"} & set(first["mails"][0])

    def test_mails_are_selected(self, queue: QueueShell, api: ApiWorld) -> None:
        queue.put("one", sender="Ann@example.org")
        queue.put("two", sender="bob@example.org")
        found = asyncio.run(api.asked("GET", "/v1/queues/spool/mails?sender=ann@EXAMPLE.org", token=VIEWER))
        assert [mail["name"] for mail in found["mails"]] == ["one"]


class TestChanges:
    """What an operator does."""

    def test_a_flush_makes_delayed_mails_due(
        self, queue: QueueShell, api: ApiWorld, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "mailmend.api")
        queue.put_later("later", timedelta(hours=1))
        tried = asyncio.run(api.asked("POST", "/v1/queues/spool/flush", {"dry_run": True}))
        done = asyncio.run(api.asked("POST", "/v1/queues/spool/flush", {}))

        assert (tried["flushed"], tried["delayed"], done["flushed"]) == (0, 1, 1)
        assert queue.delivered(1) == ["later"]
        (record,) = [record for record in caplog.records if record.getMessage() == "a queue was flushed"]
        assert (vars(record)["caller"], vars(record)["count"]) == ("ann", 1)

    def test_a_mail_is_deleted_and_restored(self, queue: QueueShell, api: ApiWorld) -> None:
        """The main story: look, delete, find the kept copy, put it back."""
        queue.put("spam", sender="spammer@example.org")
        queue.put("ham")
        which = {"selection": {"sender": "spammer@*"}}

        tried = asyncio.run(api.asked("POST", "/v1/queues/spool/delete", {**which, "dry_run": True}))
        assert ([mail["name"] for mail in tried["mails"]], queue.names()) == (["spam"], ["spam", "ham"])
        removed = asyncio.run(api.asked("POST", "/v1/queues/spool/delete", which))
        assert (removed["removed"], queue.names()) == (1, ["ham"])
        (kept,) = asyncio.run(api.asked("GET", "/v1/kept-mails"))["files"]
        assert removed["kept"].endswith(kept["file"])
        back = asyncio.run(api.asked("POST", "/v1/kept-mails/restore", {"file": kept["file"]}))

        assert (back["restored"], sorted(queue.names())) == (1, ["ham", "spam"])
        again = asyncio.run(api.asked("POST", "/v1/kept-mails/restore", {"file": kept["file"]}, status=409))
        assert "put back before" in again["message"]

    def test_a_purge_has_to_be_confirmed(self, queue: QueueShell, api: ApiWorld) -> None:
        queue.put("one", "two")
        refused = asyncio.run(api.asked("POST", "/v1/queues/spool/purge", {}, status=409))
        assert ("Remove every mail" in refused["message"], queue.names()) == (True, ["one", "two"])

        done = asyncio.run(api.asked("POST", "/v1/queues/spool/purge", {"confirm": True}))

        assert (done["removed"], queue.names()) == (2, [])

    @pytest.mark.parametrize(
        ("method", "path", "body", "status"),
        [
            ("GET", "/v1/queues/other", None, 404),
            ("GET", "/v1/queues/other/mails", None, 404),
            ("GET", "/v1/queues/spool/mails?limit=0", None, 400),
            ("GET", "/v1/queues/spool/mails?after=abc", None, 400),
            ("GET", "/v1/queues/spool/mails?sender=@", None, 400),
            ("GET", "/v1/queues/spool/mails?with_content=true", None, 400),
            ("POST", "/v1/queues/other/flush", {}, 404),
            ("POST", "/v1/queues/spool/delete", {"selection": {}}, 400),
            ("POST", "/v1/queues/spool/delete", {}, 400),
            ("POST", "/v1/kept-mails/restore", {"file": "../../etc/passwd"}, 400),
            ("POST", "/v1/kept-mails/restore", {"file": "none.jsonl.gz"}, 404),
        ],
    )
    def test_what_cannot_be_is_refused(
        self, queue: QueueShell, api: ApiWorld, method: str, path: str, body: Any, *, status: int
    ) -> None:
        queue.put("one")
        refused = asyncio.run(api.asked(method, path, body, status=status))
        assert (refused["statusCode"], queue.names()) == (status, ["one"])

    @pytest.mark.parametrize(
        ("method", "path"),
        [
            ("POST", "/v1/queues/spool/flush"),
            ("POST", "/v1/queues/spool/delete"),
            ("POST", "/v1/queues/spool/purge"),
            ("GET", "/v1/kept-mails"),
            ("POST", "/v1/kept-mails/restore"),
            ("PATCH", "/mailQueues/spool/mails?delayed=true"),
            ("DELETE", "/mailQueues/spool/mails"),
        ],
    )
    def test_a_viewer_changes_nothing(self, queue: QueueShell, api: ApiWorld, method: str, path: str) -> None:
        queue.put("one")
        body = {"delayed": False} if method == "PATCH" else {"confirm": True, "selection": {"name": "*"}}
        refused = asyncio.run(api.asked(method, path, body, token=VIEWER, status=403))
        assert (refused["type"], queue.names()) == ("Forbidden", ["one"])


class TestJames:
    """As James's webadmin answers."""

    def test_queues_and_their_mails_have_james_forms(self, queue: QueueShell, api: ApiWorld) -> None:
        queue.put("one", sender="ann@example.org", recipients=("bob@example.org",))
        queue.put_later("later", timedelta(hours=1), sender=None, recipients=("cy@example.org",))
        queue.put("other", queue=QueueName("outgoing"))
        due_at = (queue.now + timedelta(hours=1)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        one = {"name": "one", "sender": "ann@example.org", "recipients": ["bob@example.org"], "nextDelivery": None}
        later = {"name": "later", "sender": None, "recipients": ["cy@example.org"], "nextDelivery": due_at}

        assert asyncio.run(api.asked("GET", "/mailQueues", token=VIEWER)) == ["outgoing", "spool"]
        assert asyncio.run(api.asked("GET", "/mailQueues/spool", token=VIEWER)) == {"name": "spool", "size": 2}
        for query, found in (
            ("", [one, later]),
            ("?limit=1", [one]),
            ("?delayed=true", [later]),
            ("?delayed=false", [one]),
        ):
            assert asyncio.run(api.asked("GET", f"/mailQueues/spool/mails{query}", token=VIEWER)) == found
        missing = asyncio.run(api.asked("GET", "/mailQueues/other", token=VIEWER, status=404))
        assert (missing["type"], missing["message"]) == ("notFound", "other can not be found")

    def test_delayed_mails_are_delivered_now(self, queue: QueueShell, api: ApiWorld) -> None:
        queue.put_later("later", timedelta(hours=1))
        path = "/mailQueues/spool/mails"
        for query, body in (("", {"delayed": False}), ("?delayed=true", {"delayed": True}), ("?delayed=true", {})):
            assert asyncio.run(api.asked("PATCH", path + query, body, status=400))["type"] == "InvalidArgument"

        assert asyncio.run(api.asked("PATCH", f"{path}?delayed=true", {"delayed": False}, status=204)) is None

        assert queue.delivered(1) == ["later"]

    @pytest.mark.parametrize(
        ("query", "kind", "words"),
        [
            ("", "clear-mail-queue", ["queue", "purge", "spool", "--yes"]),
            ("?sender=ann@example.org", "delete-mails-from-mail-queue", ["--sender=ann@example.org"]),
            ("?name=one", "delete-mails-from-mail-queue", ["--name=one"]),
            ("?recipient=bob@example.org", "delete-mails-from-mail-queue", ["--recipient=bob@example.org"]),
        ],
    )
    def test_a_removal_is_a_task_in_the_name_of_its_token(
        self, queue: QueueShell, api: ApiWorld, query: str, kind: str, words: list[str]
    ) -> None:
        queue.put("one")
        api.tasks.next = CommandTwin(result={"removed": 2, "failed": [{"id": "7"}]})

        async def story() -> tuple[Any, Any]:
            async with api.client(OPERATOR) as client:
                answer = await client.delete(f"/mailQueues/spool/mails{query}")
                assert (answer.status_code, answer.headers["location"]) == (201, f"/tasks/{answer.json()['taskId']}")
                await api.tasks.work()
                return answer.json(), (await client.get(answer.headers["location"])).json()

        taken, done = asyncio.run(story())
        (task,) = api.tasks.tasks.listed()
        assert (str(task.id), task.submitted_by, done["status"]) == (taken["taskId"], "ann", "completed")
        reported = done["additionalInformation"]
        assert (reported["type"], reported["mailQueueName"], reported["initialCount"], reported["remainingCount"]) == (
            kind,
            "spool",
            3,
            1,
        )
        (begun,) = api.tasks.begun
        assert [word for word in words if word not in begun] == []
        assert "--json" in begun

    @pytest.mark.parametrize(
        ("query", "said"),
        [
            ("sender=a@b.c&name=one", "You should provide only one"),
            ("sender=nobody", "'sender' should be a mail address"),
            ("recipient=*@example.org", "'recipient' must not hold *"),
            ("name=", "'name' must not be empty"),
        ],
    )
    def test_a_removal_that_james_would_not_take_is_refused(
        self, queue: QueueShell, api: ApiWorld, query: str, said: str
    ) -> None:
        queue.put("one")
        refused = asyncio.run(api.asked("DELETE", f"/mailQueues/spool/mails?{query}", status=400))
        assert (refused["type"], said in refused["message"]) == ("InvalidArgument", True)
        assert api.tasks.tasks.listed() == []

    def test_what_a_task_types_is_what_the_command_takes(self, queue: QueueShell) -> None:
        """The words of both kinds, on a queue in memory."""
        queue.put("one", sender="ann@example.org")
        queue.put("two")
        for kind, options in (
            ("delete-mails-from-mail-queue", {"queue": "spool", "sender": "ann@example.org"}),
            ("clear-mail-queue", {"queue": "spool"}),
        ):
            words = [*KINDS[kind].words(options), "--json"]
            assert queue.line(*words).json["removed"] == 1

    def test_no_answer_holds_the_content_of_a_mail(self, queue: QueueShell, api: ApiWorld) -> None:
        queue.put("one")
        text = CONTENT.split(b"\r\n\r\n", 1)[1].decode().strip()
        assert text

        async def story() -> str:
            async with api.client(VIEWER) as client:
                paths = ("/v1/queues", "/v1/queues/spool", "/v1/queues/spool/mails", "/mailQueues/spool/mails")
                return "".join([(await client.get(path)).text for path in paths])

        assert text not in asyncio.run(story())

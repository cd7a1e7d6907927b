"""list, size and browse: what a person sees of a queue, from the tables alone."""

import asyncio
import json
from base64 import b64decode
from datetime import timedelta

import pytest

from mailmend.model.catalog.mail_queue import BROWSE_START, ENQUEUED_MAILS, SLICE_TALLIES
from mailmend.model.ids import QueueName
from mailmend.model.operations import Change, Scan
from tests.support.queue_commands import KEYSPACE, QueueShell
from tests.support.queues import CONTENT

OUTGOING = QueueName("outgoing")


def browsed(queue: QueueShell, *arguments: str) -> list[str]:
    ended = queue("browse", "--json", *arguments)
    assert ended.code == 0, ended.err
    return [one["name"] for one in ended.json["mails"]]


class TestWithoutBroker:
    """Commands that only look."""

    @pytest.mark.parametrize("command", ["list", "size", "browse"])
    def test_they_neither_need_nor_ask_the_broker(self, queue: QueueShell, command: str) -> None:
        """Nor the blobs: with neither of them named they work all the same."""
        queue.put("one")

        ended = queue.line("queue", command, MAILMEND_BROKER="", MAILMEND_BLOBS="")

        assert (ended.code, ended.err, queue.asked) == (0, "", [])

    @pytest.mark.parametrize("command", ["list", "size", "browse"])
    def test_they_write_nothing(self, queue: QueueShell, command: str) -> None:
        """Not even James's defaults into a keyspace that has no configuration."""
        assert queue(command).code == 0
        tables = queue.cluster.keyspace(KEYSPACE)
        assert not list(tables.scan(Scan(BROWSE_START, BROWSE_START.names)))


class TestListing:
    """Every queue of a keyspace."""

    def test_each_queue_with_its_mails(self, queue: QueueShell) -> None:
        queue.put("one", "two")
        queue.put("three", queue=OUTGOING)

        found = queue("list", "--json").json

        assert [(one["queue"], one["mails"], one["kind"]) for one in found["queues"]] == [
            ("outgoing", 1, "exact"),
            ("spool", 2, "exact"),
        ]
        assert found["queues"][0]["browse_start"] == found["queues"][0]["content_start"]
        assert found["exit"] == 0
        assert "outgoing" in queue("list").out

    def test_a_shell_is_offered_their_names(self, queue: QueueShell) -> None:
        """For the argument, and for the option's value."""
        queue.put("one")
        queue.put("three", queue=OUTGOING)

        assert queue.line.completed("mailmend queue size ") == ["outgoing", "spool"]
        assert queue.line.completed("mailmend queue browse --queue o") == ["outgoing"]

    def test_a_keyspace_without_queues_says_so(self, queue: QueueShell) -> None:
        assert "has no queue yet" in queue("list").out
        assert queue("list", "--json").json["queues"] == []


class TestSize:
    """How many mails wait."""

    def test_it_is_said_how_sure_it_is(self, queue: QueueShell) -> None:
        queue.put("one", "two")
        queue.put_later("three", timedelta(hours=1))

        found = queue("size", "--json").json

        assert (found["mails"], found["delayed"], found["kind"], found["counted_by"]) == (2, 1, "exact", "tallies")
        assert (found["queue"], found["keyspace"], found["exit"]) == ("spool", "mail", 0)
        assert "2 mails wait in spool, 1 are delayed (by the tallies" in queue("size").out

    def test_in_a_keyspace_of_james_rows_are_counted(self, james: QueueShell) -> None:
        james.put("one", "two", "three")

        found = james("size", "--json").json

        assert (found["mails"], found["kind"], found["counted_by"]) == (3, "exact", "metadata")

    def test_an_estimate_can_be_counted_again(self, queue: QueueShell) -> None:
        queue.put("one", "two")
        tables = queue.cluster.keyspace(KEYSPACE)
        (tally,) = (row for row in tables.scan(Scan(SLICE_TALLIES, SLICE_TALLIES.names)))
        tables.write(Change(SLICE_TALLIES, SLICE_TALLIES.key_of(tally), assign={"enqueued": 7, "settled": False}))
        before = queue("size", "--json").json
        assert "Count again in ten minutes" in queue("size", "--recount").err
        queue.pass_time(hours=2)

        after = queue("size", "--recount", "--json").json

        assert (before["mails"], before["kind"]) == (7, "estimate")
        assert (after["mails"], after["kind"]) == (2, "exact")

    def test_a_queue_that_nobody_knows_is_empty(self, queue: QueueShell) -> None:
        assert queue("size", "--queue", "other", "--json").json["mails"] == 0

    @pytest.mark.parametrize("named", [("outgoing",), ("--queue", "outgoing"), ("outgoing", "--queue", "outgoing")])
    def test_the_queue_is_named_by_an_argument_or_an_option(self, queue: QueueShell, named: tuple[str, ...]) -> None:
        """Either outweighs the environment; two different names are wrong use."""
        queue.put("one", queue=OUTGOING)

        assert queue("size", *named, "--json", MAILMEND_QUEUE="other").json["mails"] == 1
        refused = queue("size", *named, "--queue", "spool") if named[0] == "outgoing" else queue("size", "a", *named)
        assert (refused.code, "two queues are named" in refused.err) == (2, True)


class TestBrowsing:
    """The mails of a queue."""

    def test_the_oldest_comes_first_with_all_that_is_known(self, queue: QueueShell) -> None:
        (first,) = queue.put("first")
        queue.pass_time(minutes=1)
        queue.put("second")

        found = queue("browse", "--json").json

        assert [one["name"] for one in found["mails"]] == ["first", "second"]
        reported = found["mails"][0]
        assert (reported["id"], reported["sender"], reported["recipients"]) == (
            str(first),
            "ada@example.org",
            ["bob@example.org"],
        )
        assert (reported["where"], reported["priority"], reported["age_seconds"], reported["attempts"]) == (
            "waiting",
            5,
            60.0,
            0,
        )
        assert "content_base64" not in reported
        assert found["next"] is None

    def test_a_table_for_people(self, queue: QueueShell) -> None:
        queue.put("first")
        queue.pass_time(hours=2)

        out = queue("browse").out

        assert "ada@example.org" in out
        assert "2 h" in out
        assert "waiting" in out

    @pytest.mark.parametrize(
        ("arguments", "names"),
        [
            (("--sender", "ADA@example.org"), ["old", "young"]),
            (("--sender", "*@other.org"), ["other"]),
            (("--recipient", "carol@example.org"), ["other"]),
            (("--name", "o*"), ["old", "other"]),
            (("--state", "error"), ["other"]),
            (("--older-than", "30m"), ["old"]),
            (("--newer-than", "30m"), ["young", "other", "later"]),
            (("--where", "delayed"), ["later"]),
            (("--where", "waiting", "--name", "l*"), []),
            (("--sender", "<>"), ["later"]),
            (("--name", "o*", "--newer-than", "30m"), ["other"]),
        ],
    )
    def test_every_filter(self, queue: QueueShell, arguments: tuple[str, ...], names: list[str]) -> None:
        queue.put("old")
        queue.pass_time(hours=1)
        queue.put("young")
        queue.pass_time(seconds=1)
        queue.put("other", sender="eve@other.org", recipients=("carol@example.org",), state="error")
        queue.put_later("later", timedelta(days=1), sender=None, recipients=(), state="later")

        assert browsed(queue, *arguments) == names

    def test_by_id(self, queue: QueueShell) -> None:
        one, two, _ = queue.put("one", "two", "three")

        assert browsed(queue, "--id", str(one), "--id", str(two)) == ["one", "two"]

    def test_page_by_page_shows_each_once(self, queue: QueueShell) -> None:
        queue.put(*"abcde")
        pages: list[list[str]] = []
        after: list[str] = []
        while True:
            found = queue("browse", "--limit", "2", *after, "--json").json
            pages.append([one["name"] for one in found["mails"]])
            if found["next"] is None:
                break
            after = ["--after", found["next"]]

        assert sorted(name for page in pages for name in page) == list("abcde")
        assert [len(page) for page in pages] == [2, 2, 1]
        assert "--after" in queue("browse", "--limit", "2").out

    def test_lines_name_all_of_them(self, queue: QueueShell) -> None:
        queue.put(*(str(number) for number in range(120)))

        lines = queue("browse", "--lines").out.splitlines()

        assert len({json.loads(line)["id"] for line in lines}) == len(lines) == 120
        assert len(queue("browse", "--json").json["mails"]) == 100

    def test_contents_on_request_and_a_missing_one_breaks_nothing(self, queue: QueueShell) -> None:
        lost, _ = queue.put("lost", "there")
        queue.lose_content(lost)

        found = {one["name"]: one for one in queue("browse", "--with-content", "--json").json["mails"]}

        assert b64decode(found["there"]["content_base64"]) == CONTENT
        assert (found["lost"]["content_base64"], found["lost"]["content_missing"]) == (None, found["lost"]["body_blob"])
        out = queue("browse", "--with-content").out
        assert f"(its content is missing: blob {found['lost']['body_blob']})" in out
        assert "Subject: a mail" in out

    def test_a_missing_header_is_named_by_its_own_id(self, queue: QueueShell) -> None:
        queue.put("beheaded")
        (listed,) = queue.listed()
        asyncio.run(queue.blobs.lose(listed.queued.blobs.header))

        (found,) = queue("browse", "--with-content", "--json").json["mails"]

        assert (found["content_base64"], found["content_missing"]) == (None, found["header_blob"])

    @pytest.mark.parametrize("part", ["header", "body"])
    def test_what_is_no_id_of_a_blob_breaks_no_listing(self, queue: QueueShell, part: str) -> None:
        queue.put("strange", "there")
        rows = queue.cluster.keyspace(KEYSPACE).scan(Scan(ENQUEUED_MAILS, ENQUEUED_MAILS.names))
        (key,) = (ENQUEUED_MAILS.key_of(dict(row)) for row in rows if row["name"] == "strange")
        queue.cluster.keyspace(KEYSPACE).write(Change(ENQUEUED_MAILS, key, assign={f"{part}blobid": "no id"}))

        found = {one["name"]: one for one in queue("browse", "--with-content", "--json").json["mails"]}

        assert (found["strange"]["content_base64"], found["strange"]["content_missing"]) == (None, "no id")
        assert b64decode(found["there"]["content_base64"]) == CONTENT

    def test_a_row_that_cannot_be_read_is_named_and_the_rest_is_shown(self, queue: QueueShell) -> None:
        broken, _ = queue.put("broken", "sound")
        tables = queue.cluster.keyspace(KEYSPACE)
        (row,) = (row for row in tables.scan(Scan(ENQUEUED_MAILS, ENQUEUED_MAILS.names)) if row["enqueueid"] == broken)
        tables.write(Change(ENQUEUED_MAILS, ENQUEUED_MAILS.key_of(row), assign={"headerblobid": None}))

        ended = queue("browse", "--json")

        assert (ended.code, [one["name"] for one in ended.json["mails"]]) == (3, ["sound"])
        assert f"not readable: {broken}" in ended.err

    def test_nothing_that_a_sender_wrote_commands_the_terminal(self, queue: QueueShell) -> None:
        """Escape sequences in a name or a state are made harmless; addresses with any do not come in."""
        queue.put("evil\x1b[2J", state="a\x07b")

        out = queue("browse").out

        assert "\x1b" not in out
        assert "\x07" not in out

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (("--after", "nonsense"), "no position"),
            (("--queue", "a b"), "not the name of a queue"),
            (("--older-than", "soon"), "not a duration"),
            (("--id", "x"), "not a valid UUID"),
            (("--limit", "0"), "0 is not in the range"),
        ],
    )
    def test_wrong_use_is_named(self, queue: QueueShell, arguments: tuple[str, ...], said: str) -> None:
        ended = queue("browse", *arguments)

        assert (ended.code, said in ended.err) == (2, True), ended.err

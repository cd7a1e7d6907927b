"""A cleanup of queues, and a collection of blobs, that are planned and applied apart, as a person types them."""

import asyncio
import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mailmend.model.blobs import BlobKind
from mailmend.model.catalog.mail_queue import BROWSE_START, DELETED_MAILS, ENQUEUED_MAILS
from mailmend.model.ids import BlobId, EnqueueId
from mailmend.model.operations import Put, Read, Remove, Scan
from mailmend.model.table import Table
from tests.support.commands import Ended, Typed
from tests.support.fuzzing import sealed
from tests.support.queue_commands import KEYSPACE, QueueShell
from tests.support.queue_reconciled import row_of, stray_blob
from tests.support.striking import Strike, of
from tests.support.writing import Faults

LOCAL = ("--engine", "local", "--delay", "0s")
EMPTY = ("--marks", "empty")
BLOBS = ("--generation", "1h", "--oldest-message", "3d")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "plan.jsonl"


@pytest.fixture
def plan(james: QueueShell, file: Path) -> Typed:
    def call(what: str, *arguments: str) -> Ended:
        ended = james.line("repair", what, *LOCAL, "--json", "--plan", str(file), *arguments)
        james.pass_time(seconds=1)
        return ended

    return call


@pytest.fixture
def apply(james: QueueShell, file: Path) -> Typed:
    return lambda *arguments, **environment: james.line("apply", str(file), "--json", *arguments, **environment)


def finished(queue: QueueShell, *names: str) -> list[EnqueueId]:
    mails = queue.put(*names)
    queue.delivered(len(names))
    queue.pass_time(hours=20)
    return mails


def ids(queue: QueueShell, table: Table) -> set[EnqueueId]:
    return {row["enqueueid"] for row in queue.cluster.keyspace(KEYSPACE).scan(Scan(table, ("enqueueid",)))}


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


class TestQueues:
    """`repair queues --plan`, then `apply`."""

    def test_what_was_planned_goes_and_nothing_else(
        self, james: QueueShell, plan: Typed, apply: Typed, file: Path
    ) -> None:
        """Slices, their blobs, marks by key; what is finished since is none of it. Once more does nothing."""
        first = finished(james, "a", "b")
        asked = james.cluster.keyspace(KEYSPACE).surround = Faults()
        blobs = james.blobs.ids

        planned = plan("queues", *EMPTY)

        assert (planned.code, planned.json["run"], planned.json["queues"][0]["marks_due"]) == (1, None, 2)
        assert planned.json["due"] == {"OVER": 2, "START_BEHIND": 1, "ORPHAN_MARK": 2}
        assert all(isinstance(one, Read | Scan) for one in asked.seen)
        assert (set(james.cluster.keyspaces), james.blobs.ids) == ({KEYSPACE}, blobs)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert {line["mark"][1] for line in lines_of(file) if "mark" in line} == set(map(str, first))
        assert [line["number"] for line in lines_of(file) if line.get("verdict") == "OVER"] == [2]

        later = finished(james, "c")
        dry = apply("--dry-run")
        assert (dry.code, dry.json["due"], ids(james, DELETED_MAILS)) == (1, planned.json["due"], {*first, *later})
        applied = apply()

        assert (applied.code, applied.json["fixed"], applied.json["moved"]) == (0, planned.json["due"], 0), applied.err
        assert (applied.json["command"], set(applied.json)) == ("apply", set(planned.json))
        assert ids(james, ENQUEUED_MAILS) == ids(james, DELETED_MAILS) == set(later)
        assert len(james.blobs.ids) == len(blobs) / 2
        shown = james.line("runs", "show", applied.json["run"], "--json").json
        assert (shown["command"], shown["options"]["seal"]) == ("repair queues", lines_of(file)[-1]["seal"])
        again = apply()
        assert (again.code, again.json["fixed"], again.json["moved"]) == (0, {}, 0)

    def test_the_browse_start_goes_no_further_than_was_planned(
        self, james: QueueShell, plan: Typed, apply: Typed, file: Path
    ) -> None:
        finished(james, "a")
        plan("queues")
        (to,) = (line["suspect"]["wanted"] for line in lines_of(file) if line.get("verdict") == "START_BEHIND")
        james.pass_time(hours=5)

        assert apply().json["fixed"] == {"OVER": 1, "START_BEHIND": 1}
        (row,) = james.cluster.keyspace(KEYSPACE).read(Read(BROWSE_START, (james.name,)))
        assert to == {"map": [["browsestart", {"datetime": row.row["browsestart"].isoformat()}]]}

    def test_what_is_not_as_it_was_seen_is_left_and_said(self, james: QueueShell, plan: Typed, apply: Typed) -> None:
        """A row came into a slice that was over, late; so its marks stay, for else its mails would wait again."""
        first = finished(james, "a", "b")
        plan("queues", *EMPTY)
        row = row_of(james, first[0])
        (late,) = james.put("late")
        james.delivered(1)
        moved = {name: row[name] for name in ("queuename", "timerangestart", "bucketid")}
        tables = james.cluster.keyspace(KEYSPACE)
        tables.write(Put(ENQUEUED_MAILS, {**row_of(james, late), **moved}))
        james.pass_time(hours=20)

        applied = apply()

        assert (applied.json["fixed"], applied.json["moved"]) == ({"START_BEHIND": 1}, 3 + 2), applied.json
        assert applied.json["reasons"] == {"MOVED": {"not as the plan saw it": 5}}
        assert applied.json["queues"][0]["marks_moved"] == 2
        assert set(first) <= ids(james, ENQUEUED_MAILS) & ids(james, DELETED_MAILS)

    def test_marks_stay_where_their_proof_fails_when_they_are_to_go(
        self, james: QueueShell, plan: Typed, apply: Typed
    ) -> None:
        """That the broker was seen empty cannot be kept in a plan."""
        first = finished(james, "a", "b")
        plan("queues", *EMPTY)
        james.put("waits")

        applied = apply()

        assert applied.json["fixed"] == {"OVER": 2, "START_BEHIND": 1}
        assert "the broker holds 1 messages" in applied.json["queues"][0]["marks_stay"]
        assert set(first) <= ids(james, DELETED_MAILS)

    def test_interrupted_the_same_command_goes_on(self, james: QueueShell, plan: Typed, apply: Typed) -> None:
        finished(james, "a", "b")
        plan("queues", *EMPTY)
        james.cluster.keyspace(KEYSPACE).surround = Strike(
            of(Remove, ENQUEUED_MAILS), KeyboardInterrupt(), done=True, times=1
        )
        assert apply().code == 130
        james.cluster.keyspace(KEYSPACE).surround = Faults()

        assert (apply().code, ids(james, ENQUEUED_MAILS), ids(james, DELETED_MAILS)) == (0, set(), set())

    @pytest.mark.parametrize("proof", [EMPTY, ("--marks", "old", "--marks-age", "5h")])
    def test_what_proved_marks_useless_is_on_record(self, james: QueueShell, proof: tuple[str, ...]) -> None:
        finished(james, "a")
        ended = james.line("repair", "queues", *LOCAL, *proof, "--json")
        recorded = james.line("runs", "show", ended.json["run"], "--json").json["options"]
        assert ended.json["queues"][0]["removed_marks"] == 1
        assert (recorded["marks"], recorded["marks_age"]) == (proof[1], "5h" if "old" in proof else "")

    def test_where_the_broker_cannot_be_asked_marks_stay(self, james: QueueShell) -> None:
        """Rows go all the same; where none is named, nothing is begun."""
        first = finished(james, "a")
        repair = ("repair", "queues", *LOCAL, *EMPTY, "--json")
        unnamed = james.line(*repair, MAILMEND_BROKER="")
        assert (unnamed.code, "no message broker is named" in unnamed.err) == (2, True)
        assert ids(james, ENQUEUED_MAILS) == set(first)

        james.broker.away = True
        (reported,) = james.line(*repair).json["queues"]

        assert (reported["removed_rows"], reported["removed_marks"]) == (1, 0)
        assert reported["marks_stay"].startswith("the broker could not be asked: ")
        assert ids(james, DELETED_MAILS) == set(first)

    def test_a_check_of_all_looks_at_queues_too(self, james: QueueShell) -> None:
        finished(james, "a")

        found = {what: james.line("check", what, *LOCAL, "--json") for what in ("queues", "messages", "all")}

        assert {what: ended.code for what, ended in found.items()} == {"queues": 1, "messages": 0, "all": 1}
        both = found["all"].json
        assert both["findings"].items() >= found["queues"].json["findings"].items()
        assert both["queues"] == found["queues"].json["queues"]
        assert both["scanned"].items() >= (found["queues"].json["scanned"] | found["messages"].json["scanned"]).items()

    def test_people_read_what_comes_next(self, james: QueueShell, file: Path) -> None:
        finished(james, "a")
        broker = ("--broker", "amqp://ann@rabbit/mail")
        secret = {"MAILMEND_BROKER_PASSWORD": "geheim"}

        planned = james.line("repair", "queues", *LOCAL, *EMPTY, *broker, "--plan", str(file), **secret)

        assert "A repair would remove or mend 3." in planned.out
        assert f"Next: mailmend apply {file} --keyspace mail --broker amqp://ann@rabbit/mail" in planned.out
        assert "geheim" not in planned.out + file.read_text()


class TestBlobs:
    """`repair blobs --plan`, then `apply`."""

    @pytest.fixture
    def strays(self, james: QueueShell) -> dict[str, BlobId]:
        found = {
            name: asyncio.run(james.blobs.put(name.encode(), BlobKind.BODY))
            for name in ("goes", "needed", "again", "gone")
        }
        james.pass_time(days=9)
        return found

    def test_what_was_planned_goes_unless_it_is_another_by_now(
        self, james: QueueShell, plan: Typed, apply: Typed, file: Path, strays: dict[str, BlobId]
    ) -> None:
        """Referred to since, stored again since, gone already: each is left; what is free only now is none of it."""
        before = james.blobs.ids
        planned = plan("blobs", *BLOBS)
        assert (planned.code, planned.json["findings"], planned.json["run"]) == (0, {"COLLECT": 4}, None), planned.err
        assert (james.blobs.ids, set(james.cluster.keyspaces)) == (before, {KEYSPACE})
        assert {line["blob"][0] for line in lines_of(file) if "blob" in line} == set(strays.values())
        assert lines_of(file)[-2] == {"counts": {"blobs": {"COLLECT": 4}}}
        (mail,) = james.put("refers")
        row = row_of(james, mail)
        james.cluster.keyspace(KEYSPACE).write(Put(ENQUEUED_MAILS, {**row, "bodyblobid": strays["needed"]}))
        asyncio.run(james.blobs.keep(strays["again"], b"put back"))
        asyncio.run(james.blobs.lose(strays["gone"]))
        later = asyncio.run(james.blobs.put(b"later", BlobKind.BODY))
        james.pass_time(hours=20)

        dry = apply("--dry-run").json
        assert (dry["findings"], dry["moved"], dry["run"]) == ({"COLLECT": 1}, 2, None)
        applied = apply()

        assert (applied.code, applied.json["removed"], applied.json["moved"]) == (0, 1, 2), applied.err
        assert strays["goes"] not in james.blobs.ids
        assert {strays["needed"], strays["again"], later} <= james.blobs.ids
        shown = james.line("runs", "show", applied.json["run"], "--json").json
        assert (shown["command"], shown["options"]["seal"]) == ("repair blobs", lines_of(file)[-1]["seal"])
        assert json.loads(Path(applied.json["removed_list"]).read_text())["blob_id"] == strays["goes"]
        again = apply()
        assert (again.json["removed"], again.json["moved"]) == (0, 2)

    def test_a_plan_needs_what_a_repair_needs(self, james: QueueShell, plan: Typed, file: Path) -> None:
        """What nobody asked the broker of cannot be approved."""
        refused = james.line("repair", "blobs", *LOCAL, "--plan", str(file), MAILMEND_BROKER="")
        assert (refused.code, "no broker is named" in refused.err, file.exists()) == (2, True, False)
        for words in (("--removed", "x"), ("--keep", "1d")):
            assert (plan("blobs", *words).code, file.exists()) == (2, False)
        assert (plan("queues", "--garbagecollect").code, file.exists()) == (2, False)

    def test_people_read_what_comes_next(self, james: QueueShell, strays: dict[str, BlobId], file: Path) -> None:
        assert strays
        planned = james.line("repair", "blobs", *LOCAL, *BLOBS, "--no-broker", "--plan", str(file))
        assert f"Next: mailmend apply {file} --keyspace mail" in planned.out, planned.err


class TestRefused:
    """Exit 2, what is wrong, what to do: and nothing was removed."""

    @pytest.fixture(params=["queues", "blobs"], autouse=True)
    def kind(self, request: pytest.FixtureRequest, james: QueueShell, plan: Typed) -> Iterator[str]:
        stray_blob(james)
        mails = finished(james, "a")
        james.pass_time(days=5)
        plan(request.param, *(EMPTY if request.param == "queues" else BLOBS))
        before = james.blobs.ids
        yield request.param
        assert (ids(james, ENQUEUED_MAILS), ids(james, DELETED_MAILS)) == (set(mails), set(mails))
        assert james.blobs.ids == before

    def test_an_old_one(self, james: QueueShell, apply: Typed, kind: str) -> None:
        james.pass_time(hours=25)
        refused = apply()
        assert (refused.code, "more than 1d ago" in refused.err, f"repair {kind} --plan" in refused.err) == (
            2,
            True,
            True,
        )

    def test_one_of_another_broker_or_store(self, james: QueueShell, apply: Typed) -> None:
        """An empty broker would prove that no delivery needs the marks; another bucket has other blobs."""
        for other in ({"MAILMEND_BROKER": "amqp://other"}, {"MAILMEND_BLOBS": f"file://{james.line.home}/other"}):
            refused = apply(**other)
            assert (refused.code, "the plan was made with" in refused.err, "--b" in refused.err) == (2, True, True)

    def test_one_of_another_keyspace(self, james: QueueShell, apply: Typed) -> None:
        james.cluster.keyspaces["other"] = james.cluster.keyspaces[KEYSPACE]
        refused = apply("--keyspace", "other")
        assert (refused.code, "of keyspace 'mail', not of 'other'" in refused.err) == (2, True)

    def test_one_that_was_edited(self, apply: Typed, file: Path) -> None:
        whole = file.read_text()
        for edited in (whole.replace('"marks":"empty"', '"marks":"old"'), whole.replace('"family":1', '"family":2')):
            file.write_text(edited)
            refused = apply() if edited != whole else None
            assert refused is None or (refused.code, "edited" in refused.err) == (2, True)

    def test_one_whose_last_finding_was_damaged_and_sealed(
        self, james: QueueShell, apply: Typed, file: Path, kind: str
    ) -> None:
        """It is refused whole: the findings before that line are not carried out either."""
        *lines, last, counts, _ = file.read_text().splitlines()
        fields = json.loads(last)
        damaged = fields | {name: 7 for name in ("suspect", "blob") if name in fields}
        file.write_text(sealed([*lines, json.dumps(damaged), counts]))

        refused = apply()

        assert (refused.code, f"line {len(lines) + 1} is not of a plan" in refused.err) == (2, True), refused.err
        assert f"mailmend repair {kind} --plan" in refused.err
        assert set(james.cluster.keyspaces) == {KEYSPACE}

    def test_what_is_of_messages(self, apply: Typed) -> None:
        for word in ("--yes", "--no-writers"):
            assert (apply(word).code, "have no effect" in apply(word).err) == (2, True)

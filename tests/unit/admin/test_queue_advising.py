"""`queue advise` without a server: what is stored, what would fit and what may be set; for people and for scripts."""

import io
import json
from typing import Any

import pytest
from rich.console import Console

from mailmend.admin.frame.presenter import show
from mailmend.admin.queue.configure import QueueAdvised, advise_document, advise_on_queue
from mailmend.admin.schema.measuring import GivenTraffic
from mailmend.mailqueue.rules.configuration import configuration_of, event_json
from mailmend.model.catalog.james_tables import EVENT_STORE
from mailmend.model.errors import SchemaMismatch
from mailmend.model.keyspace import Schema
from mailmend.model.ports import Silent
from mailmend.model.table import Column, Kind, Table
from tests.support.mail_cluster import JAMES, QUEUE, MailCluster
from tests.support.schemas import served, without_tables

BUSY = GivenTraffic(mails_per_second=40, peak_mails_per_second=300)
WITH_QUEUE = Schema((), (QUEUE, *served(Schema((), (EVENT_STORE,))).tables))


def advised(given: GivenTraffic = BUSY, event: str | None = None, live: Schema = WITH_QUEUE) -> QueueAdvised:
    cluster = MailCluster(live, mailboxes=1)
    cluster.event = cluster.event if event is None else event
    return advise_on_queue(cluster.place(), given, Silent())


def lines(found: QueueAdvised) -> list[str]:
    return [part for part in advise_document(found).body if isinstance(part, str)]


def test_the_answer_comes_first_then_what_is_stored_and_what_may_be_set() -> None:
    found = advised()

    assert lines(found)[:5] == [
        "Set slices of 5m, 13 buckets, pace 1,000.",
        "Stored: slices of 1h, 1 bucket, pace 1,000.",
        "  A slice window may become any that divides the present 1h, and no other.",
        "  Buckets may stay 1, or grow.",
        "  The pace is free.",
    ]
    show(advise_document(found), Console(file=(out := io.StringIO()), width=200))
    text = out.getvalue()
    assert text.startswith("Set slices of 5m")
    assert text.rstrip().endswith(
        "mailmend queue configure --slice-window 5m --buckets 13 --browse-start-every 1000 --keyspace mail"
    )
    assert "never shrinks" in text
    assert "300" in text


def test_what_is_typed_then_is_what_was_advised() -> None:
    first = advised()
    event = event_json(1, first.advice.advised)
    assert configuration_of(event) == first.advice.advised

    again = advised(event=event)

    assert again.advice.changes is False
    assert lines(again)[0].startswith("Keep slices of 5m, 13 buckets")
    assert not any("Next:" in line for line in lines(again))
    assert (advise_document(again).json or {})["command"] is None


def test_scripts_get_the_same_under_names() -> None:
    document = json.loads(json.dumps(advise_document(advised()).json))

    assert set(document) == {
        "keyspace",
        "present",
        "advised",
        "best",
        "changes",
        "command",
        "reasons",
        "allowed",
        "hindered",
        "traffic",
        "notes",
        "exit",
    }
    assert document["present"] == {"slice_seconds": 3_600, "buckets": 1, "pace": 1_000}
    assert document["advised"] == document["best"] == {"slice_seconds": 300, "buckets": 13, "pace": 1_000}
    assert [one["setting"] for one in document["reasons"]] == ["slice window", "bucket count", "pace"]
    assert document["traffic"]["mails_per_second"] == {"value": 40, "source": "given", "how": "--mails-per-second"}
    assert "copies" not in document["traffic"], "the configuration does not follow from it"
    assert (document["command"].split()[:3], document["exit"]) == (["mailmend", "queue", "configure"], 0)


def test_what_is_measured_counts_where_nothing_is_said() -> None:
    found = advised(GivenTraffic())

    assert found.traffic.mails_per_second.value == 2.0
    assert found.advice.advised.slicing == found.advice.best.slicing
    assert found.advice.advised.pace == 1_000


@pytest.mark.parametrize("event", ["", "[]", "{}", '{"sliceWindow": null, "bucketCount": 1}'])
def test_an_event_that_tells_nothing_binds_nothing(event: str) -> None:
    found = advised(event=event)

    assert found.advice.present is None
    assert "Stored: nothing." in lines(found)


def test_a_keyspace_whose_queue_is_to_come_is_advised_by_its_messages() -> None:
    names = [table.name for table in JAMES.tables if table.name.startswith("enqueued")]
    found = advised(GivenTraffic(), live=without_tables(JAMES, *names))

    assert found.traffic.mails_per_second.how.startswith("births of")
    assert any("mailmend schema apply --keyspace mail" in note for note in found.notes)


def test_nothing_can_be_said_of_a_keyspace_without_mail() -> None:
    other: Any = Schema((), (Table("other", (Column("k", "int", Kind.PARTITION),)),))
    with pytest.raises(SchemaMismatch):
        advised(live=other)

"""Rows of a mail: those that James wrote are mails of ours, and ours are rows that it could have written."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.mailqueue.codec import due_listed_of, due_row_of, listed_of, queued_of, row_of
from mailmend.mailqueue.rules.configuration import configuration_of
from mailmend.mailqueue.rules.mails import Listed, Mail, QueuedMail, Whereabouts
from mailmend.mailqueue.rules.slices import Slicing, bucket_of, slice_of
from mailmend.model.catalog.james_tables import EVENT_STORE
from mailmend.model.catalog.mail_queue import BROWSE_START, CONTENT_START, DELETED_MAILS, DUE_MAILS, ENQUEUED_MAILS
from mailmend.model.errors import BadPayload
from mailmend.model.ids import EnqueueId
from mailmend.model.table import Row
from tests.support.james_queue import SPOOL, james_enqueued, james_messages, james_queue_rows
from tests.support.queued_mails import INSTANTS, QUEUED, queued_mail

SLICE = datetime(2026, 11, 20, 18, tzinfo=UTC)
AT = datetime(2026, 11, 20, 18, 43, 33, 78_000, tzinfo=UTC)
ROWS = james_queue_rows(ENQUEUED_MAILS)


def named(row: Row) -> str:
    return str(row["name"])


def james_slicing() -> Slicing:
    (event,) = james_queue_rows(EVENT_STORE)
    return configuration_of(event["event"]).slicing


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_a_row_of_james_s_is_the_mail_of_its_message(row: Row) -> None:
    """Every field of the row, and of the message, tells the same mail."""
    by_id = {queued.enqueue_id: queued for queued in (queued_of(one.body) for one in james_messages())}
    listed = listed_of(row)

    assert listed.queued == by_id[EnqueueId(row["enqueueid"])]
    assert listed == Listed(listed.queued, row["enqueuedtime"], Whereabouts.WAITING, row["timerangestart"])


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_a_row_of_james_s_is_written_again_cell_by_cell(row: Row) -> None:
    """Slice and bucket are reckoned anew, and come out where James put them."""
    listed = listed_of(row)
    slicing = james_slicing()
    slice_start = slice_of(listed.enqueued_at, slicing.window)
    bucket = bucket_of(listed.queued.mail.name, slicing.buckets)

    assert row_of(SPOOL, slice_start, bucket, listed.enqueued_at, listed.queued) == row


def test_the_rows_are_the_mails_that_james_was_given() -> None:
    """None is missing, none is more; and those with a mark are among them."""
    names = {UUID(one["enqueueId"]): one["name"] for one in james_enqueued()}

    assert {row["enqueueid"]: row["name"] for row in ROWS} == names
    assert {row["enqueueid"] for row in james_queue_rows(DELETED_MAILS)} < set(names)


def test_the_starts_are_slices() -> None:
    """Browse start and content start name the slice in which the rows are."""
    (browse,), (content,) = james_queue_rows(BROWSE_START), james_queue_rows(CONTENT_START)

    assert browse["browsestart"] == content["contentstart"] == SLICE
    assert {row["timerangestart"] for row in ROWS} == {SLICE}


@given(QUEUED, INSTANTS)
def test_any_mail_reads_back_from_its_row(queued: QueuedMail, at: datetime) -> None:
    row = row_of(SPOOL, SLICE, 3, at, queued)

    assert listed_of(row) == Listed(queued, at, slice_start=SLICE)
    assert set(row) == set(ENQUEUED_MAILS.names)
    assert ENQUEUED_MAILS.key_of(row) == (SPOOL, SLICE, 3, queued.enqueue_id)


@given(QUEUED, INSTANTS, INSTANTS, st.integers(0, 100))
def test_any_delayed_mail_reads_back_from_its_row(
    queued: QueuedMail, at: datetime, due_at: datetime, attempts: int
) -> None:
    row = due_row_of(SPOOL, SLICE, 0, due_at, attempts, at, queued)

    assert due_listed_of(row) == Listed(queued, at, Whereabouts.DELAYED, due_at=due_at, attempts=attempts)
    assert set(row) == set(DUE_MAILS.names)
    assert DUE_MAILS.key_of(row) == (SPOOL, SLICE, 0, due_at, queued.enqueue_id)


def test_both_tables_keep_the_same_of_a_mail() -> None:
    mail = set(ENQUEUED_MAILS.names) - {"timerangestart"}
    row, due = row_of(SPOOL, SLICE, 0, AT, queued_mail()), due_row_of(SPOOL, SLICE, 0, AT, 1, AT, queued_mail())

    assert {name: row[name] for name in mail} == {name: due[name] for name in mail}


def test_instants_are_cut_to_what_a_timestamp_keeps() -> None:
    """So that a row is equal to itself read back; a clock counts microseconds."""
    fine = timedelta(microseconds=999)
    queued = queued_mail()
    last = replace(queued.mail, last_updated=AT + fine)
    row = due_row_of(SPOOL, SLICE, 0, AT + fine, 1, AT + fine, replace(queued, mail=last))

    assert (row["dueat"], row["enqueuedtime"], row["lastupdated"]) == (AT, AT, AT)
    assert row_of(SPOOL, SLICE, 0, AT + fine, queued)["enqueuedtime"] == AT


def test_the_bytes_of_attributes_are_their_json() -> None:
    queued = queued_mail()
    mail = replace(queued.mail, attributes={"é": '{"serializer":"StringSerializer","value":"ü"}'})

    cells = row_of(SPOOL, SLICE, 0, AT, replace(queued, mail=mail))["attributes"]
    assert cells == {"é": b'{"serializer":"StringSerializer","value":"\xc3\xbc"}'}


def test_collections_may_be_null() -> None:
    """Whoever wrote the row may have left out what is empty; empty ones read the same."""
    empty: dict[str, Any] = {"attributes": {}, "recipients": (), "perrecipientspecificheaders": ()}
    row = row_of(SPOOL, SLICE, 0, AT, queued_mail())
    mail = listed_of({**row, **empty}).queued.mail

    assert (mail.attributes, mail.recipients, mail.recipient_headers) == ({}, (), ())
    assert listed_of({**row, **dict.fromkeys(empty)}).queued.mail == mail


def test_what_says_nothing_is_james_s_default() -> None:
    names = ("state", "remoteaddr", "remotehost", "errormessage", "lastupdated", "sender")
    row = {**row_of(SPOOL, SLICE, 0, AT, queued_mail()), **dict.fromkeys(names)}
    mail, bare = listed_of(row).queued.mail, Mail("x", ())

    assert (mail.state, mail.remote_addr, mail.remote_host) == (bare.state, bare.remote_addr, bare.remote_host)
    assert (mail.error_message, mail.last_updated, mail.sender) == (None, None, None)


@pytest.mark.parametrize(
    "column", ["enqueueid", "name", "headerblobid", "bodyblobid", "enqueuedtime", "timerangestart"]
)
def test_half_a_row_is_refused_by_its_missing_column(column: str) -> None:
    """A column that was deleted, or never written: no mail can be made of the rest."""
    row = {**row_of(SPOOL, SLICE, 0, AT, queued_mail()), column: None}
    with pytest.raises(BadPayload, match=f"(?i)^{column} is missing"):
        listed_of(row)


@pytest.mark.parametrize("column", ["enqueueid", "dueat", "enqueuedtime"])
def test_half_a_delayed_row_is_refused_too(column: str) -> None:
    row = {**due_row_of(SPOOL, SLICE, 0, AT, 0, AT, queued_mail()), column: None}
    with pytest.raises(BadPayload, match=f"^{column} is missing"):
        due_listed_of(row)


def test_attempts_that_nobody_counted_are_none() -> None:
    row = {**due_row_of(SPOOL, SLICE, 0, AT, 7, AT, queued_mail()), "attempts": None}
    assert due_listed_of(row).attempts == 0


@pytest.mark.parametrize(
    ("column", "value", "why"),
    [
        ("attributes", {"a": b"\xff"}, r"attributes\[a\] is not UTF-8"),
        ("perrecipientspecificheaders", (("a@x", None, "v"),), r"perrecipientspecificheaders\[0\]\[1\] is missing"),
        ("perrecipientspecificheaders", (None,), r"perrecipientspecificheaders\[0\] is missing"),
        ("perrecipientspecificheaders", (("a@x", "X"),), r"perrecipientspecificheaders\[0\] is not of 3 texts"),
        ("recipients", (None,), r"recipients\[0\] is missing"),
    ],
)
def test_cells_that_no_mail_can_be_made_of_are_named(column: str, value: Any, why: str) -> None:
    with pytest.raises(BadPayload, match=f"^{why}"):
        listed_of({**row_of(SPOOL, SLICE, 0, AT, queued_mail()), column: value})

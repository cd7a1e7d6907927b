"""Traffic read from the tables: slices counted, births and changes, the browse start, and how little is read for it."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from mailmend.admin.schema.measuring import (
    IDS_MAX,
    MAILBOXES_MAX,
    PARTITIONS_MAX,
    SLICE_SECONDS_DEFAULT,
    SLICES_COUNTED_MAX,
    QueueTraffic,
    Reading,
    message_traffic,
    queue_settings,
    queue_traffic,
)
from mailmend.mailqueue.rules.configuration import AGGREGATE, QueueConfiguration, event_json
from mailmend.model.catalog.mail import MAIL_TABLES
from mailmend.model.durations import HOUR
from mailmend.model.errors import AccessDenied, BadIdentifier, CannotReach, MailmendError
from mailmend.model.keyspace import Schema
from mailmend.model.table import Column, Kind, Row, Table
from tests.support.clock import uuid_at
from tests.support.queues import configured
from tests.support.schema_twin import SchemaTwin

NOW = 1_788_004_800
"""Seconds since 1970; a whole hour."""

CONFIGURATION = event_json(0, configured(1_800, 2))


def named(*names: str) -> Schema:
    return Schema((), tuple(Table(name, (Column("k", "int", Kind.PARTITION),)) for name in names))


ALONE = named("enqueuedMailsV4")
WHOLE = named("enqueuedMailsV4", "browseStart", "eventStore")


class MailServer(SchemaTwin):
    """A server that answers what traffic is measured by.

    Args:
        mails: how many lie in each partition, by queue, start of the slice in seconds and bucket.
        others: the rows of every other table, by its name without keyspace.
        refused: tables that may not be read, or do not answer, with the error.
    """

    def __init__(
        self,
        mails: Mapping[tuple[str, int, int], int] | None = None,
        others: Mapping[str, Sequence[Row]] | None = None,
        refused: Mapping[str, MailmendError] | None = None,
    ) -> None:
        super().__init__()
        self.mails, self.others, self.refused = dict(mails or {}), dict(others or {}), dict(refused or {})
        self.asked: list[tuple[str, tuple[Any, ...]]] = []

    def query(self, text: str, values: Sequence[Any] = ()) -> Sequence[Row]:
        found = re.search(r"FROM mail\.(\w+)", text)
        assert found, text
        self.asked.append((text, tuple(values)))
        if found[1] in self.refused:
            raise self.refused[found[1]]
        if found[1] != "enqueuedmailsv4":
            return self.others.get(found[1], ())[: _limit(text)]
        if "count(*)" in text:
            queue, start, bucket = values
            return [{"mails": self.mails[queue, int(start.timestamp()), bucket]}]
        return [_partition(*key) for key in self.mails][: _limit(text)]


def _limit(text: str) -> int | None:
    found = re.search(r"LIMIT (\d+)", text)
    return int(found[1]) if found else None


def _partition(queue: str, start: int, bucket: int) -> Row:
    return {"queuename": queue, "timerangestart": datetime.fromtimestamp(start, UTC), "bucketid": bucket}


def queue_of(server: MailServer, live: Schema = ALONE) -> QueueTraffic:
    found = queue_traffic(Reading(server), "mail", live, NOW * 1_000_000)
    assert found is not None
    return found


class TestQueue:
    """Slices of the queue's view."""

    def test_slices_that_are_over_are_counted_over_all_buckets(self) -> None:
        hours = [NOW - 3 * HOUR, NOW - 2 * HOUR, NOW]
        server = MailServer({("spool", int(at), bucket): 1_800 for at in hours for bucket in (0, 1)})

        found = queue_of(server)

        assert found.queue == "spool"
        assert found.rates is not None
        assert (found.rates.mean, found.rates.peak, found.rates.looked_at) == (1.0, 1.0, 2)
        assert found.mails_per_partition == 1_800

    def test_the_busiest_queue_is_the_one_advice_is_for(self) -> None:
        server = MailServer({("small", NOW - 7_200, 0): 5, ("large", NOW - 7_200, 0): 50})

        found = queue_of(server)

        assert found.queue == "large"
        assert found.rates is not None
        assert found.rates.mean == 50 / SLICE_SECONDS_DEFAULT
        assert found.mails_per_partition == 27.5

    def test_the_window_is_configured_or_seen_or_jamess_own(self) -> None:
        pair = {("spool", NOW - 7_200, 0): 600, ("spool", NOW - 6_600, 0): 600}
        reported = queue_of(MailServer(pair, {"eventstore": [{"event": CONFIGURATION}]}), WHOLE)
        seen = queue_of(MailServer(pair))
        lonely = queue_of(MailServer({("spool", NOW - 7_200, 0): 600}))

        assert [one.rates.peak for one in (reported, seen, lonely) if one.rates] == [600 / 1_800, 1, 600 / 3_600]
        assert (reported.settings, seen.settings) == (configured(1_800, 2), None)

    @pytest.mark.parametrize(
        ("events", "found"),
        [
            ([CONFIGURATION], configured(1_800, 2)),
            ([CONFIGURATION, event_json(1, configured(60, 3, 500))], configured(60, 3, 500)),
            ([CONFIGURATION, "[]", "soon", '{"bucketCount":3}'], configured(1_800, 2)),
            ([CONFIGURATION, "", None, "{}", CONFIGURATION.replace("1800", "soon")], configured(1_800, 2)),
            (["{}"], None),
            ([], None),
        ],
    )
    def test_the_last_event_that_can_be_read_counts(
        self, events: list[str | None], found: QueueConfiguration | None
    ) -> None:
        server = MailServer({}, {"eventstore": [{"event": event} for event in events]})

        assert queue_settings(Reading(server), "mail", WHOLE) == found
        assert queue_settings(Reading(server), "mail", ALONE) is None

    def test_the_configuration_is_looked_for_where_james_keeps_it(self) -> None:
        server = MailServer({("spool", NOW - 7_200, 0): 1})

        queue_of(server, WHOLE)

        assert ("SELECT event FROM mail.eventstore WHERE aggregateid = ?", (AGGREGATE,)) in server.asked

    @pytest.mark.parametrize(
        ("rows", "oldest"),
        [
            ([], None),
            ([{"browsestart": None}], None),
            ([{"browsestart": datetime.fromtimestamp(NOW - 86_400, UTC)}], 86_400),
            ([{"browsestart": datetime.fromtimestamp(NOW + 60, UTC)}], 0),
        ],
        ids=["no row", "no cell", "a day ago", "a clock that is ahead"],
    )
    def test_the_browse_start_says_how_long_mails_have_waited(self, rows: list[Row], oldest: float | None) -> None:
        found = queue_of(MailServer({("spool", NOW - 7_200, 0): 1}, {"browsestart": rows}), WHOLE)

        assert found.oldest_seconds == oldest

    def test_only_the_newest_slices_are_counted(self) -> None:
        starts = [NOW - HOUR * (number + 1) for number in range(SLICES_COUNTED_MAX + 50)]
        server = MailServer({("spool", int(at), 0): 1 for at in reversed(starts)})

        found = queue_of(server)

        (keys, *counts) = [asked for asked in server.asked if "enqueued" in asked[0]]
        assert keys[0].endswith(f"LIMIT {PARTITIONS_MAX}")
        assert len(counts) == SLICES_COUNTED_MAX
        assert min(values[1].timestamp() for _, values in counts) == NOW - HOUR * SLICES_COUNTED_MAX
        assert found.rates is not None
        assert found.rates.looked_at == SLICES_COUNTED_MAX

    def test_without_mails_there_is_nothing_to_tell(self) -> None:
        server = MailServer()

        assert queue_traffic(Reading(server), "mail", ALONE, NOW) is None
        assert len(server.asked) == 1
        assert queue_traffic(Reading(server), "mail", named("other"), NOW) is None
        assert len(server.asked) == 1

    def test_a_browse_start_and_events_that_may_not_be_read_leave_the_rest(self) -> None:
        refused = {name: AccessDenied("no") for name in ("browsestart", "eventstore")}
        reading = Reading(MailServer({("spool", NOW - 7_200, 0): 3_600}, refused=refused))

        found = queue_traffic(reading, "mail", WHOLE, NOW * 1_000_000)

        assert found is not None
        assert (found.settings, found.oldest_seconds) == (None, None)
        assert [note.partition(" ")[0] for note in reading.notes] == ["mail.eventstore", "mail.browsestart"]

    def test_a_cluster_that_does_not_answer_is_no_missing_permission(self) -> None:
        reading = Reading(MailServer(refused={"enqueuedmailsv4": CannotReach("nobody answers")}))

        with pytest.raises(CannotReach, match="nobody answers"):
            queue_traffic(reading, "mail", ALONE, NOW)
        assert reading.notes == []

    def test_the_keyspace_is_a_name_before_it_is_part_of_a_statement(self) -> None:
        reading = Reading(MailServer())
        with pytest.raises(BadIdentifier):
            queue_traffic(reading, "mail; DROP", ALONE, NOW)
        with pytest.raises(BadIdentifier):
            message_traffic(reading, "mail; DROP", MESSAGES, NOW, None)


def test_tables_that_may_not_be_read_are_noted_and_measure_nothing() -> None:
    names = ["enqueuedmailsv4", "imapuidtable", "messagecounter", "modseq"]
    reading = Reading(MailServer(refused=dict.fromkeys(names, AccessDenied("no"))))

    assert queue_traffic(reading, "mail", ALONE, NOW) is None
    found = message_traffic(reading, "mail", MESSAGES, NOW, None)

    assert (found.rates, found.changes) == (None, None)
    assert [note.split()[0] for note in reading.notes] == [f"mail.{name}" for name in names]
    assert "GRANT SELECT ON TABLE mail.modseq" in reading.notes[-1]


def born(*days_ago: float) -> list[Row]:
    """Messages of which each was born so many days before now."""
    return [
        {"messageid": uuid_at(NOW * 1_000_000 - round(days * 86_400_000_000), number)}
        for number, days in enumerate(days_ago)
    ]


def of_a_week(count: int) -> list[Row]:
    """So many messages, the first of them born in the first hour of the last seven days."""
    return born(6.999, *[0.0] * (count - 1))


MESSAGES = Schema((), MAIL_TABLES)


class TestMessages:
    """Births of messages, and what two generators say of changes."""

    @staticmethod
    def _rates(rows: Sequence[Row], partitions: int | None) -> Any:
        server = MailServer(others={"imapuidtable": rows})
        return message_traffic(Reading(server), "mail", MESSAGES, NOW * 1_000_000, partitions).rates

    def test_a_keyspace_that_was_read_whole_needs_no_estimate(self) -> None:
        week = self._rates(born(0, 1, 2, 3, 20), partitions=1_000_000)

        assert week.mean == pytest.approx(4 / (7 * 86_400))
        assert week.history_seconds == 20 * 86_400

    def test_a_sample_stands_for_all(self) -> None:
        rows = of_a_week(IDS_MAX)

        assert self._rates(rows, partitions=10 * IDS_MAX).mean == pytest.approx(10 * IDS_MAX / (7 * 86_400))
        for too_small in (None, 5):
            assert self._rates(rows, too_small).mean == pytest.approx(IDS_MAX / (7 * 86_400))

    def test_ids_without_a_time_make_the_others_count_for_less(self) -> None:
        half = IDS_MAX // 2
        rows = [*of_a_week(half), *({"messageid": uuid4()} for _ in range(half))]

        assert self._rates(rows, partitions=1_000_000).mean == pytest.approx(500_000 / (7 * 86_400))
        assert self._rates([{"messageid": uuid4()}], partitions=5) is None
        assert self._rates([], partitions=5) is None

    @pytest.mark.parametrize(
        ("uids", "modseqs", "changes"),
        [
            ([100, 100], [150, 150], 0.5),
            ([100, None], [300, None], 2.0),
            ([100], [40], 0.0),
            ([], [7], None),
            ([100], [], None),
        ],
    )
    def test_changes_are_what_the_modseqs_are_ahead_of_the_uids(
        self, uids: list[int | None], modseqs: list[int | None], changes: float | None
    ) -> None:
        others = {
            "messagecounter": [{"nextuid": uid} for uid in uids],
            "modseq": [{"nextmodseq": modseq} for modseq in modseqs],
        }
        server = MailServer(others=others)

        found = message_traffic(Reading(server), "mail", MESSAGES, NOW * 1_000_000, None)

        assert found.changes == changes
        texts = [text for text, _ in server.asked]
        assert f"SELECT nextuid FROM mail.messagecounter LIMIT {MAILBOXES_MAX}" in texts
        assert f"SELECT nextmodseq FROM mail.modseq LIMIT {MAILBOXES_MAX}" in texts
        assert f"SELECT messageid FROM mail.imapuidtable LIMIT {IDS_MAX}" in texts

    def test_what_is_not_there_is_not_asked_for(self) -> None:
        server = MailServer(others={"imapuidtable": [{"messageid": UUID(int=0)}]})

        for live in (ALONE, named("imapUidTable", "modseq"), named("imapUidTable", "messageCounter")):
            found = message_traffic(Reading(server), "mail", live, NOW * 1_000_000, None)
            assert (found.rates, found.changes) == (None, None)

        assert {text for text, _ in server.asked} == {f"SELECT messageid FROM mail.imapuidtable LIMIT {IDS_MAX}"}

"""The queue's present settings out of James's events, and tables that may not be read."""

from collections.abc import Sequence
from typing import Any

import pytest

from cql.traffic import Reading, message_traffic, queue_traffic, settings_of
from model.advice.queue_settings import SliceSettings
from model.catalog.mail import MAIL_TABLES
from model.errors import AccessDenied
from model.schema.keyspace import Schema
from model.schema.table import Column, Kind, Table
from tests.support.schema_twin import SchemaTwin

EVENT = '{"eventId":0,"type":"cassandra-mail-queue-view-configuration","bucketCount":2,"sliceWindow":3600.000000000}'


def test_the_last_event_counts() -> None:
    """Each change of the configuration is another event."""
    later = EVENT.replace("3600.0", "1800.0").replace('"bucketCount":2', '"bucketCount":4')

    assert settings_of([{"event": EVENT}, {"event": later}]) == SliceSettings(1800, 4)


@pytest.mark.parametrize("event", ["", "[]", "{}", None, '{"sliceWindow": "soon", "bucketCount": 1}'])
def test_an_event_that_cannot_be_read_is_passed_over(event: str | None) -> None:
    """Another version of James may write it otherwise; the one before still says something."""
    assert settings_of([{"event": EVENT}, {"event": event}]) == SliceSettings(3600, 2)
    assert settings_of([{"event": event}]) is None


class Guarded(SchemaTwin):
    """A server that shows nobody anything."""

    def query(self, text: str, values: Sequence[Any] = ()) -> Sequence[Any]:
        """Refused."""
        raise AccessDenied(f"{text} {values}")


def test_tables_that_may_not_be_read_are_noted_and_measure_nothing() -> None:
    """Each once, with what to grant."""
    queue = Table("enqueuedMailsV4", (Column("queueName", "text", Kind.PARTITION),))
    reading = Reading(Guarded())

    assert queue_traffic(reading, "mail", Schema((), (queue,)), now_micros=0) is None
    found = message_traffic(reading, "mail", Schema((), MAIL_TABLES), now_micros=0, partitions=None)

    assert (found.rates, found.changes) == (None, None)
    assert [note.split()[0] for note in reading.notes] == [
        "mail.enqueuedmailsv4",
        "mail.imapuidtable",
        "mail.messagecounter",
        "mail.modseq",
    ]
    assert "GRANT SELECT ON TABLE mail.modseq" in reading.notes[-1]

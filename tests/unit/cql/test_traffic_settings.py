"""The queue's present settings, out of the events in which James keeps them."""

import pytest

from cql.traffic import settings_of
from model.advice import QueueSettings

EVENT = '{"eventId":0,"type":"cassandra-mail-queue-view-configuration","bucketCount":2,"sliceWindow":3600.000000000}'


def test_the_last_event_counts() -> None:
    """Each change of the configuration is another event."""
    later = EVENT.replace("3600.0", "1800.0").replace('"bucketCount":2', '"bucketCount":4')

    assert settings_of([{"event": EVENT}, {"event": later}]) == QueueSettings(1800, 4)


@pytest.mark.parametrize("event", ["", "[]", "{}", None, '{"sliceWindow": "soon", "bucketCount": 1}'])
def test_an_event_that_cannot_be_read_is_passed_over(event: str | None) -> None:
    """Another version of James may write it otherwise; the one before still says something."""
    assert settings_of([{"event": EVENT}, {"event": event}]) == QueueSettings(3600, 2)
    assert settings_of([{"event": event}]) is None

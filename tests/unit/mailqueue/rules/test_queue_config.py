"""The queue's configuration: James's events to the byte, James's rules, and what a refusal offers instead."""

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mailmend.mailqueue.rules.configuration import (
    DEFAULT,
    ConfigurationEvent,
    QueueConfiguration,
    change,
    configuration_of,
    event_json,
    event_of,
    nearest_windows,
    window_text,
)
from mailmend.mailqueue.rules.slices import SECOND, Slicing
from mailmend.model.catalog.james_tables import EVENT_STORE
from mailmend.model.errors import BadPayload, ConfigurationRefused
from tests.support.james_queue import james_queue_rows

SECONDS = st.integers(1, 100_000) | st.sampled_from([60, 300, 900, 1_800, 3_600, 7_200, 86_400])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def configured(seconds: float, buckets: int = 1, pace: int = 1_000) -> QueueConfiguration:
    """A configuration in figures."""
    return QueueConfiguration(Slicing(timedelta(seconds=seconds), buckets), pace)


HOUR = configured(3_600)
WINDOWS_ARE = "A slice window is whole seconds, at least 1s and at most 3650d."
CONFIGURATIONS = st.builds(configured, SECONDS, st.integers(1, 5), st.integers(1, 10_000))


def refusal(current: QueueConfiguration | None, wanted: QueueConfiguration) -> ConfigurationRefused:
    """The refusal of a change; fails where there is none."""
    with pytest.raises(ConfigurationRefused) as refused:
        change(current, wanted)
    return refused.value


def test_james_s_event_is_read_and_written_to_the_byte() -> None:
    """As it stands in the event store that James 3.8.1 filled with its defaults."""
    (row,) = james_queue_rows(EVENT_STORE)

    assert configuration_of(row["event"]) == DEFAULT
    assert event_json(row["eventid"], DEFAULT) == row["event"]


@given(st.integers(0, 2**31 - 1), CONFIGURATIONS)
def test_any_event_reads_back(event_id: int, configuration: QueueConfiguration) -> None:
    """And has James's fields in James's order."""
    event = event_json(event_id, configuration)
    fields = ["eventId", "aggregateKey", "type", "bucketCount", "updateBrowseStartPace", "sliceWindow"]

    assert event_of(event_id, event) == ConfigurationEvent(event_id, configuration)
    assert list(json.loads(event)) == fields
    assert event.endswith(f'"sliceWindow":{configuration.slicing.window // SECOND}.000000000}}')


@given(CONFIGURATIONS)
def test_the_first_configuration_is_free_and_the_same_again_is_fine(configuration: QueueConfiguration) -> None:
    """Nothing is lost sight of where nothing was, or nothing changes."""
    assert change(None, configuration) == configuration
    assert change(configuration, configuration) == configuration


@given(CONFIGURATIONS, CONFIGURATIONS)
def test_the_rules_are_james_s(current: QueueConfiguration, wanted: QueueConfiguration) -> None:
    """A window not larger than the last one which divides it, buckets not fewer, the pace as one likes."""
    last, window = current.slicing.window, wanted.slicing.window
    allowed = window <= last and not last % window and wanted.slicing.buckets >= current.slicing.buckets
    if allowed:
        assert change(current, wanted) == wanted
    else:
        refusal(current, wanted)


@pytest.mark.parametrize("wanted", [configured(1_800, 2), configured(3_600, 2), configured(1_800, 1, 1), configured(1)])
def test_what_james_accepts_is_accepted(wanted: QueueConfiguration) -> None:
    """After an hour: 30 minutes and 2 buckets, as was tried on James itself."""
    assert change(HOUR, wanted) == wanted


def test_what_james_refuses_is_refused_with_a_way_out() -> None:
    """After an hour: 7 minutes and 2 hours, as was tried on James itself; a person needs the next best."""
    crooked, longer = refusal(HOUR, configured(420)), refusal(HOUR, configured(7_200))

    lost = "mails of its slices would be looked for in slices where they are not"
    assert crooked.what == f"a slice window of 7m does not divide the last one, 1h: {lost}"
    assert crooked.mend == "Allowed next to it: 6m or 10m; every window that divides 1h is."
    assert longer.what == f"a slice window of 2h is longer than the last one, 1h: {lost}"
    assert longer.mend == "Allowed next to it: 1h; every window that divides 1h is."
    assert int(crooked.exit_code) == 2


@pytest.mark.parametrize(
    ("wanted", "what", "mend"),
    [
        (
            configured(3_600, 3),
            "3 buckets are fewer than the last number, 4: mails of the others would not be looked for any more",
            "Buckets only grow: allowed are 4 or more.",
        ),
        (
            configured(3_600, 1),
            "1 bucket is fewer than the last number, 4: mails of the others would not be looked for any more",
            "Buckets only grow: allowed are 4 or more.",
        ),
        (configured(3_600, 0), "0 is no number of buckets", "Allowed: 4 or more."),
        (configured(3_600, 2**31), "2147483648 is no number of buckets", "Allowed: 4 or more."),
        (
            configured(3_600, 4, 0),
            "0 is no pace",
            "The pace is at least 1: one dequeue in that number moves the browse start.",
        ),
        (configured(0, 4), "0s is no slice window", WINDOWS_ARE),
        (configured(-60, 4), "-1m is no slice window", WINDOWS_ARE),
        (configured(0.5, 4), "0.5s is no slice window", WINDOWS_ARE),
        (configured(86_400 * 3_650 + 1, 4), "315360001s is no slice window", WINDOWS_ARE),
    ],
)
def test_each_rule_says_why_and_what_would_be_allowed(wanted: QueueConfiguration, what: str, mend: str) -> None:
    """In a sentence each."""
    refused = refusal(configured(3_600, 4), wanted)

    assert (refused.what, refused.mend) == (what, mend)


def test_everything_that_is_wrong_is_said_at_once() -> None:
    """Or a person would try three times."""
    refused = refusal(configured(3_600, 4), configured(420, 2, 0))

    assert [part.split()[0] for part in refused.what.split("; ")] == ["a", "2", "0"]
    assert refused.mend.count(".") == 3


def test_the_first_configuration_must_be_one_at_all() -> None:
    """What cannot be is refused without anything before it too."""
    assert refusal(None, configured(0)).what == "0s is no slice window"
    assert refusal(None, configured(60, 0)).mend == "Allowed: 1 or more."
    assert refusal(None, configured(60, 1, 0)).what == "0 is no pace"
    assert change(None, configured(60, 2**31 - 1, 2**31 - 1)).pace == 2**31 - 1


@given(SECONDS, SECONDS)
def test_the_nearest_windows_are_allowed_and_nothing_allowed_is_nearer(current: int, wanted: int) -> None:
    """On both sides; on the upper one there is none where more than the last was wanted."""
    assume(current % wanted)
    nearest = [window // SECOND for window in nearest_windows(timedelta(seconds=current), timedelta(seconds=wanted))]
    grain = 1 if wanted % 60 else 60
    allowed = [one for one in range(1, current + 1) if not current % one]

    for one in nearest:
        assert change(configured(current), configured(one)) == configured(one)
        side = [other for other in allowed if (other > wanted) == (one > wanted)]
        rivals = [other for other in side if not other % grain] or side
        assert abs(one - wanted) == min(abs(other - wanted) for other in rivals)
    assert [one > wanted for one in nearest] == ([False, True] if wanted < current else [False])


@pytest.mark.parametrize(
    ("current", "wanted", "nearest"),
    [
        ("3600", "420", "6m 10m"),
        ("3600", "421", "400s 450s"),
        ("3600", "2400", "30m 1h"),
        ("90", "60", "45s 90s"),
        ("90", "7", "6s 9s"),
        ("3600", "1800", "30m 1h"),
    ],
)
def test_whoever_thinks_in_minutes_is_offered_minutes(current: str, wanted: str, nearest: str) -> None:
    """Where there are any."""
    windows = nearest_windows(timedelta(seconds=int(current)), timedelta(seconds=int(wanted)))
    assert " ".join(map(window_text, windows)) == nearest


def test_the_longest_window_is_allowed_and_divided_at_once() -> None:
    """What is looked through grows with the root of the window."""
    assert change(None, configured(3_650 * 86_400)).slicing.window == timedelta(days=3_650)
    assert nearest_windows(timedelta(days=3_650), timedelta(days=3_649))[1] == timedelta(days=3_650)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"type": "another"}, "type is not cassandra-mail-queue-view-configuration"),
        ({"type": None}, "type is not"),
        ({"bucketCount": 0}, "bucketCount is not between 1 and 2147483647"),
        ({"bucketCount": True}, "bucketCount is not a whole number"),
        ({"updateBrowseStartPace": None}, "updateBrowseStartPace is missing"),
        ({"sliceWindow": 0}, "sliceWindow is not between"),
        ({"sliceWindow": 0.5}, "sliceWindow is not a whole number"),
        ({"sliceWindow": "PT1H"}, "sliceWindow is not a whole number"),
    ],
)
def test_an_event_that_cannot_be_read_is_named(changed: Mapping[str, Any], why: str) -> None:
    """By its id and the field, where to look, and what not to go on with."""
    event = json.dumps({**json.loads(event_json(3, DEFAULT)), **changed})
    with pytest.raises(BadPayload, match=f"^event 3 of CassandraMailQueueViewConfiguration in eventStore .*: {why}"):
        event_of(3, event)


@pytest.mark.parametrize(
    ("event_id", "event", "why"),
    [
        (7, None, "event is missing"),
        (7, "", "the event is not JSON"),
        (7, "[]", "the event is not a JSON object"),
        (2**31, event_json(0, DEFAULT), "eventId is not between 0 and 2147483647"),
    ],
)
def test_a_row_without_an_event_is_named_too(event_id: int, event: str | None, why: str) -> None:
    """A torn row, or one that somebody wrote by hand."""
    with pytest.raises(BadPayload, match=f"^event {event_id} of .* cannot be read: {why}"):
        event_of(event_id, event)


@pytest.mark.parametrize("window", [3_600, 3600.0])
def test_whole_seconds_are_read_however_they_are_reported(window: float) -> None:
    """A James with other settings of its writer leaves out the digits."""
    assert configuration_of(json.dumps({**json.loads(event_json(0, DEFAULT)), "sliceWindow": window})) == DEFAULT


@given(st.dictionaries(st.sampled_from(["type", "bucketCount", "updateBrowseStartPace", "sliceWindow"]), JSON))
def test_any_event_is_a_configuration_or_refused(changed: Mapping[str, Any]) -> None:
    """And what is read may be set."""
    try:
        configuration = configuration_of(json.dumps({**json.loads(event_json(0, DEFAULT)), **changed}))
    except BadPayload:
        return
    assert change(None, configuration) == configuration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (3_600, "1h"),
        (1_800, "30m"),
        (90, "90s"),
        (86_400, "1d"),
        (0, "0s"),
        (1.5, "1.5s"),
        (86_460, "1441m"),
        (1_000_001, "1000001s"),
    ],
)
def test_windows_are_reported_in_their_largest_whole_unit(seconds: float, text: str) -> None:
    """As options take them."""
    assert window_text(timedelta(seconds=seconds)) == text

"""Cron text: when it comes, daylight saving both ways, and what schedulers would read differently."""

from datetime import UTC, datetime
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.admin.jobs.cron import parse_cron
from mailmend.model.errors import WrongUse

BERLIN = ZoneInfo("Europe/Berlin")  # in 2026: 02:00 becomes 03:00 on 29 March, 03:00 becomes 02:00 on 25 October
LORD_HOWE = ZoneInfo("Australia/Lord_Howe")  # its clocks change by half an hour


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "zone", "after", "instants"),
    [
        ("30 2 * * *", BERLIN, "2026-03-27T12:00", ["2026-03-28T01:30", "2026-03-29T01:00", "2026-03-30T00:30"]),
        ("30 2 * * *", BERLIN, "2026-10-24T12:00", ["2026-10-25T00:30", "2026-10-26T01:30"]),
        ("*/30 * * * *", BERLIN, "2026-03-29T00:30", ["2026-03-29T01:00", "2026-03-29T01:30"]),
        ("*/30 * * * *", BERLIN, "2026-10-25T00:00", ["2026-10-25T00:30", "2026-10-25T01:00", "2026-10-25T01:30"]),
        ("0 4 * * *", BERLIN, "2026-03-28T12:00", ["2026-03-29T02:00"]),
        ("0 4 * * *", BERLIN, "2026-10-24T12:00", ["2026-10-25T03:00"]),
        ("15 2 * * *", LORD_HOWE, "2026-10-02T12:00", ["2026-10-02T15:45", "2026-10-03T15:30", "2026-10-04T15:15"]),
        (
            "0 12 1 * MON",
            ZoneInfo("UTC"),
            "2026-08-29T00:00",
            ["2026-08-31T12:00", "2026-09-01T12:00", "2026-09-07T12:00"],
        ),
        ("0 0 * * 7", ZoneInfo("UTC"), "2026-08-29T00:00", ["2026-08-30T00:00"]),
        ("0 0 29 2 *", ZoneInfo("UTC"), "2026-08-29T00:00", ["2028-02-29T00:00"]),
    ],
)
def test_a_schedule_comes_when_its_zones_clocks_say_so(
    text: str, zone: ZoneInfo, after: str, instants: list[str]
) -> None:
    found = list(islice(parse_cron(text).after(instant(after), zone), len(instants)))

    assert found == [instant(one) for one in instants]
    assert {one.tzinfo for one in found} == {UTC}
    for one, following in pairwise(found):
        assert next(parse_cron(text).before(following, zone)) == one


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("30 2 * * *", "30 2 * * *"),
        ("*/20 1-3 * jan,jul mon-fri", "0,20,40 1,2,3 * 1,7 1,2,3,4,5"),
        ("0 0 * * 7", "0 0 * * 0"),
        ("0 0 * * 0-7", "0 0 * * *"),
        ("0 0 1,15 * FRI", "0 0 1,15 * 5"),
        ("0 0 1 * 0-6", "0 0 * * *"),
        ("0 0 1-31 * MON", "0 0 * * *"),
        ("0 0 */10 * *", "0 0 1,11,21,31 * *"),
        ("* * * * *", "* * * * *"),
    ],
)
def test_a_schedule_is_written_in_numbers(text: str, plain: str) -> None:
    assert parse_cron(text).plain == plain


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has 0 fields"),
        ("@hourly", "has 1 fields"),
        ("0 30 2 * * *", "has 6 fields"),
        ("60 2 * * *", "Bad minute"),
        ("30 24 * * *", "Bad hour"),
        ("30 2 0 * *", "Bad day-of-month"),
        ("30 2 * 13 *", "Bad month"),
        ("30 2 * * 8", "Bad day-of-week"),
        ("30 2 * * 5-1", "Bad day-of-week"),
        ("*/0 2 * * *", "Bad minute"),
        ("5/15 2 * * *", "'5/15' is not the minute of a schedule"),
        ("30 2/3 * * *", "'2/3' is not the hour of a schedule"),
        ("30 2 * JANUARY *", "'JANUARY' is not the month of a schedule"),
        ("30 2 L * *", "'L' is not the day of month"),
        ("30 2 * * 5L", "is not the day of week"),
        ("30 2 ? * MON", "is not the day of month"),
        ("30 2 * * MON#2", "is not the day of week"),
        ("30 2 */2 * MON", "a step in one field of days"),
        ("30 2 1 * */2", "a step in one field of days"),
        ("30 2 30 2 *", "Bad day-of-month"),
        ("30 2 31 4,6 *", "Bad day-of-month"),
    ],
)
def test_what_is_no_schedule_or_not_the_same_to_all_is_refused(text: str, said: str) -> None:
    with pytest.raises(WrongUse, match=said) as refused:
        parse_cron(text)

    assert refused.value.mend


def test_a_schedule_of_too_few_fields_is_refused_with_an_example() -> None:
    with pytest.raises(WrongUse) as refused:
        parse_cron("30 2")

    assert refused.value.mend == (
        "Write five fields: minute, hour, day of month, month, day of week; '30 2 * * *' is 02:30 each day."
    )


FIELDS = [(0, 59), (0, 23), (1, 28), (1, 12), (0, 6)]


def field(least: int, most: int) -> st.SearchStrategy[str]:
    one = st.integers(least, most)
    ranges = st.tuples(one, one).map(lambda pair: f"{min(pair)}-{max(pair)}")
    return st.one_of(st.just("*"), st.lists(st.one_of(one.map(str), ranges), min_size=1, max_size=3).map(",".join))


@given(
    st.tuples(*(field(*span) for span in FIELDS)).map(" ".join),
    st.datetimes(datetime(2026, 1, 1), datetime(2027, 12, 31)),  # noqa: DTZ001 - Hypothesis wants naive bounds
)
def test_the_same_schedule_in_numbers_comes_at_the_same_instants(text: str, at: datetime) -> None:
    cron, after = parse_cron(text), at.replace(tzinfo=UTC)

    found, again = (list(islice(one.after(after, ZoneInfo("UTC")), 3)) for one in (cron, parse_cron(cron.plain)))

    assert found == again

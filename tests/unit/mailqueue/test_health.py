"""When a queue is unwell: each rule at its edge, and none of them where there is nothing to know."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from mailmend.mailqueue.broker import Depth
from mailmend.mailqueue.metrics import BROWSE_START_AGE_MAX, QueueFigures, judged, marks_that_stay
from mailmend.mailqueue.rules.health import HealthProblem, days
from mailmend.model.ids import QueueName

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
HOUR, DAY, MOMENT = timedelta(hours=1), timedelta(days=1), timedelta(microseconds=1)
WELL = QueueFigures(
    QueueName("spool"),
    NOW,
    mails=3,
    oldest_at=NOW - HOUR,
    browse_start=NOW - HOUR,
    content_start=NOW - HOUR,
    furthest_start=NOW - HOUR,
    swept_at=NOW - HOUR,
    row_ttl=8 * DAY,
    slack=3 * DAY,
    depth=Depth(ready=3, unacked=0, consumers=1, dead=0),
)


def problems(figures: QueueFigures) -> list[HealthProblem]:
    return [reason.trouble for reason in judged(figures)]


def test_a_queue_that_works_is_well() -> None:
    assert judged(WELL) == ()


def test_where_little_is_known_nothing_is_made_up() -> None:
    """A keyspace of James without our tables, a broker that was not asked."""
    assert judged(QueueFigures(QueueName("spool"), NOW, remembers=False)) == ()


@pytest.mark.parametrize(
    ("problem", "fine", "wrong"),
    [
        (
            HealthProblem.BROWSE_START_OLD,
            {"browse_start": NOW - BROWSE_START_AGE_MAX, "furthest_start": None},
            {"browse_start": NOW - BROWSE_START_AGE_MAX - MOMENT, "furthest_start": None},
        ),
        (HealthProblem.MOVED_BACK, {"furthest_start": NOW - HOUR}, {"furthest_start": NOW - HOUR + MOMENT}),
        (HealthProblem.NOT_SWEPT, {"swept_at": NOW - 1.5 * DAY}, {"swept_at": NOW - 1.5 * DAY - MOMENT}),
        (HealthProblem.STAYS_TOO_LONG, {"oldest_at": NOW - 5 * DAY}, {"oldest_at": NOW - 5 * DAY - MOMENT}),
        (HealthProblem.MARKS_EXPIRE_FIRST, {"marks_outlive_rows": True}, {"marks_outlive_rows": False}),
        (HealthProblem.DEAD_LETTERS, {"depth": Depth(3, 0, 1, 0)}, {"depth": Depth(3, 0, 1, 1)}),
        (HealthProblem.BROKER_AWAY, {"depth": None}, {"depth": None, "broker_away": "refused"}),
        (
            HealthProblem.BROKER_ALARM,
            {"depth": Depth(3, 0, 1, 0)},
            {"depth": Depth(3, 0, 1, 0, alarms=("disk on a@b",))},
        ),
        (HealthProblem.NO_CONSUMER, {"depth": Depth(0, 0, 0, 0)}, {"depth": Depth(1, 0, 0, 0)}),
        (HealthProblem.LACKS_MESSAGE, {"lacking": 0}, {"lacking": 1}),
    ],
)
def test_each_rule_at_its_edge(problem: HealthProblem, fine: dict[str, object], wrong: dict[str, object]) -> None:
    """Up to the edge it is well, beyond it exactly this is said, with the next command."""
    assert judged(replace(WELL, **fine)) == ()  # type: ignore[arg-type]
    (reason,) = judged(replace(WELL, **wrong))  # type: ignore[arg-type]
    assert reason.trouble is problem
    assert reason.what
    assert reason.mend


def test_mails_without_messages_that_nobody_takes_are_two_reasons() -> None:
    """Nothing is ready, and mails wait all the same; the next command says what is lost."""
    lacks, idle = judged(replace(WELL, lacking=202, depth=Depth(0, 0, 0, 0)))

    assert (lacks.trouble, idle.trouble) == (HealthProblem.LACKS_MESSAGE, HealthProblem.NO_CONSUMER)
    assert lacks.mend.startswith("mailmend queue reconcile --queue spool")
    assert idle.what == "202 mails wait, and no consumer takes any"


def test_a_mail_without_message_is_named_though_a_dead_letter_may_be_its_own() -> None:
    """The broker counts dead letters and does not say whose they are: as many mails lacked their message in silence."""
    dead, lacks = judged(replace(WELL, lacking=0, lacking_at_most=1, depth=Depth(3, 0, 1, 1)))

    assert (dead.trouble, lacks.trouble) == (HealthProblem.DEAD_LETTERS, HealthProblem.LACKS_MESSAGE)
    assert lacks.what == "1 mails wait that have at most a dead letter: the broker will not deliver them"
    assert lacks.mend.startswith("mailmend queue reconcile --queue spool")


def test_a_queue_that_was_never_swept_counts_from_its_browse_start() -> None:
    """A young one is fine, one that is older than half the slack is not."""
    young = replace(WELL, swept_at=None, browse_start=NOW - DAY, furthest_start=None)
    old = replace(young, browse_start=NOW - 2 * DAY)

    assert (problems(young), problems(old)) == ([], [HealthProblem.NOT_SWEPT])
    assert "nothing was ever swept" in judged(old)[0].what


def test_without_a_time_to_live_nothing_expires() -> None:
    """James's own tables: no sweep is urgent, no mail too old for its table."""
    ours = replace(WELL, row_ttl=None, slack=None, swept_at=NOW - 90 * DAY, oldest_at=NOW - 90 * DAY)

    assert judged(ours) == ()


@pytest.mark.parametrize(
    ("span", "said"),
    [
        (timedelta(seconds=59.4), "59 s"),
        (timedelta(minutes=1), "1 min"),
        (timedelta(minutes=1.25), "1.2 min"),
        (timedelta(hours=1), "1 h"),
        (DAY, "1 d"),
        (timedelta(minutes=90), "1.5 h"),
        (timedelta(minutes=5), "5 min"),
        (9.25 * DAY, "9.2 d"),
        (10 * DAY, "10 d"),
    ],
)
def test_a_length_of_time_is_said_in_its_largest_unit(span: timedelta, said: str) -> None:
    assert days(span) == said


def test_marks_that_never_expire_are_numbered_where_the_nodes_tell_and_their_cleanup_is_named() -> None:
    assert "stay, about 17,700,000 of all queues, and" in marks_that_stay(17_700_000)
    assert "stay and the table grows" in marks_that_stay(None)
    assert "mailmend repair queues --marks" in marks_that_stay(None)

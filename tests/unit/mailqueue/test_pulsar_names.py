"""The names of topics and subscriptions are James's, as its golden data have them."""

from mailmend.mailqueue.pulsar import settings as names
from mailmend.mailqueue.pulsar.settings import PulsarForm
from mailmend.model.ids import QueueName
from tests.support.james_pulsar import messages

QUEUE = QueueName("golden")


def test_topics_are_jamess_own() -> None:
    ours = {
        f"persistent://public/default/{name(QUEUE)}"
        for name in (
            names.out_topic,
            names.scheduled_topic,
            names.filter_topic,
            names.filter_scheduled_topic,
            names.dead_topic,
        )
    }
    assert {one["topic"] for one in messages(PulsarForm.JAMES_3_9)} == ours


def test_a_topic_of_dead_letters_is_no_queue() -> None:
    """James lists it as one."""
    topics = [names.out_topic(QUEUE), names.dead_topic(QUEUE), names.scheduled_topic(QUEUE), "James-", "James-a-DLQ"]
    assert names.queues_among(topics) == ["a-DLQ", "golden"]

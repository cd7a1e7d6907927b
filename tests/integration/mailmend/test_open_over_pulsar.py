"""`mailmend.open` and `open_async` give queues over a real Pulsar."""

import asyncio
import os
from pathlib import Path

import pytest

import mailmend
from tests.support.pulsars import RealPulsar

pytestmark = [pytest.mark.pulsar, pytest.mark.thorough]

CONTENT = b"Subject: hello\r\n\r\nGood day.\r\n"


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings but those of the test."""
    for name in list(os.environ):
        if name.startswith(("MAILMEND_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_a_mail_that_one_program_enqueues_is_taken_by_another(pulsar: RealPulsar, tmp_path: Path) -> None:
    """The first has no loop of its own, the second has one; both name the queue, and no Cassandra is asked."""
    with pulsar.namespace() as namespace:
        settings: mailmend.OpenSettings = {
            "broker": f"{namespace.settings.service}/{namespace.name}",
            "broker_management": namespace.settings.admin,
            "blobs": f"file://{tmp_path}/blobs",
        }
        envelope = mailmend.Mail("greeting", ("bob@example.org",), "ann@example.org")

        async def put(mail: mailmend.Mailmend) -> mailmend.EnqueueId:
            async with mail.queue("outgoing") as queue:
                return await queue.enqueue(envelope, CONTENT)

        async def taken() -> tuple[mailmend.EnqueueId, tuple[str, ...], bytes, int]:
            async with mailmend.open_async(**settings) as mail, mail.queue("outgoing") as queue:
                async with queue.dequeue() as mails:
                    dequeued = await anext(mails)
                    await dequeued.ack()
                size = await queue.size()
                return dequeued.enqueue_id, dequeued.mail.recipients, dequeued.content, size.mails

        with mailmend.open(**settings) as mail:
            enqueued = asyncio.run(put(mail))

        assert asyncio.run(taken()) == (enqueued, ("bob@example.org",), CONTENT, 0)

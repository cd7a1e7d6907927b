"""Every command of the pages about queues over Pulsar, typed as it stands, in exactly the state that they describe."""

from dataclasses import replace
from pathlib import Path

import pytest

from mailmend.admin.frame.runbooks import page_named
from tests.support.pulsars import RealPulsar
from tests.support.queue_pages import PULSAR_PAGES, walk
from tests.support.real_queue import RealQueue

pytestmark = [pytest.mark.cassandra, pytest.mark.broker, pytest.mark.object_store]

_MOVES = "move-a-queue"
"""Its commands wait for more mail again and again.

`tests/faults/admin/queue/test_queue_moving.py` moves in the quick set.
"""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.thorough] * (name == _MOVES)) for name in PULSAR_PAGES]
)
def test_every_command_does_what_its_page_says(
    queue: RealQueue, pulsar: RealPulsar, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Walked from top to bottom, each command ends with the code that the page promises.

    The page about moving names both brokers; the others take theirs from the settings.
    """
    monkeypatch.chdir(tmp_path)
    known = dict(queue.line.environment)
    rabbitmq, _ = known["MAILMEND_BROKER"], known.pop("MAILMEND_BROKER_PASSWORD")
    with pulsar.namespace() as namespace:
        over_pulsar = namespace.environment(known)
        environment = known if name == _MOVES else over_pulsar
        shell = replace(queue, line=replace(queue.line, environment=environment))
        PULSAR_PAGES[name](shell, namespace)
        addresses = {
            "$RABBITMQ": rabbitmq,
            "$PULSAR_ADMIN": over_pulsar["MAILMEND_BROKER_MANAGEMENT"],
            "$PULSAR": over_pulsar["MAILMEND_BROKER"],
        }
        steps = page_named(name).steps()
        for placeholder, address in addresses.items():
            steps = tuple(one._replace(command=one.command.replace(placeholder, address)) for one in steps)

        walk(shell, steps)

"""`mailmend check queues` on a real Cassandra and a real Pulsar."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.pulsars import RealPulsar
from tests.support.real_queue import RealQueue

pytestmark = [pytest.mark.cassandra, pytest.mark.broker, pytest.mark.object_store]


def test_a_mail_of_a_topic_that_has_lost_its_bytes_is_found(
    queue: RealQueue, pulsar: RealPulsar, tmp_path: Path
) -> None:
    """Beside the queues of the tables; a delayed one has lost them too, and one that is whole is none of it."""
    with pulsar.namespace() as namespace:
        environment = namespace.environment(queue.line.environment) | {"MAILMEND_BLOBS": f"file://{tmp_path}/blobs"}
        over_pulsar = replace(queue, line=replace(queue.line, environment=environment))

        def checked() -> dict[str, dict[str, int]]:
            ended = over_pulsar.line("check", "queues", "--delay", "1s", "--engine", "local", "--json")
            assert ended.code == (1 if ended.json["findings"] else 0), ended.err
            return dict(ended.json["findings"])

        over_pulsar.put("waits")
        over_pulsar.put("delayed", options=("--due-in", "1h"))
        assert checked() == {}

        blobs = [one for one in (tmp_path / "blobs").rglob("*") if one.is_file()]
        for blob in blobs:
            blob.unlink()
        over_pulsar.put("whole")

        assert len(blobs) == 4
        assert checked() == {"James-spool": {"BLOBS_GONE": 1}, "spool-scheduled": {"BLOBS_GONE": 1}}

"""What each process of `delivery serve --processes N` is asked: equal parts, a name, a port, a file of metrics."""

from pathlib import Path
from typing import Any

import pytest

from mailmend.admin.delivery.serve_request import DeliveryRequest
from mailmend.admin.frame.http.access import HttpFace, Listening
from mailmend.admin.frame.settings import ConnectionSettings, QueueSettings
from mailmend.model.errors import WrongUse
from mailmend.model.ids import QueueName


def asked(processes: int, **options: Any) -> list[DeliveryRequest]:
    """What each process is asked."""
    settings = QueueSettings(ConnectionSettings(keyspace="mail"), QueueName("spool"))
    request = DeliveryRequest(settings=settings, processes=processes, **options)
    return [request.of_worker(number) for number in range(1, processes + 1)]


def test_numbers_of_the_whole_server_are_divided() -> None:
    """But for connections of one address: they spread unevenly."""
    workers = asked(3, concurrency=100, prefetch=50, listen_connections=10, domain_concurrency=8)
    assert [worker.concurrency for worker in workers] == [34, 33, 33]
    assert [worker.prefetch for worker in workers] == [17, 17, 16]
    assert [worker.listen_connections for worker in workers] == [4, 3, 3]
    assert [worker.of_one_domain for worker in workers] == [3, 3, 2]
    assert {worker.listen_connections_by_address for worker in workers} == {20}
    assert sum(worker.delivery().bytes_at_once_max for worker in workers) <= 268_435_456


def test_a_domain_has_one_attempt_in_each_process_at_least_and_no_limit_stays_none() -> None:
    assert [worker.of_one_domain for worker in asked(4, domain_concurrency=2)] == [1, 1, 1, 1]
    assert [worker.of_one_domain for worker in asked(2, domain_concurrency=0)] == [0, 0]
    assert [worker.of_one_domain for worker in asked(2)] == [10, 10]


def test_each_process_is_a_server_with_a_name_of_its_own() -> None:
    """The first keeps the name that a server alone has, so that its part of the limits is its own."""
    settings = [worker.delivery() for worker in asked(3, server_name="out")]
    assert [one.server_name for one in settings] == ["out", "out-2", "out-3"]
    assert all(one.insists_on_name for one in settings)


def test_each_process_answers_at_a_port_and_writes_a_file_of_its_own() -> None:
    face = HttpFace(print, None, Listening("127.0.0.1", 8000))
    workers = asked(2, face=face, metrics=Path("/var/lib/delivery.prom"))
    ports = [worker.face.listening.port for worker in workers if isinstance(worker.face, HttpFace)]
    assert ports == [8000, 8001]
    assert [str(worker.metrics) for worker in workers] == ["/var/lib/delivery-1.prom", "/var/lib/delivery-2.prom"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"concurrency": 2}, "--concurrency 2 is less than --processes 3"),
        ({"prefetch": 1}, "--prefetch 1 is less than --processes 3"),
        ({"listen_connections": 2}, "--listen-connections 2 is less than --processes 3"),
        ({"face": HttpFace(print, None, Listening("127.0.0.1", 65_534))}, "process 3 would answer at port 65536"),
    ],
)
def test_what_leaves_a_process_with_nothing_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(WrongUse, match=said):
        asked(3, **options)

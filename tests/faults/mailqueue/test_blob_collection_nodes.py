"""`repair blobs` on three nodes: with two of them down what refers to blobs cannot be read, so nothing is removed."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid1, uuid4

import pytest

from mailmend.cql.driver.session import Keyspace, connect
from mailmend.cql.render import in_every_data_centre, keyspace_cql, schema_cql
from mailmend.mailqueue.collection.scan import LocalBlobScanner
from mailmend.model.catalog.mail import MESSAGE_V3
from mailmend.model.instants import MICROS
from mailmend.model.operations import Put, Scan
from mailmend.repair.clock import SystemClock
from tests.support.commands import command_line, contact_of
from tests.support.keyspaces import MAIL, end_leases
from tests.support.s3_twin import s3_twin
from tests.support.servers import CassandraServer, ThreeNodes

pytestmark = [pytest.mark.cassandra, pytest.mark.thorough]

AGAIN_SECONDS = 60.0
"""How long the nodes may need until they serve again."""


def referred_to(blob: str, tables: Keyspace) -> str:
    """A message of a month ago that refers to that blob."""
    written = round((datetime.now(UTC) - timedelta(days=30)).timestamp() * MICROS)
    tables.write(Put(MESSAGE_V3, {"messageid": uuid1(), "headercontent": blob, "bodycontent": blob}, at=written))
    return blob


@pytest.mark.parametrize("look", ["first", "second"])
def test_one_node_may_be_down_and_two_may_not(
    three_nodes: ThreeNodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: str
) -> None:
    """The second goes at a look: exit 4, no blob has gone; back, the same command removes what nothing refers to."""
    server, name = CassandraServer(three_nodes.hosts[0], three_nodes.port), three_nodes.keyspace()
    with connect(contact_of(server)) as cluster, s3_twin() as twin:
        cluster.execute_ddl(keyspace_cql(name, in_every_data_centre(3)))
        for text in schema_cql(name, MAIL):
            cluster.execute_ddl(text)
        needed = referred_to(f"1_600_{uuid4()}", cluster.keyspace(name))
        gone = {f"1_600_{uuid4()}" for _ in range(7)}
        twin.objects |= dict.fromkeys({needed, *gone}, b"x")
        mailmend = command_line(
            tmp_path,
            server,
            MAILMEND_KEYSPACE=name,
            MAILMEND_LEDGER_KEYSPACE=f"{name}_ledger",
            MAILMEND_BLOBS=f"s3://{twin.bucket}?endpoint={twin.endpoint}",
            MAILMEND_S3_ACCESS_KEY="AKIATEST",
            MAILMEND_S3_SECRET_KEY="secret",
        )
        command = ("repair", "blobs", "--engine", "local", "--delay", "0s", "--no-broker", "--json")
        looked = getattr(LocalBlobScanner, look)

        def another_goes(*given: Any, **named: Any) -> Any:
            three_nodes.stop(2)
            return looked(*given, **named)

        three_nodes.stop(3)
        assert mailmend(*command, "--dry-run").json["findings"] == {"KEEP": 1, "COLLECT": len(gone)}
        with monkeypatch.context() as patch:
            patch.setattr(LocalBlobScanner, look, another_goes)
            refused = mailmend(*command)

        assert (refused.code, refused.out) == (4, ""), f"{refused.out}\n{refused.err}"
        assert "replica" in refused.err
        assert "Traceback" not in refused.err
        assert set(twin.objects) == {needed, *gone}
        assert not list(tmp_path.rglob("removed-*.jsonl"))

        three_nodes.start_all()
        end_leases(cluster.keyspace(f"{name}_ledger"))
        ended, until = mailmend(*command), SystemClock().monotonic() + AGAIN_SECONDS
        while ended.code and SystemClock().monotonic() < until:
            ended = mailmend(*command)
        assert (ended.code, ended.json["removed"]) == (0, len(gone)), f"{ended.out}\n{ended.err}"
        assert set(twin.objects) == {needed}
        rows = cluster.keyspace(name).scan(Scan(MESSAGE_V3, ("headercontent",)))
        assert [row["headercontent"] for row in rows] == [needed]

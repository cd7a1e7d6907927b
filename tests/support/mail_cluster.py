"""A cluster as `advise` meets it: mail of a year, and a queue where its tables are there."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from mailmend.admin.frame.cluster import OpenCluster
from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.cql.schema.generations import JAMES_3_9
from mailmend.mailqueue.rules.configuration import DEFAULT, event_json
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Scan
from mailmend.model.table import Column, Kind, Row, Table
from tests.support.clock import VirtualClock
from tests.support.histories import histories
from tests.support.nodes_twin import Node, NodesTwin
from tests.support.schemas import served

MAILBOXES, EACH = 3, 20
JAMES = served(JAMES_3_9.schema)
EVENT = event_json(0, DEFAULT)
QUEUE = Table("enqueuedmailsv4", (Column("queuename", "text", Kind.PARTITION),))


class MailCluster(NodesTwin):
    """A cluster with mail of a year, and with a queue where its tables are there."""

    def __init__(self, live: Schema, *nodes: Node, mailboxes: int = MAILBOXES) -> None:
        super().__init__(*(nodes or (Node("10.0.0.1"),)), clock=VirtualClock(), mail=live)
        self.event = EVENT
        self.hour = self.clock.micros() // 3_600_000_000 * 3_600
        tables = self.keyspace("mail")
        for writes in histories(mailboxes, EACH, days=365, until=self.clock.micros()):
            tables.write_all(writes)

    def query(self, text: str, values: Sequence[Any] = ()) -> Sequence[Row]:
        table = text.partition(" FROM mail.")[2].partition(" ")[0]
        if not table:
            return super().query(text, values)
        if "count(*)" in text:
            return [{"mails": 7_200}]
        start = datetime.fromtimestamp(self.hour - 3_600, UTC)
        rows: Mapping[str, Sequence[Row]] = {
            "enqueuedmailsv4": [{"queuename": "spool", "timerangestart": start, "bucketid": 0}],
            "eventstore": [{"event": self.event}],
            "imapuidtable": list(self.keyspace("mail").scan(Scan(JAMES_TABLE, ("messageid",)))),
        }
        return rows.get(table, ())

    def place(self, keyspace: str = "mail") -> OpenCluster:
        return OpenCluster(ConnectionSettings(keyspace=keyspace), cast("Any", self), cast("Any", self.clock))


JAMES_TABLE = next(table for table in JAMES_3_9.schema.tables if table.name == "imapuidtable")

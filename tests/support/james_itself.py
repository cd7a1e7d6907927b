"""James's own mail queue beside ours: a Java process with James 3.8.1's classes, asked by lines.

The Java side is `tests/james/JamesQueue.java`; its classes come from the public Maven repository, pinned by checksum as
Cassandra's do. One process serves a whole test run; each story opens it on servers of its own.
"""

import base64
import json
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any, Final

from mailmend.mailqueue.rules.configuration import QueueConfiguration
from mailmend.mailqueue.rules.mails import Mail, RecipientHeader
from mailmend.model.catalog.james_tables import BLOB_PARTS, BLOBS, EVENT_STORE
from mailmend.model.catalog.mail_queue import OWN_QUEUE_TABLES, QUEUE_TABLES
from mailmend.model.keyspace import Schema
from mailmend.model.table import Column, Kind, Table
from tests.support.brokers import Broker, eventually
from tests.support.servers import CassandraServer

SOURCE: Final = Path(__file__).parents[1] / "james" / "JamesQueue.java"

_P, _C = Kind.PARTITION, Kind.CLUSTERING
_IN_BUCKET: Final = (
    Table("blobsInBucket", (Column("bucket", "text", _P), Column("id", "text", _P), Column("position", "int", _C))),
    Table(
        "blobPartsInBucket",
        (
            Column("bucket", "text", _P),
            Column("id", "text", _P),
            Column("chunkNumber", "int", _C),
            Column("data", "blob"),
        ),
    ),
)
"""What James's blobs in Cassandra need besides: tables of other buckets, which stay empty."""

TABLES: Final = Schema((), (*QUEUE_TABLES, EVENT_STORE, BLOBS, BLOB_PARTS, *_IN_BUCKET))
"""A keyspace in which both work."""

OF_JAMES: Final = Schema(
    (),
    tuple(
        replace(table, options={**table.options, "default_time_to_live": "0"})
        for table in TABLES.tables
        if table not in OWN_QUEUE_TABLES
    ),
)
"""One that James made: no table of ours, and nothing expires."""

_CONTENT: Final = b"Subject: x\r\n\r\nx"
_END_SECONDS_MAX: Final = 30
_OPTIONS: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dfile.encoding=UTF-8")


class JamesRefused(Exception):
    """James answered with an error.

    Attributes:
        kind: the Java class of the error.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind, self.message = kind, message


@dataclass(frozen=True, slots=True)
class Given:
    """A mail as James handed it out, or is to be handed."""

    mail: Mail
    content: bytes


@dataclass(frozen=True, slots=True)
class Place:
    """Where a story takes place."""

    cassandra: CassandraServer
    keyspace: str
    broker: Broker
    vhost: str


@dataclass(slots=True)
class JamesItself:
    """The process.

    Attributes:
        place: where it is started; None: nowhere.
    """

    process: "subprocess.Popen[bytes]"
    place: Place | None = None

    def ask(self, what: str, **fields: Any) -> Any:
        """Ask, and wait for the answer.

        Raises:
            JamesRefused: James raised an error.
        """
        line = json.dumps({"ask": what, **fields}).encode() + b"\n"
        _pipe(self.process.stdin).write(line)
        _pipe(self.process.stdin).flush()
        answer = json.loads(_pipe(self.process.stdout).readline() or b'{"error": "Ended", "message": "James is gone"}')
        if "error" in answer:
            raise JamesRefused(answer["error"], answer["message"])
        return answer["answer"]

    def open(self, place: Place, cut: QueueConfiguration, *, deduplicated: bool = False) -> None:
        """Start James on those servers, with the start-up check of its server; no queue is in use yet.

        Raises:
            JamesRefused: the check refused, or a server did not answer.
        """
        self.place = None
        self.ask(
            "open",
            cassandra_host=place.cassandra.host,
            cassandra_port=place.cassandra.port,
            local_dc=place.cassandra.local_dc,
            keyspace=place.keyspace,
            broker=f"{place.broker.host}:{place.broker.port}",
            management=f"{place.broker.host}:{place.broker.management_port}",
            vhost=place.vhost,
            user=place.broker.user,
            password=place.broker.password,
            deduplicated=deduplicated,
            **_cut(cut),
        )
        self.place = place

    def check(self, cut: QueueConfiguration) -> None:
        """The start-up check of a server that is cut like that.

        Raises:
            JamesRefused: the change would lose sight of mails.
        """
        self.ask("check", **_cut(cut))

    def use(self, queue: str, prefetch: int = 5, *, later: timedelta = timedelta()) -> None:
        """Create or find the queue; what follows is about it, and it is so much later than it is."""
        self.ask("use", queue=queue, prefetch=prefetch, seconds=round(later.total_seconds()))

    def close(self) -> None:
        self.place = None
        self.ask("close")

    def enqueue(self, *mails: Given) -> None:
        self.ask("enqueue", mails=[_reported(one) for one in mails])

    def browse(self) -> list[Given]:
        return [_given(one) for one in self.ask("browse")]

    def names(self) -> list[str]:
        return [one.mail.name for one in self.browse()]

    def size(self) -> int:
        size: int = self.ask("size")
        return size

    def take(self, enough: Callable[[Sequence[Given]], bool], status: str = "SUCCESS", at_once: int = 1) -> list[Given]:
        """Consume until that is enough; what was taken. `status` is James's word for what becomes of each."""
        self.consume(status, at_once)
        try:
            eventually(lambda: enough(self.taken()))
        finally:
            taken = self.stop()
        return taken

    def consume(
        self, status: str = "SUCCESS", at_once: int = 1, at_most: int = 1_000_000, *, whole: bool = True
    ) -> None:
        """Begin to consume; of mails that are not taken whole only the names are kept, see `taken_names`."""
        self.ask("consume", status=status, at_once=at_once, at_most=at_most, whole=whole)

    def fill(self, name: str, mails: int, at_once: int = 8) -> None:
        """Enqueue so many mails, called by that name and their numbers."""
        self.ask("fill", name=name, mails=mails, at_once=at_once, content=base64.b64encode(_CONTENT).decode())

    def taken_names(self) -> list[str]:
        """Stop consuming mails that are not taken whole."""
        names: list[str] = self.ask("stop")
        return names

    def taken(self) -> list[Given]:
        return [_given(one) for one in self.ask("taken")]

    def stop(self) -> list[Given]:
        return [_given(one) for one in self.ask("stop")]


@contextmanager
def james_process(classpath: str, java: Path, log: Path) -> Iterator[JamesItself]:
    """The process, ended with the block; what James logs goes into a file."""
    with log.open("wb") as output:
        command = [str(java), *_OPTIONS, "-cp", classpath, str(SOURCE)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output)
        try:
            yield JamesItself(process)
        finally:
            with suppress(BrokenPipeError):
                _pipe(process.stdin).close()
            _ended(process)
            _pipe(process.stdout).close()


def _ended(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.wait(_END_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


def _cut(cut: QueueConfiguration) -> Mapping[str, int]:
    window = round(cut.slicing.window.total_seconds())
    return {"buckets": cut.slicing.buckets, "pace": cut.pace, "window": window}


def _reported(given: Given) -> Mapping[str, Any]:
    mail = given.mail
    return {
        "name": mail.name,
        "sender": mail.sender,
        "recipients": mail.recipients,
        "state": mail.state,
        "error_message": mail.error_message,
        "remote_addr": mail.remote_addr,
        "remote_host": mail.remote_host,
        "last_updated": (mail.last_updated or datetime.now(UTC)).astimezone(UTC).isoformat().replace("+00:00", "Z"),
        "attributes": dict(mail.attributes),
        "recipient_headers": [(one.recipient, one.name, one.value) for one in mail.recipient_headers],
        "content": base64.b64encode(given.content).decode(),
    }


def _given(described: Mapping[str, Any]) -> Given:
    mail = Mail(
        name=described["name"],
        recipients=tuple(described["recipients"]),
        sender=described["sender"],
        state=described["state"],
        error_message=described["error_message"],
        remote_addr=described["remote_addr"],
        remote_host=described["remote_host"],
        last_updated=datetime.fromisoformat(described["last_updated"]),
        attributes=described["attributes"],
        recipient_headers=tuple(RecipientHeader(*one) for one in described["recipient_headers"]),
    )
    return Given(mail, base64.b64decode(described["content"]))


def _kinds() -> dict[str, str]:
    """One attribute of each of James's kinds, those that it writes into rows and messages."""
    one = {"serializer": "IntSerializer", "value": 1}
    values: dict[str, object] = {
        "Boolean": True,
        "Bytes": "AAHI",
        "Collection": [one, {"serializer": "StringSerializer", "value": "ü"}],
        "Date": "2026-09-21T14:13:20.29Z",
        "Double": 0.5,
        "Float": 1.5,
        "Int": -7,
        "Long": 2**40,
        "Map": {"k": one},
        "Optional": one,
        "String": 'vé "0" \N{SNOWMAN}',
        "Url": "http://x.test/",
    }
    texts = ((kind, {"serializer": f"{kind}Serializer", "value": value}) for kind, value in values.items())
    return {f"kind.{kind}": json.dumps(text, ensure_ascii=False, separators=(",", ":")) for kind, text in texts}


MAILS: Final[Sequence[Given]] = (
    Given(
        Mail(
            name="every kind",
            recipients=("a@x.test", "b.c+d@y.test"),
            state="transport",
            error_message="no, thrice\nno \N{SNOWMAN}",
            remote_addr="10.0.0.7",
            remote_host="host.test",
            last_updated=datetime(2026, 9, 21, 14, 13, 20, 290000, UTC),
            attributes=_kinds(),
            recipient_headers=(
                RecipientHeader("a@x.test", "X-One", "o: é"),
                RecipientHeader("a@x.test", "X-Two", "1"),
                RecipientHeader("a@x.test", "X-Two", "2"),
                RecipientHeader("b.c+d@y.test", "X-One", "other"),
            ),
        ),
        b"From: <>\r\nSubject: =?utf-8?q?=C3=BC?=\r\nX: folded\r\n and on\r\n\r\n\x00\xff\xfe bytes\r\n.\r\nno end",
    ),
    Given(
        Mail("ünï \N{SNOWMAN}", ("to@x.test",), "from@x.test", last_updated=datetime(2026, 9, 21, tzinfo=UTC)),
        b"Subject: long\r\n\r\n" + b"0123456789abcde\n" * 16384,
    ),
    Given(
        Mail("no body", ("to@x.test",), "from@x.test", last_updated=datetime(2026, 9, 21, tzinfo=UTC)),
        b"Subject: no body\r\n\r\n",
    ),
)
"""Every kind of attribute, odd names and long contents: what each side must bring as the other put it."""

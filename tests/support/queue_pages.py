"""The states that the queue's runbook pages describe, brought about on real servers, and a walk through a page."""

import os
import re
import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from mailmend.admin.frame.runbooks import RunbookStep
from mailmend.cql.applying import ensure_ledger
from mailmend.mailqueue.rules.slices import slice_of
from mailmend.model.catalog.mail_queue import BROWSE_START, CONTENT_START, DELETED_MAILS, ENQUEUED_MAILS
from mailmend.model.instants import MICROS
from mailmend.model.operations import Change, Put, Remove, Scan
from tests.support.attempts import START, attempt, rows_of
from tests.support.patience import PATIENCE_SECONDS
from tests.support.pulsars import PulsarNamespace
from tests.support.real_queue import LETTER, RealQueue

HOUR = timedelta(hours=1)
YOUNG = f"1_600_{uuid4()}"
"""A blob of today that nothing refers to."""
_PROMISED = re.compile(r"#\s*exit (\d+)")


def rows(queue: RealQueue) -> list[dict[str, Any]]:
    return [dict(row) for row in queue.keyspace.scan(Scan(ENQUEUED_MAILS, ENQUEUED_MAILS.names))]


def make_older(queue: RealQueue, age: timedelta) -> None:
    """As if its mails had been enqueued so long before, and the queue had begun then."""
    first: datetime | None = None
    for row in rows(queue):
        older = {
            **row,
            "enqueuedtime": row["enqueuedtime"] - age,
            "timerangestart": slice_of(row["timerangestart"] - age, HOUR),
        }
        queue.keyspace.write(Put(ENQUEUED_MAILS, older, at=round(older["enqueuedtime"].timestamp() * MICROS)))
        queue.keyspace.write(Remove(ENQUEUED_MAILS, ENQUEUED_MAILS.key_of(row)))
        first = min(first or older["timerangestart"], older["timerangestart"])
    for table in (BROWSE_START, CONTENT_START):
        queue.keyspace.write(Change(table, (queue.name,), assign={table.regular[0].name: first}))


def does_not_drain(queue: RealQueue) -> None:
    """One mail was rejected, one waits and nobody takes it, one is delayed."""
    queue.put("bad")
    assert queue("dequeue", "--exec", "false", "--limit", "1", "--wait", "20s").code == 1
    queue.put("waits")
    queue.put("later", options=("--due-in", "3h"))


def one_is_to_go(queue: RealQueue) -> None:
    queue.put("mistake", "letter", options=("--sender", "ada@example.org"))


def broker_was_lost(queue: RealQueue) -> None:
    """Two mails wait for two hours, and their messages are gone."""
    queue.put("one", "two")
    make_older(queue, 2 * HOUR)
    queue.lose_messages()


def destination_throttles(queue: RealQueue) -> None:
    """Two mails wait for their next try; nobody has suspended anything yet."""
    queue.put("refused", "too", options=("--due-in", "15m"))


def one_is_deferred(queue: RealQueue) -> None:
    queue.put("refused", options=("--due-in", "15m"))


def customer_jams(queue: RealQueue) -> None:
    queue.put("theirs", "too", options=("--due-in", "15m", "--attribute", "tenantid=acme"))
    queue.put("another's", options=("--due-in", "15m"))
    Path("letter.eml").write_bytes(LETTER)
    Path("policies.yaml").write_text("quotas: [{name: per-customer, fields: [tenantid], default: {messages: 2}}]")


def policy_is_changed(queue: RealQueue) -> None:
    """Forty mails to one domain were delivered an hour ago, each at once."""
    Path("policies.yaml").write_text(
        "policies:\n  - fields: [recipientdomain]\n    conditions:\n"
        "      - if: {recipientdomain: example.org}\n        then: {concurrency: 2, rate: 100/60}\n"
    )
    Path("now.yaml").write_text("policies:\n  - default: {concurrency: 100}\n")
    ledger = f"{queue.keyspace.name}_ledger"
    ensure_ledger(queue.cluster, ledger, queue.keyspace.name)
    hour_ago = round(time.time() * 1_000) - 3_600_000 - START
    tried = [attempt(str(one), hour_ago + one, recipientdomain="example.org") for one in range(40)]
    assert not any(queue.cluster.keyspace(ledger).write_all(rows_of(tried, queue.keyspace.name, queue.name)))


def nobody_delivers(queue: RealQueue) -> None:
    """One mail waits, one is deferred."""
    queue.put("waits")
    queue.put("refused", options=("--due-in", "15m"))


def start_is_stuck(queue: RealQueue) -> None:
    """A mail has lost its bytes and its message, nine days ago."""
    queue.put("stuck")
    make_older(queue, timedelta(days=9))
    queue.lose_messages()
    for row in rows(queue):
        queue.keyspace.write(Change(ENQUEUED_MAILS, ENQUEUED_MAILS.key_of(row), assign={"bodyblobid": "1_1_gone"}))


def listing_is_slow(queue: RealQueue) -> None:
    """Five hours ago many mails were processed, and nobody has swept since."""
    queue.put(*(str(number) for number in range(5)))
    taken = queue("dequeue", "--exec", "true", "--limit", "5", "--wait", "20s", "--json")
    assert taken.json["acked"] == 5, taken.err
    make_older(queue, 5 * HOUR)


def tables_of_james(queue: RealQueue) -> None:
    """Five hours ago many mails were processed, in tables in which nothing expires."""
    for table in (ENQUEUED_MAILS, DELETED_MAILS):
        queue.cluster.execute_ddl(f"ALTER TABLE {queue.keyspace.name}.{table.name} WITH default_time_to_live = 0")
    queue.put(*(str(number) for number in range(5)))
    for row in rows(queue):
        at = round((row["enqueuedtime"] - 5 * HOUR).timestamp() * MICROS)
        queue.keyspace.write(Put(DELETED_MAILS, {name: row[name] for name in DELETED_MAILS.names}, at=at))
    queue.lose_messages()
    make_older(queue, 5 * HOUR)


def store_holds_too_much(queue: RealQueue) -> None:
    """A mail waits; three blobs of a mail of years ago are left, a young one, and a file that is no blob of ours."""
    queue.put("waits")
    blobs_of(queue).joinpath(YOUNG).write_bytes(b"young")
    for name in (f"1_600_{uuid4()}", f"1_600_{uuid4()}", f"{uuid4()}", "backup.tar"):
        file = blobs_of(queue) / name
        file.write_bytes(b"left")
        os.utime(file, (0, 0))


def blob_is_gone(queue: RealQueue) -> None:
    queue.put("broken")
    (row,) = rows(queue)
    (blobs_of(queue) / row["bodyblobid"]).unlink()


def blobs_of(queue: RealQueue) -> Path:
    return Path(queue.line.environment["MAILMEND_BLOBS"].removeprefix("file://"))


def pulsar_was_lost(queue: RealQueue, namespace: PulsarNamespace) -> None:
    """Two mails waited and one was delayed, and all topics are gone, as if their bookies were."""
    is_to_move(queue, namespace)
    for topic in namespace.admin("GET", f"persistent/{namespace.name}"):
        namespace.topic("DELETE", topic.rpartition("/")[2], "?force=true")


def backlog_stays(queue: RealQueue, namespace: PulsarNamespace) -> None:
    """One mail was rejected, one waits, one is delayed."""
    del namespace
    does_not_drain(queue)


def filters_pile_up(queue: RealQueue, namespace: PulsarNamespace) -> None:
    """Five mails were deleted one by one, and nobody tends the queue."""
    del namespace
    queue.put("stays", *"abcde")
    for name in "abcde":
        assert queue("delete", "--name", name).code == 0


def is_to_move(queue: RealQueue, namespace: PulsarNamespace) -> None:
    """Two mails wait and one is delayed."""
    del namespace
    queue.put("one", "two")
    queue.put("later", options=("--due-in", "3h"))


PULSAR_PAGES: Mapping[str, Callable[[RealQueue, PulsarNamespace], None]] = {
    "pulsar-was-lost": pulsar_was_lost,
    "pulsar-backlog-stays": backlog_stays,
    "pulsar-filters-pile-up": filters_pile_up,
    "move-a-queue": is_to_move,
}
"""Those of queues over Pulsar; they are executed by `tests/integration/admin/test_pulsar_runbooks.py`."""

QUEUE_PAGES: Mapping[str, Callable[[RealQueue], None]] = {
    "queue-does-not-drain": does_not_drain,
    "mail-must-be-removed-now": one_is_to_go,
    "rabbitmq-was-lost": broker_was_lost,
    "browse-start-is-stuck": start_is_stuck,
    "listing-is-slow": listing_is_slow,
    "queue-tables-grow": tables_of_james,
    "marks-never-expire": tables_of_james,
    "collect-unreferenced-blobs": store_holds_too_much,
    "blob-is-missing": blob_is_gone,
    "destination-throttles-us": destination_throttles,
    "sending-address-is-blocked": destination_throttles,
    "mail-is-held-and-looked-at": one_is_deferred,
    "change-a-policy-safely": policy_is_changed,
    "delivery-server-died": nobody_delivers,
    "reports-are-lost": destination_throttles,
}
"""Each page, and what brings its state about; they are executed by `tests/integration/admin/test_queue_runbooks.py`."""

JAMMED_PAGE = "customer-jams-the-queue"
"""It asks a server at work; `tests/integration/admin/delivery/test_jammed_queue.py` executes it."""


def walk(queue: RealQueue, steps: Iterable[RunbookStep], mail: str = "", server: str = "") -> None:
    """Each command ends with the code that the page promises; `server` is the address of one that is at work.

    The broker's own counts lag behind what was done by a second or two, so a command that reads them gets the time.
    """
    for command, output in steps:
        promised = _PROMISED.search(command)
        _end_with(queue, filled(queue, command, mail, server), int(promised[1] if promised else 0), output)


_WILD = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[\d.,:]+")
"""What differs from one day to another: ids, numbers and times."""


def lacking(shown: Iterable[str], printed: str, keyspace: str, queue: str = "") -> list[str]:
    """The lines that a page shows and that the command did not print, whatever its ids, numbers and spaces.

    A line of a page may stand for a longer one, and then ends in three dots.
    """
    names = {"apache_james": keyspace, "spool": queue or "spool"}
    lines = [_plain(line) for line in printed.splitlines()]
    here = [re.sub("|".join(names), lambda found: names[found[0]], line) for line in shown]
    return [line for line in here if not any(_plain(line) in one for one in lines)]


def _plain(line: str) -> str:
    return " ".join(_WILD.sub("#", line.removesuffix("...")).split())


def filled(queue: RealQueue, command: str, mail: str, server: str = "") -> list[str]:
    """The words as a person types them, the placeholders filled in."""
    kept = sorted(queue.line.home.rglob("queue/*.jsonl.gz"), key=lambda file: file.stat().st_mtime)
    values = {
        "$KEYSPACE": queue.keyspace.name,
        "$QUEUE": queue.name,
        "$MAIL": mail,
        "$SERVER": server,
        "$KEPT": str(kept[-1]) if kept else "",
        "$SUSPENSION": _last_id(queue, "suspend") if "$SUSPENSION" in command else "",
        "$CONDITION": _last_id(queue, "policy") if "$CONDITION" in command else "",
    }
    for placeholder, value in values.items():
        command = command.replace(placeholder, value)
    first, *words = shlex.split(command, comments=True)
    assert first == "mailmend"
    return words


def _last_id(queue: RealQueue, group: str) -> str:
    (found,) = (
        some for some in queue.line(group, "list", queue.name, "--json").json.values() if isinstance(some, list)
    )
    return str(found[-1]["id"])


def _end_with(queue: RealQueue, words: list[str], code: int, output: Sequence[str]) -> None:
    deadline = time.monotonic() + (PATIENCE_SECONDS if _only_looks(words) else 0)
    while True:
        ended = queue.line(*words)
        lacks = lacking(output, f"{ended.out}\n{ended.err}", queue.keyspace.name, queue.name)
        if ended.code == code and not lacks:
            return
        assert time.monotonic() < deadline, f"{shlex.join(words)}\n{ended.code} {lacks}\n{ended.out}\n{ended.err}"
        time.sleep(0.5)


def _only_looks(words: list[str]) -> bool:
    """Whether it may be typed again without doing something twice."""
    return words[1] in {"health", "reconcile"} and "--mark" not in words and "--republish" not in words

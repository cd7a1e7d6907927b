"""The page of a customer who jams the queue, typed as it is printed, while a server delivers the mails of others."""

import subprocess
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from mailmend.admin.frame.runbooks import page_named
from mailmend.admin.local.processes import free_port
from tests.support.queue_pages import JAMMED_PAGE, customer_jams, walk
from tests.support.real_queue import LETTER, RealQueue, until
from tests.support.smtp_sink import SmtpSink

pytestmark = [pytest.mark.cassandra, pytest.mark.broker, pytest.mark.object_store]

JAMS = (60, pytest.param(5_000, marks=pytest.mark.thorough))
"""The numbers of mails that jam the queue."""

POLICIES = "policies: [{fields: [tenantid], conditions: [{if: {tenantid: acme}, then: {rate: 1/7200}}]}]\n"
TOGETHER = 500
"""How many mails one command enqueues."""


def put(queue: RealQueue, recipient: str, count: int, *options: str) -> None:
    file = queue.line.home / "letter.eml"
    file.write_bytes(LETTER)
    while count:
        some = min(count, TOGETHER)
        ended = queue("enqueue", *[str(file)] * some, "--recipient", recipient, *options)
        assert ended.code == 0, ended.err
        count -= some


def worst(queue: RealQueue, server: str) -> Any:
    """The first sub-queue by tenant and domain."""
    by = ("--by", "tenant", "--by", "domain")
    ended = queue.line("delivery", "top", "spool", "--once", "--json", *by, "--ask", server)
    rows = [{"waiting": 0, "why": []}]
    if ended.code == 0:
        rows = [*ended.json["sub_queues"], *rows]
    return rows[0]


def ends_in(row: Any) -> timedelta:
    at = datetime.fromisoformat(row["until"])
    return at - datetime.now(at.tzinfo)


@pytest.fixture
def shell_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which commands are typed."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("jammed", JAMS)
def test_the_page_says_who_jams_the_queue_why_and_until_when(
    queue: RealQueue,
    sinks: Callable[..., SmtpSink],
    serving: Callable[..., "subprocess.Popen[str]"],
    jammed: int,
    shell_home: Path,
) -> None:
    """A rate of the customer's holds its mails at first, then the suspension that the page makes; others go on.

    The rate holds over restarts: one mail goes out, unless a test before this one had its turn.
    """
    own = shell_home / "own.yaml"
    own.write_text(POLICIES)
    sink = sinks()
    customer_jams(queue)
    where = f"127.0.0.1:{free_port(['127.0.0.1'])}"
    server = f"http://{where}"
    put(queue, "bob@jam.example", jammed, "--attribute", "tenantid=acme")
    serving(sink, "--http", where, "--policies", str(own), "--suspensions-every", "1s")
    until(lambda: worst(queue, server)["waiting"] + len(sink.mails) == jammed)
    page = page_named(JAMMED_PAGE)

    walk(queue, page.steps("Check"), server=server)
    limited = worst(queue, server)
    walk(queue, page.steps("Do"), server=server)
    until(lambda: "ticket 12" in str(worst(queue, server)["why"]))
    suspended = worst(queue, server)
    sent = len(sink.mails)
    put(queue, "cy@free.example", 1)
    until(lambda: len(sink.mails) == sent + 1)
    walk(queue, page.steps("Verify"), server=server)
    walk(queue, page.steps("Undo"), server=server)
    until(lambda: "ticket 12" not in str(worst(queue, server)["why"]))

    for row in (limited, suspended):
        assert row["values"] == {"tenant": "acme", "domain": "jam.example"}
        assert row["waiting"] == jammed - sent
        assert timedelta(hours=1) < ends_in(row) <= timedelta(hours=2)
    assert limited["why"][0].startswith("Policy 1 (line 1) counts it as tenantid acme")
    assert "1 in 7200 s may begin, the next one at " in limited["why"][0]
    assert suspended["why"][-1].startswith("Suspended by ")
    assert limited["until"] != suspended["until"]
    assert sink.mails[-1].recipients[0].split()[1] == "TO:<cy@free.example>"

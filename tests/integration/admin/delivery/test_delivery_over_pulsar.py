"""`mailmend delivery` of a queue over a real Pulsar, with the ledger in Cassandra, to a server of mail on loopback."""

import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE_SECONDS
from tests.support.pulsars import RealPulsar
from tests.support.real_queue import LETTER, RealQueue, until
from tests.support.smtp_sink import SmtpSink, say

pytestmark = [pytest.mark.cassandra, pytest.mark.broker, pytest.mark.object_store]

POLICIES = "{policies: [{fields: [recipientdomain]}], quotas: [{name: few, fields: [], default: {messages: 2}}]}"


@pytest.fixture
def queue(servers: RealQueue, pulsar: RealPulsar) -> Iterator[RealQueue]:
    """The same words, with a queue of Pulsar's in place of the one of RabbitMQ's."""
    with pulsar.namespace() as namespace:
        yield replace(servers, line=replace(servers.line, environment=namespace.environment(servers.line.environment)))


def test_mails_are_delivered_once_come_again_when_they_are_due_and_heed_orders(
    queue: RealQueue,
    sinks: Callable[..., SmtpSink],
    serving: Callable[..., "subprocess.Popen[str]"],
    tmp_path: Path,
) -> None:
    """One is refused for now, and comes again; one is deferred, held by a person, and released.

    What a policy file means for that queue is explained: quotas count its mails, and what people set holds.
    """
    sink = sinks(RCPT=[say("450 4.2.0 later")])
    (first,) = queue.put("first")
    (second,) = queue.put("second", options=("--due-in", "1h"))
    assert queue.line("delivery", "hold", "spool", "--in-state", "defer", "--why", "looked at").code == 0
    late = ("--in-state", "hold", "--set", "job=late", "--why", "ticket 12")
    assert queue.line("delivery", "set", "spool", *late).code == 0
    (tmp_path / "policies.yaml").write_text(POLICIES)
    slow = ("--fields", "recipientdomain", "--all", "--concurrency", "7", "--why", "slow", "--json")
    made = queue.line("policy", "add", "spool", *slow).json["condition"]
    asked = ("policy", "explain", str(tmp_path / "policies.yaml"), "spool", "--domain", "example.org", "--json")
    explained = queue.line(*asked).json
    (share,) = explained["sources"][0]["policies"]
    assert (share["set_by"]["id"], share["concurrency"]) == (made["id"], 7)
    assert (explained["quotas"][0]["used"]["messages"], explained["quotas"][0]["refuses"]) == (2, True)
    assert queue.line("policy", "remove", "spool", made["id"]).code == 0
    server = serving(sink)

    until(lambda: len(sink.mails) == 1)
    (held,) = queue.line("delivery", "list", "spool", "--in-state", "hold", "--json").json["entries"]
    assert (held["mail"], held["order"]["why"], held["fields"]) == (second, "looked at", {"jobid": "late"})
    assert queue.line("delivery", "release", "spool", "--all").code == 0
    until(lambda: len(sink.mails) == 2)
    server.send_signal(signal.SIGTERM)
    _, said = server.communicate(timeout=PATIENCE_SECONDS)

    assert server.returncode == 0, said
    assert {one.content for one in sink.mails} == {LETTER}
    assert [said.count(event) for event in ("refused for now", "refused for good", "has the mail")] == [1, 0, 2]
    size = queue("size", "--json").json
    assert (size["mails"], size["delayed"]) == (0, 0)
    tried = [one["outcome"] for one in queue.line("delivery", "show", "spool", first, "--json").json["attempts"]]
    assert (len(tried), tried[-1]) == (2, "delivered")

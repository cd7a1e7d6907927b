"""The log of a repair on a real Cassandra: the cluster that it spoke to, the run, and nothing on stdout."""

import json
from pathlib import Path

import pytest

from tests.support.mail_states import MailKeyspace, emptied, shell_on
from tests.support.servers import CassandraServer

pytestmark = pytest.mark.cassandra


def test_a_repair_is_logged_with_its_cluster_and_run(
    cassandra: CassandraServer, shared_mail: MailKeyspace, tmp_path: Path
) -> None:
    mail = emptied(shared_mail)
    mail.refill()
    mail.lose_projection(mail.truths[0])
    quick = ("--engine", "local", "--delay", "0", "--json")

    ended = shell_on(cassandra, mail, tmp_path)(
        "repair", "messages", *quick, "--log-level", "debug", "--log-format", "json"
    )

    reported = [json.loads(line) for line in ended.err.splitlines() if line.startswith("{")]
    found = {one["event"]: one for one in reported}
    assert (ended.code, ended.json["fixed"]) == (0, {"PROJECT": 1})
    assert found["connected to the cluster"]["hosts"] == [cassandra.host]
    assert found["a finding"]["run"] == found["run ended"]["run"] == ended.json["run"]
    assert found["run ended"]["fixed"] == {"PROJECT": 1}
    assert found["command ended"]["exit"] == 0

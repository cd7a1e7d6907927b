"""Cassandra 4.1, which tells no times of collections: the modseq's time stands for the flags."""

from pathlib import Path

import pytest

from mailmend.cql.applying import ensure_ledger
from mailmend.cql.driver.session import connect
from mailmend.cql.introspect import keyspace_exists
from mailmend.cql.schema.generations import NEWEST
from mailmend.model.catalog.mail import CompactionChoice
from mailmend.model.errors import WrongUse
from tests.support.applying import apply_schema, verify_schema
from tests.support.commands import CommandLine, command_line, contact_of
from tests.support.james import load_james
from tests.support.servers import CassandraServer

pytestmark = pytest.mark.thorough

QUIET = ("--engine", "local", "--no-writers", "--delay", "0s", "--json")


@pytest.fixture
def mailmend(cassandra41: CassandraServer, tmp_path: Path) -> CommandLine:
    keyspace, ledger = cassandra41.keyspace(), cassandra41.keyspace()
    with connect(contact_of(cassandra41)) as cluster:
        assert cluster.release_version.startswith("4.1")
        load_james(cluster, keyspace, damaged=True)
    return command_line(tmp_path, cassandra41, MAILMEND_KEYSPACE=keyspace, MAILMEND_LEDGER_KEYSPACE=ledger)


def test_damages_are_found_mended_undone_and_redone_on_4_1(mailmend: CommandLine) -> None:
    """The same 200 damages, 182 fixes and 18 reports as on 5.0; undone, redone; and the keyspace is taken over."""
    # When the drift is looked for, Then nothing else than the recorded damages is found.
    found = mailmend("check", "messages", *QUIET)
    assert found.code == 1
    assert found.json["findings"] == {
        "messageIdTable": {"PROJECT": 19, "AMEND": 127, "WITHDRAW": 36, "LOST_CONTENT": 18},
        "messageV3": {"LEAK": 83},
    }

    # When it is mended, Then only what a person must decide is left.
    mended = mailmend("repair", "messages", *QUIET).json
    assert mended["fixed"] == {"PROJECT": 19, "AMEND": 127, "WITHDRAW": 36}
    assert (mended["left"], mended["failed"]) == ({"LOST_CONTENT": 18}, 0)

    # When that is taken back and taken back again, Then the drift returns and goes.
    undone = mailmend("undo", mended["run"], "--json").json
    assert mailmend("check", "messages", *QUIET).json["findings"] == found.json["findings"]
    mailmend("undo", undone["run"], "--json")
    again = mailmend("check", "messages", *QUIET).json["findings"]
    assert again == {"messageIdTable": {"LOST_CONTENT": 18}, "messageV3": {"LEAK": 83}}

    # When the keyspace is taken over, Then 4.1 tells its schema and its sizes as 5.0 does.
    adopted = mailmend("schema", "adopt", "--json")  # without the thread tables, which alone tell 3.8.1 from 3.9
    assert (adopted.code, adopted.json["generation"], adopted.json["drift"]) == (0, "3.9", [])
    verified = mailmend("schema", "verify", "--json")
    assert (verified.code, verified.json["adopted"], verified.json["since_adoption"]) == (0, True, [])
    options = mailmend("schema", "plan", "--from-model", "--include-options", "--compaction", "leveled", "--json")
    assert {one["risk"] for one in options.json["plan"]} == {"rewrite"}
    assert all("on disk" in one["estimate"] for one in options.json["plan"])


def test_an_older_server_takes_the_same_schema(cassandra41: CassandraServer) -> None:
    """Cassandra 4.1: everything but the compaction that it does not know, which is refused before anything is made."""
    name = cassandra41.keyspace()
    with connect(contact_of(cassandra41)) as older:
        with pytest.raises(WrongUse, match="--compaction leveled"):
            apply_schema(older, name, compaction=CompactionChoice.UNIFIED)
        assert not keyspace_exists(older, name)
        apply_schema(older, name)
        recognition = verify_schema(older, name)
        assert recognition.generation is NEWEST
        assert recognition.drift == recognition.notes == ()
        assert ensure_ledger(older, f"{name}_ledger", name)
        assert ensure_ledger(older, f"{name}_ledger", name) == ()

"""`mailmend schema grants` as people and scripts read it: scripts that cqlsh takes, comparisons that say what mends."""

from pathlib import Path

import pytest

from mailmend.admin.schema.grants import GrantsResult, document_of, granting, mending, revoking
from mailmend.cql.schema.grants import (
    LEDGER,
    LOOKED_AT,
    OF_MAILBOXES,
    QUEUE,
    READER,
    REPAIRER,
    ROLES,
    Grant,
    HeldGrant,
    Holding,
    Keyspaces,
    Resource,
    compared,
    grants_of,
)
from tests.support.commands import CommandLine, command_line
from tests.support.documents import text_of

PLACES = Keyspaces("mail", "ledger")
SELECTS = Grant(Resource("mail", "imapuidtable"), "SELECT")
TOO_MUCH = HeldGrant(Grant(Resource("mail"), "DROP"), "mailmend_reader")


@pytest.fixture
def mailmend(tmp_path: Path) -> CommandLine:
    return command_line(tmp_path, MAILMEND_HOST="127.0.0.1", MAILMEND_PORT="1")


def statements(out: str) -> list[str]:
    return [line for line in out.splitlines() if line and not line.startswith("--")]


def test_all_of_it_is_printed_without_a_cluster(mailmend: CommandLine) -> None:
    """Every role, its purpose, its statements; each of them ends as one does."""
    ended = mailmend("schema", "grants", "--all")

    assert ended.code == 0, ended.err
    assert all(f"-- mailmend_{role.name}: {role.purpose}" in ended.out for role in ROLES.values())
    assert len(statements(ended.out)) == sum(len(grants_of(role, PLACES)) for role in ROLES.values())
    assert all(line.startswith("GRANT ") and line.endswith(";") for line in statements(ended.out))
    assert "TRUNCATE as MODIFY" in ended.out


def test_names_and_keyspaces_are_ones_own(mailmend: CommandLine) -> None:
    names = ("--name-prefix", "acme_", "--keyspace", "theirs", "--ledger-keyspace", "ours")

    out = mailmend("schema", "grants", "--all", "--role", "repairer", *names).out

    assert "GRANT MODIFY ON TABLE ours.repair_run TO acme_repairer;" in out
    assert "GRANT SELECT ON TABLE theirs.imapuidtable TO acme_repairer;" in out
    assert "mailmend_" not in "".join(statements(out))


def test_a_created_role_cannot_log_in_until_a_person_lets_it(mailmend: CommandLine) -> None:
    """CREATE ROLE comes first, the password is a comment to be completed."""
    out = mailmend("schema", "grants", "--all", "--role", "reader", "--with-create-role").out

    assert statements(out)[0] == "CREATE ROLE IF NOT EXISTS mailmend_reader WITH LOGIN = false;"
    assert "-- then, by hand: ALTER ROLE mailmend_reader WITH PASSWORD = '...' AND LOGIN = true;" in out


def test_revoking_is_granting_backwards(mailmend: CommandLine) -> None:
    granted = statements(mailmend("schema", "grants", "--all", "--role", "loader").out)

    revoked = statements(
        mailmend("schema", "grants", "--all", "--role", "loader", "--revoke", "--with-create-role").out
    )

    assert revoked[:-1] == [line.replace("GRANT", "REVOKE").replace(" TO ", " FROM ") for line in granted]
    assert revoked[-1] == "DROP ROLE IF EXISTS mailmend_loader;"


def test_a_script_reads_the_same_as_json(mailmend: CommandLine) -> None:
    found = mailmend("schema", "grants", "--all", "--role", "reader", "--role", "queue", "--json").json

    assert [role["role"] for role in found["roles"]] == ["reader", "queue"]
    assert set(found) == {"keyspace", "ledger_keyspace", "creations", "roles", "exit"}
    assert set(found["roles"][0]) == {"role", "name", "purpose", "statements", "absent"}
    assert found["roles"][0]["statements"] == statements(mailmend("schema", "grants", "--all", "--role", "reader").out)


@pytest.mark.parametrize(
    "wrong",
    [
        ("--check", "--revoke"),
        ("--check", "--all"),
        ("--check", "--with-create-role"),
        ("--role", "nobody"),
        ("--all", "--name-prefix", "a b"),
        ("--all", "--name-prefix", "x; DROP ROLE y; --"),
    ],
    ids=" ".join,
)
def test_what_makes_no_sense_is_refused(mailmend: CommandLine, wrong: tuple[str, ...]) -> None:
    assert mailmend("schema", "grants", *wrong).code == 2


def test_without_a_cluster_there_is_nothing_to_compare(mailmend: CommandLine) -> None:
    assert mailmend("schema", "grants", "--check").code == 4


def test_what_is_not_there_is_named_instead_of_granted() -> None:
    there = Keyspaces("mail", "ledger", frozenset(LOOKED_AT) - {"modseq"}, frozenset(LEDGER))

    script = granting(READER, "r", there, create=False)

    assert Resource("mail", "modseq") in script.absent
    assert not any("modseq" in line for line in script.statements)
    assert not any("modseq" in line for line in revoking(READER, "r", there, drop=False).statements)
    assert granting(QUEUE, "q", Keyspaces("mail", "ledger", frozenset(), frozenset()), create=True).statements == (
        "CREATE ROLE IF NOT EXISTS q WITH LOGIN = false;",
    )


def test_creations_come_before_the_grants_on_them() -> None:
    """One script, in the order in which it can run; what is absent is a comment."""
    tables = frozenset((*LOOKED_AT, *OF_MAILBOXES))
    there = Keyspaces("mail", "ledger", tables - {"modseq"})

    script = granting(REPAIRER, "r", there, create=True)

    out = text_of(document_of(GrantsResult(there, ("CREATE KEYSPACE ledger;",), (script,))))

    assert out.index("CREATE KEYSPACE") < out.index("CREATE ROLE") < out.index("GRANT SELECT")
    assert "-- not there, so nothing is granted on: mail.modseq" in out


def test_a_comparison_says_what_is_missing_what_is_too_much_and_what_mends_it() -> None:
    """GRANT first, then REVOKE, so that the role never lacks what it had."""
    found = compared([SELECTS], Holding("mailmend_reader", held=(TOO_MUCH,)))

    document = document_of(GrantsResult(PLACES, ("CREATE TABLE ledger.repair_lag;",), compared=((READER, found),)))

    out = text_of(document)
    assert document.exit == 1
    assert "missing" in out
    assert "superfluous" in out
    assert mending(found) == (
        "GRANT SELECT ON TABLE mail.imapuidtable TO mailmend_reader;",
        "REVOKE DROP ON KEYSPACE mail FROM mailmend_reader;",
    )
    assert all(out.index("CREATE TABLE") < out.index(line) for line in mending(found))


def test_a_comparison_as_json() -> None:
    inherited = HeldGrant(SELECTS, "parent")
    wrong = compared([SELECTS], Holding("r", superuser=True, held=(inherited,)))
    right = compared([SELECTS], Holding("q", held=(HeldGrant(SELECTS, "q"),)))

    found = document_of(GrantsResult(PLACES, compared=((READER, wrong), (QUEUE, right)))).json
    assert found
    assert (found["exit"], found["keyspace"], found["ledger_keyspace"]) == (1, "mail", "ledger")
    first, second = found["roles"]
    assert (first["superuser"], first["superfluous"][0]["through"]) == (True, "parent")
    assert first["mend"][-1] == "ALTER ROLE r WITH SUPERUSER = false;"
    assert (second["missing"], second["superfluous"], second["mend"]) == ([], [], [])


def test_a_role_that_is_right_is_said_to_be() -> None:
    """Exit 0 and a sentence; one that is not there is to be created."""
    right = compared([SELECTS], Holding("q", held=(HeldGrant(SELECTS, "q"),)))
    absent = compared([SELECTS], Holding("r", exists=False))

    document = document_of(GrantsResult(PLACES, compared=((READER, right),)))
    assert document.exit == 0
    assert "q has what it needs" in text_of(document)
    document = document_of(GrantsResult(PLACES, compared=((READER, absent),)))
    assert document.exit == 1
    out = text_of(document)
    assert "the role itself" in out
    assert out.index("CREATE ROLE IF NOT EXISTS r") < out.index("GRANT SELECT")

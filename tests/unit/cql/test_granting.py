"""Roles and grants as CQL, and back from what a server lists."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from mailmend.cql.granting import create_role_cql, drop_role_cql, grant_cql, holding_of, login_cql, revoke_cql
from mailmend.cql.schema.grants import ROLES, Grant, HeldGrant, Keyspaces, Resource, grants_of
from mailmend.model.errors import AccessDenied, BadIdentifier, MailmendError, WrongUse
from mailmend.model.table import Row
from tests.support.schema_twin import SchemaTwin

READS = Grant(Resource("mail", "t"), "SELECT")


class Server(SchemaTwin):
    """A server that lists what it was told."""

    def __init__(
        self, roles: Sequence[Row] = (), permissions: Sequence[Row] = (), fails: MailmendError | None = None
    ) -> None:
        super().__init__()
        self.roles, self.permissions, self.fails = roles, permissions, fails
        self.asked: list[str] = []

    def query(self, text: str, values: Sequence[Any] = ()) -> Sequence[Row]:
        assert not values
        self.asked.append(text)
        if self.fails:
            raise self.fails
        return self.roles if text.startswith("LIST ROLES") else self.permissions


def listed(resource: str, permission: str = "SELECT", role: str = "r") -> Mapping[str, str]:
    return {"role": role, "username": role, "resource": resource, "permission": permission}


def test_statements_are_of_one_permission_and_hold_no_password() -> None:
    assert grant_cql(READS, "mailmend_reader") == "GRANT SELECT ON TABLE mail.t TO mailmend_reader;"
    assert revoke_cql(READS, "mailmend_reader") == "REVOKE SELECT ON TABLE mail.t FROM mailmend_reader;"
    assert create_role_cql("Reader") == "CREATE ROLE IF NOT EXISTS reader WITH LOGIN = false;"
    assert drop_role_cql("reader") == "DROP ROLE IF EXISTS reader;"
    assert "'...'" in login_cql("reader")


@pytest.mark.parametrize("name", ["", "a b", "x; DROP ROLE y", "grant", 'r"'])
def test_names_that_need_quotes_are_refused(name: str) -> None:
    for statement in (create_role_cql, drop_role_cql, login_cql):
        with pytest.raises(BadIdentifier):
            statement(name)
    with pytest.raises(BadIdentifier):
        grant_cql(READS, name)


def test_a_permission_is_a_word() -> None:
    with pytest.raises(WrongUse):
        revoke_cql(Grant(Resource("mail"), "ALL; DROP"), "r")


@pytest.mark.parametrize(
    ("text", "resource"),
    [
        ("<table mail.imapuidtable>", Resource("mail", "imapuidtable")),
        ("<table Mail.Odd>", Resource("Mail", "Odd")),
        ("<keyspace mail>", Resource("mail")),
        ("<all tables in mail>", Resource(other="ALL TABLES IN KEYSPACE mail")),
        ("<all keyspaces>", Resource()),
        ("<all roles>", Resource(other="ALL ROLES")),
        ("<role Ann>", Resource(other="ROLE Ann")),
        ("<all functions>", Resource(other="ALL FUNCTIONS")),
        ("<function mail.f(int)>", Resource(other="FUNCTION mail.f(int)")),
    ],
)
def test_resources_are_read_as_servers_list_them(text: str, resource: Resource) -> None:
    server = Server(roles=[{"super": False}], permissions=[listed(text)])

    holding = holding_of(server, "r")

    assert [held.grant.on for held in holding.held] == [resource]
    assert grant_cql(holding.held[0].grant, "r") == f"GRANT SELECT ON {resource} TO r;"


def test_what_is_inherited_keeps_its_source_and_a_superuser_is_reported() -> None:
    server = Server(
        roles=[{"super": False}, {"super": True}],
        permissions=[listed("<table mail.t>", role="parent"), listed("<table mail.t>")],
    )

    holding = holding_of(server, "R")

    assert server.asked == ["LIST ROLES OF r", "LIST ALL PERMISSIONS OF r"]
    assert holding.held == (HeldGrant(READS, "parent"), HeldGrant(READS, "r"))
    assert (holding.superuser, holding.exists) == (True, True)


def test_an_unknown_role_holds_nothing() -> None:
    assert not holding_of(Server(fails=WrongUse("the server would not: <role r> doesn't exist")), "r").exists
    with pytest.raises(WrongUse, match="something else"):
        holding_of(Server(fails=WrongUse("something else")), "r")


def test_who_may_not_ask_learns_who_may() -> None:
    with pytest.raises(AccessDenied, match="superuser"):
        holding_of(Server(fails=AccessDenied("You are not authorized to view ann's permissions")), "r")
    with pytest.raises(WrongUse, match="has no logins"):
        holding_of(Server(fails=AccessDenied("You have to be logged in and not anonymous to do this")), "r")


def test_what_a_role_holds_is_reported_in_one_order() -> None:
    rows = [
        listed("<table mail.b>", "SELECT"),
        listed("<keyspace mail>", "MODIFY"),
        listed("<table mail.a>", "SELECT", "z"),
        listed("<table mail.a>", "SELECT", "a"),
    ]

    one, other = (holding_of(Server([{"super": False}], listing), "r") for listing in (rows, rows[::-1]))

    assert one == other
    assert len(one.held) == len(rows)
    assert not one.superuser


def test_a_refusal_keeps_the_servers_own_words() -> None:
    with pytest.raises(AccessDenied, match="not authorized to view ann") as refused:
        holding_of(Server(fails=AccessDenied("You are not authorized to view ann's permissions")), "r")
    assert "--username" in refused.value.mend
    with pytest.raises(WrongUse) as nobody:
        holding_of(Server(fails=AccessDenied("You have to be logged in and not anonymous")), "r")
    assert "AllowAllAuthenticator" in nobody.value.mend


def test_names_with_capitals_are_in_quotes() -> None:
    assert revoke_cql(Grant(Resource("Mail", "Odd"), "SELECT"), "r") == 'REVOKE SELECT ON TABLE "Mail"."Odd" FROM r;'
    assert grant_cql(Grant(Resource("Mail"), "SELECT"), "r") == 'GRANT SELECT ON KEYSPACE "Mail" TO r;'


def test_a_quoted_keyspace_is_granted_on_by_its_own_name() -> None:
    keyspaces = Keyspaces('"OddKs"', '"OddKs_ledger"')

    resources = {grant.on for role in ROLES.values() for grant in grants_of(role, keyspaces)}

    named = {resource.keyspace for resource in resources} - {"", "system", "system_views", "system_schema"}
    assert named == {"OddKs", "OddKs_ledger"}
    assert 'TABLE "OddKs".imapuidtable' in {str(resource) for resource in resources}
    assert str(Resource("OddKs", "t").enclosing[1]) == 'ALL TABLES IN KEYSPACE "OddKs"'

"""The declaration of James's own tables: access lists and the keys of mail repositories."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from mailmend.model.catalog.james_projections import JAMES, JAMES_TEXT, in_keyspace
from mailmend.model.catalog.james_tables import ACL, USER_MAILBOX_ACL
from mailmend.model.errors import WrongUse
from mailmend.model.keyspace import Schema
from mailmend.model.projections.declaration_file import read_declaration
from mailmend.model.projections.declarations import Declaration
from mailmend.model.projections.family import Family
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Key, Row, Table, columns
from mailmend.repair.declared import declared_families
from tests.support.james_declared import CONTENTS, KEYS, MAPPINGS, SOURCES
from tests.unit.repair.test_declared_pairs import Shop

MAILBOX = UUID("6e1aea00-e509-11f1-b512-b9fb9d6f173b")


def served(table: Table) -> Table:
    """The table as a server spells it, in lower case."""
    spelled = [replace(column, spelling=column.name) for column in table.columns]
    return replace(table.with_columns(spelled), spelling=table.name)


RIGHTS, OPENED = map(served, (ACL, USER_MAILBOX_ACL))
MAILS, LISTED = map(served, (CONTENTS, KEYS))
LIVE = Schema((), (RIGHTS, OPENED, MAILS, LISTED, MAPPINGS, SOURCES))


def declared() -> Declaration:
    return read_declaration(JAMES_TEXT, JAMES)


def families(*names: str) -> dict[str, Family]:
    """The families of a keyspace that has these tables."""
    live = Schema((), tuple(table for table in LIVE.tables if table.spelling in names or not names))
    found = declared_families("apache_james", in_keyspace(declared(), live, version=12), live)
    return {family.mirror.name: family for family in found}


def rights(key: str, *characters: str) -> Row:
    return {"id": MAILBOX, "key": key, "rights": frozenset(characters)}


def opened_by(user: str, text: str) -> Row:
    return {"username": user, "mailboxid": MAILBOX, "rights": text}


def verdicts(shop: Shop) -> dict[Key, Verdict]:
    return {key: finding.verdict for key, finding in shop.check().items()}


class TestAccessLists:
    """A user's row in UserMailboxACL has the rights of aclv2, in alphabetical order."""

    def shop(self) -> Shop:
        return Shop(families()["usermailboxacl"])

    def test_rights_are_the_characters_in_alphabetical_order(self) -> None:
        shop = self.shop()
        shop.put(RIGHTS, rights("ann@x.org", "s", "l", "r"))
        shop.put(OPENED, opened_by("ann@x.org", "lrs"))

        assert verdicts(shop) == {}

    def test_lost_changed_and_left_rows_are_found_and_mended(self) -> None:
        shop = self.shop()
        shop.put(RIGHTS, rights("ann@x.org", "l", "r"))
        shop.put(RIGHTS, rights("bob@x.org", "l", "r"))
        shop.put(OPENED, opened_by("bob@x.org", "l"))
        shop.put(OPENED, opened_by("eve@x.org", "lr"))
        assert verdicts(shop) == {
            ("ann@x.org", MAILBOX): Verdict.PROJECT,
            ("bob@x.org", MAILBOX): Verdict.AMEND,
            ("eve@x.org", MAILBOX): Verdict.WITHDRAW,
        }

        shop.repair()

        assert verdicts(shop) == {}
        ((row, _, _),) = shop.rows(OPENED, ("ann@x.org", MAILBOX))
        assert row["rights"] == "lr"

    @pytest.mark.parametrize("key", ["-ann@x.org", "$staff", "-$staff", "anyone", "anybody", "owner", "authenticated"])
    def test_groups_negative_keys_and_special_names_demand_no_row(self, key: str) -> None:
        shop = self.shop()
        shop.put(RIGHTS, rights(key, "l"))

        assert verdicts(shop) == {}


def test_a_mail_of_a_repository_without_its_key_has_the_key_again() -> None:
    shop = Shop(families()["mailrepositorykeys"])
    mail: dict[str, Any] = {"name": "cassandra://var/mail/error/", "mailkey": "k1"}
    shop.put(MAILS, {**mail, "state": "error"})
    shop.put(LISTED, {**mail, "mailkey": "gone"})

    assert verdicts(shop) == {
        (mail["name"], "k1"): Verdict.PROJECT,
        (mail["name"], "gone"): Verdict.WITHDRAW,
    }


def test_a_keyspace_has_only_the_tables_of_its_modules() -> None:
    assert set(families("aclv2", "usermailboxacl", "mailrepositorykeys")) == {"usermailboxacl"}


def test_a_keyspace_without_such_tables_is_refused_with_their_names() -> None:
    with pytest.raises(WrongUse, match="has no table that --projections james declares") as caught:
        in_keyspace(declared(), Schema((), (RIGHTS,)), version=12)

    assert "usermailboxacl, mailrepositorykeys" in str(caught.value)


@pytest.mark.parametrize(("version", "is_left"), [(0, True), (9, True), (10, False)])
def test_rights_are_left_while_james_keeps_them_in_its_older_table(version: int, is_left: bool) -> None:
    """Up to version 9 aclv2 is empty: all rows of UserMailboxACL would look left behind."""
    older = Table("acl", columns("id timeuuid", regular="acl text, version bigint"))
    live = replace(LIVE, tables=(*LIVE.tables, older))

    found = in_keyspace(declared(), live, version)

    assert ("usermailboxacl" not in found.projections) is is_left


def mapping(user: str, domain: str, text: str) -> Row:
    return {"user": user, "domain": domain, "mapping": text}


def source_of(kind: str, value: str, source: str) -> Row:
    return {"mapping_type": kind, "mapping_value": value, "source": source}


class TestMappings:
    """A source of a mapping is the user, or *, at the domain; the mapping is kept by its type and value."""

    def shop(self) -> Shop:
        return Shop(families()["mappings_sources"])

    @pytest.mark.parametrize(
        ("text", "kind", "value"),
        [
            ("bob@y.org", "", "bob@y.org"),
            ("regex:(.*)@x.org:bob@y.org", "regex:", "(.*)@x.org:bob@y.org"),
            ("domain:y.org", "domain:", "y.org"),
            ("domainAlias:y.org", "domainAlias:", "y.org"),
            ("error:550 no", "error:", "550 no"),
            ("forward:bob@y.org", "forward:", "bob@y.org"),
            ("group:bob@y.org", "group:", "bob@y.org"),
            ("alias:bob@y.org", "alias:", "bob@y.org"),
        ],
    )
    def test_a_mapping_is_kept_by_type_and_value(self, text: str, kind: str, value: str) -> None:
        shop = self.shop()
        shop.put(MAPPINGS, mapping("*", "x.org", text))

        assert verdicts(shop) == {(kind, value, "*@x.org"): Verdict.PROJECT}

    def test_lost_and_left_rows_are_found_mended_and_put_back(self) -> None:
        # Given
        shop = self.shop()
        lost = ("alias:", "ann@x.org", "a@x.org")
        left = ("forward:", "eve@x.org", "ann@x.org")
        shop.put(MAPPINGS, mapping("a", "x.org", "alias:ann@x.org"))
        shop.put(SOURCES, source_of(*left))
        assert verdicts(shop) == {lost: Verdict.PROJECT, left: Verdict.WITHDRAW}

        # When
        run = shop.repair()

        # Then
        assert verdicts(shop) == {}
        assert [found is None for found in shop.rows(SOURCES, lost, left)] == [False, True]
        shop.undo(run)
        assert [found is None for found in shop.rows(SOURCES, lost, left)] == [True, False]

    @pytest.mark.parametrize(("source", "user"), [("a@x.org", "a"), ("*@x.org", "*"), ("a@b@x.org", None), ("a", None)])
    def test_a_source_leads_back_to_the_mappings_of_its_user(self, source: str, user: str | None) -> None:
        mirror = families()["mappings_sources"].mirror

        truth = mirror.restored(source_of("alias:", "ann@x.org", source))

        assert truth["user"] == user

"""The declaration of James's own tables: access lists, keys of mail repositories, mappings, messages of POP3."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from mailmend.model.catalog.james_projections import JAMES, JAMES_TEXT, in_keyspace
from mailmend.model.catalog.james_tables import ACL, EMAIL_QUERY_VIEW, USER_MAILBOX_ACL
from mailmend.model.catalog.mail import IMAP_UID
from mailmend.model.errors import WrongUse
from mailmend.model.keyspace import Schema
from mailmend.model.projections.declaration_file import read_declaration
from mailmend.model.projections.declarations import Declaration
from mailmend.model.projections.family import Family
from mailmend.model.projections.findings import RepairPolicy
from mailmend.model.projections.verdicts import Verdict, Why
from mailmend.model.table import Key, Row, Table, columns
from mailmend.repair.declared import declared_families
from tests.support.james_declared import CONTENTS, KEYS, MAPPINGS, OLDER_VIEW, POP3, SOURCES
from tests.support.repairing import MAILBOX as INBOX
from tests.support.repairing import message, truth_row
from tests.unit.repair.test_declared_pairs import Shop

MAILBOX = UUID("6e1aea00-e509-11f1-b512-b9fb9d6f173b")


def served(table: Table) -> Table:
    """The table as a server spells it, in lower case."""
    spelled = [replace(column, spelling=column.name) for column in table.columns]
    return replace(table.with_columns(spelled), spelling=table.name)


RIGHTS, OPENED = map(served, (ACL, USER_MAILBOX_ACL))
MAILS, LISTED = map(served, (CONTENTS, KEYS))
STORED, POPPED = map(served, (IMAP_UID, POP3))
VIEWED, VIEWED_BEFORE = map(served, (EMAIL_QUERY_VIEW, OLDER_VIEW))
UPGRADED = VIEWED.with_columns((*VIEWED.columns, *columns("", regular="sentat timestamp")))
"""A view of James 3.9 to which the column of threads was added."""

LIVE = Schema((), (RIGHTS, OPENED, MAILS, LISTED, MAPPINGS, SOURCES, STORED, POPPED, VIEWED))


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


class TestPop3:
    """A message has one row for each mailbox, with its size, however many uids it has there."""

    def shop(self, sizes: Sequence[int | None]) -> Shop:
        """A message with a uid for each size, and no row for POP3."""
        shop = Shop(families()["pop3metadata"])
        for uid, size in enumerate(sizes, start=1):
            shop.put(STORED, truth_row(1, uid=uid, fullcontentoctets=size))
        return shop

    def row(self, size: int) -> Row:
        return {"mailboxid": INBOX, "messageid": message(1), "size": size}

    @pytest.mark.parametrize("sizes", [[100], [100, 100], [None, 100]], ids=["a uid", "two uids", "one without size"])
    def test_a_row_that_is_lost_is_found_mended_and_put_back(self, sizes: list[int | None]) -> None:
        # Given
        shop = self.shop(sizes)
        place = (INBOX, message(1))
        assert verdicts(shop) == {place: Verdict.PROJECT}

        # When
        run = shop.repair()

        # Then
        assert verdicts(shop) == {}
        ((row, _, _),) = shop.rows(POPPED, place)
        assert row == self.row(100)
        shop.undo(run)
        assert shop.rows(POPPED, place) == [None]

    @pytest.mark.parametrize("sizes", [[None], [None, None]], ids=["a uid", "two uids"])
    @pytest.mark.parametrize("size", [None, 100], ids=["without a row", "with a row"])
    def test_a_message_whose_size_is_not_known_is_left_as_it_is(self, sizes: list[None], size: int | None) -> None:
        """James wrote no size before 3.7; its own task takes it from messageV3."""
        shop = self.shop(sizes)
        if size is not None:
            shop.put(POPPED, self.row(size))

        assert verdicts(shop) == {}

    @pytest.mark.parametrize(
        ("sizes", "verdict"),
        [([100, 100], Verdict.AMEND), ([], Verdict.WITHDRAW), ([100, 200], Verdict.CLASH)],
        ids=["another size", "no message", "two sizes"],
    )
    def test_a_row_that_differs_or_is_left_behind_is_found(self, sizes: list[int | None], verdict: Verdict) -> None:
        shop = self.shop(sizes)
        shop.put(POPPED, self.row(300))

        assert verdicts(shop) == {(INBOX, message(1)): verdict}


RECEIVED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LATER = datetime(2026, 1, 3, tzinfo=UTC)
PLACE = (INBOX, RECEIVED, message(1))


def view_family(view: Table) -> Family:
    live = Schema((), (STORED, view))
    (family,) = declared_families("apache_james", in_keyspace(declared(), live, version=15), live)
    return family


def in_view(thread: UUID | None, received: datetime = RECEIVED) -> Row:
    return {"mailboxid": INBOX, "receivedat": received, "messageid": message(1), "thread_id": thread}


class TestQueryView:
    """JMAP's list of a mailbox: a row for each message that is not marked as deleted, latest first."""

    def shop(self, *truths: Row) -> Shop:
        shop = Shop(view_family(VIEWED))
        for uid, cells in enumerate(truths, start=1):
            shop.put(STORED, truth_row(1, uid=uid, internaldate=RECEIVED) | dict(cells))
        return shop

    @pytest.mark.parametrize("deleted", [False, None])
    def test_a_message_that_is_lost_is_found_mended_and_put_back(self, deleted: bool | None) -> None:
        # Given
        shop = self.shop({"flagdeleted": deleted, "threadid": message(7)})
        assert verdicts(shop) == {PLACE: Verdict.PROJECT}

        # When
        run = shop.repair()

        # Then
        ((row, _, _),) = shop.rows(VIEWED, PLACE)
        assert row == in_view(message(7))
        shop.undo(run)
        assert shop.rows(VIEWED, PLACE) == [None]

    @pytest.mark.parametrize("thread", [None, message(1)], ids=["null", "itself"])
    @pytest.mark.parametrize("shown", [None, message(1)], ids=["null", "itself"])
    def test_a_thread_that_is_null_is_the_message_itself(self, thread: UUID | None, shown: UUID | None) -> None:
        shop = self.shop({"threadid": thread})
        shop.put(VIEWED, in_view(shown))

        assert verdicts(shop) == {}

    @pytest.mark.parametrize(
        ("truths", "row", "found"),
        [
            ([{"threadid": message(7)}], in_view(None), {PLACE: Verdict.AMEND}),
            ([{"flagdeleted": True}], in_view(None), {PLACE: Verdict.WITHDRAW}),
            ([{"flagdeleted": True}, {"flagdeleted": False}], in_view(None), {}),
            ([{}, {}], in_view(None), {}),
            ([{"internaldate": None}], in_view(None), {}),
            ([{"internaldate": None, "flagdeleted": True}], in_view(None), {PLACE: Verdict.WITHDRAW}),
            (
                [{}],
                in_view(None, LATER),
                {PLACE: Verdict.PROJECT, (INBOX, LATER, message(1)): Verdict.WITHDRAW},
            ),
        ],
        ids=["a thread", "deleted", "deleted once", "twice", "without a date", "deleted, no date", "another date"],
    )
    def test_a_row_is_compared_with_every_uid_of_its_message(
        self, truths: list[Row], row: Row, found: dict[Key, Verdict]
    ) -> None:
        shop = self.shop(*truths)
        shop.put(VIEWED, row)

        assert verdicts(shop) == found

    def test_a_row_with_an_id_that_no_message_has_is_withdrawn(self) -> None:
        """The view takes any UUID, the truth takes time-based ones alone: it is not asked for others."""
        shop = self.shop()
        stray = UUID("6e1aea00-e509-41f1-b512-b9fb9d6f173b")
        shop.put(VIEWED, {**in_view(None), "messageid": stray})

        assert verdicts(shop) == {(INBOX, RECEIVED, stray): Verdict.WITHDRAW}
        assert shop.family.truth.partition_named_by({"messageid": stray}) is None

    def test_a_view_of_older_jameses_is_compared_and_no_row_of_it_is_inserted(self) -> None:
        """Its rows have the date of a header, and a row in a table of dates without which James removes none."""
        # Given
        shop = Shop(view_family(VIEWED_BEFORE))
        shop.put(STORED, truth_row(1, internaldate=RECEIVED))
        left = {"mailboxid": INBOX, "receivedat": LATER, "messageid": message(1), "sentat": LATER}
        shop.put(VIEWED_BEFORE, left)
        found = shop.check()

        # When
        shop.repair()

        # Then
        gone = (INBOX, LATER, message(1))
        assert {key: finding.verdict for key, finding in found.items()} == {
            PLACE: Verdict.PROJECT,
            gone: Verdict.WITHDRAW,
        }
        assert shop.rows(VIEWED_BEFORE, PLACE, gone) == [None, None]
        reason = shop.family.mirror.why_left(found[PLACE], RepairPolicy(), 0)
        assert reason.why is Why.ONLY_REPORTED

    @pytest.mark.parametrize(
        ("view", "reported"),
        [(VIEWED, False), (UPGRADED, False), (VIEWED_BEFORE, True)],
        ids=["August 2026", "upgraded", "3.9"],
    )
    def test_the_columns_of_the_view_tell_what_james_reads_there(self, view: Table, reported: bool) -> None:
        mirror = view_family(view).mirror

        assert bool(mirror.kept) is reported
        assert "sentat" not in dict(mirror.sources)
        assert ("thread_id" in dict(mirror.sources)) is not reported

    def test_a_view_that_james_does_not_fill_is_left(self) -> None:
        live = Schema((), (STORED, POPPED, VIEWED))

        found = in_keyspace(declared(), live, 15, empty=[VIEWED.name])

        assert found.projections == ("pop3metadata",)


def test_the_declaration_is_read_again_from_its_own_text() -> None:
    """A run keeps it as text."""
    for view in (VIEWED, UPGRADED, VIEWED_BEFORE):
        found = in_keyspace(declared(), Schema((), (*LIVE.tables[:-1], view)), version=15)
        assert read_declaration(found.text) == found

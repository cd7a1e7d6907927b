"""Rows of James that contradict each other: which are found, and that James's own requests mend them."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.cql.memory import MemoryTables
from mailmend.model.catalog.compared_tables import CURRENT_QUOTA, QUOTA_VALUE, SIEVE, SIEVE_ACTIVE, USER
from mailmend.model.catalog.mail import MAILBOX_PATH, MESSAGE_ID
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Change, Count, Level, Put, Remove
from mailmend.model.table import Table
from mailmend.repair.scanners.comparisons import TABLE_RULES
from mailmend.repair.scanners.mismatches import Mismatch, MismatchLook, TableRule, confirmed, unsettled
from tests.support.clock import VirtualClock
from tests.support.repairing import message
from tests.support.schemas import served_table

BOX = message(1)
OTHER = message(2)
LIVE = Schema((), tuple(map(served_table, (USER, SIEVE, SIEVE_ACTIVE, QUOTA_VALUE, MAILBOX_PATH, MESSAGE_ID))))


def rule_of(table: Table) -> TableRule:
    return next(rule for rule in TABLE_RULES if rule.table is table)


def look(mail: MemoryTables, table: Table, first: MismatchLook | None = None) -> MismatchLook:
    return rule_of(table).look(mail, Level.ONE, first)


def found(mail: MemoryTables, table: Table) -> dict[tuple[str, ...], Mismatch]:
    return {mismatch.key: mismatch for mismatch in look(mail, table).found}


class JamesUsers:
    """What James does with the table `user`, in its own statements."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.mail = MemoryTables(self.clock.micros)
        self.names: set[str] = set()

    def _write(self, *writes: Any) -> None:
        for write in writes:
            self.clock.advance(1)
            self.mail.write(write)

    def create(self, name: str) -> None:
        self.names.add(name)
        self._write(Change(USER, (name,), {"algorithm": "PBKDF2"}))

    def delete(self, name: str) -> None:
        """Without the task that deletes a user's data."""
        self.names.discard(name)
        self._write(Remove(USER, (name,)))

    def authorise(self, owner: str, other: str) -> None:
        """PUT /users/OWNER/authorizedUsers/OTHER."""
        self._write(Change(USER, (owner,), add={"authorized_users": frozenset({other})}))
        if other in self.names:
            self._write(Change(USER, (other,), add={"delegated_users": frozenset({owner})}))

    def forbid(self, owner: str, other: str) -> None:
        """DELETE /users/OWNER/authorizedUsers/OTHER."""
        self._write(
            Change(USER, (owner,), take={"authorized_users": frozenset({other})}),
            Change(USER, (other,), take={"delegated_users": frozenset({owner})}),
        )

    def ask(self, request: str) -> None:
        method, path = request.split(" ")
        _, _, owner, _, other = path.split("/")
        if method == "PUT":
            self.authorise(owner, other)
        else:
            self.forbid(owner, other)


NAMES = st.sampled_from(["ann@x.org", "bob@x.org", "eve@x.org"])
STEPS = st.lists(st.tuples(st.sampled_from(["create", "delete", "authorise", "forbid"]), NAMES, NAMES), max_size=12)


def done(steps: Iterable[tuple[str, str, str]]) -> JamesUsers:
    james = JamesUsers()
    for what, owner, other in steps:
        if what in {"create", "delete"}:
            getattr(james, what)(owner)
        else:
            getattr(james, what)(owner, other)
    return james


class TestDelegations:
    """Both sides of a delegation say the same, as far as James writes both."""

    def test_an_account_that_is_shown_and_not_authorised_is_found(self) -> None:
        james = JamesUsers()
        james.create("ann@x.org")
        james.create("bob@x.org")
        james.authorise("ann@x.org", "bob@x.org")
        james.delete("ann@x.org")

        (mismatch,) = look(james.mail, USER).found

        assert mismatch == Mismatch("user", ("bob@x.org", "ann@x.org"))
        assert mismatch.what == "bob@x.org is shown the account of ann@x.org, who does not authorise bob@x.org"
        assert mismatch.mend == "DELETE /users/ann@x.org/authorizedUsers/bob@x.org"

    def test_an_authorised_user_who_is_created_later_is_found_then(self) -> None:
        james = JamesUsers()
        james.create("ann@x.org")
        james.authorise("ann@x.org", "bob@x.org")
        assert look(james.mail, USER).found == set()

        james.create("bob@x.org")

        (mismatch,) = look(james.mail, USER).found
        assert mismatch.what == "ann@x.org authorises bob@x.org, who is not shown the account"
        assert mismatch.mend == "PUT /users/ann@x.org/authorizedUsers/bob@x.org"

    @given(STEPS)
    def test_james_own_requests_leave_no_mismatch_while_no_user_comes_or_goes(
        self, steps: list[tuple[str, str, str]]
    ) -> None:
        users = [("create", name, name) for name in ("ann@x.org", "bob@x.org", "eve@x.org")]
        others = [step for step in steps if step[0] in {"authorise", "forbid"}]

        assert look(done([*users, *others]).mail, USER).found == set()

    @given(STEPS)
    def test_the_named_requests_mend_whatever_was_found(self, steps: list[tuple[str, str, str]]) -> None:
        james = done(steps)

        for mismatch in look(james.mail, USER).found:
            james.ask(mismatch.mend)

        assert look(james.mail, USER).found == set()

    def test_a_name_that_is_no_part_of_a_path_is_encoded(self) -> None:
        james = JamesUsers()
        james.mail.write(Change(USER, ("a/b",), add={"delegated_users": frozenset({"ann x"})}))

        (mismatch,) = look(james.mail, USER).found

        assert mismatch.mend == "DELETE /users/ann%20x/authorizedUsers/a%2Fb"


@pytest.fixture
def mail() -> MemoryTables:
    return MemoryTables(VirtualClock().micros)


def script(mail: MemoryTables, name: str, *, is_active: bool) -> None:
    mail.write(Put(SIEVE, {"user_name": "ann", "script_name": name, "is_active": is_active}))


def runs(mail: MemoryTables, name: str) -> None:
    mail.write(Put(SIEVE_ACTIVE, {"user_name": "ann", "script_name": name}))


class TestScripts:
    """The script that runs is there, and no other one is shown as active."""

    def test_a_script_that_was_uploaded_again_runs_without_its_flag(self, mail: MemoryTables) -> None:
        """James's putScript writes a cleared flag, over an active script too."""
        script(mail, "holiday", is_active=False)
        runs(mail, "holiday")

        assert look(mail, SIEVE_ACTIVE).found == set()

    def test_an_active_script_that_is_not_there_is_found(self, mail: MemoryTables) -> None:
        """As after a rename that was killed."""
        script(mail, "summer", is_active=False)
        runs(mail, "holi/day")

        mismatch = found(mail, SIEVE_ACTIVE)["ann",]

        assert mismatch.table == "sieve_active"
        assert mismatch.what == "the active script of ann, 'holi/day', is not in sieve: no script runs"
        assert mismatch.mend == "PUT /sieve/ann/scripts/holi%2Fday?activate=true, with the script"

    @pytest.mark.parametrize(
        ("other", "words", "again"), [("summer", "'summer' runs", "summer"), (None, "no script runs", "")]
    )
    def test_a_script_that_is_shown_as_active_and_does_not_run_is_found(
        self, mail: MemoryTables, other: str | None, words: str, again: str
    ) -> None:
        """As after an activation that was killed between its two writes."""
        script(mail, "holiday", is_active=True)
        if other:
            script(mail, other, is_active=True)
            runs(mail, other)

        mismatch = found(mail, SIEVE_ACTIVE)["ann", "holiday"]

        assert mismatch.table == "sieve"
        assert mismatch.what == f"ann is shown 'holiday' as the active script, and {words}"
        assert mismatch.mend == f'ManageSieve of ann: SETACTIVE "holiday", then SETACTIVE "{again}"'


def mailbox(mail: MemoryTables, identity: UUID, user: str, namespace: str = "#private") -> None:
    name = f"{identity}"
    path = {"namespace": namespace, "user": user, "mailboxname": name, "mailboxid": identity}
    mail.write(Put(MAILBOX_PATH, path))


def messages(mail: MemoryTables, mailbox: UUID, *sizes: int | None) -> None:
    for uid, size in enumerate(sizes, 1):
        row = {"mailboxid": mailbox, "uid": uid, "messageid": message(uid), "fullcontentoctets": size}
        mail.write(Put(MESSAGE_ID, row))


def stored(mail: MemoryTables, user: str, count: int, size: int, component: str = "MAILBOX") -> None:
    for kind, number in (("count", count), ("size", size)):
        mail.write(Count(QUOTA_VALUE, (f"#private&{user}", component, kind), {"currentvalue": number}))


class TestQuotas:
    """A quota is the number and the bytes of all messages in the mailboxes of its user."""

    def test_mailboxes_of_one_user_are_counted_together(self, mail: MemoryTables) -> None:
        mailbox(mail, BOX, "ann")
        mailbox(mail, OTHER, "ann")
        messages(mail, BOX, 10, 20)
        messages(mail, OTHER, 30)
        stored(mail, "ann", 3, 60)

        assert look(mail, QUOTA_VALUE).found == set()

    def test_a_quota_that_differs_is_found_with_both_numbers(self, mail: MemoryTables) -> None:
        mailbox(mail, BOX, "ann")
        messages(mail, BOX, 10, 20)
        stored(mail, "ann", 2, 1_040)

        (mismatch,) = look(mail, QUOTA_VALUE).found

        assert mismatch == Mismatch("quotaCurrentValue", ("#private&ann", "size"), by=1_010)
        assert mismatch.what == "the size of #private&ann is 1,040, and its mailboxes have 30"
        assert mismatch.mend == "POST /quota/users?task=RecomputeCurrentQuotas"

    def test_a_user_without_a_quota_uses_nothing_and_a_quota_without_mailboxes_is_too_much(
        self, mail: MemoryTables
    ) -> None:
        mailbox(mail, BOX, "ann")
        messages(mail, BOX, 10)
        stored(mail, "gone", 2, 5)

        by = {key: mismatch.by for key, mismatch in found(mail, QUOTA_VALUE).items()}

        assert by == {
            ("#private&ann", "count"): -1,
            ("#private&ann", "size"): -10,
            ("#private&gone", "count"): 2,
            ("#private&gone", "size"): 5,
        }

    def test_other_namespaces_and_components_have_rules_of_their_own(self, mail: MemoryTables) -> None:
        """As team mailboxes have, and uploads."""
        mailbox(mail, BOX, "team@x.org", "#TeamMailbox")
        messages(mail, BOX, 10)
        stored(mail, "ann", 4, 5, "JMAP_UPLOADS")
        mail.write(Count(QUOTA_VALUE, ("#TeamMailbox&team@x.org", "MAILBOX", "count"), {"currentvalue": 7}))

        assert look(mail, QUOTA_VALUE).found == set()

    def test_a_size_that_a_row_lacks_is_not_guessed(self, mail: MemoryTables) -> None:
        mailbox(mail, BOX, "ann")
        messages(mail, BOX, 10, None)
        stored(mail, "ann", 3, 10)

        assert set(found(mail, QUOTA_VALUE)) == {("#private&ann", "count")}

    def test_the_older_table_is_compared_in_the_same_way(self, mail: MemoryTables) -> None:
        mailbox(mail, BOX, "ann")
        messages(mail, BOX, 10)
        mail.write(Count(CURRENT_QUOTA, ("#private&ann",), {"messagecount": 1, "storage": 11}))

        (mismatch,) = look(mail, CURRENT_QUOTA).found

        assert mismatch == Mismatch("currentQuota", ("#private&ann", "size"), by=1)

    @given(
        st.dictionaries(st.sampled_from(["ann", "bob", "eve"]), st.lists(st.integers(0, 9), max_size=3)),
        st.dictionaries(st.sampled_from(["ann", "bob", "eve"]), st.tuples(st.integers(0, 3), st.integers(0, 9))),
    )
    def test_a_second_look_at_what_differed_sees_the_same(
        self, boxes: dict[str, list[int]], quotas: dict[str, tuple[int, int]]
    ) -> None:
        """It reads the mailboxes of these users alone."""
        mail = MemoryTables(VirtualClock().micros)
        for number, (user, sizes) in enumerate(boxes.items(), 1):
            mailbox(mail, message(number), user)
            messages(mail, message(number), *sizes)
        for user, (count, size) in quotas.items():
            stored(mail, user, count, size)

        first = look(mail, QUOTA_VALUE)
        second = look(mail, QUOTA_VALUE, first)

        assert second.found == first.found


def test_what_james_wrote_in_between_is_no_mismatch(mail: MemoryTables) -> None:
    """An event was on its way at the first look; ann's second quota is wrong in both."""
    mailbox(mail, BOX, "ann")
    messages(mail, BOX, 10)
    stored(mail, "ann", 0, 15)
    first = look(mail, QUOTA_VALUE)
    mail.write(Count(QUOTA_VALUE, ("#private&ann", "MAILBOX", "count"), {"currentvalue": 1}))

    second = look(mail, QUOTA_VALUE, first)

    assert [mismatch.key for mismatch in confirmed(first, second)] == [("#private&ann", "size")]


def test_a_difference_that_changes_is_not_confirmed_and_looked_at_again(mail: MemoryTables) -> None:
    mailbox(mail, BOX, "ann")
    stored(mail, "ann", 1, 1)
    stored(mail, "bob", 1, 0)
    first = look(mail, QUOTA_VALUE)
    stored(mail, "ann", 1, 0)

    second = look(mail, QUOTA_VALUE, first)
    again = unsettled(first, second)
    third = look(mail, QUOTA_VALUE, again)

    assert [mismatch.key for mismatch in confirmed(first, second)] == [
        ("#private&ann", "size"),
        ("#private&bob", "count"),
    ]
    assert [mismatch.key for mismatch in again.found] == [("#private&ann", "count")]
    assert [(mismatch.key, mismatch.by) for mismatch in confirmed(again, third)] == [(("#private&ann", "count"), 2)]


def test_a_look_tells_how_many_rows_it_read(mail: MemoryTables) -> None:
    mailbox(mail, BOX, "ann")
    messages(mail, BOX, 10, 20)

    assert look(mail, QUOTA_VALUE).scanned == {"mailboxpathv3": 1, "messageidtable": 2, "quotacurrentvalue": 0}


def test_tables_and_columns_that_a_keyspace_lacks_are_named() -> None:
    """As a keyspace from before 3.8, whose users have no delegations, and where quotas are in the older table."""
    without = replace(USER, columns=tuple(column for column in USER.columns if column.name != "delegated_users"))
    live = replace(LIVE, tables=(served_table(without), *LIVE.tables[1:]))

    assert rule_of(USER).lacking(live) == ("user.delegated_users",)
    assert rule_of(CURRENT_QUOTA).lacking(live) == ("currentQuota",)
    assert rule_of(QUOTA_VALUE).lacking(live) == ()

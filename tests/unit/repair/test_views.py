"""Materialised views: compared with their base, and mended by a touch of the base's rows."""

from dataclasses import fields, replace
from typing import Any
from uuid import UUID

import pytest

from mailmend.model.keyspace import Schema, View
from mailmend.model.operations import Change, Seen
from mailmend.model.projections.declaration_file import read_declaration
from mailmend.model.projections.declaration_nodes import BadDeclaration
from mailmend.model.projections.family import Family
from mailmend.model.projections.findings import Finding, RepairPolicy, Suspect
from mailmend.model.projections.look import Look
from mailmend.model.projections.verdicts import Reason, Verdict, Why
from mailmend.model.projections.view_mirror import ViewMirror, touching
from mailmend.model.table import Key, Row, Table, columns
from mailmend.repair.clock import Timing
from mailmend.repair.declared import DoesNotFit, declared_families, proposed_pair
from mailmend.repair.mending.engine import RepairResult, RepairSettings
from mailmend.repair.mending.runner import repair
from mailmend.repair.proposals import proposed
from mailmend.repair.unseen import unseen_by
from tests.support.repairing import LONG_AGO
from tests.support.view_server import ViewServer
from tests.unit.repair.test_declared_pairs import Shop

USERS = Table("users", columns("user_id uuid", regular="email text, name text, age int, tags set<text>"))
BY_EMAIL = Table("users_by_email", columns("email text", "user_id uuid", "name text, age int"))
BY_TAGS = Table("users_by_name", columns("name text", "user_id uuid", "tags set<text>"))
WHERE = "email IS NOT NULL AND user_id IS NOT NULL"
VIEW = View(BY_EMAIL, "users", WHERE)
TAGS_VIEW = View(BY_TAGS, "users", "name IS NOT NULL AND user_id IS NOT NULL")
LIVE = Schema((), (USERS,), views=(VIEW, TAGS_VIEW))
TEXT = "[truth.users.view.users_by_email]\n"


def family_of(text: str = TEXT, live: Schema = LIVE) -> Family:
    (family,) = declared_families("shop", read_declaration(text, "shop.toml"), live)
    return family


def refused(text: str, live: Schema = LIVE) -> str:
    with pytest.raises(DoesNotFit) as caught:
        family_of(text, live)
    return str(caught.value)


class TestDeclaring:
    """A view is declared by its name alone; the live schema says the rest."""

    def test_it_has_the_columns_and_the_key_of_its_schema(self) -> None:
        mirror = family_of().mirror

        assert isinstance(mirror, ViewMirror)
        assert mirror.key == (("email", "email"), ("user_id", "user_id"))
        assert [column.name for column in mirror.compared] == ["name", "age"]
        assert mirror.fed_by == ("email", "name", "age")

    def test_what_feeds_it_follows_and_is_neither_given_nor_shown_nor_compared(self) -> None:
        (fed_by,) = (part for part in fields(ViewMirror) if part.name == "fed_by")

        assert (fed_by.init, fed_by.repr, fed_by.compare) == (False, False, False)

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("[truth.users.view.users_by_mail]", "there is no materialised view users_by_mail\n  Did you mean"),
            ("[truth.users.mirror.users_by_email]", "declare it as [truth.users.view.users_by_email]"),
            ("[truth.users_by_email.mirror.users]", "the truth users_by_email is a materialised view"),
            ("[truth.people.view.users_by_email]", "Declare it there: [truth.users.view.users_by_email]"),
        ],
    )
    def test_what_does_not_fit_is_named_with_what_to_write(self, text: str, said: str) -> None:
        people = replace(USERS, spelling="people")

        assert said in refused(text, replace(LIVE, tables=(USERS, people)))

    @pytest.mark.parametrize("condition", [f"{WHERE} AND age > 17", f"{WHERE} AND name IS NOT NULL"])
    def test_a_view_of_some_rows_is_refused(self, condition: str) -> None:
        some = replace(LIVE, views=(replace(VIEW, where=condition),))

        assert "has the condition" in refused(TEXT, some)
        assert "# users_by_email is a materialised view of users that cannot be" in proposed("shop", some).text

    def test_it_takes_no_parts(self) -> None:
        with pytest.raises(BadDeclaration, match="a view has no 'renamed'"):
            read_declaration(TEXT + 'renamed = { a = "b" }', "shop.toml")

    def test_it_stands_alone_in_a_declaration_of_one_name(self) -> None:
        (truth,) = read_declaration(TEXT + "[truth.users.mirror.copy]\n").truths

        assert truth.only("users_by_email").text == TEXT

    def test_two_names_declare_it(self) -> None:
        assert proposed_pair(LIVE, "users", "users_by_email").text == TEXT

    def test_it_is_proposed(self) -> None:
        assert proposed("shop", LIVE).text.endswith(TEXT + "\n[truth.users.view.users_by_name]\n")

    def test_a_declared_view_is_not_unseen(self) -> None:
        assert {table for table, _ in unseen_by((family_of(),), LIVE)} == {"users_by_email", "users_by_name"}
        assert ("users_by_name", "the file does not declare it") in unseen_by((family_of(),), LIVE)


def user(number: int, **cells: Any) -> Row:
    return {**dict.fromkeys(USERS.names), "user_id": UUID(int=number), "email": f"{number}@x", "name": "n", **cells}


def key_of(number: int) -> Key:
    return (f"{number}@x", UUID(int=number))


class ViewedShop(Shop):
    """A keyspace with a view, and a server that derives it."""

    def __init__(self, lag: int = 0) -> None:
        Shop.__init__(self, family_of())
        mirror = self.family.mirror
        assert isinstance(mirror, ViewMirror)
        self.world.memory.surround = ViewServer(self.world.mail, (mirror,), lag)

    def mended(self, *, touch_base: bool = True, dry_run: bool = False) -> tuple[RepairResult, dict[Key, Finding]]:
        found: list[Finding] = []
        settings = RepairSettings(
            "shop",
            (self.family,),
            delay_seconds=0.0,
            timing=Timing(no_writers=True),
            policy=RepairPolicy(touch_base=touch_base),
            dry_run=dry_run,
        )
        result = repair(settings, self._tools(), found.append)
        return result, {finding.suspect.key: finding for finding in found}


def damaged_shop(lag: int = 0) -> ViewedShop:
    """Five users: one view row is lost, one is wrong, one has a cell too many, one is left behind, one is right."""
    shop = ViewedShop(lag)
    for number in (1, 2, 3, 5):
        shop.put(USERS, user(number))
    shop.put(BY_EMAIL, {"email": "2@x", "user_id": UUID(int=2), "name": "old"})
    shop.put(BY_EMAIL, {"email": "3@x", "user_id": UUID(int=3), "name": "n", "age": 9})
    shop.put(BY_EMAIL, {"email": "4@x", "user_id": UUID(int=4), "name": "n"})
    shop.put(BY_EMAIL, {"email": "5@x", "user_id": UUID(int=5), "name": "n"})
    return shop


class TestMending:
    """A repair touches rows of the base where it is asked to, and writes nothing else."""

    def test_a_check_finds_both_directions(self) -> None:
        assert {key: finding.verdict for key, finding in damaged_shop().check().items()} == {
            key_of(1): Verdict.PROJECT,
            key_of(2): Verdict.AMEND,
            key_of(3): Verdict.AMEND,
            key_of(4): Verdict.WITHDRAW,
        }

    def test_a_row_without_a_key_of_the_view_demands_none(self) -> None:
        shop = ViewedShop()
        shop.put(USERS, user(1, email=None))

        assert shop.check() == {}

    def test_what_a_touch_can_mend_is_mended_and_the_rest_is_left_with_the_reason(self) -> None:
        shop = damaged_shop()

        result, found = shop.mended()

        assert {key: finding.result for key, finding in found.items()} == {
            key_of(1): Verdict.FIXED,
            key_of(2): Verdict.FIXED,
            key_of(3): None,
            key_of(4): None,
        }
        reasons = {key: finding.reason.why for key, finding in found.items() if finding.reason}
        assert reasons == {key_of(3): Why.CANNOT_BE_TOUCHED, key_of(4): Why.NEEDS_NEW_VIEW}
        assert set(shop.check()) == {key_of(3), key_of(4)}
        assert result.exit_code == 1

    def test_the_base_keeps_its_cells_and_each_is_a_microsecond_later(self) -> None:
        shop = damaged_shop()

        shop.mended()

        ((row, stamps, _),) = shop.rows(USERS, (UUID(int=1),))
        assert (row["email"], row["name"], row["age"]) == ("1@x", "n", None)
        assert stamps == {"email": LONG_AGO + 1, "name": LONG_AGO + 1}

    def test_without_the_option_nothing_is_written_and_the_option_is_named(self) -> None:
        shop = damaged_shop()
        before = shop.rows(USERS, (UUID(int=1),))

        result, found = shop.mended(touch_base=False)

        assert result.fixed.total() == 0
        assert found[key_of(1)].reason == Reason(Why.NEEDS_TOUCH_BASE)
        assert shop.rows(USERS, (UUID(int=1),)) == before

    def test_a_dry_run_touches_nothing(self) -> None:
        shop = damaged_shop()
        before = shop.rows(USERS, (UUID(int=1),))

        result, _ = shop.mended(dry_run=True)

        assert +result.due == {Verdict.PROJECT: 1, Verdict.AMEND: 1}
        assert shop.rows(USERS, (UUID(int=1),)) == before

    def test_a_row_of_the_view_that_comes_late_is_waited_for(self) -> None:
        _, found = damaged_shop(lag=6).mended()

        assert found[key_of(1)].result is Verdict.FIXED

    def test_a_row_that_a_later_deletion_hides_is_hidden(self) -> None:
        shop = damaged_shop()
        shop.world.remove(BY_EMAIL, key_of(1), at=LONG_AGO + 10)

        _, found = shop.mended()

        assert found[key_of(1)].result is Verdict.HIDDEN
        assert found[key_of(1)].reason == Reason(Why.HIDDEN_IN_VIEW)

    def test_an_expiring_row_keeps_what_it_has_left(self) -> None:
        shop = ViewedShop()
        shop.put(USERS, user(1), ends_in=500_000)

        shop.mended()

        ((_, _, ttls),) = shop.rows(BY_EMAIL, key_of(1))
        assert ttls["name"] == 500_000

    def test_an_undo_has_nothing_to_put_back(self) -> None:
        shop = damaged_shop()
        result, _ = shop.mended()
        before = shop.rows(USERS, (UUID(int=1),)), shop.rows(BY_EMAIL, key_of(1))
        assert result.run is not None

        shop.undo(result.run)

        assert (shop.rows(USERS, (UUID(int=1),)), shop.rows(BY_EMAIL, key_of(1))) == before

    def test_a_change_of_the_base_writes_no_row_of_the_view(self) -> None:
        assert family_of().mirror.writes_for(None, user(1), LONG_AGO) == ()

    def test_an_undo_shows_the_rows_as_they_are_and_writes_nothing(self) -> None:
        mirror = family_of().mirror
        suspect = Suspect(mirror.name, key_of(1), Verdict.AMEND)
        before = Finding(suspect, Verdict.AMEND, Verdict.FIXED, (Seen(user(1, name="old")),), error="it failed")
        there = Look(suspect, mirror, None, mirror, Seen(user(3)), truths=(Seen(user(2)),))

        undone = mirror.take_back(before, there, LONG_AGO, None)

        assert undone == Finding(suspect, Verdict.AGREE, None, there.truths, there.projected)

    @pytest.mark.parametrize(
        ("verdict", "policy", "why"),
        [
            (Verdict.WITHDRAW, RepairPolicy(), Why.NEEDS_NEW_VIEW),
            (Verdict.AMEND, RepairPolicy(only=frozenset({Verdict.PROJECT})), Why.NEEDS_ONLY),
            (Verdict.AMEND, RepairPolicy(), Why.NEEDS_TOUCH_BASE),
            (Verdict.AMEND, RepairPolicy(touch_base=True), Why.CANNOT_BE_TOUCHED),
        ],
    )
    def test_a_finding_that_is_left_has_its_reason(self, verdict: Verdict, policy: RepairPolicy, why: Why) -> None:
        mirror = family_of().mirror
        finding = Finding(Suspect(mirror.name, key_of(1), verdict), verdict)

        assert mirror.why_left(finding, policy, LONG_AGO) == Reason(why)

    @pytest.mark.parametrize(
        ("verdict", "policy", "asked"),
        [
            (Verdict.AMEND, RepairPolicy(touch_base=True), True),
            (Verdict.AMEND, RepairPolicy(), False),
            (Verdict.WITHDRAW, RepairPolicy(touch_base=True), False),
            (Verdict.AMEND, RepairPolicy(touch_base=True, only=frozenset({Verdict.PROJECT})), False),
        ],
    )
    def test_only_what_a_touch_mends_is_asked_for(self, verdict: Verdict, policy: RepairPolicy, asked: bool) -> None:
        assert family_of().mirror.asks_for(verdict, policy) is asked


class TestTouching:
    """The writes of a row's own cells."""

    def test_cells_of_one_time_and_one_expiry_are_one_write(self) -> None:
        seen = Seen(user(1, age=7), {"email": 5, "name": 5, "age": 9}, expires_at={"name": 100})

        assert touching(USERS, seen, ("email", "name", "age")) == (
            Change(USERS, (UUID(int=1),), {"email": "1@x"}, at=6),
            Change(USERS, (UUID(int=1),), {"name": "n"}, at=6, expires_at=100),
            Change(USERS, (UUID(int=1),), {"age": 7}, at=10),
        )

    def test_a_collection_with_times_of_its_own_is_not_touched(self) -> None:
        seen = Seen(user(1, tags=frozenset("a")), {"name": 5, "tags": 5})
        empty = Seen(user(1, tags=frozenset()), {"name": 5})

        assert touching(USERS, seen, ("name", "tags")) == ()
        assert touching(USERS, empty, ("tags", "name")) == (Change(USERS, (UUID(int=1),), {"name": "n"}, at=6),)

    def test_a_row_of_keys_alone_shows_no_time(self) -> None:
        assert touching(USERS, Seen(user(1, email=None, name=None)), ("email", "name")) == ()

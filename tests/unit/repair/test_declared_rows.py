"""What a declaration tells of the rows of its truth: which are whole, and what changes before them."""

from typing import Any

import pytest

from mailmend.model.keyspace import Schema
from mailmend.model.projections.declaration_file import read_declaration
from mailmend.model.projections.family import Family
from mailmend.model.projections.findings import RepairPolicy
from mailmend.model.projections.partial_mirror import ExplodedMirror, PartialMirror
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Key, Row, Table, columns, names_of
from mailmend.repair.declared import DoesNotFit, declared_families
from mailmend.repair.mending.counter_reads import Tallies
from mailmend.repair.mending.generators import raised_by
from mailmend.repair.unseen import unseen_by
from tests.unit.repair.test_declared_pairs import Shop

ORDERS = Table(
    "orders",
    columns(
        "shop text",
        "number int",
        "day text, state text, sum bigint, tags set<text>, lines frozen<list<text>>",
        static="owner text, owner_number int",
    ),
)
BY_DAY = Table("by_day", columns("day text", "shop text, number int", "state text, sum bigint"))
BY_TAG = Table("by_tag", columns("tag text", "shop text, number int", "state text"))
OPEN = Table("open_orders", columns("shop text", "number int"))
BY_SHOP = Table("by_shop", columns("shop text", "day text, number int"))
TOTALS = Table("totals", columns("shop text", regular="total counter"))
SUMS = Table("sums", columns("shop text", regular="total int"))
GIVEN = Table("given", columns("name text", regular="last int"))
TAKEN = Table("taken", columns("shop text", regular="number counter"))
PER_DAY = Table("per_day", columns("shop text", "day text", "total counter"))
SWAPPED = Table("swapped", columns("day text", "shop text", "last int"))
DAYS = Table("days", columns("shop text", "day text", "last int"))
LIVE = Schema((), (ORDERS, BY_DAY, BY_TAG, OPEN, BY_SHOP, TOTALS, SUMS, GIVEN, TAKEN, DAYS, PER_DAY, SWAPPED))
MIRROR = "[truth.orders.mirror.by_day]\n"
WHOLE = f'{MIRROR}required = ["State"]\n'


def families(text: str, live: Schema = LIVE) -> tuple[Family, ...]:
    return declared_families("shop", read_declaration(text, "shop.toml"), live)


def refused(text: str, live: Schema = LIVE) -> str:
    with pytest.raises(DoesNotFit) as caught:
        families(text, live)
    return str(caught.value)


def order(number: int, **changed: Any) -> Row:
    row = {"shop": "s", "number": number, "day": "monday", "state": "open", "sum": 7}
    return {**row, "tags": frozenset({"a"}), **changed}


def copy(number: int, **changed: Any) -> Row:
    return {"shop": "s", "number": number, "day": "monday", "state": "open", "sum": 7, **changed}


def verdicts(shop: Shop) -> dict[Key, Verdict]:
    return {key: finding.verdict for key, finding in shop.check().items()}


class TestRequired:
    """Columns that every insert into the truth writes: a row that lacks one is TORN."""

    def test_a_mirror_has_the_names_of_its_required_columns(self) -> None:
        (family,) = families(WHOLE)
        assert family.mirror.required == ("state",)
        assert "state" in family.truth_columns

    @pytest.mark.parametrize(
        ("text", "kind"),
        [
            (f"{WHOLE}when = {{ sum = 7 }}\n", PartialMirror),
            (
                '[truth.orders.explode.by_tag]\ncolumn = "tags"\nelement = "tag"\nrequired = ["state"]\n',
                ExplodedMirror,
            ),
        ],
        ids=["of some rows", "of elements"],
    )
    def test_a_mirror_of_parts_has_them_too(self, text: str, kind: type[PartialMirror]) -> None:
        (family,) = families(text)
        assert isinstance(family.mirror, kind)
        assert family.mirror.required == ("state",)

    def test_a_torn_row_is_reported_and_nothing_follows_from_it(self) -> None:
        (family,) = families(f"{WHOLE}[truth.orders.filter.open_orders]\nwhen = {{ sum = 7 }}\n")
        shop = Shop(family)
        shop.put(ORDERS, order(1))
        shop.put(ORDERS, order(2, state=None))

        assert verdicts(shop) == {
            ("monday", "s", 1): Verdict.PROJECT,
            ("monday", "s", 2): Verdict.TORN,
            ("s", 1): Verdict.PROJECT,
        }
        shop.repair()
        assert verdicts(shop) == {("monday", "s", 2): Verdict.TORN}
        assert shop.rows(OPEN, ("s", 2)) == [None]

    def test_a_torn_row_without_a_column_outside_the_copy_is_torn_too(self) -> None:
        (family,) = families(f'{MIRROR}required = ["lines"]\n')
        shop = Shop(family)
        shop.put(ORDERS, order(1, lines=None))
        shop.put(BY_DAY, copy(1))
        shop.put(ORDERS, order(2, lines=("a",)))
        shop.put(BY_DAY, copy(2))

        assert verdicts(shop) == {("monday", "s", 1): Verdict.TORN}

    def test_a_row_of_elements_is_torn_where_its_truth_is(self) -> None:
        text = '[truth.orders.explode.by_tag]\ncolumn = "tags"\nelement = "tag"\nrequired = ["sum"]\n'
        (family,) = families(text)
        shop = Shop(family)
        shop.put(ORDERS, order(1, sum=None))

        assert verdicts(shop) == {("a", "s", 1): Verdict.TORN}

    def test_a_torn_row_that_is_accepted_is_as_whole(self) -> None:
        (family,) = families(WHOLE)
        shop = Shop(family, RepairPolicy(accept_torn=True))
        shop.put(ORDERS, order(1, state=None))

        shop.repair()

        assert verdicts(shop) == {}
        (found,) = shop.rows(BY_DAY, ("monday", "s", 1))
        assert found[0] == copy(1, state=None)

    @pytest.mark.parametrize(
        ("column", "said"),
        [
            ("stat", "orders has no column stat\n  Did you mean 'state'?"),
            ("number", "orders.number is in the key, static, or a collection"),
            ("owner", "orders.owner is in the key, static, or a collection"),
            ("tags", "orders.tags is in the key, static, or a collection, whose null is the empty one"),
        ],
    )
    def test_a_column_that_tells_no_whole_row_is_refused(self, column: str, said: str) -> None:
        assert said in refused(f'{MIRROR}required = ["{column}"]')


COUNTED = "[truth.orders.mirror.by_shop]\n[truth.orders.count.totals]\ncounters = { total = {} }\n"
PER_DAY_COUNTED = COUNTED.replace("totals", "per_day") + 'generators = ["swapped"]'
NUMBERED = f'{COUNTED}generators = ["given"]\nnumbered_by = {{ number = "given" }}\n'


class TestGenerators:
    """Tables whose row of a group changes before a row of the truth does."""

    def test_a_count_has_the_tables_of_its_generators(self) -> None:
        (family,) = families(f'{COUNTED}generators = ["given", "Taken"]\n')
        (counts,) = family.counts
        assert counts.generators == (GIVEN, TAKEN)

    @pytest.mark.parametrize("has_generator", [True, False])
    def test_two_looks_differ_where_a_generator_changed(self, has_generator: bool) -> None:
        text = COUNTED
        if has_generator:
            text += 'generators = ["given"]\n'
        (family,) = families(text)
        shop = Shop(family)
        shop.put(ORDERS, order(1))
        shop.put(BY_SHOP, {"shop": "s", "day": "monday", "number": 1})
        shop.put(GIVEN, {"name": "s", "last": 1})
        tallies = Tallies(shop.world.mail, family, family.counts[0], RepairPolicy())
        first = tallies.look(("s",))
        again = tallies.look(("s",))

        shop.put(GIVEN, {"name": "s", "last": 2})

        assert first.same_as(again)
        assert first.same_as(tallies.look(("s",))) is not has_generator

    def test_a_check_compares_no_numbers_of_a_generator_that_gave_none(self) -> None:
        (family,) = families(f'{COUNTED}generators = ["given"]\n')
        shop = Shop(family)
        shop.put(ORDERS, order(1))

        assert family.numberings == ()
        assert verdicts(shop) == {("s", "monday", 1): Verdict.PROJECT}

    def test_a_generator_that_is_behind_is_named_and_raised(self) -> None:
        # Given
        (family,) = families(NUMBERED)
        shop = Shop(family)
        shop.put(ORDERS, order(4))
        shop.put(BY_SHOP, {"shop": "s", "day": "monday", "number": 4})
        shop.put(GIVEN, {"name": "s", "last": 3})

        # When
        result = shop.repaired()

        # Then
        (behind,) = result.generators
        assert (behind.group, behind.last, behind.in_use, behind.raised) == ({"name": "s"}, 3, 4, True)
        assert behind.statement == "UPDATE shop.given SET last = 4 WHERE name = 's' IF last = 3;"
        ((row, _, _),) = shop.rows(GIVEN, ("s",))
        assert row["last"] == 4
        (kept,) = raised_by({"generators": [behind.kept]})
        assert (kept.group, kept.mailbox) == (behind.group, None)

    def test_another_generator_with_rows_tells_that_numbers_are_given(self) -> None:
        (family,) = families(NUMBERED.replace('["given"]', '["given", "Taken"]'))
        (numbering,) = family.numberings

        assert numbering.generators == (GIVEN,)
        assert set(names_of(numbering.used_with)) == {"given", "taken"}

    @pytest.mark.parametrize("used", [False, True])
    def test_a_generator_without_a_row_is_behind_where_numbers_are_given(self, used: bool) -> None:
        (family,) = families(f'{NUMBERED}used_with = ["days"]\n')
        shop = Shop(family)
        shop.put(ORDERS, order(4))
        shop.put(BY_SHOP, {"shop": "s", "day": "monday", "number": 4})
        if used:
            shop.put(DAYS, {"shop": "s", "day": "monday", "last": 0})

        result = shop.repaired()

        assert [(behind.last, behind.in_use) for behind in result.generators] == [(0, 4)] * used

    def test_a_generator_is_not_named_as_unseen(self) -> None:
        live = Schema((), (ORDERS, BY_SHOP, TOTALS, GIVEN, SUMS))
        unseen = unseen_by(families(f'{COUNTED}generators = ["given"]\n', live), live)
        undeclared = [found.table for found in unseen if "does not declare" in found.why]
        assert undeclared == ["sums"]

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            (f'{COUNTED}generators = ["givn"]', "there is no table givn\n  Did you mean 'given'?"),
            (
                f'{COUNTED}generators = ["days"]',
                "the key of days is not the key of totals\n  A generator has a row for each group.",
            ),
            (f"{NUMBERED.replace('number =', 'numbr =')}", "orders has no column numbr\n  Did you mean 'number'?"),
            (f"{NUMBERED.replace('number =', 'state =')}", "orders.state is of type text\n  A generator gives numbers"),
            (
                f'{COUNTED}generators = ["Taken"]\nnumbered_by = {{ number = "Taken" }}',
                "the rows of taken have not one number alone",
            ),
            (
                PER_DAY_COUNTED,
                "the key of swapped has the columns of per_day in another order",
            ),
            (f"{NUMBERED.replace('number =', 'owner_number =')}", "orders.owner_number is static"),
            (f"{NUMBERED.replace('number =', 'shop =')}", "orders.shop names the group, and is no number in it"),
            (f'{NUMBERED}used_with = ["dayz"]', "there is no table dayz\n  Did you mean 'days'?"),
            (
                COUNTED.replace("totals", "sums") + 'generators = ["given"]',
                "sums has no counters, and only counters have generators",
            ),
        ],
    )
    def test_a_generator_that_does_not_fit_is_named(self, text: str, said: str) -> None:
        assert said in refused(text)

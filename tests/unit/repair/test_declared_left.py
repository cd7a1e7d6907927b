"""What a declaration leaves to a person, fills from a content, or reads field by field."""

from dataclasses import replace
from typing import Any

import pytest

from mailmend.model.keyspace import Schema
from mailmend.model.projections.declaration_file import read_declaration
from mailmend.model.projections.family import Family
from mailmend.model.projections.filled_mirror import FilledMirror
from mailmend.model.projections.findings import RepairPolicy
from mailmend.model.projections.verdicts import DAY_MICROS, Reason, Verdict, Why
from mailmend.model.table import Key, Row, Table, UserType, columns
from mailmend.model.values import FrozenMap
from mailmend.repair.decisions.recheck import reason_of
from mailmend.repair.declared import DoesNotFit, declared_families
from mailmend.repair.ledger.declared_runs import changes_since, kept_of
from tests.support.clock import START, uuid_at
from tests.unit.repair.test_declared_pairs import Shop

NOTES = Table(
    "notes",
    columns("id timeuuid", regular="owner text, title text, size int, city text, street text"),
)
BY_OWNER = Table("by_owner", columns("owner text", "id timeuuid", "title text, size int"))
BY_CITY = Table("by_city", columns("city text", "id timeuuid", "title text"))
BODIES = Table("bodies", columns("id timeuuid", regular="title text, bytes int, size text"))
PLACES = Table("places", columns("id timeuuid", regular="title text, at frozen<address>"))
ADDRESS = UserType("address", (("city", "text"), ("street", "text")))
LIVE = Schema((ADDRESS,), (NOTES, BY_OWNER, BY_CITY, BODIES, PLACES))
OLD = uuid_at(START - 2 * DAY_MICROS, 1)
YOUNG = uuid_at(START, 2)
REPORTED = '[truth.notes.mirror.by_owner]\nonly_reported = { WITHDRAW = "its owner decides" }\n'
FILLED = """\
[truth.notes.mirror.by_owner]
required = ["title", "size"]
filled_from_content = ["title", "size"]

[truth.notes.content.bodies]
renamed = { bytes = "size" }
"""
FIELDS = '[truth.notes.mirror.places]\nfields = { at = { city = "city", street = "street" } }\n'


def families(text: str, live: Schema = LIVE) -> tuple[Family, ...]:
    return declared_families("shop", read_declaration(text, "shop.toml"), live)


def family(text: str) -> Family:
    (found,) = families(text)
    return found


def refused(text: str, live: Schema = LIVE) -> str:
    with pytest.raises(DoesNotFit) as caught:
        families(text, live)
    return str(caught.value)


def note(**changed: Any) -> Row:
    return {"id": OLD, "owner": "ann", "title": "t", "size": 7, **changed}


def verdicts(shop: Shop) -> dict[Key, Verdict]:
    return {key: finding.verdict for key, finding in shop.check().items()}


class TestOnlyReported:
    """Verdicts that a repair leaves, each with the reason that the declaration gives."""

    def test_a_finding_is_left_with_the_declared_reason(self) -> None:
        shop = Shop(family(REPORTED))
        shop.put(NOTES, note())
        shop.put(BY_OWNER, {"owner": "eve", "id": OLD, "title": "t", "size": 7})

        shop.repair()

        found = shop.check()
        assert {key: finding.verdict for key, finding in found.items()} == {("eve", OLD): Verdict.WITHDRAW}
        (left,) = found.values()
        why = reason_of(left, RepairPolicy(), shop.world.clock.micros(), shop.family.mirror)
        assert why == Reason(Why.ONLY_REPORTED, said="its owner decides")
        assert why is not None
        assert why.text == "only reported: its owner decides"

    def test_a_row_of_elements_may_be_left_too(self) -> None:
        text = '[truth.boxes.explode.tags]\ncolumn = "names"\nelement = "name"\nonly_reported = { AMEND = "why" }\n'
        boxes = Table("boxes", columns("id int", regular="names set<text>, size int"))
        tags = Table("tags", columns("name text", "id int", "size int"))
        (found,) = families(text, Schema((), (boxes, tags)))

        assert found.mirror.kept == ((Verdict.AMEND, "why"),)


class TestFilledFromContent:
    """A torn row of the truth gets from its content what it lacks, where an option says so."""

    def shop(self, *, fill: bool = True) -> Shop:
        return Shop(family(FILLED), RepairPolicy(fill_torn=fill))

    def test_a_mirror_has_the_columns_of_the_content(self) -> None:
        mirror = family(FILLED).mirror
        assert isinstance(mirror, FilledMirror)
        assert mirror.fills == (("title", "title"), ("size", "bytes"))
        assert mirror.required == ("title", "size")

    @pytest.mark.parametrize("fill", [True, False])
    def test_a_torn_row_is_filled_where_an_option_says_so(self, *, fill: bool) -> None:
        shop = self.shop(fill=fill)
        shop.put(NOTES, note(title=None, size=None))
        shop.put(BY_OWNER, {"owner": "ann", "id": OLD})
        shop.put(BODIES, {"id": OLD, "title": "t", "bytes": 7})

        shop.repair()

        assert verdicts(shop) == ({} if fill else {("ann", OLD): Verdict.TORN})
        (truth,) = shop.rows(NOTES, (OLD,))
        assert (truth[0]["title"], truth[0]["size"]) == (("t", 7) if fill else (None, None))

    def test_an_undo_empties_what_was_filled(self) -> None:
        shop = self.shop()
        shop.put(NOTES, note(size=None))
        shop.put(BY_OWNER, {"owner": "ann", "id": OLD, "title": "t"})
        shop.put(BODIES, {"id": OLD, "title": "other", "bytes": 7})

        run = shop.repair()
        (filled,) = shop.rows(NOTES, (OLD,))
        shop.undo(run)

        (emptied,) = shop.rows(NOTES, (OLD,))
        assert (filled[0]["title"], filled[0]["size"]) == ("t", 7)
        assert emptied[0]["size"] is None

    def test_a_row_that_is_younger_than_a_day_is_left(self) -> None:
        shop = self.shop()
        shop.put(NOTES, note(id=YOUNG, size=None))
        shop.put(BY_OWNER, {"owner": "ann", "id": YOUNG, "title": "t"})
        shop.put(BODIES, {"id": YOUNG, "title": "t", "bytes": 7})

        shop.repair()

        assert verdicts(shop) == {("ann", YOUNG): Verdict.TORN}

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            (
                '[truth.notes.mirror.by_owner]\nrequired = ["size"]\nfilled_from_content = ["size"]\n',
                "the truth notes has no content\n  Declare it: [truth.notes.content.TABLE].",
            ),
            (FILLED.replace("bytes", "byte"), "bodies has no column byte"),
            (FILLED.partition("renamed")[0], "bodies.size is of type text\n  Leave it out, or name"),
            (
                f"[truth.notes.mirror.by_city]\n{FILLED}",
                "only the first mirror of all rows is filled from the content",
            ),
        ],
    )
    def test_what_cannot_fill_is_named(self, text: str, said: str) -> None:
        assert said in refused(text)

    def test_a_truth_without_uuids_tells_no_age(self) -> None:
        tables = []
        for table in LIVE.tables:
            plain = [replace(column, type="int") if column.name == "id" else column for column in table.columns]
            tables.append(table.with_columns(plain))
        said = refused(FILLED, Schema((ADDRESS,), tuple(tables)))
        assert "no UUID in the partition key of notes tells when a row was made" in said


class TestFields:
    """A column of a user type is compared and written field by field."""

    def test_each_field_has_a_column_of_the_truth(self) -> None:
        mirror = family(FIELDS).mirror
        assert mirror.renamed == (("at.city", "city"), ("at.street", "street"))
        assert [column.name for column in mirror.compared] == ["title", "at.city", "at.street"]

    def test_a_field_that_differs_is_mended_with_the_whole_value(self) -> None:
        shop = Shop(family(FIELDS))
        shop.put(NOTES, note(city="Rome", street="a"))
        shop.put(PLACES, {"id": OLD, "title": "t", "at": FrozenMap({"city": "Bonn", "street": "a"})})

        assert verdicts(shop) == {(OLD,): Verdict.AMEND}
        shop.repair()

        assert verdicts(shop) == {}
        (found,) = shop.rows(PLACES, (OLD,))
        assert found[0]["at"] == {"city": "Rome", "street": "a"}

    def test_a_run_keeps_the_column_whole(self) -> None:
        declaration = read_declaration(FIELDS, "shop.toml")
        kept = kept_of(declaration, declared_families("shop", declaration, LIVE))
        dropped = Schema((), tuple(table for table in LIVE.tables if table.name != "places"))

        assert changes_since(kept, LIVE) == []
        assert changes_since(kept, dropped) == ["there is no table places any more"]

    @pytest.mark.parametrize(
        ("fields", "said"),
        [
            ('{ ad = { city = "city" } }', "places has no column ad"),
            ('{ title = { city = "city" } }', "places.title is of type text, and has no fields to read"),
            ('{ at = { city = "city" } }', "places.at is written with all of its fields\n  Name a column for: street."),
            (
                '{ at = { city = "city", street = "street", town = "city" } }',
                "frozen<address> has no field town",
            ),
            ('{ at = { city = "city", street = "stret" } }', "notes has no column stret\n  Did you mean 'street'?"),
            (
                '{ at = { city = "city", street = "size" } }',
                "places.at.street is of type text, and notes.size of type int",
            ),
        ],
    )
    def test_fields_that_do_not_fit_are_named(self, fields: str, said: str) -> None:
        assert said in refused(f"[truth.notes.mirror.places]\nfields = {fields}\n")

"""Computed columns and values by group, on a real Cassandra: found, mended and put back."""

from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from uuid import UUID

import pytest

from mailmend.model.keyspace import Schema
from mailmend.model.operations import Put, Remove
from mailmend.model.table import Row, Table, UserType, columns
from tests.support.declared_shops import DeclaredShop, declared_shop
from tests.support.servers import CassandraServer

pytestmark = [pytest.mark.cassandra]

ADDRESS = UserType("address", (("city", "text"), ("zip", "int")))
EVENTS = Table(
    "events",
    columns("person int", "id timeuuid", "at timestamp, email text, doc text, home frozen<address>, size int"),
)
BY_DAY = Table(
    "events_by_day",
    columns("day date, region text, slot int", "id timeuuid, person int", "hour text, mail text, city text"),
)
KINDS = Table("kinds", columns("kind text", "person int, id timeuuid"))
TOTALS = Table("totals", columns("person int", regular="total bigint, note text"))
LARGEST = Table("largest", columns("person int", regular="size int"))
TABLES = (EVENTS, BY_DAY, KINDS, TOTALS, LARGEST)
MIRROR = """\
[truth.events.mirror.events_by_day]
computed = { day = { day_of = "id" }, region = { constant = "eu" }, \
slot = { crc32_of = "person", buckets = 4 }, hour = { hour_of = "at" }, \
mail = { lower = "email", default = "none" }, city = { field_of = "home", field = "city" } }
"""
GROUPS = """\
[truth.events.filter.kinds]
when = {}
computed = { kind = { json_of = "doc", path = "event.kind" } }

[truth.events.count.totals]
counters = { total = {} }

[truth.events.max.largest]
columns = { size = "size" }
"""
PERSONS = 5
EVENTS_EACH = 8


def event(person: int, number: int) -> Row:
    """An event whose UUID is of 2024-05-31, and whose instant is of its number's hour."""
    return {
        "person": person,
        "id": UUID(f"cbea{number:04x}-1f4b-11ef-8000-{person:012x}"),
        "at": datetime(2024, 6, number, number, 30, tzinfo=UTC),
        "email": f"Ärger{number}@SHOP",
        "doc": f'{{"event": {{"kind": "k{number}"}}}}',
        "home": {"city": "Ulm", "zip": number},
        "size": number,
    }


@pytest.fixture
def shop(cassandra: CassandraServer, tmp_path: Path) -> Iterator[DeclaredShop]:
    """Events, and none of their copies."""
    with declared_shop(cassandra, tmp_path, Schema((ADDRESS,), TABLES), MIRROR + GROUPS) as shop:
        for person in range(PERSONS):
            for number in range(1, EVENTS_EACH + 1):
                shop.tables.write(Put(EVENTS, event(person, number)))
        yield shop


NUMBER = PERSONS * EVENTS_EACH
MISSING = {
    "events_by_day": {"PROJECT": NUMBER},
    "kinds": {"PROJECT": NUMBER},
    "totals": {"PROJECT": PERSONS},
    "largest": {"PROJECT": PERSONS},
}


def test_what_is_computed_is_mended_and_put_back(shop: DeclaredShop) -> None:
    # Given
    assert shop.found() == (1, MISSING)
    assert shop.mend()["fixed"] == {"PROJECT": 2 * NUMBER + 2 * PERSONS}
    assert shop.found() == (0, {})
    copy = shop.rows(BY_DAY)[0]
    assert (copy["day"], copy["region"], copy["city"]) == (date(2024, 5, 31), "eu", "Ulm")
    assert (copy["hour"][:8], copy["mail"][:5]) == ("2024-06-", "ärger")
    shop.tables.write(Put(BY_DAY, {**copy, "mail": "Ärger1@SHOP"}))
    shop.tables.write(Remove(EVENTS, (4, event(4, 8)["id"])))
    shop.tables.write(Put(TOTALS, {"person": 1, "total": 99, "note": "n"}))
    shop.tables.write(Put(LARGEST, {"person": 2, "size": 3}))
    before = [shop.rows(table) for table in TABLES]

    # When
    code, found = shop.found()
    repaired = shop.mend()

    # Then
    assert (code, found["events_by_day"]) == (1, {"AMEND": 1, "WITHDRAW": 1})
    assert (found["kinds"], found["totals"]) == ({"WITHDRAW": 1}, {"AMEND": 2})
    assert found["largest"] == {"AMEND": 1}
    assert shop.found() == (0, {})
    assert {"person": 1, "total": EVENTS_EACH, "note": "n"} in shop.rows(TOTALS)
    assert {"person": 4, "size": 8} in shop.rows(LARGEST)
    assert shop.mailmend("undo", repaired["run"], "--json").code == 0
    assert [shop.rows(table) for table in TABLES] == before


@pytest.mark.spark
@pytest.mark.thorough
def test_spark_computes_the_same(shop: DeclaredShop) -> None:
    """Copies, a path of JSON, numbers and bounds."""
    assert shop.found("spark") == (1, MISSING)
    assert shop.mend("spark")["fixed"] == {"PROJECT": 2 * NUMBER + 2 * PERSONS}
    assert shop.found("spark") == (0, {})
    assert shop.found("local") == (0, {})
    shop.tables.write(Put(TOTALS, {"person": 1, "total": 99, "note": "n"}))
    shop.tables.write(Put(LARGEST, {"person": 2, "size": 3}))
    shop.tables.write(Put(LARGEST, {"person": 3, "size": EVENTS_EACH + 1}))
    assert shop.found("spark") == (1, {"totals": {"AMEND": 1}, "largest": {"AMEND": 1}})

"""Which types and masks a server takes: of columns, of keys, and of a column that comes back after a drop."""

from itertools import permutations

import pytest

from mailmend.model.errors import SchemaRefused
from tests.support.ddl_stories import after

NATIVE = [
    "ascii",
    "bigint",
    "blob",
    "boolean",
    "date",
    "decimal",
    "double",
    "duration",
    "float",
    "inet",
    "int",
    "smallint",
    "text",
    "time",
    "timestamp",
    "timeuuid",
    "tinyint",
    "uuid",
    "varint",
]
BUILT = ["list<int>", "set<int>", "map<int, text>", "tuple<int, text>", "vector<float, 3>", "frozen<list<int>>"]

COMES_BACK_AS = {
    **{key: {"blob", "text"} for key in ("ascii",)},
    **{
        key: {"blob"}
        for key in ("date", "decimal", "duration", "inet", "smallint", "text", "time", "tinyint", "varint")
    },
    "timestamp": {"bigint"},
    "bigint": {"timestamp"},
    "timeuuid": {"uuid"},
    "tuple<int, text>": {"blob"},
}
"""The answers of Cassandra 5.0: what a column may be that was dropped as the type before the colon."""


@pytest.mark.parametrize("kind", [*NATIVE, *BUILT, "counter"])
def test_a_column_may_have_each_type_of_cql(kind: str) -> None:
    assert after(f"CREATE TABLE n (k int PRIMARY KEY, v {kind})").tables[-1].column("v").type == kind.replace(", ", ",")


@pytest.mark.parametrize("kind", [kind for kind in NATIVE if kind != "duration"])
def test_a_key_may_have_each_type_that_has_an_order(kind: str) -> None:
    assert after(f"CREATE TABLE n (k {kind} PRIMARY KEY)").tables[-1].partition_names == ("k",)


def test_servers_look_at_no_element_of_a_vector_in_a_key() -> None:
    assert after("CREATE TABLE n (k vector<duration, 2> PRIMARY KEY)").tables[-1].partition_names == ("k",)


def comes_back(was: str, comes: str) -> bool:
    try:
        after(f"ALTER TABLE t ADD x {was}; ALTER TABLE t DROP x; ALTER TABLE t ADD x {comes}")
    except SchemaRefused:
        return False
    return True


@pytest.mark.parametrize("was", [*NATIVE, *BUILT])
def test_a_column_comes_back_as_a_type_that_reads_what_it_held(was: str) -> None:
    found = {comes for one, comes in permutations([*NATIVE, *BUILT], 2) if one == was and comes_back(was, comes)}

    assert found == COMES_BACK_AS.get(was, set())
    assert comes_back(was, was)


@pytest.mark.parametrize(("was", "comes"), [("'a.Own'", "int"), ("int", "'a.Own'")])
def test_only_the_server_knows_what_a_class_of_somebodys_own_reads(was: str, comes: str) -> None:
    assert comes_back(was, comes)


MASKED = "CREATE TABLE n (k int PRIMARY KEY, v {} MASKED WITH {})"


@pytest.mark.parametrize(
    ("kind", "mask"),
    [
        ("int", "mask_null()"),
        ("int", "mask_default()"),
        ("int", "mask_replace(7)"),
        ("text", "mask_replace('a')"),
        ("text", "mask_inner(1, 2)"),
        ("ascii", "mask_inner(1, null)"),
        ("text", "mask_outer(null, 2, '#')"),
        ("ascii", "mask_outer(1, 2)"),
        ("blob", "mask_hash()"),
        ("blob", "mask_hash('SHA-512')"),
        ("int", "own_mask(1, 2, 3, 4)"),
    ],
)
def test_a_mask_that_returns_the_columns_type_is_taken(kind: str, mask: str) -> None:
    assert after(MASKED.format(kind, mask)).tables[-1].column("v").mask == mask


@pytest.mark.parametrize(
    ("kind", "mask", "problem"),
    [
        ("int", "mask_null(1)", "mask_null takes 0 arguments"),
        ("int", "mask_default(1)", "mask_default takes 0 arguments"),
        ("int", "mask_replace()", "mask_replace takes 1 arguments"),
        ("int", "mask_replace(1, 2)", "mask_replace takes 1 arguments"),
        ("text", "mask_inner(1)", "mask_inner takes 2 to 3 arguments"),
        ("text", "mask_outer(1, 2, '#', 4)", "mask_outer takes 2 to 3 arguments"),
        ("blob", "mask_hash('MD5', 2)", "mask_hash takes 0 to 1 arguments"),
        ("int", "mask_inner(1, 2)", "it takes a text and two numbers"),
        ("text", "mask_inner('a', 2)", "it takes a text and two numbers"),
        ("text", "mask_outer(1, 'a')", "it takes a text and two numbers"),
        ("int", "mask_replace('a')", ""),
    ],
)
def test_a_mask_that_the_column_cannot_have_is_refused(kind: str, mask: str, problem: str) -> None:
    with pytest.raises(SchemaRefused) as refused:
        after(MASKED.format(kind, mask))

    assert f"v cannot be masked with {mask}: {problem}" in str(refused.value)


def test_a_hash_is_a_blob() -> None:
    with pytest.raises(SchemaRefused) as refused:
        after(MASKED.format("text", "mask_hash()"))

    assert "v cannot be masked with mask_hash(), which returns a blob" in str(refused.value)

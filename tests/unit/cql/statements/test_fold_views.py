"""Materialized views and indexes after each statement: what they hold and how they are named."""

import pytest

from mailmend.model.errors import SchemaRefused
from mailmend.model.table import Column, Kind
from tests.support.ddl_stories import BEFORE, after


def test_a_rename_reaches_the_views() -> None:
    (view,) = after('ALTER TABLE base RENAME k TO "K k"').views
    assert view.table.names == ("c", "K k", "v", "w")
    assert view.where == '"K k" IS NOT NULL AND c IS NOT NULL'


def test_a_column_that_is_added_reaches_the_views_that_select_all() -> None:
    (view,) = after("ALTER TABLE base ADD x int").views
    assert view.table.columns[-1] == Column("x", "int")
    assert view.table.columns[0] == Column("c", "int", Kind.PARTITION)


def test_indexes_are_named_and_aimed_as_a_server_does_it() -> None:
    made = after('CREATE INDEX ON t (M); CREATE INDEX ON t (keys(m)); CREATE INDEX "Own" ON "T" ("v")').indexes[2:]
    assert [(one.spelling, one.table, one.target) for one in made] == [
        ("t_m_idx", "t", "values(m)"),
        ("t_m_idx_1", "t", "keys(m)"),
        ('"Own"', '"T"', "v"),
    ]


def test_a_static_column_is_in_no_view() -> None:
    changed = after("ALTER TABLE base ADD s int STATIC")
    assert changed.views == BEFORE.views
    base = changed.table("base")
    assert base is not None
    assert base.columns[-1] == Column("s", "int", Kind.STATIC)


def test_a_view_has_its_own_order_and_not_that_of_its_base() -> None:
    base = "CREATE TABLE n (k int, c int, d int, PRIMARY KEY (k, c, d)) WITH CLUSTERING ORDER BY (c DESC, d DESC);"
    keyed = "k IS NOT NULL AND c IS NOT NULL AND d IS NOT NULL PRIMARY KEY (d, c, k)"
    plain, turned = (
        after(f"{base} CREATE MATERIALIZED VIEW m AS SELECT * FROM n WHERE {keyed}{tail}").view("m")
        for tail in ("", " WITH CLUSTERING ORDER BY (c ASC, k DESC)")
    )
    assert plain is not None
    assert turned is not None
    assert [(column.name, column.descending) for column in plain.table.columns] == [
        ("d", False),
        ("c", False),
        ("k", False),
    ]
    assert [column.descending for column in turned.table.columns] == [False, False, True]


def test_a_view_may_have_one_column_more_in_its_key() -> None:
    where = "k > 0 AND c > 0 AND v IS NOT NULL"
    text = f"CREATE MATERIALIZED VIEW m AS SELECT {{}} FROM base WHERE {where} PRIMARY KEY (v, c, k)"
    few, all_of_it = (after(text.format(columns)).view("m") for columns in ("v, c, k", "*"))
    assert few is not None
    assert all_of_it is not None
    assert few.table.names == ("v", "c", "k")
    assert all_of_it.table.names == ("v", "c", "k", "w")
    assert {column.name: column.kind for column in all_of_it.table.columns}["v"] is Kind.PARTITION


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("CREATE INDEX ON base (v); CREATE INDEX ON base (w)", ["base_v_idx", "base_w_idx"]),
        (
            "CREATE CUSTOM INDEX ON base (v) USING 'a.B'; CREATE CUSTOM INDEX ON base (v) USING 'a.C'",
            ["base_v_idx", "base_v_idx_1"],
        ),
        ("CREATE CUSTOM INDEX ON base (v, w) USING 'a.B'", ["base_idx"]),
        ('CREATE INDEX ON "T" (v)', ['"T_v_idx"']),
        ('ALTER TABLE base ADD "odd name" int; CREATE INDEX ON base ("odd name")', ["base_oddname_idx"]),
        ("CREATE INDEX base_v_idx ON base (w); CREATE INDEX ON base (v)", ["base_v_idx", "base_v_idx_1"]),
    ],
)
def test_an_index_without_a_name_gets_the_servers(text: str, names: list[str]) -> None:
    assert [one.spelling for one in after(text).indexes[2:]] == names


@pytest.mark.parametrize("using", ["'legacy_local_table'", "'LEGACY_LOCAL_TABLE'"])
def test_the_built_in_index_is_one_whether_it_is_named_or_not(using: str) -> None:
    (made,) = after(f"CREATE INDEX x ON base (v) USING {using}").indexes[2:]
    assert made == after("CREATE INDEX x ON base (v)").indexes[2]


def test_options_of_a_view_are_the_views() -> None:
    changed = after("ALTER MATERIALIZED VIEW seen WITH gc_grace_seconds = 7")
    assert [view.table.options for view in changed.views] == [{"gc_grace_seconds": "7"}]
    assert changed.tables == BEFORE.tables


SOME = "CREATE MATERIALIZED VIEW {} AS SELECT {} FROM {} WHERE k IS NOT NULL AND c IS NOT NULL PRIMARY KEY (c, k)"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (SOME.format('"odd name"', "v", "base"), "a name has at most 207 letters"),
        (SOME.format("n" * 208, "v", "base"), "a name has at most 207 letters"),
        (f"ALTER TABLE w WITH gc_grace_seconds = '0'; {SOME.format('m', 'v', 'w')}", "of its base is 0"),
        (SOME.format("m", "s", "t"), "s is static, which no view can hold"),
    ],
)
def test_what_no_view_can_be(text: str, reason: str) -> None:
    schema = after("CREATE TABLE w (k int, c int, v text, PRIMARY KEY (k, c))")
    with pytest.raises(SchemaRefused) as refused:
        after(text, schema)
    assert reason in str(refused.value)


def test_a_view_may_leave_out_what_it_cannot_hold() -> None:
    view = after(SOME.format("n" * 48, "c, k, v", "t")).view("n" * 48)
    assert view is not None
    assert view.table.names == ("c", "k", "v")


def test_a_view_masks_what_its_base_masks() -> None:
    masked = "CREATE TABLE n (k int, c int, v text MASKED WITH DEFAULT, PRIMARY KEY (k, c))"
    made = after(f"{masked}; {SOME.format('m', 'c, k, v', 'n')}")
    view, base = made.view("m"), made.table("n")
    assert view is not None
    assert base is not None
    assert view.table.column("v").mask == base.column("v").mask != ""


def test_of_two_views_that_differ_in_case_one_is_dropped() -> None:
    both = after(f"{SOME.format('m', 'c, k', 'base')}; {SOME.format(chr(34) + 'M' + chr(34), 'c, k', 'base')}")
    assert [view.table.name for view in after("DROP MATERIALIZED VIEW M", both).views] == ["seen", "M"]
    assert [view.table.name for view in after('DROP MATERIALIZED VIEW "M"', both).views] == ["seen", "m"]

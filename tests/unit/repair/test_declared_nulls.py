"""What a declaration says that a null is read as: in the truth, in what follows, and in conditions."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.model.keyspace import Schema, View
from mailmend.model.projections.conditions import (
    Condition,
    Either,
    Every,
    IsNull,
    Not,
    OneOf,
    StartsWith,
)
from mailmend.model.projections.declaration_file import read_declaration
from mailmend.model.projections.family import Family
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Column, OtherColumn, Row, Table, columns
from mailmend.repair.declared import DoesNotFit, declared_families
from tests.unit.repair.test_declared_pairs import Shop

TASKS = Table(
    "tasks",
    columns(
        "id int",
        regular="owner text, state text, done boolean, open boolean, size int, asked text, said text, "
        "at timestamp, since timestamp, tags set<text>, rate double",
    ),
)
COPIED = "state text, done boolean, open boolean, size int, said text, since timestamp, tags set<text>"
BY_OWNER = Table("by_owner", columns("owner text", "id int", f"{COPIED}, question text, at timestamp"))
DONE = Table("done_tasks", columns("id int"))
BY_STATE = Table("by_state", columns("state text", "id int"))
SEEN_TABLE = Table("seen_tasks", columns("id int", regular="done boolean, said text, asked text"))
SEEN = View(SEEN_TABLE, "tasks", "id IS NOT NULL")
LIVE = Schema((), (TASKS, BY_OWNER, DONE, BY_STATE))
NULLS = """\
[truth.tasks.null_is]
State = "open"
done = false
open = true
size = 0
said = { column = "asked" }
since = { column = "at" }

"""
MIRROR = '[truth.tasks.mirror.by_owner]\nrenamed = { question = "asked" }\n'


def families(text: str, live: Schema = LIVE) -> tuple[Family, ...]:
    return declared_families("shop", read_declaration(text, "shop.toml"), live)


def refused(text: str) -> str:
    with pytest.raises(DoesNotFit) as caught:
        families(text)
    return str(caught.value)


def filtered(when: str, nulls: str = NULLS) -> Family:
    (family,) = families(f"{nulls}[truth.tasks.filter.done_tasks]\nwhen = {when}\n")
    return family


def readings(listed: tuple[Column, ...]) -> dict[str, Any]:
    return {column.name: column.null_is for column in listed if column.null_is is not None}


def task(number: int, **changed: Any) -> Row:
    return {"id": number, "owner": "ann", "asked": "why", **changed}


def test_a_null_is_read_alike_in_the_truth_and_in_its_copy() -> None:
    """A copy may name the other column in its own way."""
    (family,) = families(NULLS + MIRROR)
    constants = {"state": "open", "done": False, "open": True, "size": 0, "since": OtherColumn("at")}

    assert readings(family.truth.columns) == {**constants, "said": OtherColumn("asked")}
    assert readings(family.mirror.compared) == {**constants, "said": OtherColumn("question")}
    assert readings(family.mirror.table.columns) == {**constants, "said": OtherColumn("question")}


def test_a_view_is_compared_as_its_base_is_read() -> None:
    live = Schema((), LIVE.tables, views=(SEEN,))
    (family,) = families(f"{NULLS}[truth.tasks.view.seen_tasks]\n", live)

    assert readings(family.mirror.compared) == {"done": False, "said": OtherColumn("asked")}


@pytest.mark.parametrize(
    ("truth", "copied", "verdict"),
    [
        ({}, {"done": False, "state": "open", "open": True, "size": 0, "said": "why"}, None),
        ({"done": False, "state": "open", "open": True, "size": 0, "said": "why"}, {}, None),
        ({}, {"said": "what"}, Verdict.AMEND),
        ({}, {"done": True}, Verdict.AMEND),
        ({"state": ""}, {}, Verdict.AMEND),
        ({"size": 1}, {}, Verdict.AMEND),
        ({"open": False}, {}, Verdict.AMEND),
    ],
)
def test_cells_that_are_read_alike_are_no_drift(truth: Row, copied: Row, verdict: Verdict | None) -> None:
    (family,) = families(NULLS + MIRROR)
    shop = Shop(family)
    shop.put(TASKS, task(1, **truth))
    shop.put(BY_OWNER, {"owner": "ann", "id": 1, "question": "why", **copied})

    found = {finding.verdict for finding in shop.check().values()}

    assert found == {verdict} - {None}


def test_a_fix_writes_the_cell_of_the_truth_as_it_is() -> None:
    (family,) = families(NULLS + MIRROR)
    shop = Shop(family)
    shop.put(TASKS, task(1, size=1))
    shop.put(BY_OWNER, {"owner": "ann", "id": 1, "question": "why", "done": True})

    shop.repair()

    (found,) = shop.rows(BY_OWNER, ("ann", 1))
    assert (found[0]["size"], found[0]["done"], found[0]["state"]) == (1, None, None)


OPEN_OR_NULL = Either((OneOf("state", ("open",)), IsNull("state")))


@pytest.mark.parametrize(
    ("when", "condition"),
    [
        ("{ done = false }", Condition("done", value=False)),
        ("{ done = true }", Condition("done", value=True)),
        ("{ done = { not = true } }", Not(Condition("done", value=True))),
        ("{ open = true }", Either((OneOf("open", (True,)), IsNull("open")))),
        ("{ open = false }", OneOf("open", (False,))),
        ('{ state = "open" }', OPEN_OR_NULL),
        ('{ state = "shut" }', OneOf("state", ("shut",))),
        ('{ state = { not = "open" } }', Not(OPEN_OR_NULL)),
        ('{ state = { starts = "o" } }', Either((StartsWith("state", ("o",)), IsNull("state")))),
        ('{ state = { starts_not = "s" } }', Not(StartsWith("state", ("s",)))),
        ("{ state = { null = true } }", IsNull("state")),
        (
            '{ said = "no" }',
            Either((OneOf("said", ("no",)), Every((IsNull("said"), OneOf("asked", ("no",)))))),
        ),
    ],
)
def test_a_condition_is_on_what_is_read(when: str, condition: object) -> None:
    (found,) = filtered(when).filters
    assert found.when == condition


TESTS = st.sampled_from(
    [
        "{ done = false }",
        "{ done = true }",
        "{ done = [true, false] }",
        "{ open = { not = false } }",
        "{ size = [0, 7] }",
        "{ size = { not = 0 } }",
        '{ state = { starts = ["o", "x"] } }',
        '{ state = { not = "open", starts_not = "s" } }',
        '{ said = "why", done = false }',
        '[{ said = { starts_not = "w" } }, { state = "open" }]',
    ]
)
CELLS = {
    "state": st.sampled_from([None, "open", "shut", ""]),
    "done": st.none() | st.booleans(),
    "open": st.none() | st.booleans(),
    "size": st.sampled_from([None, 0, 7]),
    "said": st.sampled_from([None, "why", "no"]),
    "asked": st.sampled_from([None, "why", "no"]),
}


@given(TESTS, st.fixed_dictionaries(CELLS))
def test_a_condition_holds_where_it_holds_for_a_row_without_nulls(when: str, row: Row) -> None:
    """The oracle reads the nulls first, and then asks a condition of a declaration without `null_is`."""
    instead = {"state": "open", "done": False, "open": True, "size": 0, "said": row["asked"]}
    read = dict(row)
    for name, value in instead.items():
        if read[name] is None:
            read[name] = value
    (found,) = filtered(when).filters
    (plain,) = filtered(when, "").filters

    assert found.when.holds(row) is plain.when.holds(read)


def test_a_filter_follows_from_a_null_that_is_read_as_false() -> None:
    shop = Shop(filtered("{ done = false }"))
    shop.put(TASKS, task(1))
    shop.put(TASKS, task(2, done=True))
    shop.put(TASKS, task(3, done=False))

    assert set(shop.check()) == {(1,), (3,)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[truth.tasks]\nnull_is = { stat = 1 }\n", "tasks has no column stat\n  Did you mean 'state'?"),
        ("[truth.tasks]\nnull_is = { id = 1 }\n", "tasks.id is in the key, static, or a collection"),
        ('[truth.tasks]\nnull_is = { tags = "a" }\n', "tasks.tags is in the key, static, or a collection"),
        ("[truth.tasks]\nnull_is = { state = 1 }\n", "1 is not a value of tasks.state (text)\n  Write a text"),
        ("[truth.tasks]\nnull_is = { size = 2147483648 }\n", "2147483648 is not a value of tasks.size (int)"),
        (
            "[truth.tasks]\nnull_is = { rate = 1 }\n",
            "1 is not a value of tasks.rate (double)\n  Write { column = NAME }: no constants",
        ),
        ('[truth.tasks]\nnull_is = { said = { column = "ask" } }\n', "tasks has no column ask"),
        (
            '[truth.tasks]\nnull_is = { said = { column = "size" } }\n',
            "a null of tasks.said is not read as tasks.size\n  Name another column of the row, of type text.",
        ),
        ('[truth.tasks]\nnull_is = { said = { column = "said" } }\n', "is not read as tasks.said"),
        (
            '[truth.tasks]\nnull_is = { said = { column = "state" }, state = "open" }\n',
            "tasks.state is read for tasks.said, and has a null_is itself",
        ),
    ],
)
def test_a_reading_that_does_not_fit_is_named(text: str, said: str) -> None:
    assert said in refused(text + "[truth.tasks.mirror.by_owner]\n")


def test_a_copy_without_the_other_column_is_refused() -> None:
    said = refused(f"{NULLS}[truth.tasks.mirror.by_owner]\n")
    assert "a null of by_owner.said is read as tasks.asked, which no column of it holds" in said
    assert 'left_out = ["said"]' in said


def test_a_column_of_a_key_is_given_a_default_instead() -> None:
    """A row whose key is null is not there, whatever its null is read as."""
    text = f"{NULLS}[truth.tasks.mirror.by_state]\n"

    assert "the key column by_state.state is null where state is" in refused(text)
    (family,) = families(text + 'computed = { state = { column = "state", default = "open" } }\n')
    assert family.mirror.table.key_names == ("state", "id")

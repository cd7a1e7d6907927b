"""Filters, unions, counts and contents of a declaration, bound to a live schema."""

from uuid import UUID

import pytest

from mailmend.model.keyspace import Schema
from mailmend.model.projections.conditions import Either, Every, IsNull, Not, OneOf, StartsWith
from mailmend.model.projections.declaration_file import read_declaration
from mailmend.model.projections.family import Family
from mailmend.model.projections.truth_itself import TruthItself
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Table, columns
from mailmend.repair.declared import DoesNotFit, declared_families
from tests.unit.repair.test_declared_pairs import Shop

REGULAR = "team text, state text, size int, owner uuid, open boolean, tags set<text>, ids set<uuid>"
USERS = Table("users", columns("user_id uuid", regular=f"{REGULAR}, rate double"))
BY_TEAM = Table("by_team", columns("team text", "user_id uuid", "size int"))
BY_STATE = Table("by_state", columns("state text", "user_id uuid"))
ACTIVE = Table("active", columns("team text", "user_id uuid"))
TAGS = Table("tags_of", columns("team text", regular="tags set<text>, ids set<uuid>"))
COUNTS = Table("counts_of", columns("team text", regular="total counter, big counter"))
PROFILES = Table("profiles", columns("user_id uuid", regular="photo blob"))
STATES = Table("states", columns("state text"))
LIVE = Schema((), (STATES, USERS, BY_TEAM, BY_STATE, ACTIVE, TAGS, COUNTS, PROFILES))
MIRROR = "[truth.users.mirror.by_team]\n"
ONE = UUID("6e0ab5e0-8d1c-11f0-9a5e-0242ac120002")


def families(text: str) -> tuple[Family, ...]:
    return declared_families("shop", read_declaration(MIRROR + text, "shop.toml"), LIVE)


def refused(text: str) -> str:
    with pytest.raises(DoesNotFit) as caught:
        families(text)
    return str(caught.value)


def filtered(when: str) -> str:
    return f"[truth.users.filter.active]\nwhen = {when}\n"


@pytest.mark.parametrize(
    ("when", "condition"),
    [
        ('{ state = "a" }', OneOf("state", ("a",))),
        ('{ state = ["a", "b"] }', OneOf("state", ("a", "b"))),
        ("{ size = { null = true } }", IsNull("size")),
        ("{ size = { null = false } }", IsNull("size", value=False)),
        ("{ open = true, size = 3 }", Every((OneOf("open", (True,)), OneOf("size", (3,))))),
        ('[{ state = "a" }, { size = 3 }]', Either((OneOf("state", ("a",)), OneOf("size", (3,))))),
        (f'{{ owner = "{ONE}" }}', OneOf("owner", (ONE,))),
        ('{ state = { not = "a" } }', Not(OneOf("state", ("a",)))),
        (f'{{ owner = {{ not = ["{ONE}"] }} }}', Not(OneOf("owner", (ONE,)))),
        ('{ state = { starts = "a" } }', StartsWith("state", ("a",))),
        ('{ state = { starts_not = ["-", "$"] } }', Not(StartsWith("state", ("-", "$")))),
        (
            '{ state = { not = ["a", "b"], starts_not = "-", null = false }, size = 3 }',
            Every(
                (
                    Not(OneOf("state", ("a", "b"))),
                    Not(StartsWith("state", ("-",))),
                    IsNull("state", value=False),
                    OneOf("size", (3,)),
                )
            ),
        ),
        ("{}", Every(())),
    ],
)
def test_a_condition_has_values_of_its_columns(when: str, condition: object) -> None:
    (family,) = families(filtered(when))
    (found,) = family.filters
    assert found.when == condition


def test_a_filter_is_with_the_mirror_of_the_same_key() -> None:
    text = '[truth.users.filter.active]\nwhen = { open = true }\nrenamed = { team = "state" }\n'
    first, second = families("[truth.users.mirror.by_state]\n" + text)
    assert first.filters == ()
    assert [found.name for found in second.filters] == ["active"]


def test_a_filter_of_another_key_leads_to_the_truth_by_its_partition() -> None:
    (family,) = families("[truth.users.filter.by_state]\nwhen = { open = true }")
    assert [found.name for found in family.filters] == ["by_state"]


def test_groups_and_contents_are_with_the_first_mirror() -> None:
    (family,) = families(
        '[truth.users.union.tags_of]\ncolumn = "tags"\n'
        "[truth.users.count.counts_of]\ncounters = { total = {}, big = { size = 9 } }\n"
        "[truth.users.content.profiles]"
    )
    assert [union.column for union in family.unions] == ["tags"]
    assert [counts.counters for counts in family.counts] == [(("total", None), ("big", OneOf("size", (9,))))]
    assert family.content is not None
    assert family.content.key == (("user_id", "user_id"),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (filtered("{ stat = 1 }"), "users has no column stat\n  Did you mean 'state'?"),
        (filtered("{ state = 1 }"), "1 is not a value of users.state (text)\n  Write a text."),
        (filtered('{ size = "1" }'), "'1' is not a value of users.size (int)"),
        (filtered("{ size = 2147483648 }"), "2147483648 is not a value of users.size (int)"),
        (filtered("{ open = 1 }"), "1 is not a value of users.open (boolean)"),
        (filtered('{ owner = "x" }'), "'x' is not a value of users.owner (uuid)"),
        (filtered("{ rate = 1 }"), "1 is not a value of users.rate (double)"),
        (filtered("{ tags = { null = true } }"), "users.tags decides nothing"),
        (filtered("{ state = { not = 1 } }"), "1 is not a value of users.state (text)\n  Write a text."),
        (
            filtered('{ size = { starts = "1" } }'),
            "users.size is of type int, and only a text has a beginning\n  Write a whole number",
        ),
        (
            filtered('{ rate = { starts_not = "1" } }'),
            "users.rate is of type double, and only a text has a beginning\n  Write a test for null",
        ),
        ("[truth.users.filter.states]\nwhen = {}", "no key of states leads to a row of its truth"),
        (
            "[truth.users.filter.profiles]\nwhen = {}",
            "profiles.photo is not in the key, and a filter's row is a key alone",
        ),
        ('[truth.users.union.tags_of]\ncolumn = "ids"', "users.ids is of type set<uuid>"),
        ('[truth.users.union.tags_of]\ncolumn = "tag"', "users has no column tag"),
        ("[truth.users.count.counts_of]\ncounters = { all_of = {} }", "no column all_of"),
        (
            '[truth.users.count.counts_of]\ncounters = { total = {} }\nrenamed = { team = "state" }',
            "the rows of a group of counts_of are not kept together",
        ),
        ("[truth.users.count.tags_of]\ncounters = { tags = {} }", "tags_of.tags is not a counter"),
        ("[truth.users.content.by_state]", "the key of by_state is not the partition key"),
        ("[truth.users.mirror.counts_of]", "counts_of has counters"),
    ],
)
def test_what_does_not_fit_is_named(text: str, said: str) -> None:
    assert said in refused(text)


def test_a_truth_without_mirror_leads_to_its_own_rows() -> None:
    declared = read_declaration(filtered("{}"), "shop.toml")

    (family,) = declared_families("shop", declared, LIVE)

    assert isinstance(family.mirror, TruthItself)
    assert [projection.name for projection in family.projections] == ["active"]
    assert [table.name for table in family.tables] == ["users", "active"]
    assert set(family.columns_read) == {"users", "active"}


def test_a_content_needs_a_mirror_that_reports_rows_without_it() -> None:
    declared = read_declaration("[truth.users.content.profiles]", "shop.toml")

    with pytest.raises(DoesNotFit, match="no mirror would report the rows of the truth that profiles lacks"):
        declared_families("shop", declared, LIVE)


def test_a_filter_whose_key_several_rows_of_the_truth_share_is_refused() -> None:
    events = Table("events", columns("team text", "id uuid", "open boolean"))
    open_teams = Table("open_teams", columns("team text"))
    declared = read_declaration("[truth.events.filter.open_teams]\nwhen = { open = true }", "shop.toml")

    with pytest.raises(DoesNotFit, match="Its key needs the truth's id, team, or all columns"):
        declared_families("shop", declared, Schema((), (events, open_teams)))


def test_a_place_of_a_filter_that_two_rows_of_the_truth_claim_ends_no_check() -> None:
    """Two users with one address, which is the key of the mirror: the mirror reports them."""
    by_owner = Table("by_owner", columns("owner uuid", regular="user_id uuid"))
    teams = Table("teams", columns("owner uuid", "team text"))
    text = "[truth.users.mirror.by_owner]\n[truth.users.filter.teams]\nwhen = {}"
    live = Schema((), (USERS, by_owner, teams))
    (family,) = declared_families("shop", read_declaration(text, "shop.toml"), live)
    shop = Shop(family)
    for number in (1, 2):
        shop.put(USERS, {**dict.fromkeys(USERS.names), "user_id": UUID(int=number), "owner": ONE, "team": "a"})
    shop.put(teams, {"owner": ONE, "team": "a"})

    assert {key: finding.verdict for key, finding in shop.check().items()} == {(ONE,): Verdict.CLASH}


def test_a_group_without_mirror_has_to_be_a_partition_of_its_truth() -> None:
    declared = read_declaration("[truth.users.count.counts_of]\ncounters = { total = {} }", "shop.toml")

    with pytest.raises(DoesNotFit, match="the rows of a group of counts_of are not kept together"):
        declared_families("shop", declared, LIVE)


def test_a_count_is_with_the_mirror_that_keeps_its_groups_together() -> None:
    text = '[truth.users.count.counts_of]\ncounters = { total = {} }\nrenamed = { team = "state" }\n'
    first, second = families("[truth.users.mirror.by_state]\n" + text)
    assert first.counts == ()
    assert [found.name for found in second.counts] == ["counts_of"]

"""Which patterns hold for all that others hold for: never said where a value shows otherwise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.delivery.policy.covering import CoverIndex, FieldPatterns, covers, never_meet, pattern_text
from mailmend.delivery.policy.policy import PickupField, pattern_of

DOMAIN, ADDRESS, JOB = PickupField.RECIPIENT_DOMAIN, PickupField.LOCAL_IP, PickupField.JOB_ID
TEXTS = {
    DOMAIN: ["", "a", "b.a", "c.b.a", "b", "a.b", "*.a", "*.b.a", "*.b", "/a$/", "/^b/", "/.*/", "//", "#a", "#a.b"],
    ADDRESS: ["", "192.0.2.1", "192.0.2.2", "::1", "192.0.2.1/32", "192.0.2.0/30", "192.0.2.0/24", "0.0.0.0/0", "#a"],
}
TEXTS[ADDRESS] += ["::/0", "::1/128", "/^192/", "/./"]
VALUES = {
    DOMAIN: ["", "a", "b.a", "c.b.a", "a.c.b.a", "b", "a.b", "c", "#a", "#a.b"],
    ADDRESS: ["", "192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.200", "198.51.100.1", "::1", "::2", "#a"],
}
pairs = st.sampled_from([DOMAIN, ADDRESS]).flatmap(
    lambda field: st.tuples(st.just(field), st.sampled_from(TEXTS[field]), st.sampled_from(TEXTS[field]))
)


@given(pairs)
def test_what_is_said_of_two_patterns_no_value_refutes(pair: tuple[PickupField, str, str]) -> None:
    field, first, second = pair
    one, other = pattern_of(field, first), pattern_of(field, second)
    both = [(one.matches(value), other.matches(value)) for value in VALUES[field]]
    if covers(one, other):
        assert all(mine or not its for mine, its in both)
    if never_meet(one, other):
        assert not any(mine and its for mine, its in both)
    assert never_meet(one, other) == never_meet(other, one)


@pytest.mark.parametrize(
    ("field", "one", "other"),
    [
        (DOMAIN, "a.org", "A.org."),
        (DOMAIN, "*.org", "x.a.org"),
        (DOMAIN, "*.org", "*.a.org"),
        (DOMAIN, "*.a.org", "x.a.org"),
        (DOMAIN, "*.a.org", "y.x.a.org"),
        (DOMAIN, "/a[.]org$/", "x.a.org"),
        (DOMAIN, "/.*/", "*.org"),
        (DOMAIN, "/^a/", "/^a/"),
        (DOMAIN, "#g", "#g"),
        (DOMAIN, "/^#/", "#g"),
        (ADDRESS, "192.0.2.0/24", "192.0.2.7"),
        (ADDRESS, "192.0.2.0/24", "192.0.2.0/28"),
        (ADDRESS, "192.0.2.7", "192.0.2.7/32"),
        (ADDRESS, "192.0.2.7/32", "192.0.2.7"),
        (ADDRESS, "2001:db8::/32", "2001:db8::1"),
        (JOB, "", ""),
    ],
)
def test_a_pattern_covers_what_is_the_same_or_narrower(field: PickupField, one: str, other: str) -> None:
    assert covers(pattern_of(field, one), pattern_of(field, other))


@pytest.mark.parametrize(
    ("field", "one", "other"),
    [
        (DOMAIN, "*.a.org", "a.org"),
        (DOMAIN, "*.a.org", "*.org"),
        (DOMAIN, "*.a.org", "xa.org"),
        (DOMAIN, "/a/", "/b/"),
        (DOMAIN, "/.+/", ""),
        (DOMAIN, "/org$/", "*.org"),
        (ADDRESS, "192.0.2.0/28", "192.0.2.0/24"),
        (ADDRESS, "0.0.0.0/0", "::1"),
        (JOB, "*.a", "x.a"),
    ],
)
def test_what_is_wider_or_uncertain_is_not_covered(field: PickupField, one: str, other: str) -> None:
    assert not covers(pattern_of(field, one), pattern_of(field, other))


@pytest.mark.parametrize(
    ("field", "one", "other", "never"),
    [
        (DOMAIN, "a.org", "b.org", True),
        (DOMAIN, "*.a.org", "*.b.org", True),
        (DOMAIN, "*.a.org", "*.org", False),
        (DOMAIN, "*.a.org", "a.org", True),
        (DOMAIN, "/a/", "b.org", True),
        (DOMAIN, "/a/", "*.b.org", False),
        (ADDRESS, "192.0.2.0/24", "198.51.100.0/24", True),
        (ADDRESS, "192.0.2.0/24", "192.0.2.0/28", False),
        (DOMAIN, "#a", "#b", True),
    ],
)
def test_patterns_never_meet_where_no_value_suits_both(field: PickupField, one: str, other: str, never: bool) -> None:
    assert never_meet(pattern_of(field, one), pattern_of(field, other)) is never


@pytest.mark.parametrize("text", ["//", "/^/", "/$/", "/.*/", "/^.*/", "/.*$/"])
def test_some_expressions_are_found_in_every_value(text: str) -> None:
    """In those that hold lines, too; others are not taken for such."""
    assert covers(pattern_of(DOMAIN, text), pattern_of(DOMAIN, "/a/"))
    assert all(pattern_of(JOB, text).matches(value) for value in ("", "a", "a\nb", "\n"))
    assert not any(covers(pattern_of(DOMAIN, other), pattern_of(DOMAIN, "/a/")) for other in ("/./", "/^.*$/", "/a?/"))


@pytest.mark.parametrize("text", ["a.org", "*.a.org", "/^a/", "#g", ""])
def test_a_pattern_is_spelt_as_in_a_file(text: str) -> None:
    assert pattern_text(pattern_of(DOMAIN, text)) == text
    assert pattern_text(pattern_of(ADDRESS, "192.0.2.0/24")) == "192.0.2.0/24"


def wanted(**some: list[str]) -> FieldPatterns:
    named = {PickupField(name): texts for name, texts in some.items()}
    return {one: tuple(pattern_of(one, text) for text in texts) for one, texts in named.items()}


def index_of(*several: FieldPatterns) -> CoverIndex:
    index = CoverIndex()
    for number, one in enumerate(several):
        index.add(number, one)
    return index


def test_a_condition_covers_another_where_each_of_its_fields_does() -> None:
    """Fields that it names and the other does not must be matched by everything; fields of the other alone are free."""
    index = index_of(
        wanted(recipientdomain=["*.org", "a.com"]),
        wanted(recipientdomain=["*.org"], jobid=["x"]),
        wanted(recipientdomain=["*.org"], jobid=["/.*/"]),
        {},
        wanted(jobid=[]),
        wanted(recipientdomain=["/^a/"]),
    )
    assert index.covering(wanted(recipientdomain=["a.org"])) == [0, 2, 3, 5]
    assert index.covering(wanted(recipientdomain=["a.org", "b.org"])) == [0, 2, 3]
    assert index.covering(wanted(recipientdomain=["a.org", "a.com"])) == [0, 3, 5]
    assert index.covering(wanted(recipientdomain=["a.org"], jobid=["x"])) == [0, 1, 2, 3, 5]
    assert index.covering(wanted(jobid=["x"])) == [3]
    assert index.covering({}) == [3]


def test_conditions_may_meet_unless_the_single_values_of_one_keep_them_apart() -> None:
    """By the first of its fields that has nothing but such; else all of them may."""
    index = index_of(
        wanted(recipientdomain=["*.org"]),
        wanted(recipientdomain=["a.com", "/b/"]),
        wanted(jobid=["x"]),
        wanted(recipientdomain=["b.org"], jobid=["y"]),
    )
    assert index.may_meet(wanted(recipientdomain=["a.org"])) == {0, 2}
    assert index.may_meet(wanted(recipientdomain=["a.com", "b.org"])) == {0, 1, 2, 3}
    assert index.may_meet(wanted(recipientdomain=["*.net"], jobid=["x"])) == {0, 1, 2}
    assert index.may_meet(wanted(recipientdomain=["*.net", "a.net"])) == index.may_meet({}) == {0, 1, 2, 3}

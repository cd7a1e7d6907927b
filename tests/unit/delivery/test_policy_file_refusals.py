"""A policy file that is refused: every refused value is named with its place, whatever else is wrong beside it."""

import pickle

import pytest

from mailmend.delivery.policy.file.forms import REFUSED_MAX, REFUSED_SHOWN, BadPolicyFile
from mailmend.delivery.policy.file.reading import policies_of

WRONG_VALUES = """\
lists:
  near: [a.example, .b.example]
  plain: x
policies:
  - fields: [recipientdomain, colour]
    conditions:
      - if: {recipientdomain: [.example.org, '@near', ok.example, 'example.org:25']}
        then: {concurrency: many, rate: 1/0}
      - then: {concurrency: -1, speed: 9}
    default: {stop: perhaps}
  - default: {connectinterval: soon}
suspends:
  - {localip: 10.0.0.1/8, jobid: '#g'}
tenants: {acme: 0, big: 101}
incoming:
  - if: {header: {X-Job: '/(?=a)/'}, colour: red}
    set: {jobid: '${1}', priority: 11, tenantid: '${'}
    remove: 'a b'
quotas:
  - name: 'a b'
    fields: [tenantid]
    default: {messages: x, bytes: 5Q}
rate: {algorithm: leaky}
"""

PLACES = [
    (2, 21),  # .b.example
    (3, 10),  # no list
    (5, 31),  # colour
    (7, 32),  # .example.org
    (7, 67),  # example.org:25
    (8, 29),  # many
    (8, 41),  # 1/0
    (9, 29),  # -1
    (9, 33),  # speed
    (10, 21),  # perhaps
    (11, 32),  # soon
    (13, 15),  # host bits
    (13, 34),  # a group
    (14, 17),  # 0
    (14, 25),  # 101
    (16, 26),  # look-ahead
    (16, 38),  # colour
    (17, 36),  # 11
    (17, 50),  # ${
    (18, 13),  # a b
    (20, 11),  # a b
    (22, 25),  # x
    (22, 35),  # 5Q
    (23, 19),  # leaky
]


def refused(text: str) -> BadPolicyFile:
    with pytest.raises(BadPolicyFile) as found:
        policies_of(text, "policies.yaml")
    return found.value


def places(error: BadPolicyFile) -> list[tuple[int, int]]:
    return [(one.place.line, one.place.column) for one in error.refused]


def test_every_refused_value_of_a_file_is_named_with_its_place() -> None:
    assert places(refused(WRONG_VALUES)) == PLACES


def test_the_message_shows_each_place_with_its_line_and_what_to_write() -> None:
    text = "suspends:\n- {recipientdomain: .example.org}\n- {recipientdomain: 'example.org:25'}\n"

    assert str(refused(text)).splitlines() == [
        "policies.yaml, line 2, column 21: '.example.org' is no domain",
        "- {recipientdomain: .example.org}",
        "                    ^",
        "Did you mean '*.example.org'? It is every domain below example.org, without that one itself.",
        "policies.yaml, line 3, column 21: 'example.org:25' is no domain",
        "- {recipientdomain: 'example.org:25'}",
        "                    ^",
        "Did you mean 'example.org'?",
    ]


@pytest.mark.parametrize(
    ("wrong", "last"),
    [
        (REFUSED_SHOWN + 1, "and 1 more"),
        (REFUSED_MAX - 1, "and 979 more"),
        (REFUSED_MAX + 1, "and 980 more; the rest of the file was not read"),
    ],
)
def test_the_message_shows_twenty_places_and_counts_the_others(wrong: int, last: str) -> None:
    text = "suspends:\n" + "- {recipientdomain: .example.org}\n" * wrong

    lines = str(refused(text)).splitlines()

    assert sum(line.startswith("policies.yaml, line ") for line in lines) == REFUSED_SHOWN
    assert lines[-1] == last


def test_a_value_that_is_read_for_several_fields_is_refused_once() -> None:
    text = "lists: {l: [.example.org]}\nsuspends: [{recipientdomain: '@l', remotemx: '@l'}, {recipientdomain: '@l'}]\n"

    error = refused(text)

    assert (error.refused, error.place.line, error.place.column) == ((), 1, 13)


def test_what_follows_from_a_refused_part_is_not_refused_as_well() -> None:
    """The condition counts by the misspelt field, and its group may be a group of that field."""
    text = """\
policies:
  - fields: [recipientdomian: {g: [a.example]}]
    conditions:
      - {if: {recipientdomain: '#g'}, then: {}}
"""

    error = refused(text)

    assert (error.refused, error.place.line, error.place.column) == ((), 2, 14)


def test_an_error_with_many_places_survives_pickling() -> None:
    error = refused(WRONG_VALUES)

    again = pickle.loads(pickle.dumps(error))

    assert (str(again), places(again)) == (str(error), PLACES)

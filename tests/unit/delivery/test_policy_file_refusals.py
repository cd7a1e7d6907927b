"""A policy file that is refused: every refused value is named with its place, whatever else is wrong beside it."""

import pickle

import pytest

from mailmend.delivery.policy.file.forms import REFUSED_MAX, BadPolicyFile
from mailmend.delivery.policy.file.reading import policies_of
from mailmend.model.file_forms import REFUSED_SHOWN
from mailmend.model.texts import Place

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


BROKEN_SHAPES = """\
lists:
  good: [a.example]
  [1, 2]: [b.example]
policies:
  - fields: [jobid, jobid, localip: [x], remotemx: {g: x, h: ['*.h.example']}]
    conditions:
      - if: {jobid: [[a], b], tenantid: c, remotemx: '#hh'}
      - then: {concurrency: x}
    default: 5
  - fields: jobid
    conditions:
      - {if: [jobid], then: {rate: 0}}
      - {if: {tenantid: '@goood'}, then: {stop: 1}}
incoming:
  - if: {header: x, client: nowhere}
    set: {attributes: [], jobid: '${1}'}
"""

BROKEN_SHAPES_PLACES = [
    (3, 3),  # a name that is a list
    (5, 21),  # counted by twice
    (5, 37),  # groups that are a list
    (5, 56),  # patterns that are no list
    (7, 22),  # a list in a list
    (7, 31),  # not counted by
    (7, 54),  # no such group
    (7, 9),  # no then
    (8, 29),  # x
    (9, 14),  # limits that are a value
    (10, 13),  # fields that are no list
    (12, 14),  # patterns that are a list
    (12, 36),  # 0
    (13, 49),  # 1
    (15, 18),  # header fields that are a value
    (15, 29),  # nowhere
    (16, 23),  # attributes that are a list
]


def test_parts_of_the_wrong_shape_do_not_hide_what_is_wrong_beside_and_behind_them() -> None:
    assert places(refused(BROKEN_SHAPES)) == sorted(BROKEN_SHAPES_PLACES)


@pytest.mark.parametrize(
    ("text", "line", "column", "mend"),
    [
        ("polices: []", 1, 1, "Did you mean 'policies'? It may have: version, rate, lists, fields, policies,"),
        ("- {default: {RATE: 5}}", 1, 14, "Did you mean 'rate'? It may have: concurrency, rate,"),
        ("- {fields: [recipientdomian]}", 1, 13, "Did you mean 'recipientdomain'? There are: transportid, localip,"),
        ("suspends: [{job-id: x}]", 1, 13, "Did you mean 'jobid'? There are: transportid, localip,"),
        ("incoming: [{if: {sendr: bob@x.example}}]", 1, 18, "Did you mean 'sender'? There are:"),
        ("quotas: [{name: q, fields: [tenant]}]", 1, 29, "Did you mean 'tenantid'? There are:"),
        (
            "lists: {partners: [a]}\nsuspends: [{jobid: '@partner'}]",
            2,
            20,
            "Did you mean '@partners'? There are: partn",
        ),
        (
            "- {fields: [jobid: {bulk: [a], other: [b]}], conditions: [{if: {jobid: '#blk'}, then: {}}]}",
            *(1, 72, "Did you mean '#bulk'? It has: bulk, other."),
        ),
        ("- &strict {default: {rate: 5}}\n- *strickt", 2, 3, "Did you mean '&strict'? There are: strict."),
        ("- {default: {quota: 5}}", 1, 14, "It may have: concurrency, rate, connectinterval, stop, cluster."),
    ],
)
def test_a_misspelt_name_is_named_with_the_one_that_is_like_it(text: str, line: int, column: int, mend: str) -> None:
    error = refused(text)

    assert (error.refused, error.place.line, error.place.column) == ((), line, column)
    assert error.mend.startswith(mend)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("list: {a: [x]}\nsuspends: [{jobid: '@a'}]", (1, 1)),
        ("limits: {a: [x]}\nsuspends: [{jobid: '@a'}]", (1, 1)),
        ("lists: [a]\nsuspends: [{jobid: '@a'}]", (1, 8)),
        ("lists: {<<: {a: [x]}}\nsuspends: [{jobid: '@a'}]", (1, 9)),
        ("- {fields: [jobid], conditions: [{if: {jobid: x}, than: {}}]}", (1, 51)),
        ("- {fields: [jobid], conditions: [{if: {jobid: x}, limits: {}}]}", (1, 51)),
        ("- {feilds: [jobid], conditions: [{if: {jobid: x}, then: {}}]}", (1, 4)),
        ("- {per: [jobid], conditions: [{if: {jobid: '#g'}, then: {}}]}", (1, 4)),
        ("- {fields: jobid, conditions: [{if: {jobid: '#g'}, then: {}}]}", (1, 12)),
        ("- {fields: [{jobid: [x]}], conditions: [{if: {jobid: '#g'}, then: {}}]}", (1, 21)),
        ("- {fields: [{jobid: {<<: {g: [x]}}}], conditions: [{if: {jobid: '#g'}, then: {}}]}", (1, 22)),
        ("- {fields: [{<<: {jobid: {g: [x]}}}], conditions: [{if: {jobid: '#g'}, then: {}}]}", (1, 14)),
        ("- {fields: [jobid], fields: [localip], conditions: [{if: {localip: 192.0.2.1}, then: {}}]}", (1, 21)),
        ("quotas: [{nmae: q}]", (1, 11)),
        ("quotas: [{called: q}]", (1, 11)),
        ("incoming: [{fi: {sender: '/(?P<who>.*)@x/'}, set: {jobid: '${who}'}}]", (1, 13)),
        ("incoming: [{when: {sender: '/(?P<who>.*)@x/'}, set: {jobid: '${who}'}}]", (1, 13)),
        ("lists: *l\nsuspends: [{jobid: '@a'}]", (1, 8)),
        ("- {default: *strict}", (1, 13)),
        ("- {fields: *counted, conditions: [{if: {jobid: '#g'}, then: {}}]}", (1, 12)),
    ],
)
def test_what_a_refused_name_may_hold_is_not_missed_elsewhere(text: str, place: tuple[int, int]) -> None:
    error = refused(text)

    assert [(found.place.line, found.place.column) for found in error.each] == [place]


def test_a_list_with_a_refused_value_is_not_blamed_for_names_in_each_rule_that_uses_it() -> None:
    text = """\
lists: {l: ['/(?P<who>[^@]*)@(?=x)/']}
incoming:
- {if: {sender: '@l'}, set: {jobid: '${who}'}}
- {if: {sender: '@l'}, set: {jobid: '${who}'}}
"""

    assert [(found.place.line, found.place.column) for found in refused(text).each] == [(1, 13)]


def test_what_is_wrong_below_a_misspelt_part_is_named_with_it() -> None:
    text = "polices:\n- feilds: [colour]\n  defualt: {concurency: many}\n"

    assert places(refused(text)) == [(1, 1), (2, 3), (2, 12), (3, 3), (3, 13), (3, 25)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lists: {near: [.b.example]}\nsuspends: [{recipientdomain: '@nera'}]", [(1, 16), (2, 30)]),
        ("suspends: [{recipientdomian: .b.example}]", [(1, 13), (1, 30)]),
        ("suspends: [{remote: .b.example}]", [(1, 13)]),
        ("incoming: [{if: {sendr: .b.example}}]", [(1, 18), (1, 25)]),
        ("- {fields: [recipientdomian: {g: [.b.example]}]}", [(1, 13), (1, 35)]),
        (
            "- {fields: [jobid], conditions: [{if: {jobdi: [[x]], jobid: a}, then: {}}]}",
            [(1, 40), (1, 48)],
        ),
    ],
)
def test_what_is_wrong_in_the_values_of_a_misspelt_field_or_list_is_named_with_it(
    text: str, expected: list[tuple[int, int]]
) -> None:
    """Where one name alone is much like it: `remote` may be remoteip, or remotemx."""
    found = [(error.place.line, error.place.column) for error in refused(text).each]

    assert found == expected


def test_every_alias_that_means_nothing_is_named() -> None:
    text = "lists: {a: *one, b: [*two, &two x, &two y]}\nsuspends: [{jobid: *three}]\n"

    assert places(refused(text)) == [(1, 12), (1, 22), (1, 36), (2, 20)]


def test_a_server_says_the_first_error_and_where_to_see_the_others() -> None:
    error = refused("suspends:\n- {recipientdomain: .example.org}\n- {jobid: '#g'}\n- {job: x}\n")

    assert str(error.in_short).splitlines() == [
        "policies.yaml, line 2, column 21: '.example.org' is no domain",
        "- {recipientdomain: .example.org}",
        "                    ^",
        "Did you mean '*.example.org'? It is every domain below example.org, without that one itself.",
        "The file has 2 more errors. To see all of them: mailmend policy lint policies.yaml",
    ]


def test_a_server_says_the_only_error_as_it_is() -> None:
    error = refused("suspends: [{job: x}]\n")

    assert error.in_short is error


def test_a_server_counts_one_other_error_in_the_singular() -> None:
    text = "suspends:\n- {recipientdomain: .example.org}\n- {recipientdomain: .example.org}\n"

    assert str(refused(text).in_short).splitlines()[-1] == (
        "The file has 1 more error. To see all of them: mailmend policy lint policies.yaml"
    )


def test_a_server_says_where_to_see_the_others_alone_where_the_first_error_says_all_itself() -> None:
    each = [BadPolicyFile("odd name.yaml", Place(1, 1, "x"), "x is wrong") for _ in range(2_002)]
    error = BadPolicyFile("odd name.yaml", Place(1, 1, "x"), "x is wrong", refused=each)

    assert error.in_short.mend == (
        "The file has 2,001 more errors. To see all of them: mailmend policy lint 'odd name.yaml'"
    )

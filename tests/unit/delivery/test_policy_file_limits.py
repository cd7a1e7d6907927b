"""Whatever a policy file holds, reading it takes bounded time and ends in words that say where."""

import random
from contextlib import suppress
from pathlib import Path

import pytest

from mailmend.delivery.policy.file import nodes
from mailmend.delivery.policy.file.forms import BadPolicyFile
from mailmend.delivery.policy.file.nodes import DEPTH_MAX, FILE_BYTES_MAX, NODES_MAX, PATTERNS_MAX
from mailmend.delivery.policy.file.reading import policies_of, read_policies
from mailmend.model.errors import WrongUse
from tests.support.thorough import share


def refused(text: str) -> BadPolicyFile:
    with pytest.raises(BadPolicyFile) as found:
        policies_of(text, "policies.yaml")
    return found.value


@pytest.mark.parametrize(
    "text",
    [
        "policies: " + "[" * 2_000,
        "policies: " + "[" * 2_000 + "]" * 2_000,
        "policies: " + "{a: " * 2_000,
        "- " * 2_000 + "a",
        "? " * 2_000 + "a",
        "".join(" " * depth + "a:\n" for depth in range(2_000)),
    ],
)
def test_what_is_deep_is_refused_where_it_gets_too_deep(text: str) -> None:
    assert refused(text).problem == f"lists and mappings are within each other more than {DEPTH_MAX} deep"


def test_a_file_may_be_fifty_levels_deep() -> None:
    value = "[" * (DEPTH_MAX - 1) + "]" * (DEPTH_MAX - 1)

    policies_of(f"version: {value}\npolicies: []", "policies.yaml")

    error = refused(f"version: [{value}]\npolicies: []")
    assert (DEPTH_MAX, error.place.line, error.place.column) == (50, 1, 10 + DEPTH_MAX - 1)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("[]", 1),
        ("version: x\npolicies: []", 5),
        ("version: [&a x, *a, *a]\npolicies: []", 8),
        ("version: [&a [x, y], *a]\npolicies: []", 11),
        ("version: [&a {x: y}, *a, z]\npolicies: []", 12),
        ("version: [[u], &a [v, &b [w]], *a, *b]\npolicies: []", 17),
    ],
)
def test_each_value_of_a_file_counts_and_those_of_aliases_again(
    text: str, values: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (NODES_MAX, PATTERNS_MAX) == (1_000_000, 1_000_000)

    monkeypatch.setattr(nodes, "NODES_MAX", values)
    policies_of(text, "policies.yaml")

    monkeypatch.setattr(nodes, "NODES_MAX", values - 1)
    assert "more than" in refused(text).problem


def test_an_alias_that_means_nothing_counts_as_one_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "NODES_MAX", 5)

    assert len(refused("version: *a\npolicies: []").each) == 1
    assert len(refused("version: [*a]\npolicies: []").each) == 2


def test_an_anchor_that_is_there_twice_repeats_nothing_before_its_end() -> None:
    error = refused("lists: {a: &a x, b: &a [*a]}")

    assert [found.problem for found in error.each] == [
        "the values of a list are a list",
        "the anchor &a is there twice",
        "the anchor &a repeats itself",
    ]


def test_aliases_of_aliases_are_counted_as_what_they_stand_for() -> None:
    """Nine lines of nine aliases each are 9**9 values."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]

    found = refused("lists:\n" + "".join(f"  {line}\n" for line in lines))

    assert found.problem == "the file comes to more than 1,000,000 values, with the values of aliases counted again"
    assert found.place.line == 8


def test_policies_that_repeat_one_policy_are_counted_as_what_they_stand_for() -> None:
    """Every level of a policy is of its right kind, so nothing but the sum is wrong."""
    values = "lists: {v: &v [" + ", ".join(["a"] * 1_000) + "]}\n"
    condition = "policies:\n- fields: [jobid]\n  conditions:\n  - &c {if: {jobid: *v}, then: {}}\n"
    text = values + condition + "  - *c\n" * 1_000

    assert "more than 1,000,000 values" in refused(text).problem


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("policies: &a [*a]", "the anchor &a repeats itself"),
        ("policies: &a [{conditions: *a}]", "the anchor &a repeats itself"),
        ("policies: *a", "there is no anchor &a above this alias"),
        ("lists: {a: &a [x], b: &a [y]}", "the anchor &a is there twice"),
        ("policies: []\n---\npolicies: []", "this is a second document, and a policy file is one"),
    ],
)
def test_anchors_that_mean_nothing_are_refused(text: str, problem: str) -> None:
    assert refused(text).problem == problem


def test_an_alias_repeats_what_its_anchor_names() -> None:
    text = """
policies:
  - fields: [recipientdomain]
    conditions:
      - if: {recipientdomain: &two [a.example, b.example]}
        then: &strict {concurrency: 2}
      - if: {recipientdomain: c.example}
        then: *strict
suspends:
  - {recipientdomain: *two}
"""
    said = policies_of(text, "policies.yaml").said

    first, second = said.policies[0].conditions
    assert first.threshold == second.threshold
    assert next(iter(said.suspensions[0].patterns.values())) == next(iter(first.patterns.values()))


def test_merge_keys_are_refused_by_name() -> None:
    text = "policies:\n- fields: []\n  default: {<<: {concurrency: 2}, rate: 5}\n"

    found = refused(text)

    assert found.problem == "merge keys (<<) are not read"
    assert (found.place.line, found.place.column) == (3, 13)


def test_lists_that_are_named_often_are_counted() -> None:
    """Names of lists multiply as aliases do."""
    conditions = "  - {if: {jobid: '@l'}, then: {}}\n" * 101
    text = f"lists: {{l: [{', '.join(['a'] * 10_000)}]}}\npolicies:\n- fields: [jobid]\n  conditions:\n{conditions}"

    assert refused(text).problem.startswith("lists are named too often")


def test_a_list_counts_wherever_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "lists: {l: [a, b], m: [c]}\nsuspends: [{jobid: '@l'}, {jobid: '@l', tenantid: '@m'}]\n"

    monkeypatch.setattr(nodes, "PATTERNS_MAX", 5)
    policies_of(text, "policies.yaml")

    monkeypatch.setattr(nodes, "PATTERNS_MAX", 4)
    error = refused(text)
    assert (error.place.line, error.place.column) == (2, 51)
    assert error.problem == "lists are named too often: they come to more than 4 values in this file"


def test_a_file_of_empty_lines_has_no_policies() -> None:
    assert refused("\n" * FILE_BYTES_MAX).problem == "there are no policies in it"
    assert refused("#" * FILE_BYTES_MAX).problem == "there are no policies in it"


def test_a_text_that_is_too_large_is_not_parsed() -> None:
    error = refused("#" * (FILE_BYTES_MAX + 1))

    assert (error.problem, error.place.line) == ("the file is too large", 1)
    assert error.mend == "A policy file has at most 4,194,304 bytes."


def test_a_file_that_is_too_large_is_not_read_through(tmp_path: Path) -> None:
    """Of 20 MB of empty lines, or of a device without end, no more is read than a policy file may have."""
    large = tmp_path / "policies.yaml"
    large.write_bytes(b"\n" * 20_000_000)

    for file in (large, Path("/dev/zero")):
        with pytest.raises(WrongUse, match="is too large\nA policy file has at most 4,194,304 bytes"):
            read_policies(file)


PIECES = (
    *("[", "]", "{", "}", ",", ": ", "- ", "? ", "\n", "\n  ", " ", "&a ", "*a", "!!x ", "|\n", ">-\n", "'", '"', "#"),
    *("<<", "@l", "#g", "/", "/a/", "policies:", "fields:", "conditions:", "if:", "then:", "default:", "rate:", "5/0"),
    *("lists:", "incoming:", "suspends:", "tenants:", "quotas:", "jobid", "recipientdomain", "localip", "a.example"),
    *("*.a", "\t", "\0", "\x85", "\u2028", "\ufeff", "\ud800", "é", "---", "...", "%YAML 1.2", "~", "1e999", "\\"),
)


@pytest.mark.parametrize("seed", range(4))
def test_any_text_is_taken_or_refused_in_words(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(share(2_000)):
        text = "".join(chance.choices(PIECES, k=chance.randrange(1, 30)))
        with suppress(BadPolicyFile):
            policies_of(text, "policies.yaml")

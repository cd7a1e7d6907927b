"""Whether the nodes agree: looked at until they do, or until the time is up; who is behind is named."""

from collections.abc import Mapping, Sequence
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.cql.migrate.migrator import POLL_SECONDS, Agreement, NodeVersions
from mailmend.model.errors import SchemaDisagreement
from tests.support.clock import VirtualClock

NEW, OLD = UUID(int=1), UUID(int=2)
NODES = st.dictionaries(st.sampled_from(["a", "b", "c", "d", "e"]), st.sampled_from([NEW, OLD, None]), min_size=1)


class Nodes:
    """Nodes that have one set of versions at each look, the last for ever."""

    def __init__(self, *looks: Mapping[str, UUID | None], down: Sequence[str] = ()) -> None:
        self.looks = list(looks)
        self.down = down
        self.looked = 0

    def schema_versions(self) -> Mapping[str, UUID | None]:
        self.looked += 1
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]

    def nodes_down(self) -> Sequence[str]:
        return self.down


@given(NODES)
def test_nodes_agree_only_when_all_answer_and_answer_the_same(versions: dict[str, UUID | None]) -> None:
    seen = NodeVersions(versions)
    assert seen.agreed is (set(versions.values()) in ({NEW}, {OLD}))
    assert bool(seen.behind) is not seen.agreed
    assert all(node in str(seen) for node in versions)


def test_who_is_behind_is_the_smaller_part() -> None:
    seen = NodeVersions({"a": NEW, "b": OLD, "c": NEW, "d": None}, ("e",))
    assert seen.behind == ("b", "d")
    assert str(seen) == f"a has {NEW}, b has {OLD}, c has {NEW}, d has given no answer, e is down"
    assert NodeVersions({"a": None}).behind == ("a",)


def test_agreement_that_is_there_takes_no_time() -> None:
    clock, nodes = VirtualClock(), Nodes({"a": NEW, "b": NEW})
    assert Agreement(nodes, clock).wait("before it").agreed
    assert (clock.slept, nodes.looked) == ([], 1)


@given(st.integers(1, 20))
def test_agreement_that_comes_in_time_is_waited_for(looks: int) -> None:
    clock, apart = VirtualClock(), {"a": NEW, "b": OLD}
    nodes = Nodes(*[apart] * looks, {"a": NEW, "b": NEW})
    assert Agreement(nodes, clock, seconds=30).wait("before it").agreed
    assert clock.slept == [POLL_SECONDS] * looks


def test_when_the_time_is_up_the_message_says_who_when_and_what_next() -> None:
    clock, nodes = VirtualClock(), Nodes({"a": NEW, "b": NEW, "c": OLD})
    before = clock.micros()
    with pytest.raises(SchemaDisagreement, match="within 3 s, after 0001, line 5: a has") as refused:
        Agreement(nodes, clock, seconds=3).wait("after 0001, line 5")
    assert 3_000_000 <= clock.micros() - before < 3_500_000
    assert refused.value.mend.startswith("Look at c: nodetool describecluster")


def test_a_node_that_is_down_counts_only_where_all_are_required() -> None:
    clock, nodes = VirtualClock(), Nodes({"a": NEW}, down=["b"])
    assert Agreement(nodes, clock).wait("before it").down == ("b",)
    with pytest.raises(SchemaDisagreement, match="not every node is up, before it: b") as refused:
        Agreement(nodes, clock, seconds=1, require_all=True).wait("before it")
    assert "leave out --require-all-nodes" in refused.value.mend


def test_the_last_look_is_taken_when_the_time_is_up() -> None:
    apart, together = {"a": NEW, "b": OLD}, {"a": NEW, "b": NEW}
    looks = round(1 / POLL_SECONDS)
    in_time, late = (Nodes(*[apart] * count, together) for count in (looks, looks + 1))

    assert Agreement(in_time, VirtualClock(), seconds=1).wait("before it").agreed
    with pytest.raises(SchemaDisagreement):
        Agreement(late, VirtualClock(), seconds=1).wait("before it")
    assert late.looked == looks + 1


def test_without_any_patience_there_is_one_look() -> None:
    nodes, clock = Nodes({"a": NEW, "b": OLD}), VirtualClock()
    with pytest.raises(SchemaDisagreement, match="within 0 s"):
        Agreement(nodes, clock, seconds=0).wait("before it")
    assert (nodes.looked, clock.slept) == (1, [])


def test_a_node_that_is_down_is_waited_for_where_all_are_required() -> None:
    nodes, clock = Nodes({"a": NEW}, down=["b"]), VirtualClock()

    def back(seconds: float) -> None:
        clock.advance(seconds)
        nodes.down = []

    clock.sleep = back  # type: ignore[method-assign]
    assert Agreement(nodes, clock, require_all=True).wait("before it").down == ()

    apart = Nodes({"a": NEW, "b": OLD}, down=["c"])
    with pytest.raises(SchemaDisagreement, match=r"did not agree .* c is down"):
        Agreement(apart, VirtualClock(), seconds=1, require_all=True).wait("before it")


def test_nodes_of_which_none_is_up_do_not_agree() -> None:
    assert not NodeVersions({}, ("a",)).agreed

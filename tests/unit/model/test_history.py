"""What a folder of migrations has otherwise than the history of what was applied from it."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.migrating.history import HistoryDrift, State, StatementEntry, Step, Tampering, history_drift
from model.migrating.migrations import Migration, checksum_of, in_order
from tests.support.migrating import SHOP, applied, folder, migration

FOLDER = folder()


def drift(files: Mapping[str, str], history: tuple[Migration, ...] = FOLDER) -> list[tuple[Tampering, str]]:
    """The folder of these files beside a history in which those migrations were applied."""
    found = history_drift(folder(files), applied(history))
    assert all(one.why and one.mend.strip() and one.file in str(one) for one in found)
    return [(one.kind, one.file) for one in found]


@given(st.integers(0, len(FOLDER)))
def test_a_folder_fits_its_own_history_however_far_that_came(number: int) -> None:
    """Also a baseline's."""
    for state in (State.APPLIED, State.BASELINE):
        assert history_drift(FOLDER, applied(FOLDER[:number], state)) == ()


@given(st.data())
def test_any_edit_of_what_was_applied_is_named(data: st.DataObject) -> None:
    """The file and no other; what is pending may still be edited."""
    done = data.draw(st.integers(1, len(FOLDER)))
    at = data.draw(st.integers(1, len(FOLDER)))
    name = str(FOLDER[at - 1].file)
    found = drift({**SHOP, name: SHOP[name] + "-- a word more\n"}, FOLDER[:done])
    assert found == ([(Tampering.EDITED, name)] if at <= done else [])


def test_a_file_that_is_gone_is_named() -> None:
    """The last one: the others would leave a gap, which the folder itself refuses."""
    files = dict(list(SHOP.items())[:-1])
    assert drift(files) == [(Tampering.MISSING, "0004_pre_places.cql")]


def test_a_renamed_file_is_named_with_its_old_name() -> None:
    """Its text is the same."""
    files = {name.replace("_pre_labels", "_post_tags"): cql for name, cql in SHOP.items()}
    (found,) = history_drift(folder(files), applied(FOLDER))
    assert (found.kind, found.file) == (Tampering.RENAMED, "0002_post_tags.cql")
    assert found.mend == "Rename it back: 0002_pre_labels.cql"


def test_a_file_put_in_between_moves_the_others() -> None:
    """Everything after it stands under another number; what came into the first number's place is told as that."""
    names = list(SHOP)
    files = {
        names[0]: SHOP[names[0]],
        "0002_pre_between.cql": "DROP TABLE between;",
        **{f"{int(name[:4]) + 1:04}{name[4:]}": SHOP[name] for name in names[1:]},
    }
    found = drift(files)
    assert {kind for kind, _ in found} == {Tampering.MOVED}
    assert [file for _, file in found] == ["0003_pre_labels.cql", "0004_post_no_totals.cql", "0005_pre_places.cql"]


def test_a_number_that_belongs_to_another_file_now_is_told() -> None:
    """Both names stand in the message."""
    files = {"0001_pre_other.cql" if name.startswith("0001") else name: cql for name, cql in SHOP.items()}
    files["0001_pre_other.cql"] = "DROP TABLE other;"
    (found,) = history_drift(folder(files), applied(FOLDER))
    assert (found.kind, found.file) == (Tampering.REPLACED, "0001_pre_other.cql")
    assert "0001_pre_orders.cql" in found.why


def test_a_file_that_was_not_applied_though_later_ones_were_is_named() -> None:
    """And the ledger's own gap with it."""
    history = tuple(one for one in applied(FOLDER) if one.number != 2)
    found = history_drift(FOLDER, history)
    assert [(one.kind, one.file) for one in found] == [
        (Tampering.INSERTED, "0002_pre_labels.cql"),
        (Tampering.FORGED, "0003_post_no_totals.cql"),
    ]


@pytest.mark.parametrize("at", range(len(FOLDER)))
def test_a_history_that_was_written_into_by_hand_is_told(at: int) -> None:
    """From the first entry on whose chain does not follow."""
    history = list(applied(FOLDER))
    history[at] = replace(history[at], chain="0" * 64)
    assert [(one.kind, one.number) for one in history_drift(FOLDER, history)] == [(Tampering.FORGED, at + 1)]


def running(states: list[Step]) -> tuple[HistoryDrift, ...]:
    """The second migration was edited in its second statement while the history has it as running, so far."""
    history = (*applied(FOLDER[:1]), replace(applied(FOLDER)[1], state=State.RUNNING, done=0))
    at = datetime(2026, 9, 1, tzinfo=UTC)
    begun = [
        StatementEntry(2, place, checksum_of(FOLDER[1].cql(place)), state, UUID(int=9), at, FOLDER[1].cql(place))
        for place, state in enumerate(states)
    ]
    edited = migration("0002_pre_labels.cql", SHOP["0002_pre_labels.cql"].replace("by_label ON", "by_name ON"))
    return history_drift(in_order([FOLDER[0], edited, *FOLDER[2:]]), history, begun)


@pytest.mark.parametrize("states", [[], [Step.DONE], [Step.BEGUN], [Step.DONE, Step.FAILED]])
def test_what_has_not_taken_effect_may_still_be_mended(states: list[Step]) -> None:
    """A statement that the server refused, and those after it."""
    assert running(states) == ()


@pytest.mark.parametrize("states", [[Step.DONE, Step.DONE], [Step.DONE, Step.BEGUN]])
def test_what_may_have_taken_effect_stays_as_it_is(states: list[Step]) -> None:
    """Done, or begun by somebody who was interrupted."""
    assert [one.kind for one in running(states)] == [Tampering.EDITED]


def test_a_statement_that_took_effect_cannot_be_left_out() -> None:
    """The file has fewer statements than were done."""
    history = (replace(applied(FOLDER)[0], state=State.RUNNING),)
    at = datetime(2026, 9, 1, tzinfo=UTC)
    begun = [StatementEntry(1, 2, checksum_of(FOLDER[0].cql(2)), Step.DONE, UUID(int=9), at, "")]
    shorter = migration("0001_pre_orders.cql", "CREATE TYPE place (street text, town text);")
    assert [one.kind for one in history_drift(in_order([shorter]), history, begun)] == [Tampering.EDITED]

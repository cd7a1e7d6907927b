"""The algebra of flags, as IMAP's STORE has it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.repair.store.message import Flags, FlagsChange, FlagsMode, SystemFlag, flags_of, parse_flags

ANY = st.builds(
    Flags,
    st.frozensets(st.sampled_from(SystemFlag)),
    st.frozensets(st.text(min_size=1, max_size=4), max_size=4),
)


@given(before=ANY, flags=ANY)
def test_added_flags_are_there_and_none_is_lost(before: Flags, flags: Flags) -> None:
    """+FLAGS only grows."""
    after = FlagsChange(FlagsMode.ADD, flags).applied_to(before)
    assert after.system >= flags.system | before.system
    assert after.user >= flags.user | before.user


@given(before=ANY, flags=ANY)
def test_removed_flags_are_gone_and_no_other(before: Flags, flags: Flags) -> None:
    """-FLAGS takes exactly what it names."""
    after = FlagsChange(FlagsMode.REMOVE, flags).applied_to(before)
    assert after == Flags(before.system - flags.system, before.user - flags.user)


@given(before=ANY, flags=ANY)
def test_a_replacement_leaves_recent_to_the_server(before: Flags, flags: Flags) -> None:
    r"""FLAGS sets everything, but a client cannot clear \Recent."""
    after = FlagsChange(FlagsMode.REPLACE, flags).applied_to(before)
    assert (SystemFlag.RECENT in after.system) == (SystemFlag.RECENT in before.system | flags.system)
    assert after.user == flags.user


@given(before=ANY, flags=ANY, mode=st.sampled_from(FlagsMode))
def test_every_change_done_twice_is_done_once(before: Flags, flags: Flags, mode: FlagsMode) -> None:
    change = FlagsChange(mode, flags)
    once = change.applied_to(before)
    assert change.applied_to(once) == once


@given(ANY)
def test_flags_survive_the_row(flags: Flags) -> None:
    assert flags_of(flags.as_row()) == flags


def test_null_columns_read_as_unset() -> None:
    assert flags_of({"flagseen": None}) == Flags()


def test_imap_spelling_is_read() -> None:
    assert parse_flags(["\\Seen", "\\flagged", "work"]) == Flags(
        frozenset({SystemFlag.SEEN, SystemFlag.FLAGGED}), frozenset({"work"})
    )


def test_an_unknown_system_flag_is_refused() -> None:
    with pytest.raises(ValueError, match="Sene"):
        parse_flags(["\\Sene"])

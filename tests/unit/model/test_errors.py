"""Errors say what, where and how to mend it; their kinds are exit codes; they travel whole."""

import pickle

import pytest

from mailmend.model.errors import (
    BadIdentifier,
    CannotReach,
    DoubtfulWrite,
    ExitCode,
    MailmendError,
    SchemaMismatch,
    TimedOut,
    UnknownKeyspace,
    WrongUse,
)


def test_an_error_says_what_happened_and_how_to_mend_it() -> None:
    assert str(MailmendError("it broke", mend="mend it")) == "it broke\nmend it"
    assert str(MailmendError("it broke")) == "it broke"


def test_an_unknown_keyspace_names_the_command_that_creates_it() -> None:
    assert "mailmend schema apply --keyspace mail" in str(UnknownKeyspace("mail"))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (WrongUse("x"), ExitCode.WRONG_USE),
        (BadIdentifier("x;"), ExitCode.WRONG_USE),
        (CannotReach("x"), ExitCode.CANNOT_REACH),
        (TimedOut("x"), ExitCode.CANNOT_REACH),
        (MailmendError("x"), ExitCode.PARTLY_FAILED),
    ],
)
def test_each_kind_has_its_exit_code(error: MailmendError, code: ExitCode) -> None:
    assert error.exit_code is code


def test_a_doubtful_write_is_a_timeout_of_its_own_kind() -> None:
    """Who cannot tell settles for the timeout; who can reads SERIAL."""
    assert issubclass(DoubtfulWrite, TimedOut)


@pytest.mark.parametrize(
    "error", [SchemaMismatch("ks", ("a", "b")), BadIdentifier("x;", "table"), CannotReach("a", mend="b")]
)
def test_an_error_comes_home_from_another_process_whole(error: MailmendError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert copy.__dict__ == error.__dict__

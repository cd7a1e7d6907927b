"""Errors say what, where and how to mend it; their kinds are exit codes; they travel whole."""

import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from mailmend.model.errors import (
    FOR_SOMEBODY_ELSE,
    INTERRUPTED,
    NO_TLS,
    OUT_OF_TIME,
    UNKNOWN_AUTHORITY,
    BadIdentifier,
    BlobMissing,
    CannotReach,
    ClocksDiffer,
    CqlSyntaxError,
    DoubtfulWrite,
    ExitCode,
    FixLimit,
    LikeAnotherKeyspace,
    MailmendError,
    PublishFailed,
    ReplicationNeeded,
    RisksNotAllowed,
    SchemaMismatch,
    SchemaRefused,
    SourceUnread,
    TablesOfOthers,
    TimedOut,
    TlsReason,
    UnknownKeyspace,
    WrongUse,
    came_of_interruption,
    exit_code_of,
    tls_failure_in,
)
from mailmend.model.texts import Place


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
        (FixLimit("x"), ExitCode.DRIFT),
        (RisksNotAllowed("x"), ExitCode.NOT_ALLOWED),
        (ClocksDiffer("x"), ExitCode.WRONG_USE),
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


def test_scripts_may_count_on_the_number_of_each_exit_code() -> None:
    assert {code.name: code.value for code in ExitCode} == {
        "FINE": 0,
        "DRIFT": 1,
        "WRONG_USE": 2,
        "PARTLY_FAILED": 3,
        "CANNOT_REACH": 4,
        "NOT_ALLOWED": 5,
    }


def test_a_command_ends_with_the_code_of_its_error_or_of_its_interruption() -> None:
    interrupted = CannotReach("the clean-up failed")
    interrupted.__context__ = ValueError("and so did this")
    interrupted.__context__.__context__ = KeyboardInterrupt()

    assert exit_code_of(CannotReach("x")) == 4
    assert exit_code_of(ValueError("x")) == 3
    assert exit_code_of(KeyboardInterrupt()) == INTERRUPTED == 130
    assert exit_code_of(interrupted) == 130
    assert not came_of_interruption(None)


def test_the_message_names_the_runbook_unless_the_sentences_do() -> None:
    assert CannotReach("x", mend="y").message == "x\ny\nMore: mailmend runbook show servers-do-not-answer"
    assert CannotReach("x", mend="See: mailmend runbook show z").message == "x\nSee: mailmend runbook show z"
    assert WrongUse("x", mend="y").message == "x\ny"


def kinds_below(kind: type[MailmendError]) -> Iterator[type[MailmendError]]:
    for below in kind.__subclasses__():
        yield below
        yield from kinds_below(below)


@pytest.mark.parametrize("page", sorted({kind.page for kind in kinds_below(MailmendError) if kind.page}))
def test_the_runbook_that_an_error_names_is_there(page: str) -> None:
    assert Path("runbooks", f"{page}.md").is_file()


CQL = Place(3, 8, "CREATE TABEL t")
COPIES = ReplicationNeeded("mail", {"west": 2, "east": 5})


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            COPIES,
            (
                "keyspace 'mail' does not exist, and the cluster has 7 nodes: say how many copies to keep\n"
                "Give --replication east=3,west=2 (copies by data centre), or --replication-factor 3."
            ),
        ),
        (
            LikeAnotherKeyspace("mial", "mail"),
            (
                "keyspace 'mial' does not exist: did you mean 'mail'?\n"
                "Name that with --keyspace mail; to create mial all the same: --new-keyspace."
            ),
        ),
        (
            TablesOfOthers("shop", ["a", "b", "c", "d", "e"]),
            (
                "keyspace 'shop' holds tables of another application: a, b, c, d, e\n"
                "Name another keyspace with --keyspace; where this one is meant: --into-existing."
            ),
        ),
        (
            TablesOfOthers("shop", ["a", "b", "c", "d", "e", "f"], mend="Look."),
            "keyspace 'shop' holds tables of another application: a, b, c, d, e and 1 more\nLook.",
        ),
        (
            BadIdentifier("x;"),
            (
                "'x;' is not a valid name\n"
                "A name starts with a letter, holds at most 48 letters, digits and underscores, "
                "and is no word of CQL's own."
            ),
        ),
        (BadIdentifier("x;", "table", mend="Look."), "'x;' is not a valid table\nLook."),
        (
            CqlSyntaxError("TABLE was expected", CQL, mend="Write TABLE."),
            "line 3, column 8: TABLE was expected\nCREATE TABEL t\n       ^\nWrite TABLE.",
        ),
        (
            CqlSyntaxError("no", CQL, mend="Write TABLE.").in_file("1.cql"),
            "1.cql, line 3, column 8: no\nCREATE TABEL t\n       ^\nWrite TABLE.",
        ),
        (SchemaRefused("DROP TABLE", "t", "no", mend="Look."), "DROP TABLE t: no\nLook."),
        (
            UnknownKeyspace("mail"),
            (
                "keyspace 'mail' does not exist\n"
                "Create it with: mailmend schema apply --keyspace mail, or name another with --keyspace."
            ),
        ),
        (
            UnknownKeyspace("mail", '"Mail"', '"MAIL"'),
            (
                "keyspace 'mail' does not exist\nDid you mean --keyspace '\"Mail\"' or --keyspace '\"MAIL\"'? "
                "A name without double quotes is read in lower case."
            ),
        ),
        (
            SchemaMismatch("mail", ("a", "b")),
            "keyspace 'mail' lacks a, b\nSee what differs with: mailmend schema verify --keyspace mail",
        ),
        (SchemaMismatch("mail", ("a",), mend="Look."), "keyspace 'mail' lacks a\nLook."),
        (SourceUnread("a", "b", mend="Look."), "a cannot be read whole, so nothing was removed: b\nLook."),
        (BlobMissing("a", mend="Look."), "the blob a is missing\nLook."),
        (PublishFailed("x", mend="Look."), "x\nLook."),
    ],
)
def test_each_error_says_what_where_and_how_to_mend_it(error: MailmendError, message: str) -> None:
    assert str(error) == message


def test_an_error_keeps_what_its_message_was_made_of() -> None:
    syntax = CqlSyntaxError("no", CQL).in_file("1.cql")
    refused = SchemaRefused("DROP TABLE", "t", "no")
    others = TablesOfOthers("shop", ["a"])

    assert (COPIES.keyspace, COPIES.nodes) == ("mail", {"west": 2, "east": 5})
    assert (syntax.problem, syntax.line, syntax.column, syntax.place, syntax.file) == ("no", 3, 8, CQL, "1.cql")
    assert CqlSyntaxError("no", CQL).file == ""
    assert (refused.statement, refused.subject, refused.reason) == ("DROP TABLE", "t", "no")
    assert others.tables == ("a",)
    assert (LikeAnotherKeyspace("mial", "mail").keyspace, LikeAnotherKeyspace("mial", "mail").other) == ("mial", "mail")
    assert UnknownKeyspace("mail").keyspace == "mail"
    assert (SchemaMismatch("mail", ("a",)).keyspace, SchemaMismatch("mail", ("a",)).missing) == ("mail", ("a",))
    assert SourceUnread("a", "b").source == "a"
    assert BlobMissing("a").blob_id == "a"
    assert PublishFailed("x", doubtful=True).doubtful
    assert not PublishFailed("x").doubtful


OPENSSL = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: "


@pytest.mark.parametrize(
    ("words", "said", "found"),
    [
        (OUT_OF_TIME, f"{OPENSSL}certificate has expired (_ssl.c:1006)", "certificate has expired"),
        (OUT_OF_TIME, f"{OPENSSL}certificate is not yet valid (_ssl.c:1006)", "certificate is not yet valid"),
        (
            FOR_SOMEBODY_ELSE,
            f"{OPENSSL}Hostname mismatch, certificate is not valid for 'a'. (_ssl.c:1006)",
            "Hostname mismatch, certificate is not valid for 'a'",
        ),
        (
            FOR_SOMEBODY_ELSE,
            f"{OPENSSL}IP address mismatch, certificate is not valid for '::1'. (_ssl.c:1006)",
            "IP address mismatch, certificate is not valid for '::1'",
        ),
        (UNKNOWN_AUTHORITY, f"{OPENSSL}self-signed certificate (_ssl.c:1006)", "self-signed certificate"),
        (NO_TLS, "[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)", "wrong version number"),
        (NO_TLS, "[SSL] Record layer failure (_ssl.c:2580)", "Record layer failure"),
    ],
)
def test_the_words_of_openssl_tell_why_a_connection_failed(words: re.Pattern[str], said: str, found: str) -> None:
    reason = TlsReason(words, "{place} says: {words}", "Mend it at {place}.")

    failure = tls_failure_in(said, "mx:25", [TlsReason(re.compile("never said"), "", ""), reason], CannotReach)

    assert type(failure) is CannotReach
    assert str(failure) == f"mx:25 says: {found}\nMend it at {{place}}."


def test_what_openssl_does_not_say_is_no_failure_of_tls() -> None:
    assert tls_failure_in("connection refused", "mx:25", [TlsReason(NO_TLS, "", "")], CannotReach) is None

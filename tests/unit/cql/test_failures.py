"""What becomes of a request when the driver fails: its errors, TLS errors among them, as ours with what mends them."""

from itertools import product

import pytest
from cassandra import (
    AlreadyExists,
    AuthenticationFailed,
    InvalidRequest,
    OperationTimedOut,
    ReadFailure,
    ReadTimeout,
    Unauthorized,
    Unavailable,
    WriteFailure,
    WriteTimeout,
    WriteType,
)
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionException, ConnectionShutdown
from cassandra.protocol import ConfigurationException, OverloadedErrorMessage, ServerError, SyntaxException

from mailmend.cql.driver.contact import DriverFailure, Purpose, failure_of, no_contact, purpose_of, tls_failure
from mailmend.cql.driver.driver_errors import failure_kind
from mailmend.cql.row_statements import Operation
from mailmend.model.catalog.mail import IMAP_UID, MAILBOX_COUNTERS
from mailmend.model.errors import (
    AccessDenied,
    CannotReach,
    DoubtfulWrite,
    ExitCode,
    MailmendError,
    NotEnoughReplicas,
    SchemaMismatch,
    TableOpening,
    TimedOut,
    UnknownKeyspace,
    WrongUse,
)
from mailmend.model.operations import Change, ChangeIf, Count, Put, PutIfAbsent, Read, Remove, RemoveIf, Scan

KEY = (1, 2, 3)


def failure(failed: DriverFailure, purpose: Purpose = Purpose.READ, said: str = "said") -> MailmendError:
    return failure_of(failed, said, purpose, "apache_james", "imapUidTable")


@pytest.mark.parametrize(
    ("operation", "purpose"),
    [
        (Read(IMAP_UID, KEY), Purpose.READ),
        (Scan(IMAP_UID, ("uid",)), Purpose.READ),
        (Put(IMAP_UID, {}), Purpose.WRITE),
        (Change(IMAP_UID, KEY), Purpose.WRITE),
        (Remove(IMAP_UID, KEY), Purpose.WRITE),
        (Count(MAILBOX_COUNTERS, KEY, {}), Purpose.ONCE),
        (PutIfAbsent(IMAP_UID, {}), Purpose.ONCE),
        (ChangeIf(IMAP_UID, KEY, {}), Purpose.ONCE),
        (RemoveIf(IMAP_UID, KEY, {}), Purpose.ONCE),
    ],
)
def test_what_is_conditional_or_counts_is_sent_once(operation: Operation, purpose: Purpose) -> None:
    assert purpose_of(operation) is purpose


@pytest.mark.parametrize("failed", [DriverFailure.SILENCE, DriverFailure.BROKEN])
def test_a_lost_answer_of_what_is_sent_once_is_a_doubt(failed: DriverFailure) -> None:
    error = failure(failed, Purpose.ONCE)
    assert type(error) is DoubtfulWrite
    assert "SERIAL" in error.mend


@pytest.mark.parametrize(
    "failed", [DriverFailure.NO_HOST, DriverFailure.FEW_REPLICAS, DriverFailure.DENIED, DriverFailure.REFUSED]
)
def test_what_never_began_is_no_doubt(failed: DriverFailure) -> None:
    assert not isinstance(failure(failed, Purpose.ONCE), DoubtfulWrite)


@pytest.mark.parametrize("failed", [DriverFailure.NO_HOST, DriverFailure.BROKEN])
def test_a_table_that_is_still_being_made_cannot_be_read_yet(failed: DriverFailure) -> None:
    said = "java.lang.IllegalArgumentException: Unknown CF e3c96e9c-c19b-5360-aa48-beba682279d8"
    assert type(failure(failed, said=said)) is TableOpening
    assert isinstance(failure(DriverFailure.BROKEN, Purpose.ONCE, said=said), DoubtfulWrite)


@pytest.mark.parametrize("purpose", [Purpose.READ, Purpose.WRITE])
def test_silence_is_a_timeout(purpose: Purpose) -> None:
    assert type(failure(DriverFailure.SILENCE, purpose)) is TimedOut


@pytest.mark.parametrize(
    ("failed", "kind", "code"),
    [
        (DriverFailure.DENIED, AccessDenied, ExitCode.CANNOT_REACH),
        (DriverFailure.NO_HOST, CannotReach, ExitCode.CANNOT_REACH),
        (DriverFailure.FEW_REPLICAS, NotEnoughReplicas, ExitCode.CANNOT_REACH),
        (DriverFailure.BROKEN, CannotReach, ExitCode.CANNOT_REACH),
        (DriverFailure.REFUSED, WrongUse, ExitCode.WRONG_USE),
    ],
)
def test_each_failed_has_its_kind_and_exit_code(
    failed: DriverFailure, kind: type[MailmendError], code: ExitCode
) -> None:
    error = failure(failed)
    assert (type(error), error.exit_code) == (kind, code)


@pytest.mark.parametrize(("failed", "purpose"), list(product(DriverFailure, Purpose)))
def test_every_error_says_what_and_where(failed: DriverFailure, purpose: Purpose) -> None:
    error = failure(failed, purpose, said="the server's words")
    assert "apache_james.imapUidTable" in error.what
    assert "the server's words" in error.what


@pytest.mark.parametrize(
    ("said", "missing"),
    [
        ("Undefined column name threadid in table apache_james.imapuidtable", "imapUidTable.threadid"),
        ("Undefined name threadid in selection clause", "imapUidTable.threadid"),
        ("Unknown identifier threadid", "imapUidTable.threadid"),
        ("table imapuidtable does not exist", "table imapuidtable"),
        ("unconfigured table imapuidtable", "table imapuidtable"),
        (
            'Error from server: code=2200 [Invalid query] message="table imapuidtable does not exist"',
            "table imapuidtable",
        ),
    ],
)
def test_what_the_schema_lacks_is_named(said: str, missing: str) -> None:
    error = failure(DriverFailure.REFUSED, said=said)
    assert isinstance(error, SchemaMismatch)
    assert (error.keyspace, error.missing) == ("apache_james", (missing,))


@pytest.mark.parametrize("said", ["Keyspace 'apache_james' does not exist", "keyspace apache_james does not exist"])
def test_a_keyspace_that_is_gone_is_unknown(said: str) -> None:
    error = failure(DriverFailure.REFUSED, said=said)
    assert isinstance(error, UnknownKeyspace)
    assert "schema apply" in error.mend


def test_other_refusals_are_reported_in_the_servers_words() -> None:
    wrapped = '<Error from server: code=2000 [Syntax error in CQL query] message="line 1:0 no viable alternative">'
    assert str(failure(DriverFailure.REFUSED, said=wrapped)).endswith("imapUidTable: line 1:0 no viable alternative")


class TestNoContact:
    """A cluster that could not be connected to at all."""

    def test_the_address_is_named(self) -> None:
        error = no_contact(DriverFailure.NO_HOST, "refused", "10.0.0.1:9042", None)
        assert type(error) is CannotReach
        assert "10.0.0.1:9042" in error.what
        assert "--local-dc" not in error.mend

    def test_a_data_centre_that_was_asked_for_may_be_the_reason(self) -> None:
        error = no_contact(DriverFailure.NO_HOST, "none", "10.0.0.1:9042", "nowhere")
        assert "'nowhere'" in error.what
        assert "--local-dc" in error.mend

    def test_refused_credentials_are_distinguished(self) -> None:
        error = no_contact(DriverFailure.DENIED, "bad credentials", "10.0.0.1:9042", None)
        assert type(error) is AccessDenied
        assert "--password-file" in error.mend


def test_a_missing_permission_is_reported_with_role_and_resource() -> None:
    said = (
        'Error from server: code=2100 [Unauthorized] message="User mailmend_reader has no SELECT permission on '
        '<table mail.firstunseen> or any of its parents"'
    )

    error = failure_of(DriverFailure.DENIED, said, Purpose.READ, "mail", "firstUnseen")

    assert isinstance(error, AccessDenied)
    assert error.what == (
        "role 'mailmend_reader' may not read mail.firstUnseen: it has no SELECT on table mail.firstunseen"
    )
    assert "mailmend schema grants --check" in error.mend


AT = "10.0.0.1:9042"
TRIED = "[Errno 1] Tried connecting to [('10.0.0.1', 9042)]. Last error: "
VERIFY = f"{TRIED}[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: "


@pytest.mark.parametrize(
    ("said", "what", "mend"),
    [
        (f"{VERIFY}unable to get local issuer certificate (_ssl.c:1006)", "unable to get local issuer", "--tls-ca"),
        (f"{VERIFY}self-signed certificate in certificate chain (_ssl.c:1006)", "self-signed certificate", "--tls-ca"),
        (f"{VERIFY}certificate has expired (_ssl.c:1006)", "out of its time: certificate has expired", "Renew"),
        (
            f"{VERIFY}IP address mismatch, certificate is not valid for '10.0.0.1'. (_ssl.c:1006)",
            "for another host: IP address mismatch, certificate is not valid for '10.0.0.1'",
            "--no-tls-hostnames",
        ),
        (f"{TRIED}[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)", "does not speak TLS", "--no-tls"),
        (f"{TRIED}[SSL] tlsv13 alert certificate required (_ssl.c:2580)", "does not take our", "--tls-cert"),
        (f"{TRIED}EOF occurred in violation of protocol (_ssl.c:2427)", "hung up on TLS", "--tls-cert"),
        (f"{AT}: [Errno 104] Connection reset by peer", "closed the connection", "--tls-cert"),
    ],
)
def test_each_reason_is_reported_with_what_to_do(said: str, what: str, mend: str) -> None:
    error = tls_failure(said, AT, tls=True)

    assert error is not None
    assert what in error.what
    assert AT in error.what
    assert mend in error.mend
    assert "_ssl.c" not in str(error)
    assert error.exit_code is ExitCode.CANNOT_REACH


def test_a_node_that_hangs_up_may_want_tls() -> None:
    said = f"{AT}: [Errno 104] Connection reset by peer"

    error = tls_failure(said, AT, tls=False)

    assert error is not None
    assert "--tls-ca" in error.mend


@pytest.mark.parametrize("tls", [True, False])
def test_other_faults_are_none_of_its_business(tls: bool) -> None:
    assert tls_failure(f"{TRIED}Connection refused", AT, tls=tls) is None


REFUSED = AuthenticationFailed("bad credentials")


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (REFUSED, DriverFailure.DENIED),
        (Unauthorized("no SELECT permission"), DriverFailure.DENIED),
        (NoHostAvailable("none", {"10.0.0.1": REFUSED}), DriverFailure.DENIED),
        (NoHostAvailable("none", {"10.0.0.1": ConnectionException("refused")}), DriverFailure.NO_HOST),
        (NoHostAvailable("none", ["10.0.0.1"]), DriverFailure.NO_HOST),
        (Unavailable("few", consistency=4, required_replicas=2, alive_replicas=1), DriverFailure.FEW_REPLICAS),
        (InvalidRequest("no such column"), DriverFailure.REFUSED),
        (SyntaxException(0x2000, "no viable alternative", {}), DriverFailure.REFUSED),
        (ConfigurationException(0x2300, "unknown option", {}), DriverFailure.REFUSED),
        (AlreadyExists("ks", "t"), DriverFailure.REFUSED),
        (ReadTimeout("late"), DriverFailure.SILENCE),
        (WriteTimeout("late", write_type=WriteType.CAS), DriverFailure.SILENCE),
        (WriteTimeout("late", write_type=WriteType.COUNTER), DriverFailure.SILENCE),
        (OperationTimedOut(), DriverFailure.SILENCE),
        (ReadFailure("failed"), DriverFailure.BROKEN),
        (WriteFailure("failed"), DriverFailure.BROKEN),
        (OverloadedErrorMessage(0x1001, "overloaded", {}), DriverFailure.BROKEN),
        (ServerError(0x0000, "stumbled", {}), DriverFailure.BROKEN),
        (ConnectionShutdown("gone"), DriverFailure.BROKEN),
        (OSError("reset by peer"), DriverFailure.BROKEN),
    ],
)
def test_each_of_the_drivers_errors_is_a_failure_kind_ours(error: Exception, fault: DriverFailure) -> None:
    assert failure_kind(error) is fault

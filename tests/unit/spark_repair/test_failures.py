"""What Spark's failures mean, told from the words that Spark, the connector and Cassandra really use."""

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from mailmend.cql.driver.contact import Contact
from mailmend.model.errors import (
    AccessDenied,
    CannotReach,
    ExitCode,
    MailmendError,
    NotEnoughReplicas,
    SchemaMismatch,
    SparkFailed,
    TimedOut,
    UnknownKeyspace,
)
from mailmend.spark_repair.failures import failure_of, translated
from mailmend.spark_repair.session import SparkSettings

CONTACT = Contact(("far",), 9999, username="me", password="hunter2")
TRACE = """An error occurred while calling o99.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 3 in stage 1.0 failed 1 times
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2844)
Caused by: java.io.IOException: Exception during execution of SELECT "messageid" FROM "mail"."imapuidtable"
\tat com.datastax.spark.connector.rdd.CassandraTableScanRDD.fetchTokenRange(CassandraTableScanRDD.scala:321)
\t... 12 more
Caused by: {cause}
\tat com.datastax.oss.driver.internal.core.cql.Conversions.toResultSet(Conversions.java:77)
"""


@pytest.mark.parametrize(
    ("said", "kind", "code"),
    [
        ("Couldn't find keyspace mail or any similarly named keyspaces", UnknownKeyspace, ExitCode.WRONG_USE),
        ("java.lang.ClassNotFoundException: x.NoSuchNamespaceException$", UnknownKeyspace, ExitCode.WRONG_USE),
        ("Couldn't find table imapuidtable in mail", SchemaMismatch, ExitCode.WRONG_USE),
        (
            "Couldn't find mail.imapuidtable or any similarly named keyspace and table pairs",
            SchemaMismatch,
            ExitCode.WRONG_USE,
        ),
        ("com.x.AuthenticationException: Provided username me incorrect", AccessDenied, ExitCode.CANNOT_REACH),
        ("com.x.UnauthorizedException: no SELECT permission", AccessDenied, ExitCode.CANNOT_REACH),
        ("com.x.UnavailableException: Not enough replicas available", NotEnoughReplicas, ExitCode.CANNOT_REACH),
        ("com.x.ReadTimeoutException: 1 of 2 replicas answered", TimedOut, ExitCode.CANNOT_REACH),
        ("com.datastax.oss.driver.api.core.DriverTimeoutException: PT10S", TimedOut, ExitCode.CANNOT_REACH),
        ("java.io.IOException: Failed to open native connection to Cassandra", CannotReach, ExitCode.CANNOT_REACH),
        ("com.x.AllNodesFailedException: Could not reach any contact point", CannotReach, ExitCode.CANNOT_REACH),
        ("java.lang.OutOfMemoryError: Java heap space", SparkFailed, ExitCode.PARTLY_FAILED),
    ],
)
def test_each_failure_has_its_kind_and_exit_code(said: str, kind: type[MailmendError], code: ExitCode) -> None:
    for text in (said, TRACE.format(cause=said)):
        error = failure_of(text, CONTACT, "mail")

        assert type(error) is kind
        assert error.exit_code is code
        assert "hunter2" not in str(error)
        assert "\tat " not in str(error)


def test_a_missing_table_is_named() -> None:
    """So that one knows what `schema verify` will say."""
    assert "imapuidtable" in str(failure_of("Couldn't find table imapuidtable in mail", CONTACT, "mail"))


def test_what_nobody_foresaw_is_reported_by_its_last_cause() -> None:
    text = TRACE.format(cause="java.lang.OutOfMemoryError: Java heap space")

    assert failure_of(text, CONTACT, "mail").what == "Spark failed: java.lang.OutOfMemoryError: Java heap space"
    assert failure_of("", CONTACT, "mail").what == "Spark failed: it gave no reason"
    assert failure_of("first\nsecond", CONTACT, "mail").what == "Spark failed: first"


def test_the_log_is_named_by_its_whole_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    assert str(SparkSettings().log) in failure_of("", CONTACT, "mail").mend
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert "spark-submit" in failure_of("", CONTACT, "mail").mend


def test_only_sparks_own_errors_are_translated() -> None:
    with pytest.raises(TimedOut), translated(CONTACT, "mail"):
        raise Py4JError("com.x.ReadTimeoutException")
    with pytest.raises(ZeroDivisionError), translated(CONTACT, "mail"):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    "error", [Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError(111, "no"), EOFError()]
)
def test_a_java_process_that_is_gone_is_spark_that_failed_and_not_a_node(error: Exception) -> None:
    with pytest.raises(SparkFailed, match="its Java process ended"), translated(CONTACT, "mail"):
        raise error


def test_a_node_that_goes_away_during_a_scan_is_out_of_reach() -> None:
    text = "An error occurred while calling o7.javaToPython.\n: x.y.ClosedConnectionException: Channel was force-closed"
    assert type(failure_of(text, CONTACT, "mail")) is CannotReach


def test_the_java_method_that_was_called_is_never_the_reason() -> None:
    text = "An error occurred while calling o7.javaToPython.\n: java.lang.IllegalStateException: stopped\n\tat a.b(C)"
    assert failure_of(text, CONTACT, "mail").what == "Spark failed: java.lang.IllegalStateException: stopped"
    bare = failure_of("An error occurred while calling o7.javaToPython.", CONTACT, "mail")
    assert bare.what == "Spark failed: it gave no reason"


def test_a_missing_permission_is_reported_with_role_and_table() -> None:
    cause = "com.x.UnauthorizedException: User me has no SELECT permission on <table mail.modseq> or any of its parents"

    error = failure_of(TRACE.format(cause=cause), CONTACT, "mail")

    assert isinstance(error, AccessDenied)
    assert error.what == "role 'me' may not read mail with Spark: it has no SELECT on table mail.modseq"
    assert "mailmend schema grants --check" in error.mend

"""Failures inside Spark as mailmend's errors: what, where, how to mend it; never a Java stack trace."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from mailmend.cql.driver.contact import Contact, permission_lacking
from mailmend.model import errors
from mailmend.model.errors import (
    AccessDenied,
    CannotReach,
    MailmendError,
    NotEnoughReplicas,
    SchemaMismatch,
    SparkFailed,
    TimedOut,
    UnknownKeyspace,
    WrongUse,
)
from mailmend.spark_repair.jvm import came_of_lost_java, java_ended
from mailmend.spark_repair.session import log_place

# On Spark 4 the connector fails on its way to saying so: the class of its own exception is gone.
_NO_KEYSPACE: Final = re.compile(
    r"Couldn't find keyspace|or any similarly named keyspaces|NoSuchNamespaceException|NoSuchDatabaseException"
)
_NO_TABLE: Final = re.compile(
    r"Couldn't find table (\w+)|Couldn't find \w+\.(\w+) or any similarly named|unconfigured table (\w+)"
    r"|NoSuchTableException"
)
_NO_COLUMN: Final = re.compile(r"UNRESOLVED_COLUMN.* with name `(\w+)`")
_NO_CENTRE: Final = re.compile(r"Could not determine suitable nodes in local DC")
_DENIED: Final = re.compile(r"AuthenticationException|UnauthorizedException|Provided username .* incorrect")
_FEW: Final = re.compile(r"UnavailableException|Not enough replicas")
_LATE: Final = re.compile(r"ReadTimeoutException|DriverTimeoutException|ReadFailureException")
_OURS: Final = re.compile(r"model\.errors\.(?P<kind>\w+): (?P<what>.+)")
_UNREACHED: Final = re.compile(
    r"AllNodesFailedException|Failed to open native connection|NoNodeAvailableException"
    r"|ClosedConnectionException|HeartbeatException|Connection refused"
)
_MEND_CENTRE: Final = "See what the data centres are called with: nodetool status; then name one with --local-dc."
_MEND_NODES: Final = "See which nodes are up with: nodetool status. Then run the same command again."


@contextmanager
def translated(contact: Contact, keyspace: str) -> Iterator[None]:
    """Raise Spark's and the connector's failures as mailmend's errors."""
    try:
        yield
    except (Py4JNetworkError, ConnectionError, EOFError):  # of ours to Java: what Java cannot reach it tells in words
        raise java_ended() from None
    except (PySparkException, Py4JError) as error:
        if came_of_lost_java(error):
            raise java_ended() from None
        raise failure_of(_text_of(error), contact, keyspace) from None


def is_unknown(error: Exception) -> bool:
    text = _text_of(error)
    return bool(_NO_KEYSPACE.search(text) or _NO_TABLE.search(text))


def failure_of(text: str, contact: Contact, keyspace: str) -> MailmendError:  # noqa: PLR0911 - one for each kind
    """Our error for a failure inside Spark, derived from its text."""
    if found := _OURS.search(text):
        return _of_executor(found["kind"], found["what"])
    if _NO_KEYSPACE.search(text):
        return UnknownKeyspace(keyspace)
    if found := _NO_TABLE.search(text) or _NO_COLUMN.search(text):
        lacking = "a table"
        if found.lastindex:
            lacking = found[found.lastindex]
        return SchemaMismatch(keyspace, (lacking,))
    if _DENIED.search(text):
        return permission_lacking(text, f"read {keyspace} with Spark") or AccessDenied(
            f"the cluster at {contact.address} refused Spark", mend="Check the user name, password and permissions."
        )
    if _NO_CENTRE.search(text):
        return WrongUse(f"no node at {contact.address} is in the data centre {contact.local_dc!r}", mend=_MEND_CENTRE)
    if _FEW.search(text):
        return NotEnoughReplicas(f"too few replicas of {keyspace} were alive for a scan", mend=_MEND_NODES)
    if _LATE.search(text):
        return TimedOut(f"a scan of {keyspace} got no answer in time", mend=_MEND_NODES)
    if _UNREACHED.search(text):
        return CannotReach(f"Spark reached no node at {contact.address}", mend=_MEND_NODES)
    return SparkFailed(f"Spark failed: {_first_sentence(text)}", mend=f"Its log says more: {log_place()}")


def _of_executor(name: str, what: str) -> MailmendError:
    """CannotReach for our error of that kind in a task, else MailmendError: the class decides the exit code."""
    kind = getattr(errors, name, MailmendError)
    if issubclass(kind, CannotReach):
        return CannotReach(what, mend=_MEND_NODES)
    return MailmendError(what)


def _text_of(error: Exception) -> str:
    """The error's full text with its causes; a Java error gives it only when asked."""
    java = getattr(error, "java_exception", None)
    if java is None:
        return str(error)
    return f"{error}\n{java}"


def _first_sentence(text: str) -> str:
    """The last `Caused by` line, else the first line; 300 characters at most, no Java call."""
    noise = ("at ", "...", "An error occurred while calling")
    lines = []
    causes = []
    for line in text.splitlines():
        sentence = line.strip().removeprefix(": ")
        if not sentence or line.strip().startswith(noise):
            continue
        lines.append(sentence)
        if sentence.startswith("Caused by: "):
            causes.append(sentence.removeprefix("Caused by: "))
    if causes:
        return causes[-1][:300]
    return next(iter(lines), "it gave no reason")[:300]

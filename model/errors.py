"""Every error that mailmend raises: one root, kinds with fields, messages that say what, where and how to mend it.

The command line maps each kind to an exit code (docs/design.md, "The contract of the command"), so
a kind is also a promise to scripts.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Final, Self, TypeVar

from mailmend.model.texts import Place, keyspace_option


class ExitCode(IntEnum):
    """What the command's exit status means; a contract with scripts (docs/design.md)."""

    FINE = 0
    DRIFT = 1
    WRONG_USE = 2
    PARTLY_FAILED = 3
    CANNOT_REACH = 4
    NOT_ALLOWED = 5


INTERRUPTED = 130
"""The exit status of a command that was interrupted; repeating the command goes on with its work."""


class MailmendError(Exception):
    """Something went wrong that a person can mend.

    Args:
        what: one sentence: what happened, to which object.
        mend: one sentence: what to do about it, naming the next command where there is one.

    Attributes:
        page: the runbook for this error; "" where the message says all.
    """

    exit_code: ExitCode = ExitCode.PARTLY_FAILED
    page: ClassVar[str] = ""

    def __init__(self, what: str, *, mend: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.mend = mend

    def __str__(self) -> str:
        if not self.mend:
            return self.what
        return f"{self.what}\n{self.mend}"

    @property
    def message(self) -> str:
        """The message that a command ends with. The runbook is added where the message does not name it."""
        if not self.page or "runbook show" in self.mend:
            return str(self)
        return f"{self}\nMore: mailmend runbook show {self.page}"

    def __reduce__(self) -> tuple[object, ...]:
        """Keep both sentences when an executor pickles the error: exceptions pickle only their positional part."""
        return (_revive, (type(self), self.what, self.mend, self.__dict__))


def _revive(kind: type[MailmendError], what: str, mend: str, fields: dict[str, object]) -> MailmendError:
    error = kind.__new__(kind)
    MailmendError.__init__(error, what, mend=mend)
    error.__dict__.update(fields)
    return error


class WrongUse(MailmendError):
    """The caller asked for something that cannot be: a bad option, name, duration or file."""

    exit_code = ExitCode.WRONG_USE


class QuotaFull(MailmendError):
    """A quota leaves no room in the queue for a mail; later there may be."""

    page = "customer-jams-the-queue"


class NotThere(WrongUse):
    """What was named by its id is not there, or no longer."""


class MissingExtra(WrongUse):
    """A Python package that comes with an extra is not installed."""


class BadSettings(WrongUse):
    """A settings file, cqlshrc or environment variable that cannot be read."""


class ReplicationNeeded(WrongUse):
    """A keyspace is to be created on several nodes, and the number of copies of its rows is not given.

    Args:
        keyspace: its name.
        nodes: the number of nodes by data centre.
    """

    def __init__(self, keyspace: str, nodes: Mapping[str, int]) -> None:
        count = sum(nodes.values())
        copies = ",".join(f"{name}={min(number, 3)}" for name, number in sorted(nodes.items()))
        super().__init__(
            f"keyspace {keyspace!r} does not exist, and the cluster has {count} nodes: say how many copies to keep",
            mend=f"Give --replication {copies} (copies by data centre), or --replication-factor {min(count, 3)}.",
        )
        self.keyspace = keyspace
        self.nodes = dict(nodes)


class LikeAnotherKeyspace(WrongUse):
    """The name of a new keyspace is almost the name of an existing one: a typo must not become a keyspace."""

    def __init__(self, keyspace: str, other: str) -> None:
        super().__init__(
            f"keyspace {keyspace!r} does not exist: did you mean {other!r}?",
            mend=f"Name that with {keyspace_option(other)}; to create {keyspace} all the same: --new-keyspace.",
        )
        self.keyspace = keyspace
        self.other = other


class TablesOfOthers(WrongUse):
    """A keyspace holds tables of another application, and tables would be created among them."""

    def __init__(self, keyspace: str, tables: Sequence[str], *, mend: str = "") -> None:
        shown = ", ".join(tables[:TABLES_SHOWN])
        if len(tables) > TABLES_SHOWN:
            shown = f"{shown} and {len(tables) - TABLES_SHOWN} more"
        super().__init__(
            f"keyspace {keyspace!r} holds tables of another application: {shown}",
            mend=mend or "Name another keyspace with --keyspace; where this one is meant: --into-existing.",
        )
        self.tables = tuple(tables)


TABLES_SHOWN = 5
"""The largest number of tables that a message names."""


class BadIdentifier(WrongUse):
    """A keyspace, table or column name that CQL would not take as it is spelled."""

    def __init__(self, name: str, what: str = "name", *, mend: str = "") -> None:
        super().__init__(
            f"{name!r} is not a valid {what}",
            mend=mend
            or "A name starts with a letter, holds at most 48 letters, digits and underscores, "
            "and is no word of CQL's own.",
        )
        self.name = name


class CqlSyntaxError(WrongUse):
    """A text that is not CQL, or not CQL that can be kept apart from other CQL: where, what was expected instead.

    Args:
        problem: what is wrong at the place, in words.
        place: where.
        mend: what to write instead, where that can be guessed.
        file: which file it is in, where the caller knows.
    """

    def __init__(self, problem: str, place: Place, *, mend: str = "", file: str = "") -> None:
        where = f"line {place.line}, column {place.column}"
        if file:
            where = f"{file}, {where}"
        super().__init__(f"{where}: {problem}\n{place.pointed}", mend=mend)
        self.problem = problem
        self.place = place
        self.file = file

    @property
    def line(self) -> int:
        """The line, counted from 1."""
        return self.place.line

    @property
    def column(self) -> int:
        """The column in characters, counted from 1."""
        return self.place.column

    def in_file(self, file: str) -> Self:
        return type(self)(self.problem, self.place, mend=self.mend, file=file)


class SchemaRefused(WrongUse):
    """A statement that no server would carry out on the schema as it would be then.

    Args:
        statement: its kind, as `ALTER TABLE ADD`.
        subject: the object that it is about, as CQL spells it.
        reason: why it is refused.
        mend: what to write instead.
    """

    def __init__(self, statement: str, subject: str, reason: str, *, mend: str = "") -> None:
        super().__init__(f"{statement} {subject}: {reason}", mend=mend)
        self.statement = statement
        self.subject = subject
        self.reason = reason


class UnsafeRequest(WrongUse):
    """A request that a guard refuses: what it would risk is in the message."""


class RisksNotAllowed(MailmendError):
    """A schema change has a risk that no person agreed to; nothing was done."""

    exit_code = ExitCode.NOT_ALLOWED
    page = "apply-a-migration"


class PlanRefused(WrongUse):
    """A plan that is not applied: edited, too old, undone, or of another keyspace, cluster, broker, store or format."""

    page = "approve-a-plan"


class StagingRefused(WrongUse):
    """A staging area that a run cannot go on with: of another scan, of another run, or without room."""

    page = "repair-was-interrupted"


class CannotReach(MailmendError):
    """No node answered, or it answered that it would not serve."""

    exit_code = ExitCode.CANNOT_REACH
    page = "servers-do-not-answer"


class AccessDenied(CannotReach):
    """The cluster refused the credentials or the permission."""


class NotEnoughReplicas(CannotReach):
    """Too few replicas were alive for the consistency level that was asked for."""


class TimedOut(CannotReach):
    """A read or a plain write did not answer in time."""


class TableOpening(CannotReach):
    """A node is still making the table; a moment later it answers."""


class DoubtfulWrite(TimedOut):
    """A conditional or counter write timed out: it may have been applied, now or later; only a SERIAL read tells."""


class UnknownKeyspace(WrongUse):
    """The keyspace does not exist.

    Args:
        alike: keyspaces that exist and whose names differ only in case, as CQL spells them.
    """

    def __init__(self, keyspace: str, *alike: str) -> None:
        mend = f"Create it with: mailmend schema apply {keyspace_option(keyspace)}, or name another with --keyspace."
        if alike:
            named = " or ".join(keyspace_option(other) for other in alike)
            mend = f"Did you mean {named}? A name without double quotes is read in lower case."
        super().__init__(f"keyspace {keyspace!r} does not exist", mend=mend)
        self.keyspace = keyspace


class SchemaMismatch(WrongUse):
    """The live tables lack something that the work needs."""

    page = "schema-differs"

    def __init__(self, keyspace: str, missing: tuple[str, ...], *, mend: str = "") -> None:
        super().__init__(
            f"keyspace {keyspace!r} lacks {', '.join(missing)}",
            mend=mend or f"See what differs with: mailmend schema verify {keyspace_option(keyspace)}",
        )
        self.keyspace = keyspace
        self.missing = missing


class ClocksDiffer(MailmendError):
    """The clocks that can be read differ by more than the margin allows."""

    exit_code = ExitCode.WRONG_USE
    page = "clocks-differ"


class Outweighed(MailmendError):
    """An order of a person is not in force: a host whose clock is ahead wrote a later stamp."""

    MEND: ClassVar[str] = (
        "Another host writes it, or a clock is far ahead. Compare the clocks (chronyc tracking, on every host), then "
        "run the same command again."
    )
    page = "clocks-differ"


class LeaseHeld(MailmendError):
    """Another run holds the lease."""

    exit_code = ExitCode.PARTLY_FAILED
    page = "repair-was-interrupted"


class ServerNameTaken(WrongUse):
    """Another live server of the queue has this name."""


class LeaseLost(MailmendError):
    """The lease went to another owner, or its state could not be settled, while work was going on."""

    page = "repair-was-interrupted"


class SourceUnread(MailmendError):
    """A place that refers to blobs cannot be read whole, so that no blob is safe to remove; nothing was removed."""

    page = "collect-unreferenced-blobs"

    def __init__(self, source: str, why: str, *, mend: str = "") -> None:
        super().__init__(f"{source} cannot be read whole, so nothing was removed: {why}", mend=mend)
        self.source = source


class DamagedRecord(MailmendError):
    """A record of the ledger, or a line of a file of ours, is not of the form in which it was written."""


class FixLimit(MailmendError):
    """More fixes are due than --max-fixes allows; nothing was written."""

    exit_code = ExitCode.DRIFT
    page = "check-found-inconsistencies"


class UnknownRun(WrongUse):
    """The ledger holds no such run."""

    page = "ledger-was-lost"


class SparkUnreachable(CannotReach):
    """Spark did not start, or its master gave it no executor."""

    page = "spark-job-died"


class SparkFailed(MailmendError):
    """A job of Spark ended before its end; the fixes made until then are kept."""

    page = "spark-job-died"


class JavaMissing(CannotReach):
    """No Java of a version that serves was found."""

    page = ""


class LocalServerError(CannotReach):
    """The embedded server did not start, or not stop; the message names its log."""

    page = ""


class StateUnwritable(MailmendError):
    """A file that mailmend keeps of its own work cannot be read or written: no room, no permission."""


class ResultUnwritten(MailmendError):
    """The work is done, or was on its way, and its result cannot be written where it was asked for: no room."""


class Unjournalled(MailmendError):
    """A lag that neither the ledger nor the disk took: only a check finds it again."""

    page = "projection-lags"


class BadMail(WrongUse):
    """A file that is not the mail folder it was said to be."""


class OctetsLost(MailmendError):
    """Bytes of a mail folder that was loaded are in no message."""


class UnknownMessage(WrongUse):
    """The truth holds no such message at that place (any more)."""


class UnknownRow(WrongUse):
    """A table has no row under that key (any more)."""


class BadMigration(WrongUse):
    """A migration, or a folder of them, that cannot be run: the message names the file."""

    page = "apply-a-migration"


class HistoryMismatch(WrongUse):
    """The migrations are not those that were applied: nothing is run before they are the same again."""

    page = "schema-differs"


class SchemaDisagreement(MailmendError):
    """The nodes do not agree on the schema: nothing further may be changed before they do."""

    page = "schema-disagreement"


class MigrationFailed(MailmendError):
    """A statement of a migration was refused or gave no answer; the history has what was done before it."""

    page = "migration-died-half-way"


class Contended(MailmendError):
    """Others kept changing the same row, round after round, until the limit was reached."""


class BrokerUnreachable(CannotReach):
    """The message broker does not answer, or not to these credentials."""

    page = "queue-does-not-drain"


class BrokerDenied(BrokerUnreachable, AccessDenied):
    """The message broker refused the credentials or the permission: asking again does not help."""


class PublishFailed(MailmendError):
    """The broker refused a message, or its confirm did not come in time (then it may still be there).

    Args:
        doubtful: whether the broker may hold the message all the same.
    """

    page = "queue-does-not-drain"

    def __init__(self, what: str, *, mend: str = "", doubtful: bool = False) -> None:
        super().__init__(what, mend=mend)
        self.doubtful = doubtful


class TopologyMismatch(WrongUse):
    """A queue or exchange of that name is there with other arguments, and nothing may be published past it."""

    page = "queue-does-not-drain"


class BlobsUnreachable(CannotReach):
    """The blob store does not answer, or not to these credentials."""


class BlobEncrypted(BlobsUnreachable):
    """The bytes of a blob are encrypted, and James has the key."""

    def __init__(self, blob_id: str) -> None:
        super().__init__(
            f"the blob {blob_id} is encrypted, and mailmend has no key",
            mend="James has it (encryption.aes, blob.properties): its consumers take this mail.",
        )


class BucketMissing(BlobsUnreachable):
    """The blob store answers, but has no such bucket."""

    page = "blob-is-missing"


class BlobMissing(MailmendError):
    """The blob store holds nothing under an id."""

    page = "blob-is-missing"

    def __init__(self, blob_id: str, *, mend: str = "") -> None:
        super().__init__(f"the blob {blob_id} is missing", mend=mend)
        self.blob_id = blob_id


class BadPayload(MailmendError):
    """A message of the broker, or a row, that no mail can be made of; the message says which field."""

    page = "queue-does-not-drain"


class ConfigurationRefused(WrongUse):
    """A queue configuration that would hide mails from listings: the message says why and what would be allowed."""

    page = "change-slice-window"


class Delayed(WrongUse):
    """A delay was asked for where it cannot be kept: the keyspace has no table for delayed mails."""


def exit_code_of(error: BaseException) -> int:
    """The exit code of a command that ends with this error."""
    if came_of_interruption(error):
        return INTERRUPTED
    if isinstance(error, MailmendError):
        return int(error.exit_code)
    return int(ExitCode.PARTLY_FAILED)


def came_of_interruption(error: BaseException | None) -> bool:
    """Whether Ctrl-C caused it, directly or through a failing clean-up (Spark's own, say)."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False


OUT_OF_TIME: Final = re.compile(r"certificate has expired|certificate is not yet valid")
FOR_SOMEBODY_ELSE: Final = re.compile(r"(?:IP address|Hostname) mismatch[^(]*")
UNKNOWN_AUTHORITY: Final = re.compile(r"(?<=certificate verify failed: )[^(]+")
NO_TLS: Final = re.compile(r"(?i)wrong version number|record layer failure")


def raise_first(errors: "Iterable[MailmendError | None]") -> None:
    """Raise the first error of several answers, of which None is a success."""
    for error in errors:
        if error is not None:
            raise error


@dataclass(frozen=True, slots=True)
class TlsReason:
    """One reason why a TLS connection fails.

    Attributes:
        words: OpenSSL's error text.
        what: a sentence on what happened, in which `{place}` and `{words}` are replaced.
        mend: a sentence on what to do.
    """

    words: re.Pattern[str]
    what: str
    mend: str


E = TypeVar("E", bound=MailmendError)


def tls_failure_in(said: str, place: str, reasons: Iterable[TlsReason], kind: type[E]) -> E | None:
    """The error for the first reason whose words a library's message has; None where no reason matches.

    Args:
        said: the library's error message.
        place: the server, as the sentences name it.
        reasons: the known reasons, in order of precedence.
        kind: the kind of the error.
    """
    for reason in reasons:
        if found := reason.words.search(said):
            what = reason.what.format(place=place, words=found[0].strip(" ."))
            return kind(what, mend=reason.mend)
    return None

"""James's administrative tasks as commands of ours, and what a command has done in James's words. Pure.

Source: James's webadmin, as its code has it (type names, options, fields of `additionalInformation`). A run of ours
mends more than James's task of that name: the row of messageIdTable comes first, whichever table is asked about.
A run over mailboxes mends less: it neither registers a path nor drops one, and merges no mailboxes.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from mailmend.model.catalog.james_tables import BLOB_PARTS, BLOBS
from mailmend.model.catalog.ledger import KeyspaceLease
from mailmend.model.catalog.mail import (
    APPLICABLE_FLAG,
    IMAP_UID,
    MAILBOX,
    MAILBOX_COUNTERS,
    MAILBOX_PATH,
    MESSAGE_ID,
    MESSAGES,
    PATHS,
)
from mailmend.model.errors import ExitCode
from mailmend.model.projections.verdicts import HARMLESS, Verdict

SHOWN_MAX: Final = 250
"""At most this many messages are listed as fixed, and the same number as errors; the counts are of all.

The same holds for mailboxes and for their conflicting paths.
"""

BLOB_COUNT_DEFAULT: Final = 1_000_000
PROBABILITY_DEFAULT: Final = 0.01
WINDOW_DEFAULT: Final = 1_000
"""Defaults of James's own options for the filter of its blob collection. We read every reference, and use none of
them."""

ITERATIONS_DEFAULT: Final = 1
"""Default of James's own option for its repair of mailboxes; one run of ours mends all it can."""

TaskOptions = Mapping[str, Any]


@dataclass(slots=True)
class MendedRows:
    """What the findings of a repair say.

    Attributes:
        counts: the mended rows of messageIdTable by verdict.
        fixed: the messages of these rows.
        errors: the messages of rows that are left.
        failed_mailboxes: the mailboxes of these messages, in the order of their findings.
        fixed_mailboxes: ids of mailboxes whose row of `mailbox` was mended.
        conflicts: James's two entries for each path that is not in the row of its mailbox, of
            mailboxes with two paths.
        left_mailboxes: the number of other mailboxes whose row is left.
    """

    counts: Counter[Verdict] = field(default_factory=Counter)
    fixed: list[dict[str, Any]] = field(default_factory=list)
    errors: list[dict[str, Any]] = field(default_factory=list)
    failed_mailboxes: dict[str, None] = field(default_factory=dict)
    fixed_mailboxes: list[str] = field(default_factory=list)
    conflicts: list[dict[str, Any]] = field(default_factory=list)
    left_mailboxes: int = 0

    def take(self, finding: Mapping[str, Any]) -> None:
        if finding["projection"] == PATHS.mirror.name:
            self._take_mailbox(finding)
            return
        if finding["result"] == Verdict.FIXED.value:
            if finding["projection"] == MESSAGE_ID.spelling:
                self.count(finding["verdict"])
                _add(self.fixed, _message(finding))
        elif _is_left(finding):
            message = _message(finding)
            _add(self.errors, message)
            if len(self.failed_mailboxes) < SHOWN_MAX and message["mailboxId"]:
                self.failed_mailboxes[message["mailboxId"]] = None

    def _take_mailbox(self, finding: Mapping[str, Any]) -> None:
        if finding["result"] == Verdict.FIXED.value:
            _add(self.fixed_mailboxes, finding["key"]["id"])
        elif finding["verdict"] == Verdict.CLASH.value and not finding["error"]:
            for conflict in _conflicts(finding):
                _add(self.conflicts, conflict)
        elif _is_left(finding):
            self.left_mailboxes += 1

    def count(self, verdict: str, number: int = 1) -> None:
        self.counts[Verdict(verdict)] += number


_SETTLED: Final = frozenset(verdict.value for verdict in {Verdict.AGREE, *HARMLESS})


def _is_left(finding: Mapping[str, Any]) -> bool:
    """Whether a row that was not mended is an error; one that users changed meanwhile is not."""
    is_moved = finding["result"] == Verdict.MOVED.value
    return bool(finding["error"]) or (not is_moved and finding["verdict"] not in _SETTLED)


Shown = TypeVar("Shown")


def _add(shown: list[Shown], one_more: Shown) -> None:
    if len(shown) < SHOWN_MAX:
        shown.append(one_more)


def _message(finding: Mapping[str, Any]) -> dict[str, Any]:
    key = finding["key"]
    if not isinstance(key, dict):
        key = {}
    named = key.get("messageid")
    for seen in (*finding["truths"], finding["projected"]):
        if seen and seen["row"].get("messageid"):
            named = seen["row"]["messageid"]
            break
    return {"mailboxId": key.get("mailboxid") or key.get("id"), "messageId": named, "uid": key.get("uid")}


def _conflicts(finding: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The paths of one mailbox that its row does not name, each next to the row.

    The entry of the row is None where there is no row.
    """
    mailbox = finding["key"]["id"]
    by_id = None
    if finding["projected"]:
        row = finding["projected"]["row"]
        path = _path_text(row, "mailboxbase.namespace", "mailboxbase.user", "name")
        by_id = {"mailboxPath": path, "mailboxId": mailbox}
    for truth in finding["truths"]:
        path = _path_text(truth["row"], "namespace", "user", "mailboxname")
        by_path = {"mailboxPath": path, "mailboxId": mailbox}
        if by_path != by_id:
            yield {"mailboxDaoEntry": by_id, "mailboxPathDaoEntry": by_path}


def _path_text(row: Mapping[str, Any], *columns: str) -> str | None:
    """A path as James's MailboxPath.asString writes it; None where a part of it is null."""
    parts = [row.get(column) for column in columns]
    if None in parts:
        return None
    return ":".join(map(str, parts))


def mended(lines: Iterable[str]) -> MendedRows:
    """The sums of a file of findings."""
    found = MendedRows()
    for line in lines:
        found.take(json.loads(line))
    return found


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """How a command ended: its exit code, the object that it printed ({} where it printed none), its findings.

    Attributes:
        code: None while it is at work.
        said: the error message that it ended with; "" without one.
    """

    code: int | None
    result: Mapping[str, Any] = field(default_factory=dict)
    mended: MendedRows = field(default_factory=MendedRows)
    said: str = ""

    @property
    def is_complete(self) -> bool:
        """James calls a task failed that had errors; so is one that leaves drift."""
        return self.code == ExitCode.FINE

    def scanned(self, table: str) -> int:
        counts = {name.lower(): count for name, count in (self.result.get("scanned") or {}).items()}
        return int(counts.get(table.lower(), 0))


@dataclass(slots=True)
class TaskProgress:
    """What the log of a running command tells; of mended messages only how many there are.

    Attributes:
        steps: the most steps that each phase has reported: a second reading of a table does not set them back.
        is_news: whether the log has told something since this was last set to False.
    """

    run: str | None = None
    steps: dict[str, int] = field(default_factory=dict)
    scanned: Mapping[str, int] = field(default_factory=dict)
    fixed: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    is_news: bool = False

    def take(self, event: Mapping[str, Any]) -> None:
        if event["event"] == "scan ended":
            self.scanned = event["scanned"]
        elif phase := event.get("phase"):
            self.steps[phase] = max(self.steps.get(phase, 0), event.get("steps", 0))
            self.fixed = event.get("fixed", self.fixed)
        else:
            return
        self.run = event.get("run")
        self.is_news = True

    @property
    def outcome(self) -> TaskOutcome:
        """The outcome as if the command ended now, in the shape of what it will print."""
        read = {name.removeprefix(_READ): steps for name, steps in self.steps.items() if name.startswith(_READ)}
        result = {
            "run": self.run,
            "scanned": {**read, **self.scanned},
            "references": {name: rows for name, rows in read.items() if name not in _BLOB_TABLES},
            "listed": self.steps.get("list blobs") or read.get(BLOBS.spelling),
            "removed": self.steps.get("remove"),
        }
        mended = MendedRows()
        for verdict, number in self.fixed.get(MESSAGE_ID.spelling, {}).items():
            mended.count(verdict, number)
        return TaskOutcome(None, result, mended)


_READ: Final = "read "
_BLOB_TABLES: Final = (BLOBS.spelling, BLOB_PARTS.spelling)


@dataclass(frozen=True, slots=True)
class TaskKind:
    """One of James's tasks.

    Attributes:
        type: James's word for it.
        words: the command that does it.
        information: James's fields, but for type and timestamp.
        lease: the lease that a task of this kind holds; tasks with different leases run side by side.
        finds: whether the command has `--findings`.
    """

    type: str
    words: Callable[[TaskOptions], Iterator[str]]
    information: Callable[[TaskOptions, TaskOutcome], dict[str, Any]]
    lease: KeyspaceLease = KeyspaceLease.REPAIR
    finds: bool = True


def _solve_messages(options: TaskOptions) -> Iterator[str]:
    yield from ("repair", "messages")
    if options.get("messagesPerSecond"):
        yield from ("--rows-per-second", str(options["messagesPerSecond"]))
    if options.get("cleanupEntriesWithoutContent"):
        yield from ("--orphans", "quarantine")


def _messages_solved(options: TaskOptions, outcome: TaskOutcome) -> dict[str, Any]:
    found = outcome.mended
    return {
        "processedImapUidEntries": outcome.scanned(IMAP_UID.spelling),
        "processedMessageIdEntries": outcome.scanned(MESSAGE_ID.spelling),
        **{name: found.counts[verdict] for name, verdict in _ENTRIES.items()},
        "runningOptions": {
            "messagesPerSecond": options.get("messagesPerSecond"),
            "cleanupEntriesWithoutContent": bool(options.get("cleanupEntriesWithoutContent")),
        },
        "fixedInconsistencies": found.fixed,
        "errors": found.errors,
    }


_ENTRIES: Final = {
    "addedMessageIdEntries": Verdict.PROJECT,
    "updatedMessageIdEntries": Verdict.AMEND,
    "removedMessageIdEntries": Verdict.WITHDRAW,
    "removedImapUidEntries": Verdict.LOST_CONTENT,
}
"""What a run of ours calls what James counts in these fields."""

_SIDE_TABLES: Final = (
    *(projection.table.spelling for projection in MESSAGES.filters),
    APPLICABLE_FLAG.spelling,
    MAILBOX_COUNTERS.spelling,
)


def _only(table: str) -> Iterator[str]:
    yield from ("repair", "messages")
    for other in _SIDE_TABLES:
        if other != table:
            yield from ("--without", other)


def _counters_recomputed(_: TaskOptions, outcome: TaskOutcome) -> dict[str, Any]:
    return {
        "processedMailboxes": outcome.scanned(MAILBOX_COUNTERS.spelling),
        "failedMailboxes": list(outcome.mended.failed_mailboxes),
    }


def _flags_solved(options: TaskOptions, outcome: TaskOutcome) -> dict[str, Any]:
    return {
        "processedMailboxEntries": outcome.scanned(_FLAG_TABLES[options["targetFlag"]]),
        "errors": list(outcome.mended.failed_mailboxes),
        "targetFlag": options["targetFlag"],
    }


_, _DELETED, _RECENT = (projection.table.spelling for projection in MESSAGES.filters)
_FLAG_TABLES: Final = {"DELETED": _DELETED, "RECENT": _RECENT}


def _mailboxes_solved(options: TaskOptions, outcome: TaskOutcome) -> dict[str, Any]:
    found = outcome.mended
    return {
        "processedMailboxEntries": outcome.scanned(MAILBOX.spelling),
        "processedMailboxPathEntries": outcome.scanned(MAILBOX_PATH.spelling),
        "fixedInconsistencies": found.fixed_mailboxes,
        "conflictingEntries": found.conflicts,
        "errors": found.left_mailboxes,
        "runningOptions": {
            "maxIterations": options.get("maxIterations") or ITERATIONS_DEFAULT,
            "autoMerge": bool(options.get("autoMerge")),
        },
    }


def _blobs_collected(options: TaskOptions, outcome: TaskOutcome) -> dict[str, Any]:
    result = outcome.result
    return {
        "referenceSourceCount": sum((result.get("references") or {}).values()),
        "blobCount": result.get("listed") or 0,
        "gcedBlobCount": result.get("removed") or 0,
        "errorCount": len(result.get("failed") or ()),
        "bloomFilterExpectedBlobCount": options.get("expectedBlobCount") or BLOB_COUNT_DEFAULT,
        "bloomFilterAssociatedProbability": options.get("associatedProbability") or PROBABILITY_DEFAULT,
        "deletionWindowSize": options.get("deletionWindowSize") or WINDOW_DEFAULT,
    }


CLEAR_QUEUE: Final = "clear-mail-queue"
DELETE_MAILS: Final = "delete-mails-from-mail-queue"
MAIL_CONDITIONS: Final = ("sender", "name", "recipient")
"""One of them selects the mails that a task removes."""


def _clear_queue(options: TaskOptions) -> Iterator[str]:
    yield from ("queue", "purge", str(options["queue"]), "--yes")


def _delete_mails(options: TaskOptions) -> Iterator[str]:
    yield from ("queue", "delete", str(options["queue"]))
    for name in MAIL_CONDITIONS:
        if name in options:
            yield f"--{name}={options[name]}"


def _mails_removed(options: TaskOptions, outcome: TaskOutcome) -> dict[str, Any]:
    """The counts are of the mails that the condition selects: James's counts read every mail."""
    left = len(outcome.result.get("failed") or ())
    return {
        "mailQueueName": options["queue"],
        **{name: options[name] for name in MAIL_CONDITIONS if name in options},
        "initialCount": (outcome.result.get("removed") or 0) + left,
        "remainingCount": left,
    }


KINDS: Final = {
    kind.type: kind
    for kind in (
        TaskKind("solve-message-inconsistencies", _solve_messages, _messages_solved),
        TaskKind("recompute-mailbox-counters", lambda _: _only(MAILBOX_COUNTERS.spelling), _counters_recomputed),
        TaskKind(
            "solve-mailbox-flag-inconsistencies",
            lambda options: _only(_FLAG_TABLES[options["targetFlag"]]),
            _flags_solved,
        ),
        TaskKind(
            "solve-mailbox-inconsistencies",
            lambda _: iter(("repair", "mailboxes")),
            _mailboxes_solved,
        ),
        TaskKind(
            "BlobGCTask",
            lambda _: iter(("repair", "blobs")),
            _blobs_collected,
            KeyspaceLease.BLOBS,
            finds=False,
        ),
        TaskKind(CLEAR_QUEUE, _clear_queue, _mails_removed, KeyspaceLease.QUEUES, finds=False),
        TaskKind(DELETE_MAILS, _delete_mails, _mails_removed, KeyspaceLease.QUEUES, finds=False),
    )
}


def information_of(kind: TaskKind, options: TaskOptions, outcome: TaskOutcome, timestamp: str) -> dict[str, Any]:
    """James's fields, and some of ours: the run in the ledger, how the command ended, and why it failed."""
    ours = {"run": outcome.result.get("run"), "exitCode": outcome.code, "failure": outcome.said or None}
    return {"type": kind.type, "timestamp": timestamp, **kind.information(options, outcome), **ours}

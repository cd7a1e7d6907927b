"""The forms of the API's answers: they have the fields of the commands' `--json`."""

from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field

from mailmend.admin.api.http.shared import Json, OpenBody
from mailmend.admin.frame.http.bodies import Instant

Next = Annotated[str | None, Field(description="`after` of the next page; null on the last one.")]
Exit = Annotated[int, Field(description="The exit code of the command.")]


class RunBody(OpenBody):
    """A run in the ledger."""

    run: UUID
    keyspace: str
    command: str
    state: Literal["RUNNING", "DONE", "INTERRUPTED", "FAILED"]
    as_of: int = Field(description="Time of its fixes, in microseconds since 1970.")
    started_at: Instant
    ended_at: Instant | None
    owner: str = Field(description="Who ordered it: the name of a token, or the process.")
    options: Json
    summary: Json
    undoes: UUID | None


class RunsBody(OpenBody):
    """A page of runs, the newest first."""

    runs: list[RunBody]
    next: Next


class ShownRunBody(RunBody):
    """A run, and in whose mailboxes its findings are."""

    mailboxes: list[Json]
    in_other_mailboxes: int


class FindingBody(OpenBody):
    """A finding of a run."""

    projection: str
    verdict: str
    result: str | None
    key: Json | list[object]
    truths: list[Json]
    projected: Json | None
    last_trace: bool
    reason: str | None
    error: str | None


class FindingsBody(OpenBody):
    """A page of findings."""

    run: UUID
    findings: list[FindingBody]
    next: Next


class TrendRunBody(OpenBody):
    """The sums of a run."""

    run: UUID
    started_at: Instant
    command: str
    state: str
    findings: Json
    fixed: Json
    left: Json


class TrendBody(OpenBody):
    """What was found, fixed and left, the oldest run first."""

    keyspace: str
    runs: list[TrendRunBody]


class UndoneBody(OpenBody):
    """What became of an undo: the result of `mailmend undo --json`."""

    keyspace: str
    command: str
    run: UUID | None
    findings: Json
    fixed: dict[str, int]
    left: dict[str, int]
    moved: int
    exit: Exit


class SchemaBody(OpenBody):
    """A keyspace and its model: the result of `mailmend schema verify --json`."""

    keyspace: str
    generation: str | None
    made_here: bool | None
    adopted: bool
    drift: list[Json]
    notes: list[Json]
    exit: Exit


class SchemaHistoryBody(OpenBody):
    """What was applied to a schema: the result of `mailmend schema history --json`."""

    keyspace: str
    migrations: list[Json]
    statements: list[Json]
    holder: Json | None
    unlocks: list[Json]
    exit: Exit


class ProjectionsBody(OpenBody):
    """What follows from which truth: the result of `mailmend projections verify --json`."""

    file: str
    keyspace: str
    refused: list[Json]
    projections: list[Json]
    reads: list[Json]
    unseen: list[Json]
    exit: Exit


class QueueSizeBody(OpenBody):
    """The size of a queue."""

    queue: str
    mails: int
    delayed: int
    kind: Literal["exact", "estimate"]
    counted_by: str


class QueuesBody(OpenBody):
    """The queues of the keyspace."""

    queues: list[QueueSizeBody]
    exit: Exit


class QueueBody(QueueSizeBody):
    """A queue: its size, and what `mailmend queue health --json` says of it."""

    health: Json
    exit: Exit


class QueuedMailBody(OpenBody):
    """A mail in a queue, without its content."""

    id: UUID
    name: str
    sender: str | None
    recipients: list[str]
    state: str
    error_message: str | None
    enqueued_at: Instant
    where: Literal["waiting", "delayed"]
    due_at: Instant | None
    attempts: int


class QueuedMailsBody(OpenBody):
    """A page of the mails of a queue: the waiting ones, the oldest first, then the delayed ones."""

    queue: str
    mails: list[QueuedMailBody]
    next: Next
    exit: Exit


class FlushedBody(OpenBody):
    """What a flush did, or would do."""

    queue: str
    dry_run: bool
    flushed: int
    delayed: int | None
    exit: Exit


class RemovedBody(OpenBody):
    """Which mails were removed, or would be."""

    queue: str
    dry_run: bool
    removed: int
    would_remove: int | None
    failed: list[Json]
    kept: str | None = Field(
        description="The file of the removed mails, on the machine of this server.",
    )
    mails: list[QueuedMailBody] | None
    exit: Exit


class KeptFileBody(OpenBody):
    """A file of removed mails."""

    file: str
    size_bytes: int
    changed_at: Instant


class KeptFilesBody(OpenBody):
    """The files of removed mails on the machine of this server, the newest first."""

    files: list[KeptFileBody]


class RestoredBody(OpenBody):
    """What was put back."""

    file: str
    queues: list[str]
    dry_run: bool
    restored: int
    would_restore: int | None
    already: int
    failed: list[Json]
    exit: Exit

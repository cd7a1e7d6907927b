"""The result of a look at blobs, and its sums."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from mailmend.mailqueue.collection.collecting import CollectedBlobs
from mailmend.mailqueue.rules.blob_ids import BlobVerdict, CollectionRule
from mailmend.model.errors import ExitCode
from mailmend.repair.mending.check_records import RecordedCheck


@dataclass(frozen=True, slots=True)
class BlobsResult:
    """What was found, and done about it; `run` is None where nothing could be removed.

    Attributes:
        place: where the blobs are.
        broker_asked: whether messages at the broker were looked at.
        removed_list: the file that lists removed blobs; None where none was removed.
        options: what a person gave in addition to the connection, as a command line.
        plan: the file of a plan that was made, or applied; None without a plan.
        stores: broker and store as they were typed.
        pace: the rates it had, and why; None where nothing could change them.
        record: what the ledger has of a check; None where the check is not kept.
    """

    keyspace: str
    place: str
    found: CollectedBlobs
    rule: CollectionRule
    run: UUID | None = None
    broker_asked: bool = True
    removed_list: Path | None = None
    seconds: float = 0.0
    options: str = ""
    plan: Path | None = None
    stores: str = ""
    pace: Mapping[str, Any] | None = None
    record: RecordedCheck | None = None

    @property
    def left(self) -> Counter[BlobVerdict]:
        """How many blobs of each verdict are still to be collected, or are missing."""
        verdicts = self.found.verdicts
        left = Counter[BlobVerdict]()
        left[BlobVerdict.COLLECT] = verdicts[BlobVerdict.COLLECT] - self.found.removed
        left[BlobVerdict.MISSING] = verdicts[BlobVerdict.MISSING]
        return +left

    @property
    def exit(self) -> ExitCode:
        """Blobs that nothing refers to only take room: they do not fail a check."""
        unrecorded = self.record is not None and self.record.error is not None
        if self.found.failed or unrecorded:
            return ExitCode.PARTLY_FAILED
        if self.left[BlobVerdict.MISSING]:
            return ExitCode.DRIFT
        return ExitCode.FINE


def summary_of(result: BlobsResult) -> dict[str, Any]:
    """The sums as the ledger keeps them; `fixed` and `left` as for messages."""
    fixed = {}
    if result.found.removed:
        fixed = {BlobVerdict.COLLECT.value: result.found.removed}
    return {
        "fixed": fixed,
        "left": {kind.value: number for kind, number in result.left.items()},
        "exit": int(result.exit),
    }


def missing_in(result: BlobsResult) -> dict[str, int]:
    """The findings on blobs that are drift; blobs that nothing refers to only take room."""
    number = result.left[BlobVerdict.MISSING]
    if not number:
        return {}
    return {BlobVerdict.MISSING.value: number}

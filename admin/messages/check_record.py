"""`mailmend check --record`: what a check keeps in the ledger."""

from collections import Counter
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any, Final, TypeVar

import click

from mailmend.admin.frame.caller import Caller, ignore
from mailmend.admin.frame.cluster import OpenCluster, owner_name
from mailmend.admin.frame.kinds import KEEP as KEEP_KIND
from mailmend.admin.frame.kinds import duration_text
from mailmend.admin.frame.options import option
from mailmend.admin.frame.settings import BlobsSettings, without_secrets
from mailmend.admin.frame.values import plain
from mailmend.admin.messages.blob_sources import BlobsWanted
from mailmend.admin.messages.blobs_result import BlobsResult, summary_of
from mailmend.admin.messages.bound_tables import BoundTables, file_of
from mailmend.admin.messages.mending import CheckRequest, CommandResult
from mailmend.admin.messages.options import WHAT_DEFAULT
from mailmend.mailqueue.rules.blob_ids import BlobVerdict
from mailmend.model.catalog.ledger import KEEP
from mailmend.model.durations import format_duration
from mailmend.model.errors import ExitCode
from mailmend.repair.decisions.finding_sample import (
    FINDINGS_KEPT,
    FINDINGS_KEPT_MAX,
    FindingSample,
)
from mailmend.repair.ledger.leases import Leases
from mailmend.repair.ledger.runs import Ledger, RunState
from mailmend.repair.mending.check_records import CheckRecord, RecordedCheck

R = TypeVar("R", CommandResult, BlobsResult)

_KEEP_TEXT: Final = duration_text(KEEP)

RECORDING: Final = (
    option(
        "--record/--no-record",
        "Keep the sums and a sample of the findings in the ledger, for `mailmend runs`. "
        "[default: --record in a job, else --no-record]",
        default=None,
        show_default=False,
    ),
    option(
        "--record-findings",
        "Largest number of findings that a recorded check keeps, fair over tables and verdicts.",
        type=click.IntRange(0, FINDINGS_KEPT_MAX),
        default=FINDINGS_KEPT,
        metavar="N",
    ),
    option(
        "--keep",
        "How long before-images are kept: of a recorded check, its sums and its findings.",
        type=KEEP_KIND,
        default=_KEEP_TEXT,
    ),
)
"""The options of a check that say whether it is kept, and how much of it."""


def is_recorded(request: CheckRequest) -> bool:
    """Whether the check is kept: with `--record`, and in a job unless that says `--no-record`."""
    if request.record is None:
        return bool(request.connection.job)
    return request.record


def recorded(
    request: CheckRequest,
    caller: Caller,
    opened: OpenCluster,
    find: Callable[[Caller, Callable[[BoundTables], None]], R],
) -> R:
    """What a check finds, which is kept in the ledger.

    Args:
        request: of the check.
        caller: gets each finding too, and a remark where the record is not complete.
        opened: the cluster.
        find: carries out the check: (caller, what is called with the tables once they are bound).
    """
    if not is_recorded(request):
        return find(caller, ignore)
    record = CheckRecord(
        lambda: _ledger_of(opened, request),
        opened.mail.name,
        _options(request),
        owner_name(),
        FindingSample(request.record_findings),
        caller.finding,
    )
    with record.at_work():
        result = find(replace(caller, finding=record.take), lambda tables: record.note(tables.kept))
        kept = record.end(_sums(result), _state(result))
    return _with_record(result, kept, caller)


def _ledger_of(opened: OpenCluster, request: CheckRequest) -> tuple[Ledger, Leases]:
    return opened.ledger(request.keep), opened.leases()


def _with_record(result: R, kept: RecordedCheck, caller: Caller) -> R:
    if kept.error is not None:
        caller.remark(f"This check could not be recorded: {kept.error.message}")
        if isinstance(result, CommandResult):
            result.summary.exit = max(result.summary.exit, ExitCode.PARTLY_FAILED)
    return replace(result, record=kept)


_NOT_RECORDED: Final = frozenset(
    {"connection", "master", "spark_conf", "blobs", "pulsar", "staging"}
    | {"projections", "projection", "record", "record_findings", "keep"}
)


def _options(request: CheckRequest) -> dict[str, Any]:
    """The request as the ledger keeps it, by the names of options; stores without secrets."""
    given = {}
    for field in fields(request):
        value = getattr(request, field.name)
        if field.name not in _NOT_RECORDED and value not in {None, False, ()}:
            given[field.name] = _option(value)
    if request.projection is not None:
        given["projection"] = request.projection
    elif request.projections is not None:
        given["projections"] = file_of(request.projections)
        del given["what"]
        if request.what != WHAT_DEFAULT:
            given["named"] = request.what
    if request.staging:
        given["staging"] = without_secrets(request.staging)
    return given | _stores(request)


def _stores(request: CheckRequest) -> dict[str, Any]:
    """Where blobs and messages are, without secrets."""
    given = {}
    match request.blobs:
        case BlobsSettings():
            given["blobs"] = request.blobs.place
        case BlobsWanted():
            given["blobs"] = request.blobs.store.place
            if request.blobs.broker:
                given["broker"] = request.blobs.broker.place
        case None:
            pass
    if request.pulsar:
        given["broker"] = request.pulsar.place
    return given


def _option(value: Any) -> Any:
    if isinstance(value, timedelta):
        return format_duration(value)
    return plain(value)


def _sums(result: CommandResult | BlobsResult) -> dict[str, Any]:
    """The sums that are kept: of a repair, and what only a check tells."""
    if isinstance(result, BlobsResult):
        found = result.found
        verdicts = {}
        for kind, number in found.verdicts.items():
            if number and kind is not BlobVerdict.KEEP:
                verdicts[kind.value] = number
        return {
            **summary_of(result),
            "scanned": {"blobs": found.listed, **found.references},
            "findings": {"blobs": verdicts},
            "failed": len(found.failed),
            "seconds": {"blobs": result.seconds},
        }
    summary = result.summary
    missing = summary.missing_columns
    sums: dict[str, Any] = {
        **summary.kept,
        "missing_tables": list(summary.missing_tables),
        "missing_columns": [f"{column.table}.{column.column}" for column in missing],
        "unseen": summary.unseen,
    }
    if result.mismatches is not None:
        # Their texts name users, which the ledger does not keep.
        sums["mismatches"] = dict(Counter(mismatch.table for mismatch in result.mismatches))
    return sums


def _state(result: CommandResult | BlobsResult) -> RunState:
    if isinstance(result, CommandResult) and result.summary.untried:
        return RunState.FAILED
    return RunState.DONE

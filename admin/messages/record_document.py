"""What the result of a check says about its record, and which shares of the rows differ."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from mailmend.admin.frame.document import Document
from mailmend.admin.frame.values import plain
from mailmend.admin.messages.trend import sample_text
from mailmend.model.texts import keyspace_option
from mailmend.repair.decisions.shares import shares_of_rows
from mailmend.repair.mending.check_records import RecordedCheck

NOT_KEPT: Final = "This check is not kept. To compare it with later ones: add --record."


def record_json(
    record: RecordedCheck | None,
    scanned: Mapping[str, int],
    findings: Mapping[str, Mapping[str, int]],
) -> dict[str, Any]:
    """The fields of a result: `shares` (from 0 to 1, by table) and `record` (null: not kept)."""
    return {"shares": shares_of_rows(scanned, findings), "record": _record_json(record)}


def _record_json(record: RecordedCheck | None) -> dict[str, Any] | None:
    if record is None:
        return None
    error = None
    if record.error is not None:
        error = record.error.what
    return {
        "run": plain(record.run),
        "sample": {"kept": record.kept, "found": record.found},
        "error": error,
    }


def with_record(document: Document, keyspace: str, record: RecordedCheck | None) -> Document:
    """The document of a check, with what the ledger has of it, or how to keep the next one."""
    if record is None:
        return replace(document, hints=(*document.hints, NOT_KEPT))
    lines = tuple(_record_lines(keyspace, record))
    report = document.report
    if report is not None:
        report = (*lines, *report)
    return replace(document, body=(*document.body, *lines), report=report)


def _record_lines(keyspace: str, record: RecordedCheck) -> Iterator[str]:
    if record.run is None or record.error is not None:
        return
    yield f"Recorded with {sample_text(record.kept, record.found)}."
    yield f"To see it again: mailmend runs show {record.run} {keyspace_option(keyspace)}"

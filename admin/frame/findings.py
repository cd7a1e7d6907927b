"""A finding as JSON, and the file with a line for each finding."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mailmend.admin.frame.whole_files import mode_for_owner, named_when_refused, whole_file
from mailmend.cql.rows import encode
from mailmend.model.catalog.mail import PROJECTIONS
from mailmend.model.catalog.mail_queue import QUEUE_TABLES
from mailmend.model.operations import Seen
from mailmend.model.projections.findings import Finding
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Key, Row, Table

_TABLES: Mapping[str, Table] = {
    **{name: projection.table for name, projection in PROJECTIONS.items()},
    **{table.spelling: table for table in QUEUE_TABLES},
}


@contextmanager
def findings_file(file: Path) -> Iterator[Callable[[Finding], None]]:
    """A function that writes each outcome as a line, unless the rows agreed after all.

    It holds rows of mails: a new file is for its owner alone, as a report is.

    Raises:
        WrongUse: the file cannot be written; nothing half written stays.
    """
    with whole_file(file, mode=mode_for_owner(file), masked=False) as stream:

        def write(outcome: Finding) -> None:
            if outcome.verdict is not Verdict.AGREE or outcome.error:
                line = json.dumps(finding_json(outcome), ensure_ascii=False) + "\n"
                with named_when_refused(file):
                    stream.write(line)

        yield write


def finding_json(outcome: Finding) -> dict[str, Any]:
    return {
        "projection": outcome.suspect.projection,
        "verdict": outcome.verdict.value,
        "result": outcome.result.value if outcome.result else None,
        "key": _key_json(outcome.suspect.projection, outcome.suspect.key),
        "truths": [_seen_json(seen) for seen in outcome.truths],
        "projected": _seen_json(outcome.projected) if outcome.projected else None,
        "last_trace": outcome.last_trace,
        "reason": outcome.reason.text if outcome.reason else None,
        "error": outcome.error,
    }


def _key_json(projection: str, key: Key) -> Any:
    table = _TABLES.get(projection)
    return _row_json(table.key_row(key)) if table else [encode(value) for value in key]


def _seen_json(seen: Seen) -> dict[str, Any]:
    return {"row": _row_json(seen.row), "written_at": dict(seen.written_at)}


def _row_json(row: Row) -> dict[str, Any]:
    return {name: encode(value) for name, value in row.items()}

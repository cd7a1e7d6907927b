"""The lines of a plan: values of JSON's types, each checked by its form before anything is done with it.

The seal of a plan is no signature: a person who writes a plan by hand may seal anything. What is
not of its form raises one of `BROKEN`.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from mailmend.mailqueue.rules.blob_ids import ListedBlob
from mailmend.mailqueue.rules.mails import queue_name
from mailmend.model.catalog.mail import FAMILIES
from mailmend.model.ids import BlobId, EnqueueId, QueueName
from mailmend.model.projections.findings import Suspect
from mailmend.model.projections.verdicts import QUEUE_VERDICTS
from mailmend.model.table import Kind
from mailmend.model.texts import wellformed
from mailmend.repair.ledger.before_images import suspect_of_json

_SECONDS_MAX: Final = 10**10
_BYTES_MAX: Final = 2**63
_TABLES: Final = {projection.name: projection.table for family in FAMILIES for projection in family.projections}
_KINDS_OF_KEYS: Final = {"timeuuid": UUID, "uuid": UUID, "bigint": int, "int": int, "text": str, "boolean": bool}
_KINDS_OF_QUEUES: Final = (str, datetime, int)
"""The key of a partition of a queue: its name, the start of a slice, a bucket."""
_START: Final = "browsestart"


class NotOfItsForm(ValueError):
    """A field is not of its form."""


def suspect_of_messages(fields: Mapping[str, Any]) -> Suspect:
    suspect = _planned_suspect(fields)
    table = _TABLES.get(suspect.projection)
    need(table is not None, "projection", "one of the mail tables")
    if table is not None:
        types = [column.type for column in table.columns if column.kind is not Kind.REGULAR]
        kinds = [_KINDS_OF_KEYS[type_] for type_ in types]
        fits = [isinstance(part, kind) for part, kind in zip(suspect.key, kinds, strict=False)]
        need(all(fits) and len(suspect.key) == len(kinds), "key", f"a key of {suspect.projection}")
    return suspect


def suspect_of_tables(fields: Mapping[str, Any]) -> Suspect:
    """A finding in a declared table; whether it is one of the declaration's, binding tells."""
    suspect = _planned_suspect(fields)
    need(bool(suspect.key), "key", "a key")
    return suspect


def suspect_of_queues(fields: Mapping[str, Any]) -> Suspect:
    """What a cleanup found: of a queue, of a slice, or of a partition."""
    suspect = _planned_suspect(fields)
    row = QUEUE_VERDICTS.get(suspect.verdict)
    need(row is not None and row.by_repair, "verdict", "one that a repair of queues mends")
    fits = [isinstance(part, kind) for part, kind in zip(suspect.key, _KINDS_OF_QUEUES, strict=False)]
    need(all(fits) and 0 < len(suspect.key) <= len(_KINDS_OF_QUEUES), "key", "a key of a queue")
    queue_name(suspect.key[0])
    if row is not None and row.is_over:
        need(len(suspect.key) == len(_KINDS_OF_QUEUES), "key", "a key of a partition")
    if row is not None and row.moves_start:
        need(isinstance(suspect.wanted.get(_START), datetime), "wanted", "a browse start")
    instants = [value for value in (*suspect.key, *suspect.wanted.values()) if isinstance(value, datetime)]
    need(all(instant.tzinfo is not None for instant in instants), "an instant", "one with a time zone")
    return suspect


def mark_of(fields: Mapping[str, Any]) -> tuple[QueueName, EnqueueId]:
    queue, mail = _parts(fields["mark"], 2)
    return queue_name(_word(queue, "queue")), EnqueueId(UUID(_word(mail, "mail")))


def blob_of(fields: Mapping[str, Any]) -> ListedBlob:
    name, stored_at, size = _parts(fields["blob"], 3)
    at = None
    if stored_at is not None:
        at = datetime.fromisoformat(_word(stored_at, "the instant"))
        need(at.tzinfo is not None, "the instant", "one with a time zone")
    need(size is None or (is_number(size, int) and 0 <= size < _BYTES_MAX), "the size", "a number of bytes, or null")
    return ListedBlob(BlobId(_word(name, "the blob")), at, size)


def text(fields: Mapping[str, Any], name: str) -> str:
    value = fields[name]
    need(isinstance(value, str) and wellformed(value) == value and "\0" not in value, name, "a text")
    return str(value)


def texts(fields: Mapping[str, Any], name: str) -> list[str]:
    value = fields[name]
    need(isinstance(value, list), name, "a list")
    return [text({name: item}, name) for item in value]


def seconds(fields: Mapping[str, Any], name: str) -> float:
    value = fields[name]
    need(is_number(value, int | float) and abs(value) < _SECONDS_MAX, name, "a number of seconds")
    return float(value)


def is_number(value: Any, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def need(holds: bool, name: str, form: str) -> None:  # noqa: FBT001 - a condition
    if not holds:
        raise NotOfItsForm(f"{name} is not {form}")


def _planned_suspect(fields: Mapping[str, Any]) -> Suspect:
    return replace(suspect_of_json(fields["suspect"]), planned=text(fields, "before"))


def _parts(value: Any, count: int) -> list[Any]:
    need(isinstance(value, list) and len(value) == count, "it", f"a list of {count}")
    return list(value)


def _word(value: Any, name: str) -> str:
    return text({name: value}, name)

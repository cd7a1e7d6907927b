"""Values of queued mails that an operator sets: the answers of commands and of HTTP."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from mailmend.admin.delivery.answers import CHANGED_ENTRIES
from mailmend.admin.delivery.set_values import ListValueChangesRequest, SetValuesResult
from mailmend.admin.delivery.value_texts import difference_text, values_text
from mailmend.admin.frame.document import Document, Grid, Part
from mailmend.admin.frame.values import NOTHING_WRITTEN, printable, shown
from mailmend.admin.queue.remove import LISTED_MAX
from mailmend.admin.queue.request import QueueAnswer, queue_document
from mailmend.delivery.ledger.value_changes import ValueRecord
from mailmend.delivery.mail.set_values import RECIPIENT, SetEntry
from mailmend.model.json_forms import JsonField, JsonForm

_LEFT_SHOWN: Final = 10
_TEXTS: Final = dict[str, str | None]


def _texts_json(texts: Mapping[str, str | None]) -> dict[str, str | None]:
    return dict(texts)


_SET_ENTRY: Final = JsonForm(
    body="SetEntryBody",
    about="A recipient whose values change.",
    answers={
        "id": JsonField(str, "The mail's first id, and a number.", "queued.entry.id", str),
        "enqueue_id": JsonField(str, "", "queued.enqueue_id"),
        "recipient": JsonField(str, "The recipient before.", "queued.entry.recipient"),
        "before": JsonField(
            dict[str, str | None],
            "The values that change; null: no value.",
            to_json=_texts_json,
        ),
        "behind": JsonField(_TEXTS, "The same values behind the change.", to_json=_texts_json),
    },
)
_LEFT_MAIL: Final = JsonForm(
    body="LeftMailBody",
    about="A mail that was left as it is.",
    answers={"id": JsonField(str, "", "enqueue_id"), "why": JsonField(str)},
)
SET_VALUES: Final = JsonForm(
    body="SetValuesAnswer",
    about="What became of the mails whose recipients were selected.",
    answers={
        "dry_run": JsonField(bool, "", "request.dry_run"),
        "change": JsonField(UUID, "For an undo; of a dry run without effect.", "change.id"),
        "values": JsonField(_TEXTS, "null: it is removed.", "change.values", _texts_json),
        "undoes": JsonField(UUID | None, "", "change.undoes"),
        "changed": JsonField(int, "How many recipients.", None),
        "would_change": JsonField(int | None, attribute=None),
        "mails": JsonField(int),
        "active": JsonField(int, "How many active recipients were selected, and left alone."),
        "left": JsonField(int, "How many mails were left as they are.", None),
        "left_mails": JsonField(_LEFT_MAIL, "The first of them.", None, many=True),
        "failed": CHANGED_ENTRIES.answers["failed"],
        "entries": JsonField(
            _SET_ENTRY,
            "Of a dry run: the first of them.",
            None,
            many=True,
            optional=True,
        ),
    },
)
_VALUE_CHANGE: Final = JsonForm(
    body="ValueChangeBody",
    about="One command that set values of queued mails.",
    answers={
        "id": JsonField(UUID, "For an undo."),
        "at": JsonField(datetime),
        "by": JsonField(str),
        "why": JsonField(str, attribute="reason"),
        "values": JsonField(_TEXTS, "null: the value was removed.", to_json=_texts_json),
        "selected": JsonField(list[str], "The options that chose the recipients.", to_json=list),
        "undoes": JsonField(UUID | None, "The change that was put back."),
        "recipients": JsonField(int | None, "null: the command did not end."),
        "mails": JsonField(int | None),
    },
)
VALUE_CHANGES: Final = JsonForm(
    body="ValueChangesAnswer",
    about="What was set in the last 30 days, newest first.",
    answers={"changes": JsonField(_VALUE_CHANGE, "", "found", many=True)},
)


def set_document(result: SetValuesResult) -> Document:
    request = result.request
    change = result.change
    what = values_text(change.values)
    if change.undoes:
        what = f"as before {change.undoes}"
    count = f"{result.count:,} recipients of {result.mails:,} mails in {request.queue}"
    body: list[Part] = []
    if request.dry_run:
        if result.listed:
            rows = [_set_row(entry) for entry in result.listed]
            columns = ("id", "recipient", "what would change")
            body.append(Grid("Would be set", columns, rows, frozenset(columns[1:])))
        body.append(f"{NOTHING_WRITTEN} Would be set ({what}): {count}.")
    else:
        body.append(f"{count}: set ({what}).")
    if change.undoes and not result.count:
        body.append(f"No held or deferred mail of {request.queue} has values of that change.")
    if result.active:
        body.append(_active_text(result))
    if result.left:
        body.append(_left_text(result))
    if result.count and not request.dry_run:
        undo = f"mailmend delivery set {request.queue} --undo {change.id} --why ..."
        body.append(f"To put the values back: {undo}")
    hints = [f"not changed: {unchanged.enqueue_id}: {unchanged.why}" for unchanged in result.failed]
    return queue_document(result, SET_VALUES.json(result, **_counts(result)), body, hints)


def _set_row(entry: SetEntry) -> tuple[str, ...]:
    return (
        str(entry.queued.entry.id),
        printable(entry.queued.entry.recipient),
        difference_text(entry.before, entry.behind),
    )


def _active_text(result: SetValuesResult) -> str:
    request = result.request
    about = f"{result.active:,} recipients are active, and were left alone."
    if request.undo:
        return f"{about} Hold them first, then give the same command again, then release them."
    hold = f"mailmend delivery hold {request.queue} {_typed(request.selected)} --why ..."
    return f"{about} Hold them first, then give the same command again, then release them: {hold}"


def _typed(words: Iterable[str]) -> str:
    return printable(shlex.join(words))


def _left_text(result: SetValuesResult) -> str:
    texts = [f"{left.enqueue_id}: {printable(left.why)}" for left in result.left[:_LEFT_SHOWN]]
    if len(result.left) > _LEFT_SHOWN:
        texts.append("...")
    about = f"{len(result.left):,} mails are left as they are: {'; '.join(texts)}."
    if any(name != RECIPIENT for name in result.change.values) and not result.request.whole_mails:
        about += " --whole-mails sets the values of a mail for all of its recipients."
    return about


def _counts(result: SetValuesResult) -> dict[str, Any]:
    counts: dict[str, Any] = {
        "changed": result.count,
        "would_change": None,
        "left": len(result.left),
        "left_mails": [_LEFT_MAIL.json(left) for left in result.left[:LISTED_MAX]],
        "entries": None,
    }
    if result.request.dry_run:
        counts["changed"] = 0
        counts["would_change"] = result.count
        counts["entries"] = [_SET_ENTRY.json(entry) for entry in result.listed]
    return counts


def value_changes_document(
    result: QueueAnswer[ListValueChangesRequest, Sequence[ValueRecord]],
) -> Document:
    queue = result.request.queue
    json = VALUE_CHANGES.json(result)
    if not result.found:
        nothing = f"No values were set in {queue} in the last 30 days."
        return queue_document(result, json, (nothing,))
    columns = ("when", "by", "what", "of which", "recipients", "why", "id")
    rows = [_change_row(record) for record in result.found]
    wrapped = frozenset({"by", "what", "of which", "why"})
    title = f"Values that were set in {queue}, newest first"
    body: list[Part] = [Grid(title, columns, rows, wrapped)]
    if len(result.found) == result.request.limit:
        body.append(f"These are the newest {result.request.limit:,}; more: --changes.")
    return queue_document(result, json, body)


def _change_row(record: ValueRecord) -> tuple[str, ...]:
    what = values_text(record.values)
    if record.undoes:
        what = f"undone: {record.undoes}"
    count = "did not end"
    if record.recipients is not None:
        count = f"{record.recipients:,} of {record.mails or 0:,} mails"
    return (
        shown(record.at),
        printable(record.by),
        what,
        _typed(record.selected),
        count,
        printable(record.reason),
        str(record.id),
    )

"""What a mail remembers of values that a command set, as people and programs read it."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final
from uuid import UUID

from mailmend.admin.frame.values import printable, shown
from mailmend.delivery.mail.entries import ValuesNote
from mailmend.delivery.mail.set_values import name_of_attribute, text_of_attribute
from mailmend.model.json_forms import JsonField, JsonForm

NO_VALUE: Final = "(none)"
"""What people read where there is no value."""


def _named(before: Mapping[str, str | None]) -> dict[str, str | None]:
    return {name_of_attribute(named): text_of_attribute(text) for named, text in before.items()}


def _by_number(recipients: Mapping[int, str]) -> dict[str, str]:
    return {str(number): recipient for number, recipient in recipients.items()}


VALUES_NOTE: Final = JsonForm(
    body="ValuesNoteBody",
    about="The last command that set values of the mail.",
    answers={
        "change": JsonField(UUID),
        "at": JsonField(datetime),
        "owner": JsonField(str),
        "why": JsonField(str, attribute="reason"),
        "before": JsonField(
            dict[str, str | None],
            "The values before; null: there was none.",
            to_json=_named,
        ),
        "recipients": JsonField(
            dict[str, str],
            "Recipients before, by their numbers.",
            to_json=_by_number,
        ),
    },
)


def note_text(note: ValuesNote) -> str:
    """Who set values of a mail, why, and what they were before."""
    before = [f"{name} {_shown(text)}" for name, text in _named(note.before).items()]
    before += [f"recipient {number} {text}" for number, text in note.recipients.items()]
    said = f"values set by {note.owner} at {shown(note.at)} ({note.reason}), before: "
    return printable(f"{said}{', '.join(before)}; change {note.change}")


def values_text(values: Mapping[str, str | None]) -> str:
    """Values that are set, in one line."""
    texts = list[str]()
    for name, text in values.items():
        if text is None:
            texts.append(f"{name} removed")
        else:
            texts.append(f"{name} {text or '(empty)'}")
    return printable(", ".join(texts))


def difference_text(before: Mapping[str, str | None], behind: Mapping[str, str | None]) -> str:
    """What changes: old -> new, value by value."""
    texts = list[str]()
    for name, text in behind.items():
        texts.append(f"{name}: {_shown(before.get(name))} -> {_shown(text)}")
    return printable("; ".join(texts))


def _shown(text: str | None) -> str:
    if text is None:
        return NO_VALUE
    return text or "(empty)"

"""What documents share: values as JSON, instants, mails.

Addresses are shown, as an operator looks for them; contents only where they were asked for.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from mailmend.model.projections.verdicts import Verdict

IDS_SHOWN: Final = 20
"""How many ids of each kind a person is shown; `--json` names all."""

NOTHING_WRITTEN: Final = "Nothing was written."


def counts_json(counts: Mapping[Verdict, int]) -> dict[str, int]:
    """Counts by verdict name, without zeros, in the order of the verdicts."""
    return {verdict.value: counts[verdict] for verdict in Verdict if counts.get(verdict)}


def plain(value: Any) -> Any:
    """A value as JSON: a dataclass by its fields, an instant in UTC with milliseconds, a set sorted."""
    found = value
    match value:
        case datetime():
            found = instant_text(value)
        case Enum():
            found = value.value
        case UUID() | Path():
            found = str(value)
        case Mapping():
            found = {str(plain(name)): plain(element) for name, element in value.items()}
        case AbstractSet():
            found = sorted(map(plain, value))
        case list() | tuple():
            found = list(map(plain, value))
        case _ if is_dataclass(value):
            found = {field.name: plain(getattr(value, field.name)) for field in fields(value)}
        case _:
            pass
    return found


def fields_json(value: Any, *names: str) -> dict[str, Any]:
    """These fields of a value as JSON, under their own names."""
    return {name: plain(getattr(value, name)) for name in names}


def instant_text(at: datetime | None) -> str | None:
    if at is None:
        return None
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def shown(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def printable(text: str, kept: str = "", instead: str = "\N{REPLACEMENT CHARACTER}") -> str:
    """The text without control characters (those in `kept` stay): a file or a sender must not steer the terminal."""
    if text.isprintable():
        return text
    characters = []
    for character in text:
        if character.isprintable() or character in kept:
            characters.append(character)
        else:
            characters.append(instead)
    return "".join(characters)


def first_ids(title: str, ids: Sequence[object], total: int, rest: str = "") -> list[str]:
    if not ids:
        return []
    lines = [title]
    for text in ids[:IDS_SHOWN]:
        lines.append(f"    {text}")
    if total > IDS_SHOWN:
        lines.append(f"    and {total - IDS_SHOWN:,} more{rest}")
    return lines

"""Rows, suspects and findings as lines of text, and back again without loss.

A before-image must come back exactly as it was read, also when the schema has moved on: so each value says its own
kind ({"uuid": …}), rather than trusting a table's declaration to tell it. The same lines carry suspects on disk.
"""

import json
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from model.errors import MailmendError
from model.operations import Seen
from model.projections.findings import Finding, Suspect
from model.projections.verdicts import Verdict
from model.schema.table import Key


def packed(value: Any) -> Any:  # noqa: PLR0911 one return for each kind
    """The value in JSON's own types; what JSON lacks becomes an object of one field that names its kind."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case UUID():
            return {"uuid": str(value)}
        case date() | time():
            return {type(value).__name__: value.isoformat()}
        case Decimal():
            return {"decimal": str(value)}
        case bytes():
            return {"bytes": value.hex()}
        case set() | frozenset():
            return {"set": sorted((packed(item) for item in value), key=json.dumps)}
        case tuple() | list():
            return {"list": [packed(item) for item in value]}
        case Mapping():
            return {"map": [[packed(name), packed(item)] for name, item in value.items()]}
        case _:
            raise MailmendError(
                f"a {type(value).__name__} has no form in a before-image",
                mend="A column of that type was added to a mail table; its rows are left as they are; report it.",
            )


def unpacked(value: Any) -> Any:
    """The value that was packed."""
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    return _UNPACK[kind](inner)


_UNPACK: Mapping[str, Callable[[Any], Any]] = {
    "uuid": UUID,
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "decimal": Decimal,
    "bytes": bytes.fromhex,
    "set": lambda inner: frozenset(unpacked(item) for item in inner),
    "list": lambda inner: tuple(unpacked(item) for item in inner),
    "map": lambda inner: {unpacked(name): unpacked(item) for name, item in inner},
}


def key_text(key: Key) -> str:
    """A key as one line: equal keys give equal lines, so it can be a key itself."""
    return _line([packed(part) for part in key])


def key_from(text: str) -> Key:
    """The key in such a line."""
    return tuple(unpacked(part) for part in json.loads(text))


def suspect_text(suspect: Suspect) -> str:
    """A suspect as one line."""
    return _line(_suspect(suspect))


def suspect_from(text: str) -> Suspect:
    """The suspect in such a line."""
    return _suspect_of(json.loads(text))


def image_text(finding: Finding) -> str:
    """What was seen of a suspect before anything was written: one line, without what became of it."""
    return _line(
        {
            "suspect": _suspect(finding.suspect),
            "verdict": finding.verdict.value,
            "truths": [_seen(truth) for truth in finding.truths],
            "projected": None if finding.projected is None else _seen(finding.projected),
            "last_trace": finding.last_trace,
        }
    )


def image_from(text: str, *, result: Verdict | None = None, error: str | None = None) -> Finding:
    """The finding in such a line, with what became of it."""
    fields = json.loads(text)
    return Finding(
        suspect=_suspect_of(fields["suspect"]),
        verdict=Verdict(fields["verdict"]),
        result=result,
        truths=tuple(_seen_of(truth) for truth in fields["truths"]),
        projected=None if fields["projected"] is None else _seen_of(fields["projected"]),
        last_trace=fields["last_trace"],
        error=error,
    )


def _line(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True)


def _suspect(suspect: Suspect) -> dict[str, Any]:
    return {
        "projection": suspect.projection,
        "key": [packed(part) for part in suspect.key],
        "verdict": suspect.verdict.value,
        "truth_ids": [str(one) for one in suspect.truth_ids],
        "wanted": packed(dict(suspect.wanted)),
    }


def _suspect_of(fields: Mapping[str, Any]) -> Suspect:
    return Suspect(
        projection=fields["projection"],
        key=tuple(unpacked(part) for part in fields["key"]),
        verdict=Verdict(fields["verdict"]),
        truth_ids=tuple(UUID(one) for one in fields["truth_ids"]),
        wanted=unpacked(fields["wanted"]),
    )


def _seen(seen: Seen) -> dict[str, Any]:
    row = {name: packed(value) for name, value in seen.row.items()}
    return {"row": row, "written_at": dict(seen.written_at)}


def _seen_of(fields: Mapping[str, Any]) -> Seen:
    return Seen({name: unpacked(value) for name, value in fields["row"].items()}, fields["written_at"])

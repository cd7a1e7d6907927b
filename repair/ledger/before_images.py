"""Rows, suspects and findings as lines of text, and back again without loss.

A before-image must come back exactly as it was read, also after a schema change: so each value carries its own type
({"uuid": …}) instead of relying on the table's declaration. Suspects on disk use the same lines.

A plan is approved with the digest of each before-image: its fix is made exactly as approved, or not at all.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, replace
from datetime import date, datetime, time
from decimal import Decimal
from hashlib import blake2b
from typing import Any, Final, TypeVar
from uuid import UUID

from mailmend.model.errors import DamagedRecord, MailmendError
from mailmend.model.operations import Seen
from mailmend.model.projections.findings import Finding, Suspect
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Key
from mailmend.model.values import CqlDuration, FarDate, FineTime, FrozenMap

T = TypeVar("T")

BROKEN: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What the readers of JSON's types raise where a document is not of their form."""

_HALVES: Final = re.compile(r"\\u[dD][89a-fA-F]")
_DAMAGED: Final = "It was altered, or another version wrote it. It is left as it is; look for it by hand."


def packed(value: Any) -> Any:  # noqa: PLR0911 - one case for each kind
    """The value in JSON's types; other types become an object with one field that names the type."""
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
            return {"set": sorted(map(packed, value), key=json.dumps)}
        case tuple() | list():
            return {"list": list(map(packed, value))}
        case Mapping():
            return {"map": [[packed(name), packed(item)] for name, item in value.items()]}
        case FarDate() | FineTime() | CqlDuration():
            return {type(value).__name__: list(astuple(value))}
        case _:
            raise MailmendError(
                f"a {type(value).__name__} has no form in a before-image",
                mend="A column of that type was added to a mail table; its rows are left as they are; report it.",
            )


def unpacked(value: Any) -> Any:
    if isinstance(value, list):
        raise TypeError("a list without its type")
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
    "set": lambda inner: frozenset(map(unpacked, inner)),
    "list": lambda inner: tuple(map(unpacked, inner)),
    "map": lambda inner: FrozenMap((unpacked(name), unpacked(item)) for name, item in inner),
    "FarDate": lambda inner: FarDate(*map(_whole, inner)),
    "FineTime": lambda inner: FineTime(*map(_whole, inner)),
    "CqlDuration": lambda inner: CqlDuration(*map(_whole, inner)),
}


def key_text(key: Key) -> str:
    """A key as one line; equal keys give equal lines."""
    return _line(list(map(packed, key)))


def key_from(text: str) -> Key:
    """Read a key.

    Raises:
        DamagedRecord: the text is not one.
    """
    return _read("a key", text, lambda parts: tuple(map(unpacked, _of_kind(parts, list))))


def suspect_text(suspect: Suspect) -> str:
    return _line(suspect_json(suspect))


def suspect_from(text: str) -> Suspect:
    """Read a suspect.

    Raises:
        DamagedRecord: the text is not one.
    """
    return _read("a suspect", text, suspect_of_json)


def suspect_json(suspect: Suspect) -> dict[str, Any]:
    return {
        "projection": suspect.projection,
        "key": list(map(packed, suspect.key)),
        "verdict": suspect.verdict.value,
        "truth_ids": list(map(_truth_key, suspect.truth_keys)),
        "wanted": packed(dict(suspect.wanted)),
    }


def suspect_of_json(fields: Mapping[str, Any]) -> Suspect:
    """Read a suspect; any other text raises one of `BROKEN`."""
    return Suspect(
        projection=_of_kind(fields["projection"], str),
        key=tuple(map(unpacked, _of_kind(fields["key"], list))),
        verdict=Verdict(fields["verdict"]),
        truth_keys=tuple(map(_truth_key_of, _of_kind(fields["truth_ids"], list))),
        wanted=_of_kind(unpacked(fields["wanted"]), dict),
    )


def _truth_key(key: Key) -> Any:
    """One UUID as text, as earlier versions wrote it; another key as the list of its values."""
    match key:
        case (UUID() as alone,):
            return str(alone)
        case _:
            return list(map(packed, key))


def _truth_key_of(kept: Any) -> Key:
    if isinstance(kept, list):
        return tuple(map(unpacked, kept))
    return (UUID(kept),)


def image_text(finding: Finding) -> str:
    """A finding's before-image as one line of text, without its result."""
    image = {"suspect": suspect_json(finding.suspect), **_image(finding)}
    if finding.number > 1:
        image["number"] = finding.number
    return _line(image)


def image_digest(finding: Finding) -> str:
    """A digest that is equal for two looks with the same rows, write times and verdict."""
    projected = finding.projected
    if projected:
        projected = replace(projected, expires_at={})
    bare = replace(finding, truths=_together(finding.truths), projected=projected)
    seen = {**_image(bare), "wanted": packed(dict(finding.suspect.wanted))}
    return blake2b(json.dumps(seen, sort_keys=True).encode(), digest_size=16).hexdigest()


def _together(truths: Sequence[Seen]) -> tuple[Seen, ...]:
    """The truths without their expiry; the elements of a union, which are kept by instants, as one."""
    bare = tuple(replace(truth, expires_at={}) for truth in truths)
    gathered: dict[str, frozenset[Any]] = {}
    for truth in bare:
        for name, value in truth.row.items():
            if not isinstance(value, frozenset):
                return bare
            gathered[name] = gathered.get(name, frozenset()) | value
    if not gathered:
        return bare
    return (Seen(gathered, bare[0].written_at),)


def image_from(text: str, *, result: Verdict | None = None, error: str | None = None) -> Finding:
    """Read a before-image.

    Raises:
        DamagedRecord: the text is not one.
    """

    def finding(fields: Mapping[str, Any]) -> Finding:
        projected = None
        if fields["projected"] is not None:
            projected = _seen_of(fields["projected"])
        return Finding(
            suspect=suspect_of_json(fields["suspect"]),
            verdict=Verdict(fields["verdict"]),
            result=result,
            truths=tuple(map(_seen_of, _of_kind(fields["truths"], list))),
            projected=projected,
            last_trace=_of_kind(fields["last_trace"], bool),
            error=error,
            number=_whole(fields.get("number", 1)),
        )

    return _read("a before-image", text, finding)


def _image(finding: Finding) -> dict[str, Any]:
    projected = None
    if finding.projected is not None:
        projected = _seen(finding.projected)
    return {
        "verdict": finding.verdict.value,
        "truths": list(map(_seen, finding.truths)),
        "projected": projected,
        "last_trace": finding.last_trace,
    }


def _line(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True)


def _seen(seen: Seen) -> dict[str, Any]:
    row = {name: packed(value) for name, value in seen.row.items()}
    fields = {"row": row, "written_at": dict(seen.written_at)}
    if seen.expires_at:
        fields["expires_at"] = dict(seen.expires_at)
    return fields


def _seen_of(fields: Mapping[str, Any]) -> Seen:
    written_at = _times(fields["written_at"])
    expires_at = _times(fields.get("expires_at", {}))
    row = {name: unpacked(value) for name, value in fields["row"].items()}
    return Seen(row, written_at, expires_at=expires_at)


def _times(fields: Mapping[str, Any]) -> dict[str, int]:
    return {name: _whole(at) for name, at in fields.items()}


def _read(what: str, text: str, build: Callable[[Any], T]) -> T:
    """Build a value from JSON. The message tells nothing of the content, which may be people's mail."""
    try:
        document = json.loads(text)
        if _HALVES.search(text):
            json.dumps(document, ensure_ascii=False).encode()  # half a surrogate pair is no text
        return build(document)
    except BROKEN as error:
        raise DamagedRecord(f"{what} in the ledger cannot be read: {type(error).__name__}", mend=_DAMAGED) from error


def _of_kind(value: Any, kind: type[T]) -> T:
    if not isinstance(value, kind):
        raise TypeError(f"a {type(value).__name__} is not a {kind.__name__}")
    return value


def _whole(value: Any) -> int:
    """A whole number that Cassandra's bigint holds."""
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise TypeError("not a whole number of 64 bits")
    return value


def as_planned(found: Finding) -> Finding:
    """The finding; MOVED without writes where its plan was made from other rows, write times or another verdict."""
    planned = found.suspect.planned
    if not planned or found.error is not None:
        return found
    if found.verdict is Verdict.AGREE or found.result is Verdict.FIXED or image_digest(found) == planned:
        return found
    return replace(found.ended(), result=Verdict.MOVED, due=False)

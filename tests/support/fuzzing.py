"""Inputs that were spoilt on purpose: documents, texts and bytes in which a piece is another.

A fuzzer claims one thing: whatever comes in, nothing comes out but a result or one of our own errors. Hypothesis draws
the examples: a failure prints its example, and the run prints its seed. `make test` draws few, `make test-all` many.
"""

import json
from collections.abc import Callable, Sequence
from copy import deepcopy
from hashlib import sha256
from typing import Any, Final, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from mailmend.model.errors import MailmendError
from tests.support.thorough import few_or

T = TypeVar("T")

DEPTH: Final = 3_000
"""More levels than Python's own recursion allows."""


def fuzzing(examples: int = 400) -> settings:
    """The settings of a fuzzer, with so many examples in `make test-all` and a few in `make test`."""
    return settings(
        max_examples=few_or(examples),
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
    )


def result_or_our_error(call: Callable[[], T]) -> T | MailmendError:
    """The result of a call, or the error of our own that it raised; whatever else it raises fails the test."""
    try:
        return call()
    except MailmendError as error:
        return error


def sealed(lines: Sequence[str]) -> str:
    """The lines of a plan under a seal that is right: whoever may write the file can make one."""
    text = "".join(f"{line}\n" for line in lines)
    return text + json.dumps({"seal": sha256(text.encode()).hexdigest()}) + "\n"


def nested(opening: str, closing: str, inner: str = "", depth: int = DEPTH) -> str:
    return opening * depth + inner + closing * depth


ODD_VALUES: Final[tuple[Any, ...]] = (
    None,
    True,
    0,
    -1,
    2**31,
    2**63,
    10**400,
    0.5,
    float("nan"),
    float("inf"),
    -1e308,
    "",
    "x",
    "\x00",
    "\ud800",
    "\u202e",
    "1970-01-01",
    "9999-12-31T23:59:59.999999+00:00",
    "0001-01-01T00:00:00+23:59",
    "00000000-0000-0000-0000-000000000000",
    "x" * 5_000,
    [],
    [[]],
    [None],
    {},
    {"": ""},
    {"uuid": 5},
    {"decimal": "NaN"},
    {"list": [{"set": [{"map": []}]}]},
)
"""Values of JSON's types at the edges of what readers expect."""


@st.composite
def spoilt_document(draw: st.DrawFn, document: Any, changes_max: int = 3) -> Any:
    """A document of JSON's types in which one to three values are others, gone, doubled or renamed."""
    found = json.loads(json.dumps(document))
    for _ in range(draw(st.integers(1, changes_max))):
        found = _with_change(draw, found)
    return found


def _with_change(draw: st.DrawFn, document: Any) -> Any:
    holder: Any = None
    place: Any = None
    value = document
    while isinstance(value, dict | list) and value and (holder is None or draw(st.booleans())):
        holder = value
        places: Sequence[Any] = list(value) if isinstance(value, dict) else range(len(value))
        place = draw(st.sampled_from(places))
        value = value[place]
    if holder is None:
        return deepcopy(draw(st.sampled_from(ODD_VALUES)))
    match draw(st.sampled_from(("replace", "replace", "replace", "remove", "rename", "double"))):
        case "replace":
            holder[place] = deepcopy(draw(st.sampled_from(ODD_VALUES)))
        case "remove":
            del holder[place]
        case "rename" if isinstance(holder, dict):
            holder[draw(st.sampled_from(("", "x", "\ud800", "number")))] = holder.pop(place)
        case _:
            if isinstance(holder, list):
                holder.append(deepcopy(value))
            else:
                holder[place] = [value, deepcopy(value)]
    return document


@st.composite
def spoilt_text(draw: st.DrawFn, text: str, words: Sequence[str], changes_max: int = 3) -> str:
    """A text in which one to three pieces are others."""
    found = text
    for _ in range(draw(st.integers(1, changes_max))):
        start = draw(st.integers(0, len(found)))
        end = draw(st.integers(start, min(len(found), start + 12)))
        found = found[:start] + "".join(draw(st.lists(st.sampled_from(words), max_size=3))) + found[end:]
    return found


@st.composite
def spoilt_bytes(draw: st.DrawFn, content: bytes, words: Sequence[bytes], changes_max: int = 3) -> bytes:
    """Bytes in which one to three pieces are others."""
    found = content
    for _ in range(draw(st.integers(1, changes_max))):
        start = draw(st.integers(0, len(found)))
        end = draw(st.integers(start, min(len(found), start + 12)))
        found = found[:start] + b"".join(draw(st.lists(st.sampled_from(words), max_size=3))) + found[end:]
    return found

"""Kinds of option values: a wrong one is refused by the parser itself, with the option's name in the message."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, TypeVar
from uuid import UUID

import click
from click.shell_completion import CompletionItem

from mailmend.admin.frame.settings import KEEP_MAX, parse_keyspace, parse_port, parse_spark_setting
from mailmend.cql.schema.risk import Risk
from mailmend.model.durations import DURATION_MAX, format_duration, parse_duration
from mailmend.model.errors import WrongUse
from mailmend.model.projections.verdicts import BY_POLICY, DETECTED, MENDABLE

T = TypeVar("T")

_BEGINNING_OF_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f-]{0,27})?")
"""As `mailmend runs list` shows it where a terminal is narrow."""

MENDABLE_ON_REQUEST: Final = tuple(verdict for verdict in DETECTED if verdict in MENDABLE | BY_POLICY)
VERDICT_NAMES: Final = ", ".join(verdict.value for verdict in MENDABLE_ON_REQUEST)


class Duration(click.ParamType[timedelta]):
    """A length of time: `60s`, `5m`, `1h`, or bare seconds."""

    name = "duration"

    def __init__(self, maximum: timedelta = DURATION_MAX, *, zero: bool = True) -> None:
        self.maximum = maximum
        self.zero = zero

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        return _or_fail(self, param, ctx, lambda: parse_duration(str(value), maximum=self.maximum, zero=self.zero))

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:  # noqa: ARG002 - click's signature
        return "DURATION"


class ParsedValue(click.ParamType[Any]):
    """A text or number that one of the settings' parsers reads."""

    def __init__(self, name: str, parse: Callable[[Any], Any]) -> None:
        self.name = name
        self.parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return _or_fail(self, param, ctx, lambda: self.parse(value))


class Word(click.ParamType[str]):
    """One of some words, which completion offers, or any other text."""

    name = "word"

    def __init__(self, words: Sequence[str]) -> None:
        self.words = words

    def convert(
        self,
        value: Any,
        param: click.Parameter | None,  # noqa: ARG002 - click's signature
        ctx: click.Context | None,  # noqa: ARG002 - click's signature
    ) -> str:
        return str(value)

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        param: click.Parameter,  # noqa: ARG002 - click's signature
        incomplete: str,
    ) -> list[CompletionItem]:
        return [CompletionItem(word) for word in self.words if word.startswith(incomplete)]

    def get_metavar(
        self,
        param: click.Parameter,  # noqa: ARG002 - click's signature
        ctx: click.Context,  # noqa: ARG002 - click's signature
    ) -> str:
        return f"{'|'.join(self.words)}|TABLE"


class Several(click.ParamType[frozenset[Any]]):
    """One or more of some values by their names, separated by commas; case, hyphens and underscores do not matter.

    Args:
        name: the word for one value.
        known: the values by name.
        what: the word for the values in an error message.
    """

    def __init__(self, name: str, known: Mapping[str, Any], what: str) -> None:
        self.name = name
        self.what = what
        self.shown = ", ".join(known)
        self.known = {_normal(name): value for name, value in known.items()}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> frozenset[Any]:
        if isinstance(value, frozenset):
            return value
        return frozenset(self._one(word, param, ctx) for word in str(value).split(","))

    def _one(self, word: str, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if _normal(word) in self.known:
            return self.known[_normal(word)]
        return self.fail(f"{word!r} is not {self.what} ({self.shown}).", param, ctx)


def _normal(name: str) -> str:
    return name.strip().lower().replace("_", "-")


def _port(value: Any) -> int:
    if not str(value).isdigit():
        raise WrongUse(f"{value!r} is not a port")
    return parse_port(int(value))


def parse_run(value: Any) -> UUID | str:
    """A run's id, or the beginning of one as text: it has at least 8 characters.

    Raises:
        WrongUse: it is neither.
    """
    text = str(value).lower()
    with suppress(ValueError):
        return UUID(text)
    if _BEGINNING_OF_ID.fullmatch(text):
        return text
    raise WrongUse(
        f"{value!r} is not a valid UUID",
        mend="The first 8 characters of a run's id are enough.",
    )


PORT: Final = ParsedValue("port", _port)
KEYSPACE: Final = ParsedValue("keyspace", lambda value: parse_keyspace(str(value)))
DELAY: Final = Duration()
KEEP: Final = Duration(KEEP_MAX, zero=False)
VERDICTS: Final = Several(
    "verdict", {verdict.value: verdict for verdict in MENDABLE_ON_REQUEST}, "a verdict that can be mended"
)
RISKS: Final = Several(
    "risk", {risk.option: risk for risk in reversed(Risk) if risk is not Risk.NONE}, "a risk of a plan"
)
RISK_NAMES: Final = RISKS.shown
RUN: Final = ParsedValue("run", parse_run)
SPARK_SETTING: Final = ParsedValue("setting", lambda value: parse_spark_setting(str(value)))


def _or_fail(
    kind: click.ParamType[Any], param: click.Parameter | None, ctx: click.Context | None, parse: Callable[[], T]
) -> T:
    try:
        return parse()
    except WrongUse as error:
        message = error.what
        if error.mend:
            message += f". {error.mend}"
        return kind.fail(message, param, ctx)


def duration_text(duration: timedelta) -> str:
    return format_duration(duration)

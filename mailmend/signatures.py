"""Signatures as `help` shows them: short names, and one argument a line where one line is too long.

Python's own `help` prints the module of every type, and before 3.13 each signature on one line:
more than a thousand characters for a class with many fields. `inspect.signature` returns these
signatures too: only their text differs.
"""

import inspect
import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from enum import Enum
from types import FunctionType
from typing import Any, Final

WIDTH: Final = 80
"""Characters of a signature on one line."""

_MODULES: Final = re.compile(r"\b(?:\w+\.)+(?=\w)")
_UNPACKED: Final = re.compile(r"\*<class '([\w.]+)'>")


class ShortSignature(inspect.Signature):
    """A signature whose text is short."""

    __slots__ = ()

    def __str__(self) -> str:
        return self.format()

    def format(self, *, max_width: int | None = WIDTH, **_: object) -> str:
        """The text; on several lines where one line would have more than `max_width` characters.

        `help` of Python 3.13 and later calls this, with further arguments from 3.14 on.
        """
        arguments = list(_arguments(self))
        result = ""
        if self.return_annotation is not self.empty:
            result = f" -> {_annotation(self.return_annotation)}"
        line = f"({', '.join(arguments)}){result}"
        if max_width is None or len(line) <= max_width:
            return line
        lines = "".join(f"    {argument},\n" for argument in arguments)
        return f"(\n{lines}){result}"


def with_short_signatures(public: Any) -> Any:
    """The same function or class, whose signature and whose methods' signatures are short."""
    functions = [public]
    if inspect.isclass(public):
        methods = inspect.getmembers(public, inspect.isroutine)
        functions = [inspect.unwrap(getattr(method, "__func__", method)) for _, method in methods]
    for function in functions:
        if isinstance(function, FunctionType) and function.__module__.startswith("mailmend."):
            whole = inspect.signature(function)
            function.__dict__["__signature__"] = ShortSignature(
                list(whole.parameters.values()),
                return_annotation=whole.return_annotation,
            )
    return public


def _arguments(signature: inspect.Signature) -> Iterator[str]:
    """The text of each argument; a star of its own where arguments by name begin."""
    has_star = False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            has_star = True
        if parameter.kind is parameter.KEYWORD_ONLY and not has_star:
            has_star = True
            yield "*"
        yield _argument(parameter)


def _argument(parameter: inspect.Parameter) -> str:
    text = parameter.name
    if parameter.kind is parameter.VAR_POSITIONAL:
        text = f"*{text}"
    if parameter.kind is parameter.VAR_KEYWORD:
        text = f"**{text}"
    if parameter.annotation is not parameter.empty:
        text += f": {_annotation(parameter.annotation)}"
    if parameter.default is not parameter.empty:
        text += f" = {_default(parameter.default)}"
    return text


def _annotation(annotation: Any) -> str:
    """The type as a program writes it: without modules."""
    if isinstance(annotation, str):
        return annotation
    text = _UNPACKED.sub(r"Unpack[\1]", inspect.formatannotation(annotation))
    return _MODULES.sub("", text).replace("~", "").replace("NoneType", "None")


def _default(default: Any) -> str:
    """The default as a program writes it."""
    if isinstance(default, Enum):
        return f"{type(default).__name__}.{default.name}"
    if is_dataclass(default) and _is_as_made(default):
        return f"{type(default).__name__}()"
    if isinstance(default, FunctionType):
        return default.__name__
    return repr(default)


def _is_as_made(value: Any) -> bool:
    """Whether a value is what its class makes without arguments."""
    try:
        return bool(value == type(value)())
    except TypeError:  # it has to have arguments
        return False

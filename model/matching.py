"""Patterns that people and the network give: wildcards and regular expressions, matched in linear time. Pure.

No pattern stops a process: the cost of a match is at most the size of the pattern times the length of the text, and
both are bounded. Regular expressions follow RE2, which has no back-references and no look-around. This module is
the one door to RE2.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from mailmend.model.errors import WrongUse

WILDCARD_LENGTH_MAX: Final = 1_000
"""Characters of a text with stars; a longer one is refused."""

EXPRESSION_LENGTH_MAX: Final = 1_000
"""Characters of a regular expression; a longer one is refused."""

PROGRAM_MAX: Final = 10_000
"""Instructions of a compiled regular expression; `(x{100}){100}` has about as many, and a larger one is refused."""

EXPRESSION_SEES_MAX: Final = 1_000
"""Characters of a value that an expression sees; the rest of a longer value does not count."""

_EXPRESSIONS_KEPT: Final = 1_024
_EXPRESSION_BYTES: Final = 2**20
"""Memory of one compiled expression, with the states that it keeps for speed."""

_ANSWERS_KEPT: Final = 65_536
_ANSWERS_LENGTH_MAX: Final = 255
"""Characters of a value whose answer is kept: domains, addresses and names are no longer."""

_SYNTAX: Final = "See docs/policy-file.md for the syntax that is taken."
_WITHOUT: Final = f"Write the expression without it. {_SYNTAX}"

_UNSUPPORTED: Final[Mapping[str, tuple[str, str]]] = {
    "(?=": ("a look-ahead", _WITHOUT),
    "(?!": ("a negative look-ahead", _WITHOUT),
    "(?<=": ("a look-behind", _WITHOUT),
    "(?<!": ("a negative look-behind", _WITHOUT),
    "(?>": ("an atomic group", "Write (?:...): no expression goes back here."),
    "(?(": ("a conditional group", _WITHOUT),
    "(?#": ("a comment", _WITHOUT),
    "(?P=": ("a back-reference", _WITHOUT),
    "(?P>": ("a recursion", _WITHOUT),
    "(?x": ("a verbose expression", "Write it without blanks and comments."),
    "\\Z": ("the escape \\Z", "Write \\z, or $, for the end of the value."),
}
"""What other engines have, by how it begins in an expression, with its name and what to write."""


def text_fits(wanted: str | None, found: str, *, any_case: bool = False) -> bool:
    """Whether a text is the wanted one, in which `*` stands for any text; None is any.

    Raises:
        WrongUse: the wanted text is too long.
    """
    return wanted is None or _wildcard(wanted, any_case)(found)


def check_wildcard(wanted: str) -> str:
    """The text itself.

    Raises:
        WrongUse: the text is too long to be looked for.
    """
    if len(wanted) > WILDCARD_LENGTH_MAX:
        raise WrongUse(
            f"a text of {len(wanted):,} characters is too long to be looked for",
            mend=f"Write at most {WILDCARD_LENGTH_MAX:,}; * stands for any text.",
        )
    return wanted


@lru_cache(maxsize=256)
def _wildcard(wanted: str, any_case: bool) -> Callable[[str], bool]:  # noqa: FBT001 - a cache's key
    """Prepared once: it is applied to every mail of a queue."""
    if any_case:
        wanted = wanted.lower()
    pieces = check_wildcard(wanted).split("*")

    def fits(found: str) -> bool:
        if any_case:
            found = found.lower()
        return _pieces_follow(pieces, found)

    return fits


def _pieces_follow(pieces: list[str], text: str) -> bool:
    """Whether a text consists of these pieces, in their order, with anything between them.

    Each piece is taken where it is found first: if any way fits, this one does, so no piece is looked for twice.
    """
    first, *middle = pieces
    if not middle:
        return text == first
    last = middle.pop()
    end = len(text) - len(last)
    if not text.startswith(first) or not text.endswith(last) or len(first) > end:
        return False
    at = len(first)
    for piece in middle:
        at = text.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return True


def check_expression(expression: str) -> str:
    """The expression itself.

    Raises:
        WrongUse: it is no regular expression, is too large, or needs what no linear engine has.
    """
    _compiled(expression)
    return expression


def is_found(expression: str, value: str) -> bool:
    """Whether an expression is found in a value.

    Raises:
        WrongUse: as `check_expression` does.
    """
    if len(value) > _ANSWERS_LENGTH_MAX:
        return groups_found(expression, value) is not None
    return _is_found(expression, value)


@lru_cache(_ANSWERS_KEPT)
def _is_found(expression: str, value: str) -> bool:
    return groups_found(expression, value) is not None


def groups_found(expression: str, value: str) -> Mapping[str, str] | None:
    """The texts of the groups of an expression in a value, by number and name; None where it is not found.

    A group that took no part is "". No answer is kept: the values of clients never come again.
    """
    compiled = _compiled(expression)
    found = compiled.search(value[:EXPRESSION_SEES_MAX].encode("utf-8", "replace"))
    if found is None:
        return None
    texts = [(text or b"").decode("utf-8", "replace") for text in found.groups()]
    groups = {str(number): text for number, text in enumerate(texts, 1)}
    for name, number in compiled.groupindex.items():
        groups[name] = texts[number - 1]  # not groups[str(number)]: a name may be a number too
    return groups


def group_names(expression: str) -> tuple[int, frozenset[str]]:
    """How many groups an expression has, and the names of its named groups."""
    compiled = _compiled(expression)
    return compiled.groups, frozenset(compiled.groupindex)


@lru_cache(_EXPRESSIONS_KEPT)
def _compiled(expression: str) -> Any:
    import re2  # noqa: PLC0415 - mailmend[delivery] brings it; all else of the model does without

    if len(expression) > EXPRESSION_LENGTH_MAX:
        raise WrongUse(
            f"an expression of {len(expression):,} characters is too long",
            mend=f"Write at most {EXPRESSION_LENGTH_MAX:,}, *.domain, or a list of values.",
        )
    if "\0" in expression or any("\ud800" <= mark <= "\udfff" for mark in expression):
        raise WrongUse("an expression has a character that no value has")
    options = re2.Options()
    options.max_mem = _EXPRESSION_BYTES
    options.log_errors = False
    try:
        compiled = re2.compile(expression, options)
    except re2.error as error:
        raise _refused(expression, error.args[0].decode("utf-8", "replace")) from error
    if compiled.programsize > PROGRAM_MAX:
        raise _too_large(expression)
    return compiled


def _refused(expression: str, why: str) -> WrongUse:
    """What RE2 says, in words: what it lacks is named."""
    if "too large" in why:
        return _too_large(expression)
    problem, _, fragment = why.partition(": ")
    if problem == "invalid escape sequence" and fragment[1:2].isdigit():
        return _lacking(expression, f"a back-reference, {fragment}", _WITHOUT)
    if problem == "bad repetition operator" and fragment.endswith("+"):
        return _lacking(
            expression, f"a possessive repetition, {fragment}", f"Write {fragment[0]}: no expression goes back here."
        )
    if problem == "invalid repetition size":
        return WrongUse(f"/{expression}/ repeats more often than 1,000 times: {fragment}", mend=_SYNTAX)
    for beginning, (name, mend) in _UNSUPPORTED.items():
        if beginning in expression and beginning.startswith(fragment):
            return _lacking(expression, name, mend)
    return WrongUse(f"/{expression}/ is no regular expression: {why}", mend=_SYNTAX)


def _lacking(expression: str, name: str, mend: str) -> WrongUse:
    return WrongUse(f"/{expression}/ has {name}, which cannot be matched in linear time", mend=mend)


def _too_large(expression: str) -> WrongUse:
    return WrongUse(f"/{expression}/ is too large", mend="Repeat less, or write *.domain or a list of values.")

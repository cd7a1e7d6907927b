"""A CQL text as tokens, each with its place: words, names in quotes, texts, numbers, marks, comments.

One pass of one expression, possessive throughout, so that no text takes longer than its length deserves.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from mailmend.cql.statements import Span
from mailmend.model.errors import CqlSyntaxError
from mailmend.model.texts import place_of


class TokenKind(Enum):
    """What a token is; the value is its name in messages."""

    WORD = "a word"
    QUOTED = "a name in double quotes"
    STRING = "a text in quotes"
    UUID = "a UUID"
    BLOB = "a blob"
    DURATION = "a duration"
    NUMBER = "a number"
    MARK = "a mark"
    COMMENT = "a comment"
    END = "the end of the text"


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the text from offset `start` up to, not including, `end`."""

    kind: TokenKind
    text: str
    start: int
    end: int

    @property
    def span(self) -> Span:
        return Span(self.start, self.end)

    @property
    def word(self) -> str:
        """The word in capitals, as keywords are compared; "" for other kinds."""
        return self.text.upper() if self.kind is TokenKind.WORD else ""


_HEX = "[0-9a-fA-F]"
_UNITS = "(?:mo|ms|us|\u00b5s|ns|[ywdhms])"
_TOKEN = re.compile(
    rf"""
      (?P<SPACE>    [ \t\r\n]++ )
    | (?P<COMMENT>  (?:--|//)[^\r\n]*+ | /\*[^*]*+(?:\*(?!/)[^*]*+)*+\*/ )
    | (?P<STRING>   '[^']*+(?:''[^']*+)*+' | \$\$[^$]*+(?:\$(?!\$)[^$]*+)*+\$\$ )
    | (?P<QUOTED>   "(?:[^"]|"")++" )
    | (?P<UUID>     {_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}} )
    | (?P<BLOB>     0[xX]{_HEX}*+ )
    | (?P<DURATION> (?i:(?:[0-9]++{_UNITS})++) (?![A-Za-z0-9_])
                  | P[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}T[0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}} )
    | (?P<NUMBER>   [0-9]++(?:\.(?!\.)[0-9]*+)?(?:[eE][+-]?[0-9]++)? )
    | (?P<WORD>     [A-Za-z][A-Za-z0-9_]*+ )
    | (?P<MARK>     <= | >= | != | [-(){{}}\[\]<>,;:.=+*/%?] )
    """,
    re.VERBOSE,
)
_UNENDED = {
    "'": "a text begins here and never ends: its closing ' is missing",
    '"': 'a name in double quotes begins here and never ends: its closing " is missing',
    "$$": "a text begins here and never ends: its closing $$ is missing",
    "/*": "a comment begins here and never ends: its closing */ is missing",
}
"""Openings of tokens that have no end; matched only where no complete token is."""


def tokens_of(text: str) -> Iterator[Token]:
    """The tokens of a text with its comments, without white space; the last is `TokenKind.END`."""
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None or (found[0] == "/" and text.startswith("/*", at)):
            raise CqlSyntaxError(_problem(text, at), place_of(text, at))
        at = found.end()
        if found.lastgroup != "SPACE":
            yield Token(TokenKind[str(found.lastgroup)], found[0], found.start(), at)
    yield Token(TokenKind.END, "", len(text), len(text))


def _problem(text: str, at: int) -> str:
    if text.startswith('""', at):
        return "a name in double quotes is empty"
    unended = (problem for mark, problem in _UNENDED.items() if text.startswith(mark, at))
    return next(unended, f"CQL has no use for the character {text[at]!r}")

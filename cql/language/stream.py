"""The tokens of a CQL text, each with its place, and a stream of them for a parser.

One pass of one expression, possessive throughout, so that no text takes longer than its length
deserves.

All that a parser tried in vain at a place is remembered, so that the message lists everything
expected there.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from mailmend.cql.statements import Name, Span
from mailmend.model.errors import CqlSyntaxError
from mailmend.model.names import RESERVED, name_of
from mailmend.model.texts import place_of, similar_name


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
        if self.kind is not TokenKind.WORD:
            return ""
        return self.text.upper()


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
    for mark, problem in _UNENDED.items():
        if text.startswith(mark, at):
            return problem
    return f"CQL has no use for the character {text[at]!r}"


T = TypeVar("T")
DEPTH = 64
"""How deeply brackets may be nested in one another."""

_RESERVED = frozenset(word.upper() for word in RESERVED - {"default", "mbean", "mbeans", "replace", "unset"})
"""Words that Cassandra takes as a name only in double quotes."""

_NAMES = (TokenKind.WORD, TokenKind.QUOTED)


class Stream:
    """A position among the tokens of a text; it moves forward only.

    Methods that take a token raise CqlSyntaxError where another comes next; `accept` and `if_...` return False.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.comments: list[Token] = []
        self._tokens: list[Token] = []
        for token in tokens_of(text):
            if token.kind is TokenKind.COMMENT:
                self.comments.append(token)
            else:
                self._tokens.append(token)
        self._at = 0
        self._depth = 0
        self._wanted: list[str] = []
        self._comment = 0
        self.begin_statement()

    def begin_statement(self) -> None:
        self._wanted.clear()
        self.name_at: Span | None = None
        self.keyspace: str | None = None
        self.places: dict[tuple[str, str], Span] = {}

    @property
    def next(self) -> Token:
        return self._tokens[self._at]

    @property
    def last_end(self) -> int:
        if not self._at:
            return 0
        return self._tokens[self._at - 1].end

    @property
    def ended(self) -> bool:
        return self.next.kind is TokenKind.END

    def ahead(self, count: int) -> Token:
        """A later token; the last one where the text ends earlier."""
        return self._tokens[min(self._at + count, len(self._tokens) - 1)]

    def take(self) -> Token:
        """Take the next token, whatever it is; at the end of the text nothing moves."""
        token = self.next
        if token.kind is not TokenKind.END:
            self._at += 1
        self._wanted.clear()
        return token

    def sees(self, *words: str) -> bool:
        """Whether these keywords or marks come next, in this order."""
        if all(_spells(self.ahead(place), word) for place, word in enumerate(words)):
            return True
        if _spells(self.next, words[0]):
            return False
        self._wanted.append(" ".join(words))
        return False

    def accept(self, *words: str) -> bool:
        """Take these keywords or marks if they come next, in this order."""
        if not self.sees(*words):
            return False
        for _ in words:
            self.take()
        return True

    def dot(self) -> bool:
        """Take a dot if it comes next; messages never list it as expected."""
        if self.next.text == ".":
            self.take()
            return True
        return False

    def expect(self, *words: str) -> Token:
        """Take these keywords or marks in this order; returns the last."""
        for word in words:
            if not self.sees(word):
                raise self.unexpected()
            token = self.take()
        return token

    def one_of(self, *words: str) -> str:
        for word in words:
            if self.accept(word):
                return word
        raise self.unexpected()

    def if_exists(self) -> bool:
        return self.accept("IF") and bool(self.expect("EXISTS"))

    def if_not_exists(self) -> bool:
        return self.accept("IF") and bool(self.expect("NOT", "EXISTS"))

    def separated(self, rule: Callable[["Stream"], T], by: str = ",") -> list[T]:
        found = [rule(self)]
        while self.accept(by):
            found.append(rule(self))
        return found

    def until(self, closing: str, rule: Callable[["Stream"], T]) -> list[T]:
        """Take any number of items with commas between them, and the closing bracket."""
        found: list[T] = []
        while not self.accept(closing):
            found.append(rule(self))
            if not self.sees(closing):
                self.expect(",")
        return found

    def of_kind(self, *kinds: TokenKind, called: str = "") -> Token:
        if self.next.kind not in kinds:
            raise self.unexpected(called or " or ".join(kind.value for kind in kinds))
        return self.take()

    def name(self, called: str) -> Token:
        """Take a name: an identifier that is not reserved, or one in double quotes."""
        token = self.next
        if token.word in _RESERVED:
            quoted = f'If it is meant as a name, it needs double quotes: "{token.text.lower()}".'
            raise self.unexpected(called, mend=quoted)
        return self.of_kind(*_NAMES, called=called)

    def column(self) -> Token:
        token = self.name("a column")
        self.place("column", token)
        return token

    def qualified(self, called: str) -> tuple[Name, Span]:
        """Take a name with or without a keyspace; returns it and the place of both."""
        first = self.name(called)
        if not self.dot():
            return Name(first.text), first.span
        last = self.name(called)
        return Name(last.text, first.text), Span(first.start, last.end)

    def named(self, called: str) -> Name:
        name, self.name_at = self.qualified(called)
        self.keyspace = name.keyspace
        return name

    def named_keyspace(self) -> str:
        token = self.name("the name of a keyspace")
        self.name_at = token.span
        return token.text

    def name_in_batch(self, index: int) -> None:
        """Record the place of the name in a batch's write, as a batch itself has no name."""
        if self.name_at is not None:
            self.mark(("name", str(index)), self.name_at)
        self.name_at = None

    def place(self, what: str, token: Token, name: str | None = None, *, until: Token | None = None) -> None:
        if name is None:
            name = name_of(token.text)
        end = (until or token).end
        self.mark((what, name), Span(token.start, end))

    def mark(self, part: tuple[str, str], span: Span) -> None:
        """Record the place of a part of the statement; the first place counts."""
        self.places.setdefault(part, span)

    @property
    def position(self) -> int:
        return self._at

    def taken_since(self, position: int) -> Sequence[Token]:
        return self._tokens[position : self._at]

    def comments_until(self, offset: int) -> Sequence[Token]:
        """The comments before the offset that no earlier call returned."""
        first = self._comment
        while self._comment < len(self.comments) and self.comments[self._comment].start < offset:
            self._comment += 1
        return self.comments[first : self._comment]

    @contextmanager
    def nested(self) -> Iterator[None]:
        """One bracket deeper while the body runs."""
        self._depth += 1
        if self._depth > DEPTH:
            raise self.wrong(f"brackets are nested more than {DEPTH} deep")
        yield
        self._depth -= 1

    def unexpected(self, *wanted: str, mend: str = "") -> CqlSyntaxError:
        """The error for a wrong next token: all that was tried here, and what was found."""
        expected = tuple(dict.fromkeys((*self._wanted, *wanted)))
        return self.wrong(
            f"expected {_either(expected)}, found {_shown(self.next)}", mend=mend or _meant(self.next, expected)
        )

    def wrong(self, problem: str, at: Token | None = None, *, mend: str = "") -> CqlSyntaxError:
        """The error for a token (by default the next one) that makes no sense here."""
        return CqlSyntaxError(problem, place_of(self.text, (at or self.next).start), mend=mend)


def checked(text: str, rule: Callable[[Stream], object]) -> str:
    """The text, if the rule accepts all of it: so nothing can be injected through it.

    Raises:
        CqlSyntaxError: the rule does not accept it.
    """
    stream = Stream(text)
    rule(stream)
    if not stream.ended or stream.comments:
        raise stream.unexpected("nothing more")
    return text


def _spells(token: Token, word: str) -> bool:
    return token.word == word or (token.kind is TokenKind.MARK and token.text == word)


def _either(words: Sequence[str]) -> str:
    if len(words) < 2:  # noqa: PLR2004 - one word, or none
        return "".join(words) or "something else"
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _shown(token: Token) -> str:
    if token.kind is TokenKind.END:
        return "the end of the text"
    shown = token.text
    if len(shown) > 40:  # noqa: PLR2004 - fits a line
        shown = f"{shown[:40]}..."
    return " ".join(shown.split())


def _meant(token: Token, expected: Sequence[str]) -> str:
    """A hint with the most similar expected keyword, or ""."""
    if token.kind is not TokenKind.WORD:
        return ""
    keywords = [phrase.split()[0] for phrase in expected if phrase.isupper()]
    near = similar_name(token.word[:40], keywords)
    if not near:
        return ""
    return f"Did you mean {near}?"

"""The tokens of a text as a parser walks them: look, take, or say in words what was expected instead.

Whatever a parser asked for in vain at a place is remembered, so that the message lists all that could have stood there.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TypeVar

from cql.language.lexer import Kind, Token, tokens_of
from model.errors import CqlSyntaxError
from model.schema.names import name_of
from model.schema.statements import Name, Span
from model.texts import place_of

T = TypeVar("T")
DEPTH = 64
"""How deeply brackets may be nested in one another."""

_WORDS = """
    ADD ALLOW ALTER AND APPLY ASC AUTHORIZE BATCH BEGIN BY COLUMNFAMILY CREATE DELETE DESC DESCRIBE DROP ENTRIES EXECUTE
    FROM FULL GRANT IF IN INDEX INFINITY INSERT INTO IS KEYSPACE LIMIT MATERIALIZED MODIFY NAN NORECURSIVE NOT NULL OF
    ON OR ORDER PRIMARY RENAME REVOKE SCHEMA SELECT SET TABLE TO TOKEN TRUNCATE UNLOGGED UPDATE USE USING VIEW WHERE
    WITH
"""
_RESERVED = frozenset(_WORDS.split())
"""Words that Cassandra takes as a name only in double quotes."""

_NAMES = (Kind.WORD, Kind.QUOTED)


class Stream:
    """A place among the tokens of a text. Whoever holds it moves it forward, never back.

    What takes something raises CqlSyntaxError where something else comes next; `accept` and `if_...` take or leave.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.comments: list[Token] = []
        self._tokens: list[Token] = []
        for token in tokens_of(text):
            (self.comments if token.kind is Kind.COMMENT else self._tokens).append(token)
        self._at = 0
        self._depth = 0
        self._wanted: list[str] = []
        self._comment = 0
        self.begin_statement()

    def begin_statement(self) -> None:
        """Forget what was said of the statement before."""
        self._wanted.clear()
        self.name_at: Span | None = None
        self.keyspace: str | None = None
        self.places: dict[tuple[str, str], Span] = {}

    @property
    def next(self) -> Token:
        """The token that comes next."""
        return self._tokens[self._at]

    @property
    def last_end(self) -> int:
        """Where the token before ends."""
        return self._tokens[self._at - 1].end if self._at else 0

    @property
    def ended(self) -> bool:
        """Whether nothing comes any more."""
        return self.next.kind is Kind.END

    def ahead(self, count: int) -> Token:
        """A later token; the last one where the text ends before."""
        return self._tokens[min(self._at + count, len(self._tokens) - 1)]

    def take(self) -> Token:
        """The next token, whatever it is; the end stays where it is."""
        token = self.next
        if token.kind is not Kind.END:
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
        """Take these keywords or marks where they come next, in this order."""
        if not self.sees(*words):
            return False
        for _ in words:
            self.take()
        return True

    def dot(self) -> bool:
        """Take a dot where it comes next; messages never list it as expected."""
        if self.next.text == ".":
            self.take()
            return True
        return False

    def expect(self, *words: str) -> Token:
        """Take these keywords or marks one after the other, and give the last."""
        for word in words:
            if not self.sees(word):
                raise self.unexpected()
            token = self.take()
        return token

    def one_of(self, *words: str) -> str:
        """Take one of these keywords or marks."""
        for word in words:
            if self.accept(word):
                return word
        raise self.unexpected()

    def if_exists(self) -> bool:
        """Take IF EXISTS where it comes next."""
        return self.accept("IF") and bool(self.expect("EXISTS"))

    def if_not_exists(self) -> bool:
        """Take IF NOT EXISTS where it comes next."""
        return self.accept("IF") and bool(self.expect("NOT", "EXISTS"))

    def separated(self, rule: Callable[["Stream"], T], by: str = ",") -> list[T]:
        """Take one or more of something, with a keyword or mark between them."""
        found = [rule(self)]
        while self.accept(by):
            found.append(rule(self))
        return found

    def until(self, closing: str, rule: Callable[["Stream"], T]) -> list[T]:
        """Take any number of something with commas between them, and the bracket that closes them."""
        found: list[T] = []
        while not self.accept(closing):
            found.append(rule(self))
            if not self.sees(closing):
                self.expect(",")
        return found

    def of_kind(self, *kinds: Kind, called: str = "") -> Token:
        """Take a token of one of these kinds."""
        if self.next.kind not in kinds:
            raise self.unexpected(called or " or ".join(kind.value for kind in kinds))
        return self.take()

    def name(self, called: str) -> Token:
        """Take a name: an identifier that is no reserved word, or one in double quotes."""
        token = self.next
        if token.word in _RESERVED:
            quoted = f'If it is meant as a name, it needs double quotes: "{token.text.lower()}".'
            raise self.unexpected(called, mend=quoted)
        return self.of_kind(*_NAMES, called=called)

    def column(self) -> Token:
        """Take the name of a column, and remember where it stands."""
        token = self.name("a column")
        self.place("column", token)
        return token

    def qualified(self, called: str) -> tuple[Name, Span]:
        """Take a name with or without its keyspace, and say where both stand."""
        first = self.name(called)
        if not self.dot():
            return Name(first.text), first.span
        last = self.name(called)
        return Name(last.text, first.text), Span(first.start, last.end)

    def named(self, called: str) -> Name:
        """Take the name that decides the keyspace of the statement."""
        name, self.name_at = self.qualified(called)
        self.keyspace = name.keyspace
        return name

    def named_keyspace(self) -> str:
        """Take the name of a keyspace that the statement is about."""
        token = self.name("the name of a keyspace")
        self.name_at, self.keyspace = token.span, token.text
        return token.text

    def name_in_batch(self, index: int) -> None:
        """Say where the name of a batch's write stands, as a batch has none of its own."""
        if self.name_at is not None:
            self.mark(("name", str(index)), self.name_at)
        self.name_at = None

    def place(self, what: str, token: Token, name: str | None = None, *, until: Token | None = None) -> None:
        """Remember where a part of the statement stands, by its name as the server knows it."""
        self.mark((what, name_of(token.text) if name is None else name), Span(token.start, (until or token).end))

    def mark(self, part: tuple[str, str], span: Span) -> None:
        """Remember where a part of the statement stands; the first place counts."""
        self.places.setdefault(part, span)

    @property
    def position(self) -> int:
        """How many tokens were taken so far."""
        return self._at

    def taken_since(self, position: int) -> Sequence[Token]:
        """The tokens taken since then."""
        return self._tokens[position : self._at]

    def comments_until(self, offset: int) -> Sequence[Token]:
        """The comments before that place that were not asked for yet."""
        first = self._comment
        while self._comment < len(self.comments) and self.comments[self._comment].start < offset:
            self._comment += 1
        return self.comments[first : self._comment]

    @contextmanager
    def nested(self) -> Iterator[None]:
        """One bracket deeper, for as long as the body runs.

        Raises:
            CqlSyntaxError: that is too deep.
        """
        self._depth += 1
        if self._depth > DEPTH:
            raise self.wrong(f"brackets are nested more than {DEPTH} deep")
        yield
        self._depth -= 1

    def unexpected(self, *wanted: str, mend: str = "") -> CqlSyntaxError:
        """What to raise where something else should come next: all that was asked for in vain, and what is there."""
        expected = tuple(dict.fromkeys((*self._wanted, *wanted)))
        return self.wrong(
            f"expected {_either(expected)}, found {_shown(self.next)}", mend=mend or _meant(self.next, expected)
        )

    def wrong(self, problem: str, at: Token | None = None, *, mend: str = "") -> CqlSyntaxError:
        """What to raise where a token (the next one) cannot be meant."""
        return CqlSyntaxError(problem, place_of(self.text, (at or self.next).start), mend=mend)


def checked(text: str, rule: Callable[[Stream], object]) -> str:
    """The text, once it is known to be what the rule takes, wholly: nothing can break out of it.

    Raises:
        CqlSyntaxError: it is not.
    """
    stream = Stream(text)
    rule(stream)
    if not stream.ended or stream.comments:
        raise stream.unexpected("nothing more")
    return text


def _spells(token: Token, word: str) -> bool:
    return token.word == word or (token.kind is Kind.MARK and token.text == word)


def _either(words: Sequence[str]) -> str:
    if len(words) < 2:  # noqa: PLR2004 - one word, or none
        return "".join(words) or "something else"
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _shown(token: Token) -> str:
    if token.kind is Kind.END:
        return "the end of the text"
    shown = token.text if len(token.text) <= 40 else f"{token.text[:40]}..."  # noqa: PLR2004 - fits a line
    return " ".join(shown.split())


def _meant(token: Token, expected: Sequence[str]) -> str:
    """A keyword that is spelled nearly so."""
    if token.kind is not Kind.WORD:
        return ""
    keywords = [phrase.split()[0] for phrase in expected if phrase.isupper()]
    near = get_close_matches(token.word[:40], keywords, n=1, cutoff=0.6)
    return "".join(f"Did you mean {word}?" for word in near)

"""Types, literals, values and conditions: their syntax is checked, and those kept as text are normalised.

Rules need the columns and the values compared with them; the server checks whether a value fits its column.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from mailmend.cql.language.stream import Stream, Token, TokenKind
from mailmend.cql.statements.base import Compared, LeftSide
from mailmend.model.cql_types import normal_type
from mailmend.model.errors import BadIdentifier
from mailmend.model.names import name_of, text_literal

_PARAMETERS = {"list": 1, "set": 1, "map": 2, "frozen": 1, "vector": 2}
"""How many types are between the angle brackets; a tuple has one or more."""

_PLAIN = (TokenKind.NUMBER, TokenKind.UUID, TokenKind.BLOB, TokenKind.DURATION)
_SIGNABLE = (TokenKind.NUMBER, TokenKind.DURATION)
_OPERATORS = ("+", "-", "*", "/", "%")
_COMPARISONS = ("<=", ">=", "!=", "<", ">")
_RESERVED_VALUES = ("NULL", "NAN", "INFINITY", "TOKEN")
"""Reserved words that are values or functions."""
_CONSTANTS = frozenset({"NULL", "NAN", "INFINITY", "TRUE", "FALSE"})
_ISO_DURATION = re.compile(r"P(?=[0-9T])(?:[0-9]+[YMWD])*(?:T(?:[0-9]+[HMS])+)?", re.IGNORECASE)
"""A duration in the form of ISO 8601, which is a word for the lexer: P1Y2M, PT5M."""


def cql_type(stream: Stream) -> str:
    """Take a type; returns its normalised text."""
    token = stream.next
    text = _type(stream)
    try:
        return normal_type(text)
    except BadIdentifier as error:
        raise stream.wrong(f"{text} is no type of CQL", token) from error


def _type(stream: Stream) -> str:
    if stream.next.kind is TokenKind.STRING:
        return stream.take().text  # a Java class
    if stream.sees("SET", "<"):
        name = stream.take().text
    else:
        name = stream.name("a type").text
    if stream.dot():
        own = stream.keyspace
        if own is not None and name_of(own) != name_of(name):
            raise stream.wrong(f"a statement on keyspace {own} cannot use a type of keyspace {name}")
        return stream.name("the name of a type").text
    known = _PARAMETERS.get(name.lower())
    if known is None and name.lower() != "tuple":
        return name
    with stream.nested():
        stream.expect("<")
        if name.lower() == "frozen" and stream.ahead(0).kind is TokenKind.STRING:
            raise stream.wrong(f"frozen takes no Java class, and {stream.next.text} is one")
        inner = _inner_types(stream, name.lower(), known)
        stream.expect(">")
    return f"{name}<{','.join(inner)}>"


def _inner_types(stream: Stream, name: str, count: int | None) -> list[str]:
    inner = [_type(stream)]
    while stream.accept(","):
        if name == "vector" and len(inner) == 1:
            inner.append(stream.of_kind(TokenKind.NUMBER, called="a length").text)
        else:
            inner.append(_type(stream))
    if count is not None and len(inner) != count:
        raise stream.wrong(f"{name} takes {count} in its angle brackets, not {len(inner)}")
    return inner


_SIGNED = frozenset({"nan", "infinity"})
_KEYWORDS = """
    access aggregate all as ascii between bigint blob boolean called cast cidrs clustering compact contains
    count counter custom datacenters date decimal default distinct double duration exists filtering finalfunc
    float frozen function functions group identity inet initcond input int internals json key keys keyspaces
    language like list login map masked maxwritetime mbean mbeans nologin nosuperuser options partition
    password per permission permissions replace returns role roles select_masked sfunc smallint static storage
    stype superuser text time timestamp timeuuid tinyint trigger ttl tuple type unmask unset user users uuid
    values varchar varint vector writetime
"""
_OPTION_WORDS = frozenset(_KEYWORDS.split()) | _SIGNED | {"true", "false"}
"""The words that may stand as values of options: constants, and the keywords of CQL that it does not reserve."""


def literal(stream: Stream) -> str:
    """Take a literal; returns it normalised: single quotes, one space after each comma of a map or set."""
    if stream.next.kind is TokenKind.STRING:
        return text_literal(text_value(stream.take()))
    if stream.accept("{"):
        with stream.nested():
            return _map(stream)
    sign = ""
    words = _OPTION_WORDS
    if stream.accept("-"):
        sign = "-"
        words = _SIGNED
    if stream.next.kind in _PLAIN:
        return sign + stream.take().text
    if stream.next.kind is TokenKind.WORD and stream.next.text.lower() in words:
        return sign + stream.take().text.lower()
    raise stream.unexpected("a text in quotes", "a number", "a map")


def _map(stream: Stream) -> str:
    """The rest of a map: pairs of a key and a value, each key once."""
    pairs: dict[str, str] = {}
    while not stream.accept("}"):
        if pairs:
            stream.expect(",")
        token = stream.next
        key = literal(stream)
        if key in pairs:
            raise stream.wrong(f"the key {key} occurs twice", token)
        stream.expect(":")
        pairs[key] = literal(stream)
    spelled = [f"{key}: {value}" for key, value in pairs.items()]
    return "{" + ", ".join(spelled) + "}"


def text_value(token: Token) -> str:
    if token.text.startswith("$$"):
        return token.text[2:-2]
    return token.text[1:-1].replace("''", "'")


def term(stream: Stream) -> str:
    """Take a value (literal, collection, bind mark, function, or sums of values); returns its text."""
    begin = stream.next.start
    with stream.nested():
        _operand(stream)
        while stream.next.text in _OPERATORS and stream.next.kind is TokenKind.MARK:
            if stream.next.text == "+" and names_column(stream, 1):
                break  # SET list = [...] + list: the column is no part of the value
            sign = stream.take()
            if sign.text == "-" and stream.next.kind in _SIGNABLE and stream.next.start == sign.end:
                raise stream.wrong("a minus before a number belongs to the number: write a blank between them", sign)
            _operand(stream)
    return stream.text[begin : stream.last_end]


def names_column(stream: Stream, ahead: int = 0) -> bool:
    """Whether the name of a column comes there: a name that is neither a constant nor a function."""
    token = stream.ahead(ahead)
    if token.kind is TokenKind.WORD:
        is_value = token.word in _CONSTANTS or _ISO_DURATION.fullmatch(token.text) is not None
    else:
        is_value = token.kind is not TokenKind.QUOTED
    return not is_value and stream.ahead(ahead + 1).text not in {"(", "."}


def bind_mark(stream: Stream) -> bool:
    if stream.accept("?"):
        return True
    if not stream.accept(":"):
        return False
    stream.name("the name of a bind mark")
    return True


def _operand(stream: Stream) -> None:
    while stream.accept("-"):
        pass
    token = stream.next
    if token.kind in _PLAIN or token.kind is TokenKind.STRING:
        stream.take()
    elif token.kind is TokenKind.QUOTED or token.word:
        _named(stream)
    elif bind_mark(stream):
        pass
    elif stream.sees("("):
        _bracketed(stream)
    elif stream.accept("["):
        stream.until("]", term)
    elif stream.accept("{"):
        stream.until("}", _term_or_pair)
    else:
        raise stream.unexpected("a value")


def _named(stream: Stream) -> None:
    """A constant, or a function with its arguments."""
    if names_column(stream):
        raise stream.unexpected("a value")
    constant = stream.next.word in _CONSTANTS or stream.ahead(1).text not in {"(", "."}
    if stream.next.word in _RESERVED_VALUES:
        stream.take()
    else:
        stream.name("a value")
        while stream.dot():
            stream.name("a name")
    if not constant:
        stream.expect("(")
        stream.until(")", _argument)


def _argument(stream: Stream) -> None:
    """An argument of a function: a value, with the type that a cast gives it."""
    term(stream)
    if stream.accept("AS"):
        cql_type(stream)


def _element(stream: Stream) -> str:
    """Take what is between [ and ], and the closing bracket; returns the text of the index or key."""
    text = term(stream)
    stream.expect("]")
    return text


def _bracketed(stream: Stream) -> None:
    """A tuple, or a type in brackets before a value (a cast)."""
    cast = _is_cast(stream)
    stream.expect("(")
    if not cast:
        stream.until(")", term)
        return
    cql_type(stream)
    stream.expect(")")
    with stream.nested():
        _operand(stream)


def _is_cast(stream: Stream) -> bool:
    if stream.ahead(1).kind not in (TokenKind.WORD, TokenKind.QUOTED):
        return False
    after = stream.ahead(3)
    begins = after.kind in (*_PLAIN, TokenKind.STRING) or after.text in {"?", ":", "(", "[", "{", "-"}
    return stream.ahead(2).text == "<" or (stream.ahead(2).text == ")" and begins)


def _term_or_pair(stream: Stream) -> None:
    if names_column(stream) and stream.ahead(1).text == ":":
        stream.name("a field")
    else:
        term(stream)
    if stream.accept(":"):
        term(stream)


def conditions(stream: Stream) -> tuple[Compared, ...]:
    """Take conditions joined by AND."""
    return tuple(stream.separated(_condition, by="AND"))


def _condition(stream: Stream) -> Compared:
    left = _left(stream)
    if stream.accept("="):
        return replace(left, operator="=", value=term(stream))
    if stream.accept("IS"):
        stream.expect("NOT", "NULL")
        return replace(left, operator="IS NOT NULL")
    if stream.accept("BETWEEN"):
        low = term(stream)
        stream.expect("AND")
        return replace(left, operator="BETWEEN", value=f"({low}, {term(stream)})")
    negated = stream.accept("NOT")
    if negated:
        operator = stream.one_of("IN", "CONTAINS")
    else:
        operator = stream.one_of("IN", "CONTAINS", *_COMPARISONS, "LIKE")
    if operator == "CONTAINS" and stream.accept("KEY"):
        operator = "CONTAINS KEY"
    if negated:
        operator = f"NOT {operator}"
    return replace(left, operator=operator, value=term(stream))


def _left(stream: Stream) -> Compared:
    """The left side of a condition: which columns, and what of them it compares."""
    is_token = stream.accept("TOKEN", "(")
    if is_token or stream.accept("("):
        names = stream.separated(lambda _: stream.name("a column"))
        stream.expect(")")
        kind = LeftSide.TUPLE
        if is_token:
            kind = LeftSide.TOKEN
        return Compared(tuple(name_of(name.text) for name in names), "", "", kind)
    name = (name_of(stream.column().text),)
    element, field_name = part_of_column(stream)
    kind = LeftSide.COLUMN
    if element or field_name:
        kind = LeftSide.PART
    return Compared(name, "", "", kind, element, field_name)


def part_of_column(stream: Stream) -> tuple[str, str]:
    """Take what follows a column's name: (the text of [an element], the name of .a field); "" without."""
    if stream.accept("["):
        return _element(stream), ""
    if stream.dot():
        return "", name_of(stream.name("a field").text)
    return "", ""


_OPENING = ("(", "[", "{", ".", "-")
_CLOSING = (")", "]", "}", ".", ",", ":")
_COMPARING = ("=", "<", ">", "<=", ">=", "!=", ",")
_UPPER = ("AND", "IS", "NOT", "NULL", "IN")
_BEFORE_BRACKETS = ("IN", "AND", "CONTAINS", "KEY", "LIKE", "BETWEEN")


def spaced(tokens: Sequence[Token]) -> str:
    """The tokens' normalised text, with spaces around words and comparisons."""
    text = _shown(tokens[0])
    for before, token in pairwise(tokens):
        called = token.text in {"(", "["} and before.word not in _BEFORE_BRACKETS and before.text not in _COMPARING
        tight = called or before.text in _OPENING or token.text in _CLOSING
        if not tight:
            text += " "
        text += _shown(token)
    return text


def _shown(token: Token) -> str:
    if token.word in _UPPER:
        return token.word
    return token.text

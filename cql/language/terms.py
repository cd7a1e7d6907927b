"""Values and conditions of data statements: read for their form, so that what follows them is found.

Rules ask for the columns and what they are held to; whether a value fits its column is left to the server.
"""

from cql.language.lexer import Kind
from cql.language.stream import Stream
from cql.language.types import cql_type
from model.schema.names import name_of

_LITERALS = (Kind.STRING, Kind.NUMBER, Kind.UUID, Kind.BLOB, Kind.DURATION)
_OPERATORS = ("+", "-", "*", "/", "%")
_COMPARISONS = ("<=", ">=", "!=", "<", ">")
_WORDS = ("NULL", "NAN", "INFINITY", "TOKEN")
"""Reserved words that are values, or functions, all the same."""


def term(stream: Stream) -> None:
    """Take a value: a literal, a collection, a bind mark, a function, sums of these.

    Raises:
        CqlSyntaxError: no value comes next.
    """
    with stream.nested():
        _operand(stream)
        while stream.next.text in _OPERATORS and stream.next.kind is Kind.MARK:
            stream.take()
            _operand(stream)


def read_term(stream: Stream) -> str:
    """Take a value, and give it as it stands."""
    begin = stream.next.start
    term(stream)
    return stream.text[begin : stream.last_end]


def _operand(stream: Stream) -> None:
    while stream.accept("-"):
        pass
    token = stream.next
    if token.kind in _LITERALS:
        stream.take()
    elif token.kind is Kind.QUOTED or token.word:
        _named(stream)
    elif stream.accept("?"):
        pass
    elif stream.accept(":"):
        stream.name("the name of a bind mark")
    elif stream.sees("("):
        _bracketed(stream)
    elif stream.accept("["):
        terms_until(stream, "]")
    elif stream.accept("{"):
        _braced(stream)
    else:
        raise stream.unexpected("a value")


def _named(stream: Stream) -> None:
    """A word as it is, or a function with what it is given, or an element or a field of a column."""
    if stream.next.word in _WORDS:
        stream.take()
    else:
        stream.name("a value")
        while stream.dot():
            stream.name("a name")
    if stream.accept("("):
        terms_until(stream, ")")
    elif stream.accept("["):
        _element(stream)


def _element(stream: Stream) -> None:
    """What stands between [ and ]: an index, a key, or a slice of either."""
    if not stream.sees("."):
        term(stream)
    if stream.accept(".", ".") and not stream.sees("]"):
        term(stream)
    stream.expect("]")


def terms_until(stream: Stream, closing: str) -> None:
    """Take values with commas between them, and the bracket that closes them."""
    while not stream.accept(closing):
        term(stream)
        if not stream.sees(closing):
            stream.expect(",")


def _bracketed(stream: Stream) -> None:
    """A tuple, or a type in brackets before the value that is to be of it."""
    if _is_cast(stream):
        stream.expect("(")
        cql_type(stream)
        stream.expect(")")
        with stream.nested():
            _operand(stream)
        return
    stream.expect("(")
    terms_until(stream, ")")


def _is_cast(stream: Stream) -> bool:
    if stream.ahead(1).kind not in (Kind.WORD, Kind.QUOTED):
        return False
    after = stream.ahead(3)
    closes = stream.ahead(2).text == ")" and (after.kind in _LITERALS or after.text in {"?", ":", "(", "[", "{", "-"})
    return closes or stream.ahead(2).text == "<"


def _braced(stream: Stream) -> None:
    """A set, a map, or the fields of a user type."""
    while not stream.accept("}"):
        term(stream)
        if stream.accept(":"):
            term(stream)
        if not stream.sees("}"):
            stream.expect(",")


def conditions(stream: Stream) -> dict[str, str]:
    """Take conditions with AND between them, and give what columns must be equal to, by name, as it stands.

    Raises:
        CqlSyntaxError: what comes next is no condition.
    """
    equal: dict[str, str] = {}
    _condition(stream, equal)
    while stream.accept("AND"):
        _condition(stream, equal)
    return equal


def _condition(stream: Stream, equal: dict[str, str]) -> None:
    column = _subject(stream)
    if stream.accept("="):
        value = read_term(stream)
        if column:
            equal[column] = value
    elif stream.accept("IS"):
        stream.expect("NOT", "NULL")
    elif stream.accept("BETWEEN"):
        term(stream)
        stream.expect("AND")
        term(stream)
    elif stream.accept("CONTAINS"):
        stream.accept("KEY")
        term(stream)
    elif stream.accept("NOT"):
        if stream.one_of("IN", "CONTAINS") == "CONTAINS":
            stream.accept("KEY")
        term(stream)
    else:
        stream.one_of(*_COMPARISONS, "IN", "LIKE")
        term(stream)


def _subject(stream: Stream) -> str:
    """What a condition is about: a column (its name is given), a part of one, several columns, or their token."""
    if stream.accept("TOKEN", "(") or stream.accept("("):
        stream.name("a column")
        while stream.accept(","):
            stream.name("a column")
        stream.expect(")")
        return ""
    token = stream.name("a column")
    stream.place("column", token)
    if stream.accept("["):
        _element(stream)
        return ""
    if stream.dot():
        stream.name("a field")
        return ""
    return name_of(token.text)

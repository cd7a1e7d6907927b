"""What follows WITH: options as literals in one form, and the order of clustering."""

from dataclasses import dataclass, field

from cql.language.lexer import Kind, Token
from cql.language.stream import Stream
from model.schema.literals import text_literal
from model.schema.names import name_of
from model.schema.table import COMPACT_STORAGE

_SIMPLE = (Kind.NUMBER, Kind.UUID, Kind.BLOB, Kind.DURATION)


@dataclass(slots=True)
class Options:
    """The options of one statement, and where each stands."""

    literals: dict[str, str] = field(default_factory=dict)
    order: list[tuple[Token, bool]] = field(default_factory=list)
    """Columns of CLUSTERING ORDER BY, each with whether it descends."""


def options(stream: Stream, *, of_table: bool = False) -> Options:
    """Take options with AND between them.

    Args:
        stream: where they come next.
        of_table: the words that only CREATE TABLE and CREATE MATERIALIZED VIEW have are taken too.

    Raises:
        CqlSyntaxError: what comes next is no option, or one that was there already.
    """
    found = Options()
    _option(stream, found, of_table=of_table)
    while stream.accept("AND"):
        _option(stream, found, of_table=of_table)
    return found


def _option(stream: Stream, found: Options, *, of_table: bool) -> None:
    if of_table and stream.sees("COMPACT", "STORAGE"):
        stream.place("option", stream.next, COMPACT_STORAGE)
        stream.expect("COMPACT", "STORAGE")
        found.literals[COMPACT_STORAGE] = "true"
    elif of_table and stream.accept("CLUSTERING", "ORDER", "BY"):
        _order(stream, found)
    else:
        _property(stream, found)


def _property(stream: Stream, found: Options) -> None:
    token = stream.name("an option")
    name = name_of(token.text)
    if name in found.literals:
        raise stream.wrong(f"the option {name} stands here a second time", token)
    stream.expect("=")
    stream.place("option", token)
    found.literals[name] = literal(stream)


def _order(stream: Stream, found: Options) -> None:
    stream.expect("(")
    while True:
        column = stream.name("a clustering column")
        found.order.append((column, stream.one_of("ASC", "DESC") == "DESC"))
        if not stream.accept(","):
            break
    stream.expect(")")


def literal(stream: Stream) -> str:
    """Take a literal, and give it in one form: texts in single quotes, maps and sets with one space after a comma.

    Raises:
        CqlSyntaxError: no literal comes next.
    """
    token = stream.next
    if token.kind is Kind.STRING:
        return text_literal(text_value(stream.take()))
    if stream.accept("{"):
        return _braced(stream)
    if stream.accept("["):
        return _listed(stream)
    sign = "-" if stream.accept("-") else ""
    if stream.next.kind in _SIMPLE:
        return sign + stream.take().text
    if stream.next.kind is Kind.WORD and not sign:
        return stream.take().text.lower()
    raise stream.unexpected("a text in quotes", "a number", "a map")


def _braced(stream: Stream) -> str:
    parts: list[str] = []
    with stream.nested():
        while not stream.accept("}"):
            key = literal(stream)
            parts.append(f"{key}: {literal(stream)}" if stream.accept(":") else key)
            if not stream.sees("}"):
                stream.expect(",")
    return "{" + ", ".join(parts) + "}"


def _listed(stream: Stream) -> str:
    parts: list[str] = []
    with stream.nested():
        while not stream.accept("]"):
            parts.append(literal(stream))
            if not stream.sees("]"):
                stream.expect(",")
    return "[" + ", ".join(parts) + "]"


def text_value(token: Token) -> str:
    """What a text in quotes says."""
    if token.text.startswith("$$"):
        return token.text[2:-2]
    return token.text[1:-1].replace("''", "'")

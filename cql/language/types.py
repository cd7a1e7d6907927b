"""Types as CQL spells them, read into the one form of `model.schema.cql_types`."""

from cql.language.lexer import Kind
from cql.language.stream import Stream
from model.errors import BadIdentifier
from model.schema.cql_types import normal_type
from model.schema.names import name_of

_PARAMETERS = {"list": 1, "set": 1, "map": 2, "frozen": 1, "vector": 2}
"""How many types stand between the angle brackets; a tuple has any number of them, but not none."""


def cql_type(stream: Stream) -> str:
    """Take a type, and give its text in its one form.

    Raises:
        CqlSyntaxError: no type comes next, or one with the wrong number of types in it.
    """
    token = stream.next
    text = _type(stream)
    try:
        return normal_type(text)
    except BadIdentifier as error:
        raise stream.wrong(f"{text} is no type of CQL", token) from error


def _type(stream: Stream) -> str:
    if stream.next.kind is Kind.STRING:
        return stream.take().text  # a Java class
    name = stream.take().text if stream.sees("SET", "<") else stream.name("a type").text
    if stream.dot():
        _same_keyspace(stream, name)
        return stream.name("the name of a type").text
    known = _PARAMETERS.get(name.lower())
    if known is None and name.lower() != "tuple":
        return name
    with stream.nested():
        stream.expect("<")
        inner = _inner(stream, name.lower(), known)
        stream.expect(">")
    return f"{name}<{','.join(inner)}>"


def _inner(stream: Stream, name: str, count: int | None) -> list[str]:
    inner = [_type(stream)]
    while stream.accept(","):
        size = name == "vector" and len(inner) == 1
        inner.append(stream.of_kind(Kind.NUMBER, called="a length").text if size else _type(stream))
    if count is not None and len(inner) != count:
        raise stream.wrong(f"{name} takes {count} in its angle brackets, not {len(inner)}")
    return inner


def _same_keyspace(stream: Stream, keyspace: str) -> None:
    """A type lies in the keyspace of what uses it, so its keyspace says nothing of its own."""
    own = stream.keyspace
    if own is not None and name_of(own) != name_of(keyspace):
        raise stream.wrong(f"a statement on keyspace {own} cannot use a type of keyspace {keyspace}")

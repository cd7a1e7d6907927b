"""Names and literals, as CQL spells them and as the server knows them.

A spelling in double quotes names exactly what is inside, with its case; any other spelling is a name in lower case.
Only complete names in one of these two forms are put into statements. The model keeps all options as literals: texts
with their quotes doubled, maps as pairs.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from mailmend.model.errors import BadIdentifier

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
KEYSPACE_NAME = re.compile(r"[A-Za-z0-9_]{1,48}")
"""The names that a server takes for a keyspace, without quotes."""

_QUOTED = re.compile(r'"(?:[^"]|"")+"')
_WORDS_OF_CQL = """
    add allow alter and apply asc authorize batch begin by columnfamily create default delete desc describe drop entries
    execute from full grant if in index infinity insert into is keyspace limit materialized mbean mbeans modify nan
    norecursive not null of on or order primary rename replace revoke schema select set table to token truncate unlogged
    unset update use using view where with
"""
RESERVED = frozenset(_WORDS_OF_CQL.split())
"""Words that CQL takes as a name only in quotes, in one version or another."""

_PIECE = re.compile(
    r"""(?P<text>'(?:[^']|'')*')|(?P<name>"(?:[^"]|"")+"|(?<![\w.])[A-Za-z]\w*)(?P<call>\s*\()?|(?P<mark>\d[\w.]*)"""
)
_NO_COLUMNS = RESERVED | {"contains", "like", "true", "false"}

_PAIR = re.compile(r"'((?:[^']|'')*+)'\s*:\s*(?:'((?:[^']|'')*+)'|([^\s',{}]++))")
_OWN = "org.apache.cassandra."


@dataclass(frozen=True, slots=True)
class Name:
    """A name in a statement: `keyspace.name`, or `name` in the keyspace that the file is run against."""

    spelling: str
    keyspace: str | None = None

    def __str__(self) -> str:
        if not self.keyspace:
            return self.spelling
        return f"{self.keyspace}.{self.spelling}"


def name_of(spelling: str) -> str:
    if len(spelling) > 1 and spelling[0] == spelling[-1] == '"':
        return spelling[1:-1].replace('""', '"')
    return spelling.lower()


def spelled(name: str) -> str:
    """The server's name as CQL spells it: in double quotes where it needs them."""
    if name == name.lower() and _PLAIN.fullmatch(name) and name not in RESERVED:
        return name
    return '"' + name.replace('"', '""') + '"'


def checked_spelling(spelling: str, what: str = "name") -> str:
    """The spelling, checked to be one whole name: nothing can break out of it.

    Raises:
        BadIdentifier: it is not one that CQL takes, in quotes or without.
    """
    if _QUOTED.fullmatch(spelling) or (_PLAIN.fullmatch(spelling) and spelling.lower() not in RESERVED):
        return spelling
    raise BadIdentifier(spelling, what)


def keyspace_spelling(text: str) -> str:
    """The keyspace as CQL spells it, in one spelling for each keyspace: plain in lower case, or in double quotes.

    Commands, statements and the ledger name keyspaces in this form; `name_of` gives the server's own name.

    Raises:
        BadIdentifier: the text is no name of a keyspace; nothing else can be put into a statement.
    """
    name = name_of(text)
    is_quoted = text.startswith('"')
    if KEYSPACE_NAME.fullmatch(name) and (is_quoted or spelled(name) == name):
        return spelled(name)
    mend = "A name of a keyspace holds 1 to 48 letters, digits and underscores."
    if KEYSPACE_NAME.fullmatch(name):
        mend = f"Only in double quotes is this a name of a keyspace: {shlex.quote(spelled(text))}"
    raise BadIdentifier(text, "keyspace name", mend=mend)


def slips(typed: str, known: Iterable[str]) -> tuple[str, ...]:
    """The known names that differ by one letter (long names: two) or in case from the typed one, the nearest first."""
    allowed = 1
    if len(typed) >= _LONG:
        allowed = 2
    near: list[tuple[int, str]] = []
    for name in known:
        if name != typed:
            edits = _edits(typed.lower(), name.lower())
            if edits <= allowed:
                near.append((edits, name))
    return tuple(name for _, name in sorted(near))


_LONG = 6


def _edits(one: str, other: str) -> int:
    """How many letters have to be put in, taken out or changed."""
    row = list(range(len(other) + 1))
    for count, letter in enumerate(one, start=1):
        above = row
        row = [count]
        for place, beside in enumerate(other):
            row.append(min(row[place] + 1, above[place + 1] + 1, above[place] + (letter != beside)))
    return row[-1]


def columns_of(text: str) -> tuple[str, ...]:
    """The columns that a piece of CQL (an index's target, a view's condition) names, as the server knows them."""
    return tuple(dict.fromkeys(name_of(found["name"]) for found in _names(text)))


def _names(text: str) -> Iterator[re.Match[str]]:
    for found in _PIECE.finditer(text):
        name = found["name"]
        if name and not found["call"] and name.lower() not in _NO_COLUMNS:
            yield found


def renamed_in(text: str, renames: Mapping[str, str]) -> str:
    """The text with columns renamed; keys are names as the server knows them."""
    parts = []
    end = 0
    for found in _names(text):
        spelling = renames.get(name_of(found["name"]))
        if spelling is not None:
            parts += [text[end : found.start("name")], spelling]
            end = found.end("name")
    return "".join((*parts, text[end:]))


def text_literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def text_of(literal: str) -> str:
    """A text literal without its quotes; anything else as it is."""
    if len(literal) > 1 and literal[0] == literal[-1] == "'":
        return literal[1:-1].replace("''", "'")
    return literal


def map_literal(pairs: Mapping[str, str]) -> str:
    """A map of texts as CQL spells it, sorted by key."""
    spelled = [f"{text_literal(name)}: {text_literal(pairs[name])}" for name in sorted(pairs)]
    return "{" + ", ".join(spelled) + "}"


def pairs_of(literal: str) -> dict[str, str]:
    """The pairs of a map literal, without quotes (empty where it is no map); a class by its short name."""
    if not literal.startswith("{"):
        return {}
    found = {}
    for name, quoted, bare in _PAIR.findall(literal):
        found[_unquoted(name)] = _unquoted(quoted) or bare
    if "class" in found:
        found["class"] = short_class(found["class"])
    return found


def short_class(name: str) -> str:
    """Cassandra's own classes by their short names, which CQL takes too; others unchanged."""
    if name.startswith(_OWN):
        return name.rsplit(".", 1)[-1]
    return name


def _unquoted(text: str) -> str:
    return text.replace("''", "'")

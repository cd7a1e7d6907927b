"""Rules about what a server would refuse: unknown classes, options and values, and invalid statements."""

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Final

from model.schema.lint.option_values import value_problems
from model.schema.lint.rule import Hit, Severity, rule
from model.schema.lint.servers import (
    CACHING,
    COMPACTIONS,
    COMPRESSION_NEW,
    READ_REPAIR,
    TABLE_OPTIONS,
    VALUES,
    ServerRelease,
)
from model.schema.lint.subject import Subject
from model.schema.names import name_of, pairs_of, short_class, text_of
from model.schema.statements import Statement

OptionTexts = Mapping[str, str]

_PERCENTILE: Final = r"\d+(\.\d+)?p(ercentile)?"
_FIXED: Final = r"\d+(\.\d+)?ms"
_HYBRID: Final = rf"m(in|ax)\(\s*({_PERCENTILE}|{_FIXED})\s*,\s*({_PERCENTILE}|{_FIXED})\s*\)"
_SPECULATION: Final = re.compile(rf"always|none|never|{_PERCENTILE}|{_FIXED}|{_HYBRID}", re.IGNORECASE)
_SPECULATION_3: Final = re.compile(r"always|none|\d+(\.\d+)?percentile|\d+(\.\d+)?ms", re.IGNORECASE)


@rule(
    "T11",
    "A class, an option or a value that the server does not know",
    Severity.ERROR,
    "The server refuses the statement, often in the middle of an upgrade: names come and go with versions "
    "(DateTieredCompactionStrategy and chunk_length_kb went with 5.0, read_repair_chance with 4.0).",
    "Take the name from the documentation of that version.",
    docs="developing/cql/ddl.html",
)
def _unknown(subject: Subject) -> Iterator[Hit]:
    """Every statement that sets options; without any, what the tables have."""
    for table, number, options in _declared(subject):
        for option, text, fix in _unknown_options(options, subject.release, named=number is not None):
            yield Hit(text, option, statement=number, fix=fix, table=table)


def refused_options(statement: Statement, release: ServerRelease) -> tuple[tuple[str, str], ...]:
    """(problem, fix) for each class and option in a statement that a server of that release would refuse."""
    options = statement.options_set or {}
    return tuple((text, fix) for _, text, fix in _unknown_options(options, release, named=True))


def _declared(subject: Subject) -> Iterator[tuple[str, int | None, OptionTexts]]:
    """Each table's options as written: (table, number of the statement or None, options)."""
    stated = set()
    for number, parsed in enumerate(subject.statements):
        table, options = parsed.statement.about, parsed.statement.options_set
        if options is not None:
            stated.add(name_of(table))
            yield table, number, options
    for one in subject.schema.tables:
        if one.name not in stated:
            yield one.spelling, None, one.literals()


def _unknown_options(options: OptionTexts, release: ServerRelease, *, named: bool) -> Iterator[tuple[str, str, str]]:
    """(option, text, fix) of what the server would refuse; `named`: names are judged too, not only values."""
    known = TABLE_OPTIONS[release]
    for option, literal in options.items():
        if named and option not in known:
            yield option, f"{release.title} has no table option {option}", _did_you_mean(option, known)
        elif option == "compaction":
            yield from _unknown_compaction(pairs_of(literal), release)
        elif option == "compression" and release.is_cassandra:
            yield from _unknown_compression(pairs_of(literal), release)
        elif option == "caching" and release.is_cassandra:
            names = [name for name in pairs_of(literal) if name not in CACHING]
            yield from (
                (f"caching.{one}", f"caching has no option {one}", _did_you_mean(one, CACHING)) for one in names
            )
        elif option == "read_repair" and text_of(literal).upper() not in READ_REPAIR:
            yield option, f"read_repair has no value {text_of(literal)}", _did_you_mean(text_of(literal), READ_REPAIR)
        if release.is_cassandra and (option in known or not named):
            yield from ((place, text, "") for place, text in value_problems(option, literal))


def _unknown_compaction(pairs: OptionTexts, release: ServerRelease) -> Iterator[tuple[str, str, str]]:
    strategy = short_class(pairs.get("class", ""))
    classes = COMPACTIONS[release]
    if not strategy:
        yield "compaction.class", "compaction names no class", ""
    elif strategy not in classes:
        if "." not in strategy:
            text = f"{release.title} has no compaction class {strategy}"
            yield "compaction.class", text, _did_you_mean(strategy, classes)
    elif (known := classes[strategy]) is not None:
        for name, value in pairs.items():
            if name not in known | {"class"}:
                text = f"{strategy} of {release.title} has no option {name}"
                yield f"compaction.{name}", text, _did_you_mean(name, known)
            elif name in VALUES and value not in VALUES[name]:
                yield f"compaction.{name}", f"{name} has no value {value}", _did_you_mean(value, VALUES[name])


def _unknown_compression(pairs: OptionTexts, release: ServerRelease) -> Iterator[tuple[str, str, str]]:
    """Only names that were removed: each compressor has options of its own."""
    if not release.at_least(ServerRelease.CASSANDRA_5_0):
        return
    for name in pairs.keys() & COMPRESSION_NEW.keys():
        text = f"{release.title} takes no {name} in compression any more"
        yield f"compression.{name}", text, f"Write {COMPRESSION_NEW[name]} instead."


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    by_lower = {one.lower(): one for one in known}
    close = get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return f"Did you mean {by_lower[close[0]]}?" if close else ""


@rule(
    "T24",
    "Speculation or Paxos in a variant that costs",
    Severity.WARNING,
    "ALWAYS asks one replica more than needed every time, which is load without end; a value that the version does "
    "not understand is refused; the first variant of Paxos takes twice the round trips of the second.",
    "Leave speculative_retry at its default, '99p'.",
    docs="developing/cql/ddl.html",
)
def _speculation(subject: Subject) -> Iterator[Hit]:
    """What the options say, then the variant of Paxos where it is known."""
    yield from _odd_speculation(subject)
    if subject.knowledge.paxos_variant != "v1" or not subject.release.at_least(ServerRelease.CASSANDRA_4_1):
        return
    with_if = subject.knowledge.conditional | {
        name_of(one.write.name.spelling) for one in subject.writes() if one.write.conditional
    }
    tables = ", ".join(table.spelling for table in subject.schema.tables if table.name in with_if)
    if tables:
        text = f"the server uses the first variant of Paxos, and these are written with IF: {tables}"
        yield Hit(text, "paxos_variant", Severity.NOTE, fix=_PAXOS_FIX)


_PAXOS_FIX: Final = (
    "Read the upgrade notes of Cassandra 4.1, then set paxos_variant: v2 on every node: half the round trips."
)


def _odd_speculation(subject: Subject) -> Iterator[Hit]:
    syntax = _SPECULATION if subject.release.at_least(ServerRelease.CASSANDRA_4_0) else _SPECULATION_3
    for table, number, options in _declared(subject):
        for option in ("speculative_retry", "additional_write_policy"):
            value = text_of(options.get(option, "")).strip()
            if value.upper() == "ALWAYS":
                text = f"{option} = 'ALWAYS' sends every request once more"
                yield Hit(text, option, statement=number, table=table)
            elif value and subject.release.is_cassandra and not _understood(value, syntax):
                text = f"{subject.release.title} does not understand {option} = '{value}'"
                yield Hit(text, option, Severity.ERROR, statement=number, fix=_SPECULATION_FIX, table=table)


_PERCENT: Final = re.compile(r"(\d+(?:\.\d+)?)p", re.IGNORECASE)


def _understood(value: str, syntax: re.Pattern[str]) -> bool:
    """Whether a policy has a form that the server knows, percentiles between 0 and 100, and two kinds where two are."""
    if not syntax.fullmatch(value):
        return False
    percentiles = [float(text) for text in _PERCENT.findall(value)]
    is_hybrid = "(" in value
    mixed = not is_hybrid or len(percentiles) == 1
    return mixed and all(0 < percentile < _WHOLE for percentile in percentiles)


_WHOLE: Final = 100
_SPECULATION_FIX: Final = "Write '99p' ('99PERCENTILE' before 4.0), '50ms', 'NONE', or from 4.0 on 'MIN(99p,50ms)'."


@rule(
    "K2",
    "A statement that cannot be carried out",
    Severity.ERROR,
    "With everything before it carried out, the server would refuse this statement.",
    "Mend the statement; in a folder of migrations, look at what an earlier one has done.",
    docs="developing/cql/ddl.html",
)
def _refused(subject: Subject) -> Iterator[Hit]:
    for number, reason in subject.refused.items():
        yield Hit(reason, statement=number, table=subject.statements[number].statement.about)

"""Which options of tables a server does not know, or not with these values. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Final

from mailmend.cql.schema.lint.option_values import value_problems
from mailmend.cql.schema.lint.servers import (
    CACHING,
    COMPACTIONS,
    COMPRESSION_NEW,
    READ_REPAIR,
    TABLE_OPTIONS,
    VALUES,
    ServerRelease,
)
from mailmend.cql.statements import Statement
from mailmend.model.names import pairs_of, short_class, text_of

OptionTexts = Mapping[str, str]

_PERCENTILE: Final = r"\d+(\.\d+)?p(ercentile)?"
_FIXED: Final = r"\d+(\.\d+)?ms"
_HYBRID: Final = rf"m(in|ax)\(\s*({_PERCENTILE}|{_FIXED})\s*,\s*({_PERCENTILE}|{_FIXED})\s*\)"
_SPECULATION: Final = re.compile(rf"always|none|never|{_PERCENTILE}|{_FIXED}|{_HYBRID}", re.IGNORECASE)
_SPECULATION_3: Final = re.compile(r"always|none|\d+(\.\d+)?percentile|\d+(\.\d+)?ms", re.IGNORECASE)


def refused_options(statement: Statement, release: ServerRelease) -> tuple[tuple[str, str], ...]:
    """(problem, fix) for each class and option in a statement that a server of that release would refuse."""
    options = statement.options_set or {}
    return tuple((text, fix) for _, text, fix in unknown_options(options, release, named=True))


def unknown_options(options: OptionTexts, release: ServerRelease, *, named: bool) -> Iterator[tuple[str, str, str]]:
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
                (f"caching.{name}", f"caching has no option {name}", _did_you_mean(name, CACHING)) for name in names
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
    by_lower = {name.lower(): name for name in known}
    close = get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return f"Did you mean {by_lower[close[0]]}?" if close else ""


_PERCENT: Final = re.compile(r"(?<!\d)(\d+(?:\.\d+)?)p", re.IGNORECASE)


def speculation_is_known(value: str, release: ServerRelease) -> bool:
    """Whether a policy has a form that the server knows, percentiles between 0 and 100, and two kinds where two are.

    True for ScyllaDB, whose forms are not listed here.
    """
    if not release.is_cassandra:
        return True
    syntax = _SPECULATION if release.at_least(ServerRelease.CASSANDRA_4_0) else _SPECULATION_3
    if not syntax.fullmatch(value):
        return False
    percentiles = [float(text) for text in _PERCENT.findall(value)]
    is_hybrid = "(" in value
    mixed = not is_hybrid or len(percentiles) == 1
    return mixed and all(0 < percentile < _WHOLE for percentile in percentiles)


_WHOLE: Final = 100

"""Which options of tables a server does not know, or not with these values. Pure.

Source: the answers of Cassandra 4.1 and 5.0, which a test compares with this module. A value that
depends on the server's own configuration (a memtable's name, a class of others) is not judged.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

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
from mailmend.cql.statements.write_rules import TTL_MAX
from mailmend.model.names import pairs_of, short_class, text_of
from mailmend.model.texts import similar_name

_INT_MAX: Final = 2_147_483_647
_WHOLE: Final = re.compile(r"[+-]?[0-9]+")
_MAPS: Final = frozenset({"caching", "compaction", "compression", "extensions"})
_TRUE: Final = frozenset({"1", "true", "yes"})
_FALSE: Final = frozenset({"0", "false", "no"})
_BLOOM_FILTER_LEAST: Final = 6.71e-5
OptionJudge = Callable[[str, str], str]
"""From an option's name and its value without quotes to why the value is refused; "" where it is taken."""


def _whole(least: int, most: int = _INT_MAX) -> OptionJudge:
    def judge(name: str, text: str) -> str:
        if not _WHOLE.fullmatch(text):
            return f"{name} must be a whole number, not {text}"
        if least <= int(text) <= most:
            return ""
        return f"{name} must be from {least} to {most}, not {text}"

    return judge


def _number(least: float, most: float = math.inf, *, above: bool = False) -> OptionJudge:
    """A number with or without a fraction; `above`: the least one itself is refused."""

    def judge(name: str, text: str) -> str:
        try:
            number = float(text.removesuffix("f").removesuffix("d"))
        except ValueError:
            return f"{name} must be a number, not {text}"
        if above:
            low = number <= least
            bounds = f"more than {least:g}"
        else:
            low = number < least
            bounds = f"at least {least:g}"
        if not low and not number > most:  # NaN passes, as it does on servers
            return ""
        if not math.isinf(most):
            bounds += f" and at most {most:g}"
        return f"{name} must be {bounds}, not {text}"

    return judge


def _words(words: frozenset[str]) -> OptionJudge:
    def judge(name: str, text: str) -> str:
        if text.lower() in words:
            return ""
        return f"{name} must be one of {', '.join(sorted(words))}, not {text}"

    return judge


def _matches(pattern: str, what: str) -> OptionJudge:
    def judge(name: str, text: str) -> str:
        if re.fullmatch(pattern, text, re.IGNORECASE):
            return ""
        return f"{name} must be {what}, not {text}"

    return judge


_BOOLEAN: Final = _words(frozenset({"true", "false"}))
_YES_OR_NO: Final = _words(_TRUE | _FALSE)

_OF_TABLES: Final[Mapping[str, OptionJudge]] = {
    "default_time_to_live": _whole(0, TTL_MAX),
    "gc_grace_seconds": _whole(0),
    "memtable_flush_period_in_ms": _whole(0),
    "min_index_interval": _whole(1),
    "max_index_interval": _whole(1),
    "bloom_filter_fp_chance": _number(_BLOOM_FILTER_LEAST, 1.0, above=True),
    "crc_check_chance": _number(0.0, 1.0),
    "cdc": _YES_OR_NO,
    "allow_auto_snapshot": _YES_OR_NO,
    "incremental_backups": _YES_OR_NO,
    "id": _matches(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "a UUID"),
}
_SIZE: Final = _matches(r"[0-9]+(\.[0-9]+)?\s*([KMGT]i?)?B", "a size such as 100MiB")
_OF_COMPACTIONS: Final[Mapping[str, OptionJudge]] = {
    "enabled": _BOOLEAN,
    "log_all": _BOOLEAN,
    "unchecked_tombstone_compaction": _BOOLEAN,
    "unsafe_aggressive_sstable_expiration": _BOOLEAN,
    "provide_overlapping_tombstones": _words(frozenset({"none", "row", "cell"})),
    "tombstone_threshold": _number(0.0, above=True),
    "tombstone_compaction_interval": _whole(0),
    "min_threshold": _whole(2),
    "max_threshold": _whole(2),
    "bucket_low": _number(-math.inf),
    "bucket_high": _number(-math.inf),
    "sstable_size_in_mb": _whole(1),
    "fanout_size": _whole(1),
    "compaction_window_size": _whole(1),
    "expired_sstable_check_frequency_seconds": _whole(0, 2**63 - 1),
    "scaling_parameters": _matches(
        r"\s*(N|[LT](?:[2-9]|[1-9][0-9]+)|[+-]?[0-9]+)(\s*,\s*(N|[LT](?:[2-9]|[1-9][0-9]+)|[+-]?[0-9]+))*\s*",
        "N, L or T with a fan factor of at least 2, or numbers, with commas between them",
    ),
    "base_shard_count": _whole(1),
    "sstable_growth": _number(0.0, 1.0),
    "overlap_inclusion_method": _words(frozenset({"none", "single", "transitive"})),
    "flush_size_override": _SIZE,
    "max_sstables_to_compact": _whole(-_INT_MAX - 1),
    "target_sstable_size": _matches(r"[0-9]+(\.[0-9]+)?\s*[MGT]i?B", "a size of at least 1MiB"),
}
_OF_COMPRESSORS: Final[Mapping[str, frozenset[str]]] = {
    "LZ4Compressor": frozenset({"lz4_compressor_type", "lz4_high_compressor_level"}),
    "ZstdCompressor": frozenset({"compression_level"}),
    "SnappyCompressor": frozenset(),
    "DeflateCompressor": frozenset(),
    "NoopCompressor": frozenset(),
}
_OF_EVERY_COMPRESSOR: Final = frozenset({"class", "chunk_length_in_kb", "min_compress_ratio", "enabled"})
_OLD_NAMES: Final = frozenset({"sstable_compression", "chunk_length_kb", "crc_check_chance"})
_COMPRESSION_VALUES: Final[Mapping[str, OptionJudge]] = {
    "lz4_compressor_type": _words(frozenset({"fast", "high"})),
    "lz4_high_compressor_level": _whole(1, 17),
    "compression_level": _whole(-131_072, 22),
}
_CHUNK_MAX: Final = 2_097_151


def value_problems(option: str, literal: str) -> Iterator[tuple[str, str]]:
    """(option, problem) of one table option; an option of a map as `compaction.enabled`."""
    name = option.lower()
    is_map = literal.startswith("{")
    if is_map and name not in _MAPS:
        yield option, f"{name} must not be a map"
    elif name in _MAPS - {"extensions"} and not is_map:
        yield option, f"{name} must be a map, not {literal}"
    elif name == "caching":
        yield from _caching(pairs_of(literal))
    elif name == "compaction":
        yield from _compaction(pairs_of(literal))
    elif name == "compression":
        yield from _compression(pairs_of(literal))
    elif name in _OF_TABLES:
        problem = _OF_TABLES[name](name, text_of(literal))
        if problem:
            yield option, problem


def _caching(pairs: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in pairs.items():
        allowed = "ALL or NONE"
        if value.upper() in {"ALL", "NONE"}:
            continue
        if name == "rows_per_partition":
            allowed = "ALL, NONE or a number of rows"
            if value.isascii() and value.isdigit() and int(value) <= _INT_MAX:
                continue
        if name in {"keys", "rows_per_partition"}:
            yield f"caching.{name}", f"caching takes {allowed} for {name}, not {value}"


def _compaction(pairs: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    unified = short_class(pairs.get("class", "")).startswith("Unified")
    for name, value in pairs.items():
        judge = _OF_COMPACTIONS.get(name)
        if name == "min_sstable_size":
            judge = _whole(0, 2**63 - 1)
            if unified:
                judge = _SIZE
        if judge is None or name in VALUES:
            continue
        problem = judge(name, value)
        if problem:
            yield f"compaction.{name}", problem
    for low, high, defaults in (("min_threshold", "max_threshold", (4, 32)), ("bucket_low", "bucket_high", (0.5, 1.5))):
        bounds = _bounds(pairs, (low, high), defaults)
        if bounds is None:
            continue
        least, most = bounds
        may_be_equal = low == "min_threshold"
        if least > most or (least == most and not may_be_equal):
            yield f"compaction.{low}", f"{low} ({least:g}) must be less than {high} ({most:g})"


def _bounds(
    pairs: Mapping[str, str], names: tuple[str, str], defaults: tuple[float, float]
) -> tuple[float, float] | None:
    """Both numbers, the default in place of one that is not set; None where neither is set, or one is no number."""
    if not pairs.keys() & set(names):
        return None
    try:
        low = float(pairs.get(names[0], defaults[0]))
        high = float(pairs.get(names[1], defaults[1]))
    except ValueError:
        return None
    return low, high


def _compression(pairs: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    enabled = pairs.get("enabled", "true").lower() == "true"
    if not pairs or pairs.keys() & _OLD_NAMES:
        return
    if not enabled and len(pairs) > 1:
        yield "compression.enabled", "compression that is not enabled takes no other option"
    elif enabled and not pairs.get("class"):
        yield "compression.class", "compression names no class"
    compressor = short_class(pairs.get("class", ""))
    known = _OF_COMPRESSORS.get(compressor)
    if known is None and compressor and "." not in compressor:
        yield "compression.class", f"there is no compression class {compressor}"
    for name, value in pairs.items():
        if known is not None and name not in known | _OF_EVERY_COMPRESSOR:
            yield f"compression.{name}", f"{compressor} has no option {name}"
        elif problem := _compression_problem(name, value):
            yield f"compression.{name}", problem


def _compression_problem(name: str, value: str) -> str:
    if name == "chunk_length_in_kb":
        length = 0
        if value.isascii() and value.isdigit():
            length = int(value)
        if length and length & (length - 1) == 0 and length <= _CHUNK_MAX:
            return ""
        return f"chunk_length_in_kb must be a power of 2, not {value}"
    if name == "min_compress_ratio":
        problem = _number(0.0)(name, value)
        if problem or float(value) == 0 or float(value) >= 1:
            return problem
        return f"min_compress_ratio must be 0 or at least 1, not {value}"
    judge = _COMPRESSION_VALUES.get(name)
    if judge is None:
        return ""
    return judge(name, value)


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
            yield from _unknown_caching(pairs_of(literal))
        elif option == "read_repair" and text_of(literal).upper() not in READ_REPAIR:
            yield option, f"read_repair has no value {text_of(literal)}", _did_you_mean(text_of(literal), READ_REPAIR)
        if release.is_cassandra and (option in known or not named):
            for place, text in value_problems(option, literal):
                yield place, text, ""


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


def _unknown_caching(pairs: OptionTexts) -> Iterator[tuple[str, str, str]]:
    for name in pairs:
        if name not in CACHING:
            yield f"caching.{name}", f"caching has no option {name}", _did_you_mean(name, CACHING)


def _unknown_compression(pairs: OptionTexts, release: ServerRelease) -> Iterator[tuple[str, str, str]]:
    """Only names that were removed: each compressor has options of its own."""
    if not release.at_least(ServerRelease.CASSANDRA_5_0):
        return
    for name in pairs.keys() & COMPRESSION_NEW.keys():
        text = f"{release.title} takes no {name} in compression any more"
        yield f"compression.{name}", text, f"Write {COMPRESSION_NEW[name]} instead."


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    near = similar_name(word, tuple(known))
    if not near:
        return ""
    return f"Did you mean {near}?"


_PERCENT: Final = re.compile(r"(?<!\d)(\d+(?:\.\d+)?)p", re.IGNORECASE)


def speculation_is_known(value: str, release: ServerRelease) -> bool:
    """Whether a policy has a form that the server knows, percentiles between 0 and 100, and two kinds where two are.

    True for ScyllaDB, whose forms are not listed here.
    """
    if not release.is_cassandra:
        return True
    syntax = _SPECULATION_3
    if release.at_least(ServerRelease.CASSANDRA_4_0):
        syntax = _SPECULATION
    if not syntax.fullmatch(value):
        return False
    percentiles = [float(text) for text in _PERCENT.findall(value)]
    is_hybrid = "(" in value
    mixed = not is_hybrid or len(percentiles) == 1
    return mixed and all(0 < percentile < _PERCENT_MAX for percentile in percentiles)


_PERCENT_MAX: Final = 100

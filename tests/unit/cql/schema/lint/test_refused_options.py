"""Which values of options a server takes: those at their bounds, and what is said of others."""

import pytest

from mailmend.cql.schema.lint.refused_options import (
    refused_options,
    speculation_is_known,
    unknown_options,
    value_problems,
)
from mailmend.cql.schema.lint.servers import ServerRelease
from mailmend.cql.statements import Name, SetOptions, Truncate

C3, C40, C41, C5, SCYLLA = ServerRelease
INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
CLASS = "'class': 'TimeWindowCompactionStrategy'"
UNIFIED = "'class': 'org.apache.cassandra.db.compaction.UnifiedCompactionStrategy'"
LZ4 = "'class': 'LZ4Compressor'"


def problems(option: str, literal: str) -> list[tuple[str, str]]:
    return list(value_problems(option, literal))


@pytest.mark.parametrize(
    ("option", "literals"),
    [
        ("default_time_to_live", ["0", "630720000", "'+5'"]),
        ("gc_grace_seconds", ["0", f"{INT_MAX}"]),
        ("memtable_flush_period_in_ms", ["0", f"{INT_MAX}"]),
        ("min_index_interval", ["1", f"{INT_MAX}"]),
        ("max_index_interval", ["1", f"{INT_MAX}"]),
        ("bloom_filter_fp_chance", ["0.0000672", "1", "1.0", "0.01f", "0.01d", "NaN"]),
        ("crc_check_chance", ["0", "1.0", "NaN"]),
        ("cdc", ["true", "FALSE", "'yes'", "'no'", "1", "0"]),
        ("allow_auto_snapshot", ["true", "'NO'"]),
        ("incremental_backups", ["false", "1"]),
        ("ID", ["5A1C395E-b41f-11e5-9f22-ba0be0483c18"]),
        ("comment", ["'anything'"]),
        ("unheard_of", ["5"]),
        ("extensions", ["{'a': 0xAF}", "5"]),
        (
            "caching",
            [
                "{'keys': 'ALL', 'rows_per_partition': 'none'}",
                f"{{'rows_per_partition': '{INT_MAX}'}}",
            ],
        ),
        ("caching", ["{'unheard_of': 'x'}", "{}"]),
        (
            "compaction",
            [
                f"{{{CLASS}, 'enabled': 'TRUE', 'log_all': 'false', 'unchecked_tombstone_compaction': 'true'}}",
                f"{{{CLASS}, 'unsafe_aggressive_sstable_expiration': 'false'}}",
                f"{{{CLASS}, 'provide_overlapping_tombstones': 'NONE'}}",
                f"{{{CLASS}, 'provide_overlapping_tombstones': 'row'}}",
                f"{{{CLASS}, 'provide_overlapping_tombstones': 'cell'}}",
                f"{{{CLASS}, 'tombstone_threshold': '0.1', 'tombstone_compaction_interval': '0'}}",
                f"{{{CLASS}, 'min_threshold': '2', 'max_threshold': '2'}}",
                f"{{{CLASS}, 'min_threshold': '32'}}",
                f"{{{CLASS}, 'max_threshold': '4'}}",
                f"{{{CLASS}, 'bucket_low': '-5', 'bucket_high': '-4.5'}}",
                f"{{{CLASS}, 'bucket_low': '1.4'}}",
                f"{{{CLASS}, 'bucket_high': '0.6'}}",
                f"{{{CLASS}, 'sstable_size_in_mb': '1', 'fanout_size': '1', 'compaction_window_size': '1'}}",
                f"{{{CLASS}, 'expired_sstable_check_frequency_seconds': '{LONG_MAX}', 'min_sstable_size': '0'}}",
                f"{{{CLASS}, 'min_sstable_size': '{LONG_MAX}', 'compaction_window_unit': 'x', 'unheard_of': 'x'}}",
                f"{{{UNIFIED}, 'scaling_parameters': 'T2', 'base_shard_count': '1', 'sstable_growth': '0'}}",
                f"{{{UNIFIED}, 'scaling_parameters': ' n , L10,-8 ,+9', 'sstable_growth': '1'}}",
                f"{{{UNIFIED}, 'overlap_inclusion_method': 'None', 'min_sstable_size': '100MiB'}}",
                f"{{{UNIFIED}, 'overlap_inclusion_method': 'single', 'flush_size_override': '1.5 gb'}}",
                f"{{{UNIFIED}, 'overlap_inclusion_method': 'transitive', 'flush_size_override': '5B'}}",
                f"{{{UNIFIED}, 'max_sstables_to_compact': '{-(2**31)}', 'target_sstable_size': '1MiB'}}",
                f"{{{UNIFIED}, 'target_sstable_size': '1.5 GB'}}",
            ],
        ),
        (
            "compression",
            [
                *(
                    "{}",
                    "{'enabled': 'false'}",
                    f"{{{LZ4}, 'enabled': 'true'}}",
                    "{'class': 'com.example.Own', 'x': 'y'}",
                ),
                f"{{{LZ4}, 'lz4_compressor_type': 'FAST', 'lz4_high_compressor_level': '1'}}",
                f"{{{LZ4}, 'lz4_compressor_type': 'high', 'lz4_high_compressor_level': '17'}}",
                "{'class': 'ZstdCompressor', 'compression_level': '-131072'}",
                "{'class': 'org.apache.cassandra.io.compress.ZstdCompressor', 'compression_level': '22'}",
                "{'class': 'SnappyCompressor', 'chunk_length_in_kb': '1', 'min_compress_ratio': '0'}",
                "{'class': 'DeflateCompressor', 'chunk_length_in_kb': '1048576', 'min_compress_ratio': '1'}",
                "{'class': 'NoopCompressor', 'min_compress_ratio': '1.5'}",
                *(
                    "{'sstable_compression': ''}",
                    "{'chunk_length_kb': '3'}",
                    "{'crc_check_chance': '5'}",
                ),
            ],
        ),
    ],
)
def test_an_option_takes_the_values_of_its_range(option: str, literals: list[str]) -> None:
    assert {literal: problems(option, literal) for literal in literals} == {literal: [] for literal in literals}


@pytest.mark.parametrize(
    ("option", "literal", "problem"),
    [
        ("default_time_to_live", "-1", "default_time_to_live must be from 0 to 630720000, not -1"),
        (
            "default_time_to_live",
            "630720001",
            "default_time_to_live must be from 0 to 630720000, not 630720001",
        ),
        ("gc_grace_seconds", "-1", f"gc_grace_seconds must be from 0 to {INT_MAX}, not -1"),
        (
            "gc_grace_seconds",
            f"{2**31}",
            f"gc_grace_seconds must be from 0 to {INT_MAX}, not {2**31}",
        ),
        ("gc_grace_seconds", "1.5", "gc_grace_seconds must be a whole number, not 1.5"),
        (
            "memtable_flush_period_in_ms",
            "-1",
            f"memtable_flush_period_in_ms must be from 0 to {INT_MAX}, not -1",
        ),
        ("min_index_interval", "0", f"min_index_interval must be from 1 to {INT_MAX}, not 0"),
        ("max_index_interval", "0", f"max_index_interval must be from 1 to {INT_MAX}, not 0"),
        (
            "bloom_filter_fp_chance",
            "0.0000671",
            "bloom_filter_fp_chance must be more than 6.71e-05 and at most 1, not 0.0000671",
        ),
        (
            "bloom_filter_fp_chance",
            "1.1",
            "bloom_filter_fp_chance must be more than 6.71e-05 and at most 1, not 1.1",
        ),
        ("bloom_filter_fp_chance", "'x'", "bloom_filter_fp_chance must be a number, not x"),
        ("crc_check_chance", "-0.1", "crc_check_chance must be at least 0 and at most 1, not -0.1"),
        ("crc_check_chance", "1.1", "crc_check_chance must be at least 0 and at most 1, not 1.1"),
        ("cdc", "'maybe'", "cdc must be one of 0, 1, false, no, true, yes, not maybe"),
        (
            "allow_auto_snapshot",
            "2",
            "allow_auto_snapshot must be one of 0, 1, false, no, true, yes, not 2",
        ),
        (
            "incremental_backups",
            "2",
            "incremental_backups must be one of 0, 1, false, no, true, yes, not 2",
        ),
        ("id", "5", "id must be a UUID, not 5"),
        ("Comment", "{}", "comment must not be a map"),
        ("compaction", "'x'", "compaction must be a map, not 'x'"),
        ("Caching", "'ALL'", "caching must be a map, not 'ALL'"),
        ("compression", "''", "compression must be a map, not ''"),
    ],
)
def test_a_value_out_of_its_range_is_reported(option: str, literal: str, problem: str) -> None:
    assert problems(option, literal) == [(option, problem)]


@pytest.mark.parametrize(
    ("pairs", "problem"),
    [
        ("'keys': '5'", ("caching.keys", "caching takes ALL or NONE for keys, not 5")),
        (
            "'rows_per_partition': '2147483648'",
            (
                "caching.rows_per_partition",
                "caching takes ALL, NONE or a number of rows for rows_per_partition, not 2147483648",
            ),
        ),
        (
            "'rows_per_partition': '\u0665'",
            (
                "caching.rows_per_partition",
                "caching takes ALL, NONE or a number of rows for rows_per_partition, not \u0665",
            ),
        ),
    ],
)
def test_a_value_of_caching_is_reported(pairs: str, problem: tuple[str, str]) -> None:
    assert problems("caching", f"{{{pairs}}}") == [problem]


SIZES = "a size such as 100MiB"
SCALINGS = "N, L or T with a fan factor of at least 2, or numbers, with commas between them"


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        *((name, "yes", "one of false, true, not yes") for name in ("enabled", "log_all")),
        ("unchecked_tombstone_compaction", "1", "one of false, true, not 1"),
        ("unsafe_aggressive_sstable_expiration", "no", "one of false, true, not no"),
        ("provide_overlapping_tombstones", "all", "one of cell, none, row, not all"),
        ("tombstone_threshold", "0", "more than 0, not 0"),
        ("tombstone_threshold", "x", "a number, not x"),
        ("tombstone_compaction_interval", "-1", f"from 0 to {INT_MAX}, not -1"),
        ("min_threshold", "1", f"from 2 to {INT_MAX}, not 1"),
        ("bucket_low", "x", "a number, not x"),
        ("bucket_high", "x", "a number, not x"),
        ("sstable_size_in_mb", "0", f"from 1 to {INT_MAX}, not 0"),
        ("fanout_size", "0", f"from 1 to {INT_MAX}, not 0"),
        ("compaction_window_size", "0", f"from 1 to {INT_MAX}, not 0"),
        (
            "expired_sstable_check_frequency_seconds",
            f"{2**63}",
            f"from 0 to {LONG_MAX}, not {2**63}",
        ),
        ("expired_sstable_check_frequency_seconds", "-1", f"from 0 to {LONG_MAX}, not -1"),
        ("min_sstable_size", "-1", f"from 0 to {LONG_MAX}, not -1"),
        ("min_sstable_size", "100MiB", "a whole number, not 100MiB"),
        *(("scaling_parameters", text, f"{SCALINGS}, not {text}") for text in ("T1", "X4", "T4,", "T4 L4")),
        ("base_shard_count", "0", f"from 1 to {INT_MAX}, not 0"),
        ("sstable_growth", "1.1", "at least 0 and at most 1, not 1.1"),
        ("overlap_inclusion_method", "all", "one of none, single, transitive, not all"),
        *(("flush_size_override", text, f"{SIZES}, not {text}") for text in ("x", "5", "1.MiB")),
        (
            "max_sstables_to_compact",
            f"{-(2**31) - 1}",
            f"from {-(2**31)} to {INT_MAX}, not {-(2**31) - 1}",
        ),
        ("target_sstable_size", "100KiB", "a size of at least 1MiB, not 100KiB"),
    ],
)
def test_a_value_of_compaction_is_reported(option: str, value: str, said: str) -> None:
    literal = f"{{{CLASS}, '{option}': '{value}'}}"
    assert problems("compaction", literal) == [(f"compaction.{option}", f"{option} must be {said}")]


def test_a_least_size_of_the_unified_strategy_is_a_size() -> None:
    assert problems("compaction", f"{{{UNIFIED}, 'min_sstable_size': '5'}}") == [
        ("compaction.min_sstable_size", f"min_sstable_size must be {SIZES}, not 5")
    ]


@pytest.mark.parametrize(
    ("pairs", "low", "said"),
    [
        (
            "'min_threshold': '33'",
            "min_threshold",
            "min_threshold (33) must be less than max_threshold (32)",
        ),
        (
            "'max_threshold': '3'",
            "min_threshold",
            "min_threshold (4) must be less than max_threshold (3)",
        ),
        (
            "'bucket_low': '1.5'",
            "bucket_low",
            "bucket_low (1.5) must be less than bucket_high (1.5)",
        ),
        (
            "'bucket_high': '0.5'",
            "bucket_low",
            "bucket_low (0.5) must be less than bucket_high (0.5)",
        ),
        (
            "'bucket_low': '3', 'bucket_high': '2'",
            "bucket_low",
            "bucket_low (3) must be less than bucket_high (2)",
        ),
    ],
)
def test_a_low_bound_that_is_not_low_is_reported(pairs: str, low: str, said: str) -> None:
    assert problems("compaction", f"{{{CLASS}, {pairs}}}") == [(f"compaction.{low}", said)]


@pytest.mark.parametrize(
    ("pairs", "place", "said"),
    [
        (
            f"{LZ4}, 'enabled': 'false'",
            "enabled",
            "compression that is not enabled takes no other option",
        ),
        ("'chunk_length_in_kb': '4'", "class", "compression names no class"),
        ("'class': ''", "class", "compression names no class"),
        ("'class': 'Wrong'", "class", "there is no compression class Wrong"),
        (
            f"{LZ4}, 'compression_level': '5'",
            "compression_level",
            "LZ4Compressor has no option compression_level",
        ),
        (
            f"{LZ4}, 'lz4_compressor_type': 'slow'",
            "lz4_compressor_type",
            "lz4_compressor_type must be one of fast, high, not slow",
        ),
        (
            f"{LZ4}, 'lz4_high_compressor_level': '18'",
            "lz4_high_compressor_level",
            "lz4_high_compressor_level must be from 1 to 17, not 18",
        ),
        (
            f"{LZ4}, 'lz4_high_compressor_level': '0'",
            "lz4_high_compressor_level",
            "lz4_high_compressor_level must be from 1 to 17, not 0",
        ),
        *(
            (
                f"'class': 'ZstdCompressor', 'compression_level': '{level}'",
                "compression_level",
                f"compression_level must be from -131072 to 22, not {level}",
            )
            for level in ("23", "-131073")
        ),
        *(
            (
                f"{LZ4}, 'chunk_length_in_kb': '{length}'",
                "chunk_length_in_kb",
                f"chunk_length_in_kb must be a power of 2, not {length}",
            )
            for length in ("0", "3", "2097152", "-4", "x", "\u0664")
        ),
        *(
            (
                f"{LZ4}, 'min_compress_ratio': '{ratio}'",
                "min_compress_ratio",
                f"min_compress_ratio must be 0 or at least 1, not {ratio}",
            )
            for ratio in ("0.5", "0.99")
        ),
        (
            f"{LZ4}, 'min_compress_ratio': '-1'",
            "min_compress_ratio",
            "min_compress_ratio must be at least 0, not -1",
        ),
    ],
)
def test_a_value_of_compression_is_reported(pairs: str, place: str, said: str) -> None:
    assert problems("compression", f"{{{pairs}}}") == [(f"compression.{place}", said)]


Unknown = tuple[str, str, str]


@pytest.mark.parametrize(
    ("option", "literal", "unknown"),
    [
        (
            "compactoin",
            "5",
            (
                "compactoin",
                "Cassandra 5.0 has no table option compactoin",
                "Did you mean compaction?",
            ),
        ),
        ("zzz", "{}", ("zzz", "Cassandra 5.0 has no table option zzz", "")),
        (
            "compaction",
            "{'class': 'LeveledCompaction'}",
            (
                "compaction.class",
                "Cassandra 5.0 has no compaction class LeveledCompaction",
                "Did you mean LeveledCompactionStrategy?",
            ),
        ),
        ("compaction", "{}", ("compaction.class", "compaction names no class", "")),
        (
            "compaction",
            "{'class': 'LeveledCompactionStrategy', 'fanout_sise': '5'}",
            (
                "compaction.fanout_sise",
                "LeveledCompactionStrategy of Cassandra 5.0 has no option fanout_sise",
                "Did you mean fanout_size?",
            ),
        ),
        (
            "compaction",
            f"{{{CLASS}, 'compaction_window_unit': 'HOUR'}}",
            (
                "compaction.compaction_window_unit",
                "compaction_window_unit has no value HOUR",
                "Did you mean HOURS?",
            ),
        ),
        (
            "caching",
            "{'key': 'ALL'}",
            ("caching.key", "caching has no option key", "Did you mean keys?"),
        ),
        (
            "read_repair",
            "'BLOCKED'",
            ("read_repair", "read_repair has no value BLOCKED", "Did you mean BLOCKING?"),
        ),
        (
            "compression",
            "{'chunk_length_kb': '4'}",
            (
                "compression.chunk_length_kb",
                "Cassandra 5.0 takes no chunk_length_kb in compression any more",
                "Write chunk_length_in_kb instead.",
            ),
        ),
        (
            "gc_grace_seconds",
            "-1",
            ("gc_grace_seconds", f"gc_grace_seconds must be from 0 to {INT_MAX}, not -1", ""),
        ),
    ],
)
def test_what_a_release_does_not_know_is_reported_with_what_is_like_it(
    option: str, literal: str, unknown: Unknown
) -> None:
    options = {"comment": "'a'", option: literal, "default_time_to_live": "5"}
    assert list(unknown_options(options, C5, named=True)) == [unknown]
    assert refused_options(SetOptions(Name("t"), options), C5) == (unknown[1:],)


def test_a_statement_that_sets_no_options_has_none_that_are_refused() -> None:
    assert refused_options(Truncate(Name("t")), C5) == ()


def test_of_a_live_table_only_the_values_are_judged() -> None:
    options = {"unheard_of": "5", "gc_grace_seconds": "-1"}
    assert [place for place, _, _ in unknown_options(options, C5, named=False)] == ["gc_grace_seconds"]


def test_of_scylla_the_names_of_options_and_classes_are_known_alone() -> None:
    options = {
        "unheard_of": "5",
        "gc_grace_seconds": "-1",
        "caching": "{'key': 'x'}",
        "compression": "{'chunk_length_kb': '3'}",
        "compaction": "{'class': 'LeveledCompactionStrategy', 'unheard_of': 'x'}",
    }
    assert [place for place, _, _ in unknown_options(options, SCYLLA, named=True)] == ["unheard_of"]


def test_a_class_of_another_package_is_not_judged() -> None:
    assert list(unknown_options({"compaction": "{'class': 'com.example.Own', 'x': 'y'}"}, C5, named=True)) == []


@pytest.mark.parametrize(
    ("value", "known_to"),
    [
        ("ALWAYS", {C3, C40, C41, C5}),
        ("none", {C3, C40, C41, C5}),
        ("NEVER", {C40, C41, C5}),
        ("99.9percentile", {C3, C40, C41, C5}),
        ("0.1P", {C40, C41, C5}),
        ("0p", set()),
        ("100p", set()),
        ("100percentile", set()),
        ("99.99p", {C40, C41, C5}),
        ("1.5MS", {C3, C40, C41, C5}),
        ("50", set()),
        ("max( 99p , 50ms )", {C40, C41, C5}),
        ("MIN(50ms,99p)", {C40, C41, C5}),
        ("min(99p,98p)", set()),
        ("min(50ms,40ms)", set()),
        ("min(100p,40ms)", set()),
        ("avg(99p,50ms)", set()),
        ("", set()),
    ],
)
def test_a_policy_of_speculation_is_known_to_some_releases(value: str, known_to: set[ServerRelease]) -> None:
    assert {release for release in ServerRelease if speculation_is_known(value, release)} == known_to | {SCYLLA}

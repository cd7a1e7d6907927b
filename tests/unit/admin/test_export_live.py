"""The page of a live keyspace: what is told of it in the model's words, and what is noise and left out."""

from dataclasses import replace

import pytest

from mailmend.admin.schema.export import found
from mailmend.admin.schema.export_page import page_text
from mailmend.model.catalog.james_tables import BESIDE_TABLES
from mailmend.model.catalog.ledger import LEDGER_TABLES
from mailmend.model.catalog.mail import MAIL_TABLES, MAIL_TYPES
from mailmend.model.keyspace import Schema
from mailmend.model.table import Column, Kind, Table
from tests.support.schemas import served

EMPTY = Schema((), ())
THEIRS = Table("theirs", (Column("k", "int", Kind.PARTITION), Column("v", "text")))

FRESH = {
    "additional_write_policy": ("'99p'", "'95p'"),
    "allow_auto_snapshot": ("true", "false"),
    "bloom_filter_fp_chance": ("0.01", "0.1"),
    "caching": ("{'keys': 'ALL', 'rows_per_partition': 'NONE'}", "{'keys': 'NONE', 'rows_per_partition': 'NONE'}"),
    "cdc": ("false", "true"),
    "compression": ("{'chunk_length_in_kb': '16', 'class': 'LZ4Compressor'}", "{'enabled': 'false'}"),
    "crc_check_chance": ("1.0", "0.5"),
    "dclocal_read_repair_chance": ("0.0", "0.1"),
    "default_time_to_live": ("0", "86400"),
    "gc_grace_seconds": ("864000", "3600"),
    "incremental_backups": ("true", "false"),
    "max_index_interval": ("2048", "4096"),
    "memtable": ("'default'", "'trie'"),
    "memtable_flush_period_in_ms": ("0", "1000"),
    "min_index_interval": ("128", "256"),
    "read_repair": ("'BLOCKING'", "'NONE'"),
    "read_repair_chance": ("0.0", "0.2"),
    "speculative_retry": ("'99p'", "'ALWAYS'"),
}
"""What servers from 4.0 to 5.0 list of a table for which nothing was asked, and something that somebody asked for."""


def page_of(*tables: Table, ledger: Schema = EMPTY) -> str:
    return page_text(found("shop", Schema((), tables), ledger, "Read by a test."))


def with_options(**options: str) -> Table:
    return replace(THEIRS, options=options)


def test_what_nobody_asked_for_is_not_reported() -> None:
    assert "Options:" not in page_of(with_options(**{name: default for name, (default, _) in FRESH.items()}))


@pytest.mark.parametrize("option", FRESH)
def test_what_somebody_asked_for_is_reported_alone(option: str) -> None:
    asked = {name: default for name, (default, _) in FRESH.items()} | {option: FRESH[option][1]}
    (line,) = [line for line in page_of(with_options(**asked)).splitlines() if line.startswith("Options:")]
    assert line == f"Options: `{option} = {FRESH[option][1]}`."


def test_options_stand_in_the_order_of_their_names() -> None:
    page = page_of(with_options(memtable="'trie'", cdc="true"))
    assert "Options: `cdc = true`, `memtable = 'trie'`." in page


def test_an_option_that_is_not_known_is_reported() -> None:
    assert "Options: `tomorrow = 1`." in page_of(with_options(tomorrow="1"))


def test_each_table_stands_once_under_what_it_is() -> None:
    live = served(Schema(MAIL_TYPES, (*MAIL_TABLES, *BESIDE_TABLES)))
    whole = page_text(
        found(
            "mail", replace(live, tables=(*live.tables, THEIRS)), served(Schema((), LEDGER_TABLES)), "Read by a test."
        )
    )
    headings = [line.removeprefix("## ") for line in whole.splitlines() if line.startswith("## ")]
    wanted = ["Mail", "James's other tables", "Other tables", "Ledger"]
    assert [one for one in headings if one in wanted] == wanted
    tables = [line.removeprefix("### ") for line in whole.splitlines() if line.startswith("### ")]
    assert tables == [
        *(one.spelling for one in MAIL_TABLES),
        *(one.spelling for one in BESIDE_TABLES),
        "theirs",
        *(one.spelling for one in LEDGER_TABLES),
    ]
    alone = [line for line in page_of(THEIRS).splitlines() if line.startswith("## ")]
    assert alone == ["## Tables", "## Other tables"]


def test_every_table_can_be_jumped_to() -> None:
    page = page_of(THEIRS, ledger=served(Schema((), LEDGER_TABLES)))
    assert "**Other tables**: [theirs](#theirs)" in page
    for table in LEDGER_TABLES:
        assert f"[{table.spelling}](#{table.name})" in page
        assert f"### {table.spelling}" in page


def test_what_would_break_the_table_of_columns_is_escaped() -> None:
    keyed = Table(
        "keyed",
        (
            Column("a", "int", Kind.PARTITION),
            Column("b", "int", Kind.CLUSTERING, descending=True),
            Column("s", "text", Kind.STATIC),
        ),
        comment="one | two \\ three",
    )
    lines = page_of(keyed).splitlines()
    assert "one \\| two \\\\ three." in lines
    assert [line.split(" | ")[2].strip() for line in lines if line.startswith("| `")] == [
        "partition",
        "clustering ↓",
        "static",
    ]
    assert any(line.startswith("Key: `(a), b ↓`. Compaction: not declared: ") for line in lines)

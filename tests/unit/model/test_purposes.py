"""Every column and every compaction that mailmend declares is explained; what it does not know it does not explain."""

import pytest

from model.catalog.generations import GENERATIONS, Generation
from model.catalog.ledger import LEDGER_TABLES
from model.catalog.mail import IMAP_UID, MESSAGE_COMPACTIONS, SCHEMA, CompactionChoice, compacted
from model.catalog.purposes import CANONICAL, purpose_of, why_compacted
from model.schema.table import Canonical, Column, Compaction, Kind, Table
from tests.support.schemas import served

OURS = Table("t", (Column("k", "int", Kind.PARTITION),))


@pytest.mark.parametrize("generation", GENERATIONS, ids=lambda one: one.name)
def test_every_column_of_every_generation_is_explained(generation: Generation) -> None:
    for spelled, told in zip(generation.schema.tables, served(generation.schema).tables, strict=True):
        for column in spelled.columns:
            why = purpose_of(spelled.spelling, column.spelling)
            assert why, f"{spelled.spelling}.{column.spelling}"
            assert purpose_of(told.spelling, column.name) == why


@pytest.mark.parametrize("table", LEDGER_TABLES, ids=lambda one: one.name)
def test_every_column_of_the_ledger_is_explained(table: Table) -> None:
    assert [column.name for column in table.columns if not purpose_of(table.name, column.name)] == []


def test_a_word_means_in_a_table_what_it_means_there() -> None:
    assert purpose_of("mailboxCounters", "count") == "messages"
    assert purpose_of("orders", "count") == ""
    assert purpose_of("applicableFlag", "userFlags") != purpose_of("imapUidTable", "userFlags")
    assert purpose_of("orders", "colour") == ""


def test_every_way_of_comparing_has_its_words() -> None:
    assert set(CANONICAL) == set(Canonical)


@pytest.mark.parametrize("choice", CompactionChoice)
def test_every_choice_of_compaction_is_explained(choice: CompactionChoice) -> None:
    (truth,) = (one for one in compacted(SCHEMA.tables, choice) if one.name == IMAP_UID.name)
    why = why_compacted(truth)
    assert why not in {"", "not known to mailmend"}
    compaction = MESSAGE_COMPACTIONS[choice]
    more = Compaction(compaction.strategy, {**compaction.options, "max_threshold": "32"})
    assert why_compacted(Table("t", OURS.columns, compaction=more)) == why


def test_every_declared_table_says_why_it_is_compacted_so() -> None:
    for table in (*SCHEMA.tables, *LEDGER_TABLES):
        assert why_compacted(table) not in {"", "not known to mailmend"}
    assert why_compacted(Table("t", OURS.columns, compaction=Compaction("com.example.Own"))) == "not known to mailmend"
    assert "server's own default" in why_compacted(OURS)


def test_wide_windows_are_told_from_those_of_rows_that_expire() -> None:
    wide = MESSAGE_COMPACTIONS[CompactionChoice.TWCS]
    narrow = Compaction(wide.strategy, {"compaction_window_unit": "HOURS", "compaction_window_size": "1"})
    whys = [why_compacted(Table("t", OURS.columns, compaction=one)) for one in (wide, narrow)]
    assert "old messages still change their flags" in whys[0]
    assert "expires together" in whys[1]

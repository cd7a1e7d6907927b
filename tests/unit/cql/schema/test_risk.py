"""Each danger of a statement is told, each harmless statement is told harmless, and none is left unjudged."""

from dataclasses import replace

import pytest

from mailmend.cql.schema.risk import Assessment, Before, DroppedColumns, Risk, allow_text, risk_text
from mailmend.cql.statements import (
    AddColumns,
    AddField,
    AlterKeyspace,
    Batch,
    CreateIndex,
    CreateKeyspace,
    CreateTable,
    CreateType,
    CreateView,
    DropColumns,
    DropCompactStorage,
    DropIndex,
    DropKeyspace,
    DropTable,
    DropType,
    DropView,
    MaskColumn,
    Name,
    Other,
    RenameColumns,
    RenameFields,
    SetOptions,
    SetViewOptions,
    Statement,
    Truncate,
    Use,
    WriteKind,
    WriteRows,
)
from mailmend.model.catalog.mail import IMAP_UID, SCHEMA
from mailmend.model.keyspace import Index, Schema, View
from mailmend.model.table import Column, Compaction, Kind, Table, UserType
from tests.support.statements import KINDS

NOTES = Table(
    "notes",
    (Column("id", "timeuuid", Kind.PARTITION), Column("note", "text")),
    compaction=Compaction("SizeTieredCompactionStrategy", {"max_threshold": "32", "min_threshold": "4"}),
    options={
        "gc_grace_seconds": "864000",
        "default_time_to_live": "86400",
        "read_repair": "'BLOCKING'",
        "compression": "{'chunk_length_in_kb': '16', 'class': 'LZ4Compressor'}",
    },
)
LIVE = Schema((), (NOTES,))
NOTE, ABSENT, ELSEWHERE = Name("notes"), Name("drafts"), Name("notes", "other")
SIZE = UserType("size", (("bytes", "bigint"),))


def options(name: Name = NOTE, **values: str) -> SetOptions:
    return SetOptions(name, values)


def index(on: str) -> CreateIndex:
    return CreateIndex(Name(on), Index("by_note", on, "note"))


def view(of: str) -> CreateView:
    return CreateView(Name("by_note"), View(NOTES, of, "note IS NOT NULL"))


UNSAFE = "{'class': 'TimeWindowCompactionStrategy', 'unsafe_aggressive_sstable_expiration': '%s'}"
SIZE_TIERED = "{'class': 'SizeTieredCompactionStrategy', 'max_threshold': '32', 'min_threshold': '4'}"
LEVELED = "{'class': 'LeveledCompactionStrategy'}"
RISKY: tuple[tuple[Statement, *tuple[Risk, ...]], ...] = (
    (DropKeyspace("mail"), Risk.DATA_LOSS),
    (DropTable(NOTE), Risk.DATA_LOSS),
    (DropTable(ELSEWHERE), Risk.DATA_LOSS),
    (DropType(Name("size")), Risk.DATA_LOSS),
    (DropIndex(Name("by_note")), Risk.BREAKING),
    (DropView(Name("by_note")), Risk.BREAKING),
    (DropColumns(NOTE, ("note",)), Risk.DATA_LOSS),
    (Truncate(NOTE), Risk.DATA_LOSS),
    (WriteRows(NOTE, WriteKind.DELETE), Risk.DATA_LOSS),
    (Batch((WriteRows(NOTE, WriteKind.INSERT), WriteRows(NOTE, WriteKind.DELETE))), Risk.DATA_LOSS),
    (options(default_time_to_live="3600"), Risk.DATA_LOSS),
    (options(ELSEWHERE, default_time_to_live="3600"), Risk.DATA_LOSS),
    (options(gc_grace_seconds="0"), Risk.RESURRECTION),
    *((options(compaction=UNSAFE % said), Risk.REWRITE, Risk.RESURRECTION) for said in ("true", "TRUE", "True")),
    (options(compaction=UNSAFE % "false"), Risk.REWRITE),
    (options(gc_grace_seconds="'0'"), Risk.RESURRECTION),
    (options(default_time_to_live="86399"), Risk.DATA_LOSS),
    (options(default_time_to_live="'86399'"), Risk.DATA_LOSS),
    (options(ELSEWHERE, gc_grace_seconds="864000"), Risk.RESURRECTION),  # nothing is known of another keyspace
    (options(ELSEWHERE, compaction=SIZE_TIERED), Risk.REWRITE),
    (options(gc_grace_seconds="0", compaction=LEVELED), Risk.REWRITE, Risk.RESURRECTION),
    (AlterKeyspace("mail", {"replication": "{'class': 'NetworkTopologyStrategy', 'dc1': '3'}"}), Risk.STALE),
    (options(read_repair="'NONE'"), Risk.STALE),
    (options(compaction=LEVELED), Risk.REWRITE),
    (options(compression="{'chunk_length_in_kb': '8', 'class': 'LZ4Compressor'}"), Risk.REWRITE),
    (options(compression="{'enabled': 'false'}"), Risk.REWRITE),
    (index("notes"), Risk.LONG),
    (view("notes"), Risk.LONG),
    (RenameColumns(NOTE, (("id", "key"),)), Risk.BREAKING),
    (MaskColumn(NOTE, "note", "mask_default()"), Risk.BREAKING),
    (RenameFields(Name("size"), (("bytes", "octets"),)), Risk.BREAKING),
)
HARMLESS_ONES: tuple[Statement, ...] = (
    CreateKeyspace("mail", {}),
    AlterKeyspace("mail", {"durable_writes": "true"}),
    CreateType(Name("size"), SIZE),
    AddField(Name("size"), "lines", "bigint"),
    CreateTable(ABSENT, NOTES),
    AddColumns(NOTE, (Column("owner", "text"),)),
    DropColumns(ABSENT, ("note",)),
    RenameColumns(ABSENT, (("id", "key"),)),
    options(comment="'Notes'"),
    SetViewOptions(Name("by_note"), {"gc_grace_seconds": "0"}),
    DropCompactStorage(NOTE),
    MaskColumn(NOTE, "note", ""),
    MaskColumn(ABSENT, "note", "mask_default()"),
    options(caching="{'keys': 'ALL'}"),
    options(gc_grace_seconds="1728000"),
    options(gc_grace_seconds="864000"),
    options(default_time_to_live="0"),
    *(options(default_time_to_live=seconds) for seconds in ("86400", "86401", "'86400'", "172800")),
    options(gc_grace_seconds="'864000'"),
    options(ELSEWHERE, read_repair="'BLOCKING'"),
    options(compaction=SIZE_TIERED),
    options(read_repair="'BLOCKING'"),
    options(compaction="{'class': 'SizeTieredCompactionStrategy', 'max_threshold': '8'}"),
    options(compression="{'class': 'org.apache.cassandra.io.compress.LZ4Compressor', 'chunk_length_in_kb': 16}"),
    options(ABSENT, gc_grace_seconds="0", compaction="{'class': 'LeveledCompactionStrategy'}"),
    DropTable(ABSENT, if_exists=True),
    Truncate(ABSENT),
    index("drafts"),
    view("drafts"),
    WriteRows(NOTE, WriteKind.INSERT),
    WriteRows(NOTE, WriteKind.UPDATE),
    WriteRows(ABSENT, WriteKind.DELETE),
    Batch((WriteRows(NOTE, WriteKind.INSERT),)),
    Use("mail"),
    Other("GRANT SELECT"),
)


def is_sentence(text: str) -> bool:
    return text[:1].isupper() and not text.isupper() and text.endswith(".")


@pytest.mark.parametrize(("statement", "risks"), [(one, risks) for one, *risks in RISKY], ids=str)
def test_a_danger_is_reported_with_its_reason(statement: Statement, risks: list[Risk]) -> None:
    assessment = statement.assess(LIVE)
    assert list(assessment.risks) == risks
    assert assessment.worst is risks[-1]
    assert is_sentence(assessment.why)
    assert "{" not in assessment.why


@pytest.mark.parametrize("statement", HARMLESS_ONES, ids=str)
def test_a_harmless_statement_is_reported_harmless(statement: Statement) -> None:
    assessment = statement.assess(LIVE)
    assert assessment.risks == (Risk.NONE,)
    assert is_sentence(assessment.why)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.undo], ids=str)
def test_how_to_undo_a_statement_is_said_in_a_sentence(kind: type[Statement]) -> None:
    assert is_sentence(kind.undo)


UNFIT: frozenset[type[Statement]] = frozenset(
    {AlterKeyspace, Batch, CreateKeyspace, DropKeyspace, Other, Truncate, Use}
)


def test_a_migration_has_what_can_be_seen_to_have_run_and_any_other_kind_says_why_it_is_left_out() -> None:
    assert {kind for kind in KINDS if kind.unfit} == UNFIT
    for kind in UNFIT:
        assert kind.unfit[0].islower()
        assert not kind.unfit.endswith((".", "X"))


def test_every_kind_of_statement_is_judged() -> None:
    risky = [statement for statement, *_ in RISKY]
    cases = [*risky, *HARMLESS_ONES]
    assert {type(one) for one in cases} == set(KINDS)
    for one in cases:
        for danger in one.dangers:
            assert any(danger in each.dangers and danger.risk in each.assess(LIVE).risks for each in risky) or (
                type(one) is AddColumns  # needs columns that were dropped once: a test of its own, below
            )


def test_the_reasons_of_several_dangers_stand_together() -> None:
    why = options(gc_grace_seconds="0", compaction=LEVELED).assess(LIVE).why
    assert "rewritten under" in why
    assert "comes back" in why


def test_the_option_that_allows_risks_names_each_once_and_the_worst_first() -> None:
    lost = DropTable(NOTE).assess(LIVE)
    rewritten = options(gc_grace_seconds="0", compaction=LEVELED).assess(LIVE)
    harmless = Use("mail").assess(LIVE)

    places = [("line 1", rewritten), ("line 2", lost), ("line 3", harmless), ("line 4", lost)]

    assert allow_text(places) == "data-loss,resurrection,rewrite"
    assert allow_text([("line 3", harmless)]) == ""


def test_the_risks_of_a_statement_are_named_for_people_the_mildest_first() -> None:
    assert risk_text(options(gc_grace_seconds="0", compaction=LEVELED).assess(LIVE)) == "rewrite, resurrection"
    assert risk_text(DropTable(NOTE).assess(LIVE)) == "data loss"


@pytest.mark.parametrize("risk", Risk)
def test_every_risk_but_none_must_be_allowed(risk: Risk) -> None:
    assert Assessment((risk,), "why").is_risky is (risk is not Risk.NONE)


DROPPED = frozenset({("notes", "owner")})
DROPPED_ONCE = Schema((), (replace(NOTES, dropped=(Column("owner", "text"),)),))
AUTHOR, OWNER, UPPER = Column("author", "text"), Column("owner", "text"), Column("OWNER", "text")


@pytest.mark.parametrize(
    ("statement", "live", "dropped", "risk"),
    [
        (AddColumns(NOTE, (UPPER,)), LIVE, DROPPED, Risk.DATA_LOSS),
        (AddColumns(NOTE, (AUTHOR, UPPER)), LIVE, DROPPED, Risk.DATA_LOSS),
        (AddColumns(NOTE, (UPPER,)), DROPPED_ONCE, frozenset(), Risk.DATA_LOSS),
        (AddColumns(NOTE, (AUTHOR,)), LIVE, DROPPED, Risk.NONE),
        (AddColumns(ABSENT, (OWNER,)), LIVE, DROPPED, Risk.NONE),
        (AddColumns(ABSENT, (OWNER,)), LIVE, frozenset(), Risk.NONE),
        (AddColumns(ELSEWHERE, (OWNER,)), DROPPED_ONCE, frozenset(), Risk.NONE),
    ],
)
def test_a_column_that_is_added_again_after_a_drop_is_dangerous(
    statement: Statement, live: Schema, dropped: DroppedColumns, risk: Risk
) -> None:
    assert statement.assess(live, dropped).worst is risk


@pytest.mark.parametrize(
    ("option", "value"), [("gc_grace_seconds", "10"), ("default_time_to_live", "10")], ids=["grace", "ttl"]
)
def test_where_the_live_value_is_not_reported_the_servers_default_counts(option: str, value: str) -> None:
    silent = Schema((), (IMAP_UID,))
    assert options(Name("imapUidTable"), **{option: value}).assess(silent).worst is not Risk.NONE
    assert options(Name("imapUidTable"), default_time_to_live="0").assess(silent).worst is Risk.NONE


def test_a_default_that_is_written_out_changes_nothing() -> None:
    silent = Schema((), (IMAP_UID,))
    same = options(Name("imapUidTable"), gc_grace_seconds="864000", default_time_to_live="0")
    assert same.assess(silent).risks == (Risk.NONE,)


@pytest.mark.parametrize(
    ("table", "option", "literal"),
    [
        (NOTE, "default_time_to_live", "86400"),
        (NOTE, "nonesuch", ""),
        (NOTE, "comment", ""),
        (ABSENT, "gc_grace_seconds", ""),
        (ELSEWHERE, "gc_grace_seconds", ""),
        (Name("imapUidTable"), "gc_grace_seconds", "864000"),
        (Name("imapUidTable"), "default_time_to_live", "0"),
    ],
)
def test_a_live_option_is_known_of_live_tables_of_the_keyspace(table: Name, option: str, literal: str) -> None:
    """Where a table does not declare it, the server's default is meant."""
    assert Before(Schema((), (replace(NOTES, comment="x"), IMAP_UID))).option(table, option) == literal


def test_a_new_time_window_is_a_rewrite_and_a_threshold_is_none() -> None:
    compaction = "{'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': 'DAYS'%s}"
    truth = Name("imapUidTable")
    same = ", 'compaction_window_size': '28', 'tombstone_threshold': '0.4'"
    window = IMAP_UID.compaction.options["compaction_window_size"] if IMAP_UID.compaction else ""
    assert options(truth, compaction=compaction % same.replace("28", window)).assess(SCHEMA).worst is Risk.NONE
    assert options(truth, compaction=compaction % "").assess(SCHEMA).worst is Risk.REWRITE


def test_what_is_dropped_is_remembered_as_the_server_knows_it() -> None:
    dropped = DropColumns(Name('"Notes"'), ("Owner", '"Owner"')).drops()
    assert dropped == {("Notes", "owner"), ("Notes", "Owner")}
    assert Truncate(NOTE).drops() == frozenset()


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        (DropKeyspace("mail"), "mail"),
        (Use("mail"), "mail"),
        (CreateKeyspace("mail", {}), "mail"),
        (DropTable(ELSEWHERE), "other.notes"),
        (CreateIndex(NOTE, Index("by_note", "notes", "note")), "by_note"),
        (CreateIndex(NOTE, Index("", "notes", "note")), "the index on notes"),
        (
            Batch(
                (
                    WriteRows(NOTE, WriteKind.INSERT),
                    WriteRows(ELSEWHERE, WriteKind.DELETE),
                    WriteRows(NOTE, WriteKind.UPDATE),
                )
            ),
            "notes, other.notes",
        ),
        (Other("GRANT SELECT"), "GRANT SELECT"),
        (Truncate(NOTE), "notes"),
    ],
    ids=str,
)
def test_what_a_statement_is_about_is_reported_for_people(statement: Statement, name: str) -> None:
    assert statement.subject == name

"""What applying would do, decided before anything is done; what is created where, and never elsewhere."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cql.applying import ensure_ledger, plan_apply
from cql.replication import parse_replication
from model.catalog.generations import JAMES_3_8, JAMES_3_9, NEWEST, Generation
from model.catalog.ledger import LEDGER_TABLES, REPAIR_RUN
from model.catalog.mail import SCHEMA, CompactionChoice
from model.errors import BadIdentifier, MailmendError, SchemaMismatch, UnknownKeyspace, WrongUse
from model.schema.keyspace import Schema
from model.schema.table import Column, Kind, Table
from tests.support.applying import apply_schema, verify_schema
from tests.support.schema_twin import SchemaTwin
from tests.support.schemas import columns_of, served, with_columns, without_tables

EVERYTHING = 1 + len(SCHEMA.types) + len(SCHEMA.tables)
OURS = served(SCHEMA, made_here=True)


def test_an_empty_cluster_gets_everything_in_an_order_that_works() -> None:
    """The keyspace, then the types, then the tables; the truth first among them."""
    steps = plan_apply(SchemaTwin(), "mail", parse_replication("dc1=3")).steps
    assert len(steps) == EVERYTHING
    assert [step.creates for step in steps[:4]] == [
        "keyspace mail",
        "type attachments",
        "type mailboxbase",
        "table imapUidTable",
    ]
    assert "'dc1': '3'" in steps[0].cql


def test_a_plan_changes_nothing() -> None:
    """It only reads."""
    twin = SchemaTwin()
    plan_apply(twin, "mail")
    assert twin.carried_out == []


def test_applying_twice_creates_once() -> None:
    """And what was read back is right both times."""
    twin = SchemaTwin()
    first, second = apply_schema(twin, "mail"), apply_schema(twin, "mail")
    assert len(first.created) == EVERYTHING
    assert second.created == ()
    assert first.recognition.generation is second.recognition.generation is NEWEST
    assert first.recognition.agrees
    assert second.recognition.agrees


@given(st.integers(0, EVERYTHING - 1))
@settings(max_examples=EVERYTHING)
def test_an_apply_that_broke_off_anywhere_is_finished_by_the_next(statements: int) -> None:
    """Whatever had been created stays and is not created again."""
    twin = SchemaTwin()
    twin.fails_after = statements
    with pytest.raises(MailmendError, match="went away"):
        apply_schema(twin, "mail")
    twin.fails_after = None
    applied = apply_schema(twin, "mail")
    assert len(applied.created) == EVERYTHING - statements
    assert len(twin.carried_out) == EVERYTHING
    assert applied.recognition.agrees


def test_an_existing_keyspace_keeps_its_replication() -> None:
    """An empty one is filled, not made anew."""
    twin = SchemaTwin(mail=Schema((), ()))
    applied = apply_schema(twin, "mail", parse_replication("dc1=3"))
    assert "keyspace mail" not in applied.created
    assert len(applied.created) == EVERYTHING - 1


def test_tables_of_others_in_the_same_keyspace_do_not_matter() -> None:
    """They are noted."""
    others = Schema((), (Table("domains", (Column("domain", "text", Kind.PARTITION),)),))
    applied = apply_schema(SchemaTwin(mail=others), "mail")
    assert len(applied.created) == EVERYTHING - 1
    assert applied.recognition.agrees
    assert [note.owner for note in applied.recognition.notes] == ["domains"]


@pytest.mark.parametrize("generation", [JAMES_3_8, JAMES_3_9, NEWEST], ids=lambda one: one.name)
def test_nothing_is_created_in_a_whole_keyspace_of_james(generation: Generation) -> None:
    """Also where the modules that it runs without have no tables."""
    twin = SchemaTwin(mail=without_tables(served(generation.schema), "blobs", "blobparts", "attachmentv2"))
    applied = apply_schema(twin, "mail", complete=True)
    assert twin.carried_out == []
    assert applied.recognition.generation is generation
    assert applied.recognition.agrees


def test_what_a_keyspace_of_james_lacks_is_told_and_withheld() -> None:
    """Nothing is created there unasked; asked, only what mailmend needs."""
    live = without_tables(served(JAMES_3_9.schema), "firstunseen", "messagev3", "subscription")
    twin = SchemaTwin(mail=live)
    told = apply_schema(twin, "mail")
    assert told.created == ()
    assert told.withheld == ("table messageV3", "table firstUnseen")
    assert not told.recognition.agrees
    assert twin.carried_out == []

    done = apply_schema(twin, "mail", complete=True)
    assert done.created == told.withheld
    assert done.recognition.agrees


def test_a_table_that_james_lacks_is_created_in_its_own_generation() -> None:
    """With the columns that this James writes."""
    twin = SchemaTwin(mail=without_tables(served(JAMES_3_9.schema), "messagev3"))
    (step,) = plan_apply(twin, "mail", complete=True).steps
    assert "textualLineCount" in step.cql
    assert "mediaType" in step.cql


def test_a_column_is_never_added_or_changed() -> None:
    """Drift inside a table is told, in a keyspace of our own too."""
    live = with_columns(OURS, "modseq", (one for one in columns_of(OURS, "modseq") if one.in_key))
    twin = SchemaTwin(mail=live)
    applied = apply_schema(twin, "mail", complete=True)
    assert twin.carried_out == []
    assert [str(one) for one in applied.recognition.drift] == ["missing column: modseq.nextModseq (bigint)"]


def test_a_server_that_lacks_the_compaction_is_not_touched() -> None:
    """The refusal comes before the first statement."""
    twin = SchemaTwin("4.1.10")
    with pytest.raises(WrongUse, match="UnifiedCompactionStrategy"):
        apply_schema(twin, "mail", compaction=CompactionChoice.UNIFIED)
    assert twin.carried_out == []
    assert apply_schema(twin, "mail", compaction=CompactionChoice.LEVELED).created


@pytest.mark.parametrize("name", ["ma il", "mail;", "select", ""])
def test_an_odd_name_never_reaches_the_server(name: str) -> None:
    """Neither for mail nor for the ledger."""
    twin = SchemaTwin(mail=OURS)
    for attempt in (lambda: apply_schema(twin, name), lambda: ensure_ledger(twin, name, "mail")):
        with pytest.raises(BadIdentifier):
            attempt()
    assert twin.carried_out == []


def test_verify_writes_nothing() -> None:
    """Whatever it finds."""
    twin = SchemaTwin(mail=without_tables(OURS, "firstunseen"))
    assert [one.owner for one in verify_schema(twin, "mail").drift] == ["firstUnseen"]
    assert twin.carried_out == []
    with pytest.raises(UnknownKeyspace):
        verify_schema(twin, "nowhere")


def test_the_ledger_is_made_once_with_the_mail_keyspaces_replication() -> None:
    """Short class name, same copies."""
    twin = SchemaTwin(mail=OURS)
    twin.replications["mail"] = {"class": "org.apache.cassandra.locator.NetworkTopologyStrategy", "dc1": "3"}
    assert ensure_ledger(twin, "mailmend", "mail") == (
        "keyspace mailmend",
        *(f"table {table.spelling}" for table in LEDGER_TABLES),
    )
    assert twin.replications["mailmend"] == {"class": "NetworkTopologyStrategy", "dc1": "3"}
    assert ensure_ledger(twin, "mailmend", "mail") == ()


def test_the_ledger_of_a_keyspace_that_is_yet_to_be_made_gets_its_replication() -> None:
    """Of one that is there its own is copied, whatever is asked for."""
    for twin in (SchemaTwin(), SchemaTwin(mail=OURS)):
        ensure_ledger(twin, "mailmend", "mail", parse_replication("dc1=3"))
        assert twin.replications["mailmend"].get("dc1") == (None if "mail" in twin.keyspaces else "3")


def test_two_that_make_the_ledger_make_the_same_tables() -> None:
    """Each has an id that follows from keyspace and name, and no two have the same."""
    one, other = SchemaTwin(mail=OURS), SchemaTwin(mail=OURS)
    for twin in (one, other):
        ensure_ledger(twin, "mailmend", "mail")
    ensure_ledger(other, "another", "mail")
    assert one.carried_out == other.carried_out[: len(one.carried_out)]
    ids = [text.rpartition("AND id = ")[2] for text in other.carried_out if " TABLE " in text]
    assert all(ids)
    assert len(set(ids)) == len(ids) == 2 * len(LEDGER_TABLES)


def test_a_ledger_that_lacks_a_table_gets_it() -> None:
    """A newer mailmend keeps more."""
    held = Schema((), served(Schema((), LEDGER_TABLES), made_here=True).tables[1:])
    twin = SchemaTwin(mail=OURS, mailmend=held)
    assert ensure_ledger(twin, "mailmend", "mail") == ("table repair_run",)


def test_more_columns_in_the_ledger_are_fine_fewer_are_not() -> None:
    """What our statements do not name does not disturb them."""
    held = served(Schema((), LEDGER_TABLES), made_here=True)
    more = with_columns(held, "repair_run", (*columns_of(held, "repair_run"), Column("colour", "text")))
    assert ensure_ledger(SchemaTwin(mail=OURS, mailmend=more), "mailmend", "mail") == ()
    fewer = with_columns(held, "repair_run", REPAIR_RUN.key)
    with pytest.raises(SchemaMismatch, match="keyspace 'mailmend' lacks missing column: repair_run"):
        ensure_ledger(SchemaTwin(mail=OURS, mailmend=fewer), "mailmend", "mail")


def test_no_ledger_is_made_beside_a_keyspace_that_is_not_there() -> None:
    """A mistyped name leaves nothing behind."""
    twin = SchemaTwin()
    with pytest.raises(UnknownKeyspace):
        ensure_ledger(twin, "mailmend", "mial")
    assert twin.carried_out == []

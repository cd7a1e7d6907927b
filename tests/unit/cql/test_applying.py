"""What applying would do, decided before anything is done; what is created where, and never elsewhere."""

import pytest

from mailmend.cql.applying import ensure_ledger
from mailmend.cql.migrate.files import shipped
from mailmend.cql.migrate.rollout import RolloutPlan, RolloutRequest, plan_rollout
from mailmend.cql.render import in_every_data_centre, parse_replication
from mailmend.cql.schema.generations import JAMES_3_8, JAMES_3_9, NEWEST, Generation
from mailmend.cql.schema.migrations import LedgerRecord
from mailmend.model.catalog.ledger import LEDGER_TABLES, REPAIR_RUN
from mailmend.model.catalog.mail import SCHEMA
from mailmend.model.errors import (
    BadIdentifier,
    BadMigration,
    LikeAnotherKeyspace,
    ReplicationNeeded,
    SchemaMismatch,
    TablesOfOthers,
    UnknownKeyspace,
)
from mailmend.model.keyspace import Schema
from mailmend.model.table import Column, Table, columns
from tests.support.applying import apply_schema
from tests.support.schema_twin import SchemaTwin
from tests.support.schemas import columns_of, served, with_columns, without_tables

OURS = shipped()
MADE = served(SCHEMA, made_here=True)


def planned(twin: SchemaTwin, **request: object) -> RolloutPlan:
    request = {"replication": parse_replication("dc1=3"), "ours": True, **request}
    return plan_rollout(twin, LedgerRecord(), RolloutRequest("mail", OURS, **request))  # type: ignore[arg-type]


def test_an_existing_keyspace_keeps_its_replication() -> None:
    assert planned(SchemaTwin(mail=Schema((), ()))).creation is None


@pytest.mark.parametrize("generation", [JAMES_3_8, JAMES_3_9, NEWEST], ids=lambda one: one.name)
def test_nothing_is_created_in_a_whole_keyspace_of_james(generation: Generation) -> None:
    live = without_tables(served(generation.schema), "blobs", "blobparts", "attachmentv2")
    assert planned(SchemaTwin(mail=live), complete=True).empty


def test_what_a_keyspace_of_james_lacks_is_reported_and_withheld() -> None:
    twin = SchemaTwin(mail=without_tables(served(JAMES_3_9.schema), "firstunseen", "messagev3", "subscription"))
    withheld, asked = planned(twin), planned(twin, complete=True)
    assert [one.creates for one in withheld.withheld] == ["table messageV3", "table firstUnseen"]
    assert (withheld.empty, asked.besides, asked.withheld) == (True, withheld.withheld, ())


def test_a_table_that_james_lacks_is_created_in_its_own_generation() -> None:
    twin = SchemaTwin(mail=without_tables(served(JAMES_3_9.schema), "messagev3"))
    (step,) = planned(twin, complete=True).besides
    assert "textualLineCount" in step.cql
    assert "mediaType" in step.cql


def test_a_column_is_never_added_or_changed() -> None:
    live = with_columns(MADE, "modseq", (one for one in columns_of(MADE, "modseq") if one.in_key))
    with pytest.raises(BadMigration, match="is in mail already, and is different"):
        planned(SchemaTwin(mail=live), complete=True)


def test_one_node_keeps_one_copy_unasked() -> None:
    assert str(planned(SchemaTwin(), replication=None).replication) == str(in_every_data_centre(1))


def test_on_several_nodes_the_number_of_copies_is_never_guessed() -> None:
    twin = SchemaTwin()
    twin.data_centres = ("east", "east", "east", "west")
    with pytest.raises(ReplicationNeeded, match=r"'mail' does not exist, and the cluster has 4 nodes") as refused:
        planned(twin, replication=None)
    assert "--replication east=3,west=1 " in refused.value.mend
    assert "--replication-factor" in refused.value.mend
    assert planned(twin).creation is not None
    twin.keyspaces["mail"] = Schema((), ())
    assert planned(twin, replication=None).creation is None


@pytest.mark.parametrize("name", ["ma il", "mail;", "select", ""])
def test_an_odd_name_never_reaches_the_server(name: str) -> None:
    twin = SchemaTwin(mail=MADE)
    with pytest.raises(BadIdentifier):
        apply_schema(twin, name)
    with pytest.raises(BadIdentifier):
        ensure_ledger(twin, name, "mail")
    assert twin.carried_out == []


def test_the_ledger_is_made_once_with_the_mail_keyspaces_replication() -> None:
    twin = SchemaTwin(mail=MADE)
    twin.replications["mail"] = {"class": "org.apache.cassandra.locator.NetworkTopologyStrategy", "dc1": "3"}
    assert ensure_ledger(twin, "mailmend", "mail") == (
        "keyspace mailmend",
        *(f"table {table.spelling}" for table in LEDGER_TABLES),
    )
    assert twin.replications["mailmend"] == {"class": "NetworkTopologyStrategy", "dc1": "3"}
    assert ensure_ledger(twin, "mailmend", "mail") == ()


def test_the_ledger_of_a_keyspace_that_is_yet_to_be_made_gets_its_replication() -> None:
    for twin in (SchemaTwin(), SchemaTwin(mail=MADE)):
        ensure_ledger(twin, "mailmend", "mail", parse_replication("dc1=3"))
        assert twin.replications["mailmend"].get("dc1") == (None if "mail" in twin.keyspaces else "3")


def test_two_that_make_the_ledger_make_the_same_tables() -> None:
    one, other = SchemaTwin(mail=MADE), SchemaTwin(mail=MADE)
    for twin in (one, other):
        ensure_ledger(twin, "mailmend", "mail")
    ensure_ledger(other, "another", "mail")
    assert one.carried_out == other.carried_out[: len(one.carried_out)]
    ids = [text.rpartition("AND id = ")[2] for text in other.carried_out if " TABLE " in text]
    assert all(ids)
    assert len(set(ids)) == len(ids) == 2 * len(LEDGER_TABLES)


def test_a_ledger_that_lacks_a_table_gets_it() -> None:
    held = Schema((), served(Schema((), LEDGER_TABLES), made_here=True).tables[1:])
    twin = SchemaTwin(mail=MADE, mailmend=held)
    assert ensure_ledger(twin, "mailmend", "mail") == ("table repair_run",)


def test_more_columns_in_the_ledger_are_fine_fewer_are_not() -> None:
    held = served(Schema((), LEDGER_TABLES), made_here=True)
    more = with_columns(held, "repair_run", (*columns_of(held, "repair_run"), Column("colour", "text")))
    assert ensure_ledger(SchemaTwin(mail=MADE, mailmend=more), "mailmend", "mail") == ()
    fewer = with_columns(held, "repair_run", REPAIR_RUN.key)
    with pytest.raises(SchemaMismatch, match="keyspace 'mailmend' lacks missing column: repair_run"):
        ensure_ledger(SchemaTwin(mail=MADE, mailmend=fewer), "mailmend", "mail")


def test_no_ledger_is_made_beside_a_keyspace_that_is_not_there() -> None:
    twin = SchemaTwin()
    with pytest.raises(UnknownKeyspace):
        ensure_ledger(twin, "mailmend", "mial")
    assert twin.carried_out == []


SHOP = Schema((), tuple(Table(name, columns("id uuid")) for name in ("orders", "a", "b", "c", "d", "e", "f")))


def test_no_table_is_planned_among_those_of_another_application() -> None:
    """Some of them are named, with both ways on; what is meant is planned."""
    twin = SchemaTwin(mail=SHOP)
    with pytest.raises(
        TablesOfOthers, match=r"of another application: orders, a, b, c, d and 2 more\n.*--into-existing"
    ):
        planned(twin)
    assert len(planned(twin, into_existing=True).migrations.due) == len(OURS)


@pytest.mark.parametrize(
    ("there", "request_", "refused"),
    [
        ({"mial": MADE}, {}, False),
        ({"mai": MADE}, {}, True),
        ({"mai": MADE}, {"new": True}, False),
        ({"mai": SHOP}, {}, False),
        ({"mai": SHOP}, {"ours": False}, True),
        ({"mai": Schema((), ())}, {"ours": False}, False),
        ({"mai": MADE, "mail": Schema((), ())}, {}, False),
    ],
    ids=["two letters", "a typo", "meant", "of others", "own folder", "nothing there", "it is there"],
)
def test_a_typo_does_not_become_a_keyspace(
    there: dict[str, Schema], request_: dict[str, object], *, refused: bool
) -> None:
    """Also where the number of copies is given: only a keyspace with mail (with tables, for an own folder) is meant."""
    twin = SchemaTwin("5.0.9", **there)
    if refused:
        with pytest.raises(LikeAnotherKeyspace, match=r"'mail' does not exist: did you mean 'mai'.\n.*--new-keyspace"):
            planned(twin, **request_)
    else:
        planned(twin, **request_)


def test_no_ledger_is_made_among_other_tables() -> None:
    """In the mail keyspace, or in a shop's; with one table of the ledger it is one."""
    twin = SchemaTwin(mail=MADE, shop=SHOP)
    for name in ("mail", "shop"):
        with pytest.raises(TablesOfOthers, match="--ledger-keyspace"):
            ensure_ledger(twin, name, "mail")
    assert twin.carried_out == []

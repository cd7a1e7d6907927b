"""What each role needs follows from the tables that are declared; what it has is compared without forgiveness."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.admin.schema.measuring import BROWSE_START, ENQUEUED, EVENTS
from mailmend.cql.schema.grants import (
    ADVISER,
    COLLECTOR,
    LOADER,
    LOOKED_AT,
    MENDED,
    MIGRATOR,
    OF_MAILBOXES,
    QUEUE,
    QUEUE_READER,
    READER,
    REMARKS,
    REPAIRER,
    ROLES,
    Grant,
    HeldGrant,
    Holding,
    Keyspaces,
    Permission,
    Resource,
    Role,
    absent,
    compared,
    grants_of,
    has_work,
)
from mailmend.cql.statistics import VIEWS
from mailmend.model.catalog.james_tables import naming_blobs
from mailmend.model.catalog.ledger import DELIVERY_TABLES, HISTORY_TABLES, LEDGER_TABLES, REPAIR_LEASE
from mailmend.model.catalog.mail import FAMILIES, MESSAGES, SCHEMA
from mailmend.model.catalog.mail_queue import QUEUE_TABLES

PLACES = Keyspaces("mail", "ledger")
TABLE, KEYSPACE, EVERYTHING = Resource("mail", "t"), Resource("mail"), Resource()
WHOLE = Resource(other="ALL TABLES IN KEYSPACE mail")

permissions = st.sampled_from([*Permission, "UNMASK", "AUTHORIZE"])
resources = st.sampled_from([TABLE, Resource("mail", "u"), KEYSPACE, EVERYTHING, WHOLE, Resource("other", "t")])
grants = st.builds(Grant, resources, permissions)


def on(role: Role, permission: Permission) -> set[str]:
    return {str(grant.on) for grant in grants_of(role, PLACES) if grant.permission == permission}


def tables(*names: str) -> set[str]:
    return {f"TABLE mail.{name.lower()}" for name in names}


def test_a_reader_reads_every_truth_and_projection_and_nothing_else() -> None:
    declared = [table.spelling for family in FAMILIES for table in family.tables]

    assert on(READER, Permission.SELECT) >= tables(*declared)
    assert {grant.permission for grant in grants_of(READER, PLACES)} == {"SELECT"}
    in_ledger = {grant.on.table for grant in grants_of(READER, PLACES) if grant.on.keyspace == "ledger"}
    assert in_ledger == {table.name for table in (REPAIR_LEASE, *HISTORY_TABLES)}


def test_a_repairer_writes_what_can_be_mended_and_the_ledger() -> None:
    writes = on(REPAIRER, Permission.MODIFY)

    assert writes >= tables(MESSAGES.truth.spelling, *(one.table.spelling for one in MESSAGES.filters))
    assert writes >= tables("mailbox")
    assert not writes & tables("messageV3", "mailboxPathV3", "messageCounter", "modseq")
    own = {f"TABLE ledger.{table.name}" for table in LEDGER_TABLES if table not in HISTORY_TABLES}
    assert {name for name in writes if "ledger" in name} == own
    assert on(REPAIRER, Permission.SELECT) >= on(READER, Permission.SELECT)


def test_only_the_migrator_shapes_tables_and_it_reads_no_mail() -> None:
    shapes = {Permission.CREATE, Permission.ALTER, Permission.DROP}
    for role in ROLES.values():
        has = {grant.permission for grant in grants_of(role, PLACES)} & shapes
        assert has == (shapes if role is MIGRATOR else set())
    for shape in shapes:
        assert on(MIGRATOR, shape) == {"KEYSPACE mail", "KEYSPACE ledger"}
    assert not on(MIGRATOR, Permission.SELECT) & tables(*LOOKED_AT)


def test_a_loader_journals_lags_and_reads_no_ledger() -> None:
    assert on(LOADER, Permission.MODIFY) >= tables("messageV3", "messageCounter", "modseq", "mailbox", *MENDED)
    assert on(LOADER, Permission.MODIFY) - tables(*LOOKED_AT) == {
        "TABLE ledger.repair_lag",
        *tables("blobs", "blobparts"),
    }
    assert not {name for name in on(LOADER, Permission.SELECT) if "ledger" in name}


def test_an_adviser_reads_what_it_measures_and_the_figures_that_it_asks_for() -> None:
    reads = on(ADVISER, Permission.SELECT)

    assert {f"TABLE system_views.{view.table}" for view in VIEWS} <= reads
    assert reads >= tables(ENQUEUED, EVENTS, BROWSE_START, "messageIdTable", "imapUidTable", "messageCounter", "modseq")
    assert not reads & tables("messageV3", "mailbox", "mailboxPathV3")
    assert on(ADVISER, Permission.MODIFY) == set()


def test_a_migrator_keeps_its_history_under_a_lease_and_writes_james_version() -> None:
    history = {f"TABLE ledger.{table.name}" for table in (REPAIR_LEASE, *HISTORY_TABLES)}

    assert on(MIGRATOR, Permission.MODIFY) == history | tables("schemaVersion")
    assert on(MIGRATOR, Permission.SELECT) == history | tables("schemaVersion") | {"TABLE system_views.disk_usage"}


def test_a_collector_reads_findings_and_limits_and_keeps_runs_under_a_lease() -> None:
    reads = {name for name in on(COLLECTOR, Permission.SELECT) if "ledger" in name}

    assert reads == {f"TABLE ledger.{table}" for table in ("repair_finding", "run_limit", "repair_run", "repair_lease")}


def test_figures_come_from_virtual_tables_that_servers_have() -> None:
    figures = {grant.on.table for grant in grants_of(ADVISER, PLACES) if grant.on.keyspace == "system_views"}

    assert figures == {
        "coordinator_read_latency",
        "disk_usage",
        "local_read_latency",
        "max_partition_size",
        "rows_per_read",
        "settings",
        "tombstones_per_read",
    }


@pytest.mark.parametrize(
    ("role", "purpose"),
    [
        ("reader", "check, repair messages --dry-run, schema verify, plan, history and lint"),
        ("repairer", "repair messages, mailboxes and lags, apply, undo, runs, jobs, metrics; all that a reader does"),
        ("loader", "load, and services that write through MessageStore"),
        ("migrator", "schema plan, apply, adopt, history"),
        ("adviser", "schema advise, queue advise"),
        (
            "queue_reader",
            "queue list, size, browse, check queues, most dry runs: who waits, from whom and to whom, no content",
        ),
        ("queue", "workers of the mail queue, every other command of it, delivery; with repairer: repair queues"),
        (
            "collector",
            "check blobs, repair blobs; the broker, and a blob store outside Cassandra, have permissions of their own",
        ),
    ],
)
def test_each_role_is_known_by_its_name_and_says_what_it_is_for(role: str, purpose: str) -> None:
    assert (ROLES[role].name, ROLES[role].purpose) == (role, purpose)
    assert len(ROLES) == 8


def test_remarks_say_what_grants_cannot() -> None:
    assert " ".join(REMARKS) == (
        "Cassandra counts TRUNCATE as MODIFY. Of 4.1 and later, drop_truncate_table_enabled: false in cassandra.yaml "
        "leaves TRUNCATE (and DROP TABLE) to superusers. "
        "The role that creates a table is granted everything on it: check what the migrator holds after "
        "`mailmend schema apply` beyond its need with: mailmend schema grants --role migrator --check"
    )


def test_keyspaces_and_tables_keep_their_upper_case_where_cql_quotes_them() -> None:
    quoted = Keyspaces('"Mail"', "LEDGER", mail_tables=frozenset())

    resources = {str(grant.on) for grant in grants_of(MIGRATOR, quoted)}
    assert 'KEYSPACE "Mail"' in resources
    assert "KEYSPACE ledger" in resources
    assert Resource("Mail", "schemaversion") in absent(MIGRATOR, quoted)
    assert str(Resource("Mail").enclosing[-1]) == "ALL KEYSPACES"
    assert [str(wide) for wide in Resource("Mail", "T").enclosing] == [
        'TABLE "Mail"."T"',
        'ALL TABLES IN KEYSPACE "Mail"',
        'KEYSPACE "Mail"',
        "ALL KEYSPACES",
    ]


def test_a_ledger_table_that_is_not_there_is_named_in_the_ledger() -> None:
    there = replace(PLACES, ledger_tables=frozenset({"repair_lag"}))

    assert absent(LOADER, there) == frozenset()
    assert absent(LOADER, replace(PLACES, ledger_tables=frozenset())) == {Resource("ledger", "repair_lag")}


def test_nothing_is_granted_on_tables_that_are_not_there_but_they_are_named() -> None:
    there = replace(PLACES, mail_tables=frozenset((*LOOKED_AT, *OF_MAILBOXES)) - {"firstunseen"})

    assert absent(READER, there) == {Resource("mail", "firstunseen")}
    assert absent(READER, PLACES) == frozenset()


def test_a_worker_of_the_queue_writes_its_tables_and_no_other() -> None:
    queue = tables(*(table.spelling for table in QUEUE_TABLES), "eventStore")
    ledger = {f"TABLE ledger.{table.name}" for table in DELIVERY_TABLES}
    assert on(QUEUE, Permission.MODIFY) == on(QUEUE, Permission.SELECT) == queue | ledger
    assert on(QUEUE_READER, Permission.SELECT) == queue
    assert on(QUEUE_READER, Permission.MODIFY) == set()


def test_a_collector_reads_what_refers_to_blobs_and_removes_blobs_alone() -> None:
    """Of a live keyspace every table that may refer to them, not the declared ones alone."""
    live = replace(PLACES, referring=frozenset({"messagev3", "mailrepositorycontentv2"}))
    reads = {grant.on.table for grant in grants_of(COLLECTOR, live) if grant.on.keyspace == "mail"}

    stores = {"blobs", "blobparts"}
    assert reads - stores == {table.name for table in SCHEMA.tables if naming_blobs(table)} | {
        "mailrepositorycontentv2",
        "deletedmailsv2",
        "browsestart",
    }
    assert on(COLLECTOR, Permission.MODIFY) == {
        *tables(*stores),
        "TABLE ledger.repair_run",
        "TABLE ledger.repair_lease",
    }


def test_queue_workers_have_work_only_where_there_is_a_queue() -> None:
    for role in (QUEUE, QUEUE_READER):
        assert has_work(role, PLACES)
        assert not has_work(role, replace(PLACES, mail_tables=frozenset(LOOKED_AT)))
        assert has_work(role, replace(PLACES, mail_tables=frozenset({"enqueuedmailsv4"})))
    assert has_work(READER, replace(PLACES, mail_tables=frozenset()))


@pytest.mark.parametrize(
    ("resource", "text"),
    [(TABLE, "TABLE mail.t"), (KEYSPACE, "KEYSPACE mail"), (EVERYTHING, "ALL KEYSPACES"), (WHOLE, WHOLE.other)],
)
def test_resources_are_named_as_grant_names_them(resource: Resource, text: str) -> None:
    assert str(resource) == text


def test_something_wider_covers_a_need_and_is_superfluous_itself() -> None:
    need = Grant(TABLE, "SELECT")
    for wide in (WHOLE, KEYSPACE, EVERYTHING):
        found = compared([need], Holding("r", held=(HeldGrant(Grant(wide, "SELECT"), "r"),)))

        assert (found.missing, found.to_grant) == ((), (need,))
        assert [held.grant.on for held in found.superfluous] == [wide]
        assert not found.agrees


def test_what_comes_through_another_role_covers_but_is_not_its_own() -> None:
    need = Grant(TABLE, "SELECT")

    found = compared([need], Holding("r", held=(HeldGrant(need, "parent"),)))

    assert (found.missing, found.to_grant, found.agrees) == ((), (need,), False)
    assert found.superfluous == (HeldGrant(need, "parent"),)


def test_a_superuser_lacks_nothing_and_never_agrees() -> None:
    need = Grant(TABLE, "SELECT")

    assert compared([need], Holding("r", superuser=True)).missing == ()
    assert not compared([], Holding("r", superuser=True)).agrees
    assert compared([need], Holding("r", exists=False)).missing == (need,)
    assert not compared([], Holding("r", exists=False)).agrees


@given(st.sets(grants), st.sets(grants))
def test_what_mends_a_role_makes_it_agree(needed: set[Grant], has: set[Grant]) -> None:
    found = compared(needed, Holding("r", held=tuple(HeldGrant(grant, "r") for grant in sorted(has))))

    after = (has | set(found.to_grant)) - {held.grant for held in found.superfluous}

    assert after == needed
    assert set(found.missing) <= set(found.to_grant)
    assert found.agrees == (needed == has)


def test_what_is_to_be_granted_is_in_order() -> None:
    for role in ROLES.values():
        found = grants_of(role, PLACES)
        assert list(found) == sorted(set(found))
        assert compared(reversed(found), Holding("r")).to_grant == found
        assert compared(reversed(found), Holding("r")).missing == found


def test_each_way_of_not_agreeing_counts_by_itself() -> None:
    need, more = Grant(TABLE, "SELECT"), Grant(TABLE, "MODIFY")
    exact = compared([need], Holding("r", held=(HeldGrant(need, "r"),)))
    assert (exact.agrees, exact.missing, exact.superfluous, exact.to_grant) == (True, (), (), ())
    assert not compared([need], Holding("r")).agrees
    assert not compared([need], Holding("r", held=(HeldGrant(need, "r"), HeldGrant(more, "r")))).agrees
    assert not compared([need], Holding("r", held=(HeldGrant(need, "r"), HeldGrant(need, "parent")))).agrees
    assert not compared([need], Holding("r", held=(HeldGrant(more, "r"),))).agrees


@pytest.mark.parametrize(
    ("held", "covers"),
    [
        (Grant(TABLE, "SELECT"), True),
        (Grant(TABLE, "MODIFY"), False),
        (Grant(Resource("mail", "u"), "SELECT"), False),
        (Grant(Resource("other", "t"), "SELECT"), False),
        (Grant(Resource("other"), "SELECT"), False),
        (Grant(Resource(other="ALL TABLES IN KEYSPACE other"), "SELECT"), False),
    ],
)
def test_only_the_same_or_something_wider_covers(held: Grant, *, covers: bool) -> None:
    found = compared([Grant(TABLE, "SELECT")], Holding("r", held=(HeldGrant(held, "r"),)))
    assert (found.missing == ()) is covers


def test_a_need_on_a_keyspace_is_covered_by_all_keyspaces_and_by_no_table() -> None:
    need = Grant(KEYSPACE, "CREATE")
    for held, covers in ((EVERYTHING, True), (KEYSPACE, True), (TABLE, False), (WHOLE, False)):
        found = compared([need], Holding("r", held=(HeldGrant(Grant(held, "CREATE"), "r"),)))
        assert (found.missing == ()) is covers

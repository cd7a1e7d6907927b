"""What `mailmend schema verify` says: every drift with what mends it, history included; and JSON for scripts."""

import shlex
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mailmend.admin.schema.verify import VerifyResult, verified_json, verify_document
from mailmend.cql.migrate.files import shipped
from mailmend.cql.schema.generations import JAMES_3_8, NEWEST
from mailmend.cql.schema.migration_plan import declared_by, verify_migrations, verify_ours
from mailmend.cql.schema.migrations import Baseline, LedgerRecord, MigrationState, digests
from mailmend.model.catalog.mail import SCHEMA
from mailmend.model.keyspace import Index, Schema
from mailmend.model.table import Column, Kind, Table, UserType
from tests.support.documents import text_of
from tests.support.migrating import SHOP, applied, folder
from tests.support.schemas import columns_of, served, with_columns, without_tables

MIGRATIONS = folder()
HISTORY = applied(MIGRATIONS)
LIVE = declared_by(MIGRATIONS)
ADOPTED = Baseline("3.8.1", digests(served(JAMES_3_8.schema)), (), datetime(2026, 9, 1, tzinfo=UTC), "ann", "1.0")
PLAN = "mailmend schema plan --from-model --migrations db --keyspace shop"


def of_shop(live: Schema, past: LedgerRecord | None = None) -> VerifyResult:
    """Somebody's own keyspace, compared with the folder that made it."""
    record = past or LedgerRecord(HISTORY)
    return VerifyResult("shop", Path("db"), verify_migrations(live, MIGRATIONS, record))


def changed(**parts: object) -> Schema:
    return replace(LIVE, **parts)  # type: ignore[arg-type]


ORDERS = columns_of(LIVE, "orders")
RETYPED = with_columns(LIVE, "orders", (Column("id", "text", Kind.PARTITION), *ORDERS[1:]))


@pytest.mark.parametrize(
    ("live", "mend"),
    [
        (without_tables(LIVE, "places"), f"{PLAN} | cqlsh"),
        (changed(indexes=()), f"{PLAN} | cqlsh"),
        (
            changed(tables=(*LIVE.tables, Table("other", (Column("id", "uuid", Kind.PARTITION),)))),
            f"leave it, or: {PLAN} --include-drops | cqlsh",
        ),
        (
            with_columns(LIVE, "orders", (*ORDERS, Column("hint", "text"))),
            f"leave it, or: {PLAN} --include-drops | cqlsh",
        ),
        (
            changed(indexes=(*LIVE.indexes, Index("by_hint", "orders", "customer"))),
            f"leave it, or: {PLAN} --include-drops | cqlsh",
        ),
        (
            changed(types=(*LIVE.types, UserType("size", (("bytes", "int"),)))),
            f"leave it, or: {PLAN} --include-drops | cqlsh",
        ),
        (RETYPED, f"by hand; how says: {PLAN}"),
    ],
    ids=["table", "index", "more tables", "more columns", "more indexes", "more types", "type"],
)
def test_each_drift_of_somebodys_keyspace_names_the_command_that_mends_it(live: Schema, mend: str) -> None:
    """On a line of its own for a person, under `mend` for a script; exit code 1."""
    verified = of_shop(live)
    json = verified_json(verified)
    assert json["exit"] == verified.exit == 1
    assert [one["mend"] for one in json["drift"]] == [mend]
    assert any(line.endswith(mend) for line in text_of(verify_document(verified)).splitlines())


def test_a_keyspace_that_agrees_says_so() -> None:
    """With how much of its history was applied; fields of a mail keyspace are there, and empty."""
    verified = of_shop(LIVE)
    output = text_of(verify_document(verified))
    assert "shop: 4 migrations applied, 0 pending." in output
    assert "as expected" in output
    assert verified_json(verified) == {
        "keyspace": "shop",
        "generation": None,
        "made_here": None,
        "adopted": False,
        "drift": [],
        "notes": [],
        "not_compared": [],
        "history": {"applied": 4, "pending": []},
        "since_adoption": [],
        "exit": 0,
    }


def test_a_migration_in_flight_names_the_command_that_ends_it() -> None:
    running = replace(HISTORY[3], state=MigrationState.RUNNING, done=0, ended_at=None)
    verified = of_shop(declared_by(MIGRATIONS[:3]), LedgerRecord((*HISTORY[:3], running)))
    output = text_of(verify_document(verified))
    (drift,) = verified_json(verified)["drift"]
    assert (drift["aspect"], drift["subject"]) == ("migration in flight", "0004_pre_places.cql")
    assert drift["why"] == "begun 2026-09-01 00:00 UTC by alice@ops pid 7, 0 of 2 statements are done"
    assert drift["mend"] == "mailmend schema apply --migrations db --keyspace shop"
    assert drift["mend"] in output


HALF_MADE = replace(HISTORY[3], state=MigrationState.RUNNING, done=0, ended_at=None)
HALF_MADE_OURS = replace(applied(shipped())[-1], state=MigrationState.RUNNING, done=0, ended_at=None)


@pytest.mark.parametrize(
    "verified",
    [
        of_shop(LIVE, LedgerRecord((*HISTORY[:3], HALF_MADE))),
        of_shop(RETYPED, LedgerRecord((*HISTORY[:3], HALF_MADE))),
        VerifyResult(
            "mail",
            None,
            verify_ours(
                with_columns(
                    served(SCHEMA, made_here=True), "firstunseen", (Column("mailboxid", "text", Kind.PARTITION),)
                ),
                shipped(),
                LedgerRecord((*applied(shipped())[:-1], HALF_MADE_OURS)),
            ),
        ),
    ],
    ids=["a table that is made", "a column of another type", "a table of ours"],
)
def test_while_a_migration_is_in_flight_no_hint_drops_anything(verified: VerifyResult) -> None:
    """What differs may be what it has half made: the only way named is on, to its end."""
    mends = [one["mend"] for one in verified_json(verified)["drift"]]
    assert len(mends) > 1
    for said in (*mends, text_of(verify_document(verified))):
        assert "drop" not in said.lower()
    assert mends[-1].startswith("mailmend schema apply")
    assert all(mend.startswith("first what has not ended") for mend in mends[:-1])


@pytest.mark.parametrize("state", [MigrationState.APPLIED, MigrationState.BASELINE])
@pytest.mark.parametrize(("seconds", "drift"), [("60", True), ("8640000", False)])
def test_a_lifetime_that_nobody_declared_is_drift_where_deleted_data_may_come_back(
    seconds: str, *, drift: bool, state: MigrationState
) -> None:
    """Also of tables that were there before their first migration; a longer one is noted."""
    tables = (one.with_options({"gc_grace_seconds": seconds}) if one.name == "orders" else one for one in LIVE.tables)
    verified = of_shop(changed(tables=tuple(tables)), LedgerRecord(applied(MIGRATIONS, state)))
    json = verified_json(verified)
    assert [one["subject"] for one in json["drift"]] == ["gc_grace_seconds"] * drift
    assert [one["subject"] for one in json["notes"]] == ["gc_grace_seconds"] * (not drift)
    assert [one["mend"] for one in json["drift"]] == [f"{PLAN} --include-options | cqlsh"] * drift


def test_in_a_keyspace_of_another_application_nothing_leads_to_an_apply() -> None:
    """Its tables are named; only with a history of ours there is anything to apply."""
    verified = VerifyResult("shop", None, verify_ours(LIVE, shipped(), None))
    output = text_of(verify_document(verified))
    assert output.startswith("shop holds no mail, but tables of another application: orders, places.")
    mends = {one["mend"] for one in verified_json(verified)["drift"]}
    assert mends == {"nothing here: shop is another application's; name the mail keyspace with --keyspace"}
    assert "schema apply" not in output
    known = VerifyResult("shop", None, verify_ours(LIVE, shipped(), LedgerRecord(applied(shipped()))))
    assert "mailmend schema apply --keyspace shop" in text_of(verify_document(known))


def test_an_edited_file_is_drift_with_its_mend() -> None:
    edited = folder({**SHOP, "0002_pre_labels.cql": SHOP["0002_pre_labels.cql"] + "-- a word\n"})
    verified = VerifyResult("shop", Path("db"), verify_migrations(LIVE, edited, LedgerRecord(HISTORY)))
    output = text_of(verify_document(verified))
    (drift,) = verified_json(verified)["drift"]
    assert (drift["aspect"], drift["subject"]) == ("edited migration", "0002_pre_labels.cql")
    assert "version control" in drift["mend"]
    assert "0002_pre_labels.cql" in output


def test_what_is_pending_is_reported_with_the_command_that_shows_it() -> None:
    verified = of_shop(declared_by(MIGRATIONS[:3]), LedgerRecord(HISTORY[:3]))
    output = text_of(verify_document(verified))
    assert verified.exit == 0
    assert "Pending: 0004_pre_places.cql; see: mailmend schema plan --migrations db" in output


def test_an_adopted_keyspace_tells_what_has_changed_since() -> None:
    live = served(JAMES_3_8.schema)
    live = replace(live, tables=(*live.tables, Table("other", (Column("id", "uuid", Kind.PARTITION),))))
    verified = VerifyResult("mail", None, verify_ours(live, (), LedgerRecord(baseline=ADOPTED)))
    output = text_of(verify_document(verified))
    assert "Adopted 2026-09-01 as generation 3.8.1" in output
    assert "new since adoption: table other" in output
    assert verified_json(verified)["since_adoption"] == [{"change": "new since adoption", "object": "table other"}]
    assert verified.exit == 0


def test_what_was_not_compared_is_named_and_is_no_drift() -> None:
    verified = replace(of_shop(LIVE), not_compared=("function half(int)", "trigger copy on orders"))

    assert verified.exit == 0
    assert "Not compared: function half(int); trigger copy on orders." in text_of(verify_document(verified))
    assert verified_json(verified)["not_compared"] == ["function half(int)", "trigger copy on orders"]


def test_a_keyspace_of_james_that_was_not_adopted_is_answered_with_how() -> None:
    output = text_of(verify_document(VerifyResult("mail", None, verify_ours(served(JAMES_3_8.schema), (), None))))
    assert "mailmend schema adopt --keyspace mail" in output


def test_a_script_reads_what_is_wrong_with_the_history_under_the_names_of_any_drift() -> None:
    """The table's fields are there, and empty; the file is the subject."""
    verified = VerifyResult("shop", Path("db"), verify_migrations(LIVE, MIGRATIONS[:3], LedgerRecord(HISTORY)))
    *_, drift = verified_json(verified)["drift"]
    assert drift == {
        "aspect": "missing migration",
        "table": "",
        "subject": "0004_pre_places.cql",
        "expected": "",
        "found": "",
        "why": "it was applied on 2026-09-01 by alice@ops pid 7, and is not in the folder",
        "mend": "Put the file back (from version control), or name the folder that holds it with --migrations.",
    }


def test_what_was_never_applied_is_counted_and_not_listed() -> None:
    found = verify_migrations(Schema((), ()), MIGRATIONS, LedgerRecord())
    output = text_of(verify_document(VerifyResult("shop", Path("db"), found)))
    assert "shop: 0 migrations applied, 4 pending." in output
    assert "Pending:" not in output


@pytest.mark.parametrize("made_here", [True, False])
def test_who_made_a_mail_keyspace_is_said(*, made_here: bool) -> None:
    live = served(NEWEST.schema, made_here=made_here)
    output = text_of(verify_document(VerifyResult("mail", None, verify_ours(live, (), None))))
    assert output.startswith(f"mail: generation {NEWEST.name}, {'' if made_here else 'not '}made by mailmend.")
    assert ("mailmend schema adopt --keyspace mail" in output) is not made_here


def test_a_folder_with_odd_signs_can_be_typed_as_it_is_reported() -> None:
    verified = VerifyResult(
        "shop", Path("our db's"), verify_migrations(without_tables(LIVE, "places"), MIGRATIONS, LedgerRecord(HISTORY))
    )
    (drift,) = verified_json(verified)["drift"]
    assert shlex.split(drift["mend"].split(" | ")[0])[4:] == ["--migrations", "our db's", "--keyspace", "shop"]

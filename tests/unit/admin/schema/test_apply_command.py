"""`mailmend schema apply` as a person and a script see it: what it did, what it left, how it ended."""

from pathlib import Path
from uuid import UUID

import pytest

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.admin.schema import apply as schema
from mailmend.admin.schema.apply import ApplyRequest
from mailmend.cql.schema.generations import AUGUST_2026
from mailmend.model.errors import LikeAnotherKeyspace
from mailmend.repair.ledger.leases import Leases
from tests.support.commands import CommandLine
from tests.support.migrating import SHOP, written
from tests.support.migration_cluster import MigrationCluster
from tests.support.migration_twin import OLD_VERSION
from tests.support.schema_twin import ONE_COPY
from tests.support.schemas import served, without_tables

ORDERS, LABELS, TOTALS, PLACES = SHOP
NEW = ("--replication-factor", "1")


def of_the_shop(cluster: MigrationCluster) -> list[str]:
    """The changes of its schema that were carried out, in their order; the ledger's own left out."""
    return [one for one in cluster.carried_out if "mailmend." not in one]


def test_what_was_done_is_one_object_for_scripts(
    cluster: MigrationCluster, mailmend: CommandLine, shop: tuple[str, ...]
) -> None:
    """What came of it, what was sent in its order, what is left and why; progress went to stderr."""
    ended = mailmend("schema", "apply", *shop, *NEW, "--to", "2", "--json")
    document = ended.json
    assert list(document) == [
        "keyspace",
        "generation",
        "drift",
        "notes",
        "created",
        "withheld",
        "applied",
        "baseline",
        "statements",
        "left",
        "stopped",
        "nodes_down",
        "exit",
    ]
    assert (ended.code, document["exit"], document["keyspace"], document["generation"]) == (0, 0, "shop", None)
    assert document["created"] == [
        "keyspace shop",
        "type place",
        "table orders",
        "table by_customer",
        "index by_label",
    ]
    assert document["applied"] == [ORDERS, LABELS]
    assert document["left"] == [TOTALS, PLACES]
    assert document["stopped"] == f"{TOTALS} and what follows come after --to 0002"
    assert [one for one in document["statements"][1:] if one not in cluster.rows] == of_the_shop(cluster)
    assert document["statements"][-1:] == cluster.rows
    assert (
        document["drift"],
        document["notes"],
        document["withheld"],
        document["baseline"],
        document["nodes_down"],
    ) == (
        [],
        [],
        [],
        [],
        [],
    )
    assert f"{LABELS}: 3 of 3" in ended.err


def test_what_was_done_is_reported_line_by_line(
    cluster: MigrationCluster, mailmend: CommandLine, shop: tuple[str, ...]
) -> None:
    """What was created, applied and left; then what was read back; a second time nothing is missing."""
    first = mailmend("schema", "apply", *shop, *NEW, "--to", "3").out.splitlines()
    assert first[0] == "created keyspace shop"
    assert first[-5:-2] == [f"applied {ORDERS}", f"applied {LABELS}", f"applied {TOTALS}"]
    assert first[-2] == f"Left: {PLACES}. {PLACES} and what follows come after --to 0003."
    assert first[-1] == "shop: the schema is as expected."
    rest = mailmend("schema", "apply", *shop).out.splitlines()
    assert rest == ["created table places", f"applied {PLACES}", "shop: the schema is as expected."]
    again = mailmend("schema", "apply", *shop)
    assert (again.code, again.err) == (0, "")
    assert again.out.splitlines() == ["Nothing was missing.", "shop: the schema is as expected."]


def test_applying_again_writes_nothing(cluster: MigrationCluster, mailmend: CommandLine, shop: tuple[str, ...]) -> None:
    for own in (shop, ()):
        keyspace = ("--keyspace", "theirs" if own else "mail")
        assert mailmend("schema", "apply", *own, *keyspace, *NEW).code == 0
        cluster.forget()
        assert mailmend("schema", "apply", *own, *keyspace).code == 0
        assert cluster.untouched


@pytest.mark.parametrize("own", [True, False], ids=["own folder", "mail"])
@pytest.mark.parametrize("form", [(), ("--json",)], ids=["people", "scripts"])
@pytest.mark.parametrize("begun", [True, False], ids=["begun", "new"])
def test_a_dry_run_writes_nothing(
    cluster: MigrationCluster,
    mailmend: CommandLine,
    shop: tuple[str, ...],
    form: tuple[str, ...],
    *,
    own: bool,
    begun: bool,
) -> None:
    """Neither a keyspace nor a ledger, no lease, no row; what it shows is what would run, in its order."""
    folder = shop if own else ()
    if begun:
        mailmend("schema", "apply", *folder, *NEW, "--to", "1")
    cluster.forget()
    before = dict(cluster.keyspaces)
    ended = mailmend("schema", "apply", *folder, *NEW, "--dry-run", *form)
    assert (ended.code, ended.err) == (0, "")
    assert (cluster.untouched, cluster.keyspaces) == (True, before)
    planned = ended.json["statements"] if form else [line for line in ended.out.splitlines() if line.endswith(";")]
    done = mailmend("schema", "apply", *folder, "--json", *NEW).json["statements"]
    kinds = [" ".join(one.split()[:2]) for one in done]
    if form:
        assert [" ".join(one.split()[:2]) for one in planned] == kinds
    else:
        assert len([line for line in planned if not line.startswith("--")]) == len(kinds)


def test_a_dry_run_shows_the_plan_and_exits_with_0(
    cluster: MigrationCluster, mailmend: CommandLine, shop: tuple[str, ...]
) -> None:
    """The same object as a plan's, but for the exit code: a dry run is no question whether there is something to do."""
    plan = mailmend("schema", "plan", *shop, *NEW, "--json")
    dry = mailmend("schema", "apply", *shop, *NEW, "--dry-run", "--json")
    assert (plan.code, dry.code) == (1, 0)
    assert plan.json == dry.json | {"exit": 1}


def test_phases_are_applied_in_the_order_of_the_numbers(
    cluster: MigrationCluster, mailmend: CommandLine, shop: tuple[str, ...]
) -> None:
    """`pre` stops before the first post; `post` before the next pre; what is left is told each time."""
    said = []
    for phase in ("post", "pre", "pre", "post", "pre"):
        ended = mailmend("schema", "apply", *shop, *NEW, "--phase", phase, "--json")
        assert ended.code == 0
        said.append((ended.json["applied"], len(ended.json["left"])))
    assert said == [([], 4), ([ORDERS, LABELS], 2), ([], 2), ([TOTALS], 1), ([PLACES], 0)]


def test_a_new_keyspace_has_the_copies_that_were_asked_for(
    cluster: MigrationCluster, mailmend: CommandLine, shop: tuple[str, ...]
) -> None:
    sent = [
        mailmend(
            "schema", "apply", *shop, "--keyspace", name, "--ledger-keyspace", f"{name}_ledger", *copies, "--json"
        ).json["statements"][0]
        for name, copies in (
            ("one", ("--replication-factor", "3")),
            ("two", ("--replication", "dc1=3,dc2=2")),
            ("three", ("--replication", "SimpleStrategy=2")),
        )
    ]
    assert "'replication_factor': '3'" in sent[0]
    assert "'dc1': '3', 'dc2': '2'" in sent[1]
    assert "'class': 'SimpleStrategy', 'replication_factor': '2'" in sent[2]
    assert {"one_ledger", "two_ledger", "three_ledger"} <= set(cluster.keyspaces)


def test_on_several_nodes_a_person_is_asked_for_the_copies_and_a_script_is_refused(
    cluster: MigrationCluster, mailmend: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One copy would be lost with its node; the refusal names the option, and nothing is done before the answer."""
    cluster.data_centres = ("dc1", "dc1", "dc1")
    for command in (("apply",), ("apply", "--dry-run"), ("plan",)):
        refused = mailmend("schema", *command)
        assert refused.code == 2
        assert "keyspace 'shop' does not exist, and the cluster has 3 nodes" in refused.err
        assert "--replication dc1=3" in refused.err
    assert cluster.untouched

    monkeypatch.setattr("mailmend.admin.frame.terminal.someone_is_there", lambda: True)
    monkeypatch.setattr("click.prompt", lambda *_, **__: 3)
    answered = mailmend("schema", "apply")
    assert answered.code == 0, answered.err
    assert "the cluster has 3 nodes" in answered.err
    assert {name: cluster.replications[name]["replication_factor"] for name in ("shop", "mailmend")} == {
        "shop": "3",
        "mailmend": "3",
    }


def test_on_one_node_one_copy_is_kept_unasked(cluster: MigrationCluster, mailmend: CommandLine) -> None:
    assert mailmend("schema", "apply").code == 0
    assert cluster.replications["shop"]["replication_factor"] == "1"


def test_a_statement_that_the_server_refuses_is_named_with_its_place(
    cluster: MigrationCluster, mailmend: CommandLine, shop: tuple[str, ...]
) -> None:
    """Exit code 3; what was done before stands; mended in the file, the same command goes on."""
    cluster.refuses = "by_label"
    failed = mailmend("schema", "apply", *shop, *NEW)
    assert (failed.code, failed.out) == (3, "")
    assert f"{LABELS}, line 6: the server would not: by_label" in failed.err
    assert "Statements before it are kept" in failed.err
    assert "Traceback" not in failed.err
    file = Path(shop[1]) / LABELS
    file.write_text(file.read_text(encoding="utf-8").replace("INDEX by_label", "INDEX labelled"), encoding="utf-8")
    assert mailmend("schema", "apply", *shop).code == 0
    assert [one.spelling for one in cluster.keyspaces["shop"].indexes] == ["labelled"]


def test_no_answer_is_doubt_and_the_same_command_goes_on(
    cluster: MigrationCluster, mailmend: CommandLine, shop: tuple[str, ...]
) -> None:
    cluster.lost_answer_at = "CREATE INDEX"
    lost = mailmend("schema", "apply", *shop, *NEW)
    assert (lost.code, lost.out) == (4, "")
    assert f"{LABELS}, line 6: no answer came" in lost.err
    assert "It may have been carried out. Type the same command again" in lost.err
    cluster.lost_answer_at = None
    done = mailmend("schema", "apply", *shop, "--json")
    assert done.code == 0
    assert not any("CREATE INDEX" in one for one in done.json["statements"])
    assert done.json["created"] == ["table places"]


def test_nodes_that_disagree_are_named_and_nothing_is_begun(
    cluster: MigrationCluster, mailmend: CommandLine, shop: tuple[str, ...]
) -> None:
    """Exit code 3, after as long as was allowed; which node to look at, and the runbook."""
    cluster.versions["10.0.0.2"] = OLD_VERSION
    began = cluster.clock.micros()
    refused = mailmend("schema", "apply", *shop, *NEW, "--agreement-timeout", "7s")
    assert (refused.code, refused.out, cluster.untouched) == (3, "", True)
    assert 7 <= (cluster.clock.micros() - began) / 1e6 < 8
    for said in ("within 7 s, before anything was changed", "10.0.0.2 has", "Look at 10.0.0.2", "schema-disagreement"):
        assert said in refused.err
    cluster.versions["10.0.0.2"] = UUID(int=1)
    assert mailmend("schema", "apply", *shop, *NEW).code == 0


def test_each_limit_reaches_what_it_limits(
    cluster: MigrationCluster, mailmend: CommandLine, shop: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statement its seconds, the lease its time to live; agreement is waited for after it, of each node itself."""
    seconds: list[float] = []
    carry_out = cluster.execute_ddl

    def noted(text: str, limit: float = 30.0, agreed: float = 30.0) -> None:
        if text.startswith("ALTER TABLE shop"):
            seconds.extend((limit, agreed))
            lease = Leases(cluster.keyspace("mailmend"), cluster.clock, "nobody").holder("schema shop")
            assert lease is not None
            seconds.append((lease.expires_at - lease.acquired_at).total_seconds())
        carry_out(text, limit, agreed)

    monkeypatch.setattr(cluster, "execute_ddl", noted)
    assert mailmend("schema", "apply", *shop, *NEW, "--statement-timeout", "11s", "--lease", "90s").code == 0
    assert seconds == [11.0, 0, 90.0] * 3


def test_what_is_not_as_expected_when_it_is_read_back_is_drift(
    cluster: MigrationCluster, mailmend: CommandLine, shop: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 1: somebody else altered a table meanwhile; what was applied stands, and verify says what mends it."""
    carry_out = cluster.execute_ddl

    def meanwhile(text: str, limit: float = 30.0, agreed: float = 30.0) -> None:
        carry_out(text, limit, agreed)
        if text == "DROP TABLE shop.by_customer":
            carry_out("ALTER TABLE shop.orders ADD hint text")

    monkeypatch.setattr(cluster, "execute_ddl", meanwhile)
    ended = mailmend("schema", "apply", *shop, *NEW, "--json")
    assert ended.code == ended.json["exit"] == 1
    assert ended.json["applied"] == list(SHOP)
    difference = {
        "aspect": "unexpected column",
        "table": "orders",
        "subject": "hint",
        "expected": "",
        "found": "text",
    }
    assert ended.json["drift"] == [difference]
    (drift,) = mailmend("schema", "verify", *shop, "--json").json["drift"]
    assert drift.items() >= difference.items()


def test_a_person_sees_what_is_not_as_expected(
    cluster: MigrationCluster, mailmend: CommandLine, shop: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each difference on a line of its own, and the sentence that sums it up."""
    carry_out = cluster.execute_ddl
    monkeypatch.setattr(
        cluster,
        "execute_ddl",
        lambda text, *limits, **named: None if "ADD label" in text else carry_out(text, *limits, **named),
    )
    ended = mailmend("schema", "apply", *shop, *NEW, "--to", "1")
    assert (ended.code, ended.out.splitlines()[-1]) == (0, "shop: the schema is as expected.")
    ended = mailmend(
        "schema", "apply", *written_with(shop, "0002_pre_labels.cql", "ALTER TABLE orders ADD label text;")
    )
    assert ended.code == 1
    assert ended.out.splitlines()[-2:] == ["missing column: orders.label (text)", "shop: not as expected."]


def written_with(shop: tuple[str, ...], name: str, cql: str) -> tuple[str, ...]:
    folder = Path(shop[1])
    for file in folder.glob("*.cql"):
        if file.name >= name:
            file.unlink()
    written(folder, {name: cql})
    return shop


def test_a_keyspace_of_james_is_left_alone(cluster: MigrationCluster, mailmend: CommandLine) -> None:
    """Nothing is run, no ledger made; the commands that take it over and that complete it are named."""
    james = without_tables(served(AUGUST_2026.schema), "firstunseen")
    cluster.keyspaces["mail"], cluster.replications["mail"] = (
        james,
        ONE_COPY,
    )
    ended = mailmend("schema", "apply", "--keyspace", "mail")
    assert (ended.code, cluster.untouched, set(cluster.keyspaces)) == (1, True, {"mail"})
    lines = ended.out.splitlines()
    assert lines[0].startswith(
        "Not created in a keyspace that mailmend did not make (--complete does): table firstUnseen"
    )
    assert lines[1] == "Take the keyspace over with: mailmend schema adopt --keyspace mail"
    document = mailmend("schema", "apply", "--keyspace", "mail", "--json").json
    assert (document["withheld"], document["left"], document["applied"], document["exit"]) == (
        ["table firstUnseen"],
        [],
        [],
        1,
    )

    completed = mailmend("schema", "apply", "--keyspace", "mail", "--complete", "--json")
    assert (completed.code, completed.json["created"]) == (0, ["table firstUnseen"])
    assert cluster.keyspaces["mail"].table("firstunseen") is not None


@pytest.mark.parametrize(
    "command", ["plan", "apply", "apply --dry-run", "apply --optional mail-queue", "plan --from-model"]
)
def test_a_keyspace_of_another_application_is_refused(
    cluster: MigrationCluster, mailmend: CommandLine, shop: tuple[str, ...], command: str
) -> None:
    """With exit code 2 and nothing written; --into-existing says that it is meant, and then it is known."""
    mailmend("schema", "apply", *shop, *NEW)
    cluster.forget()
    at = ("schema", *command.split(), "--ledger-keyspace", "another")
    refused = mailmend(*at)
    assert (refused.code, refused.out, cluster.untouched) == (2, "", True)
    assert "keyspace 'shop' holds tables of another application: orders, places\n" in refused.err
    assert "--into-existing" in refused.err
    assert mailmend(*at, "--into-existing").code in (0, 1)


def test_a_ledger_is_no_mail_keyspace(cluster: MigrationCluster, mailmend: CommandLine) -> None:
    """Refused before any cluster is asked, whichever of the two was named wrongly."""
    for names in (("--keyspace", "mailmend"), ("--ledger-keyspace", "shop")):
        for command in ("plan", "apply", "verify"):
            refused = mailmend("schema", command, *names)
            assert (refused.code, "as the mail keyspace and as the ledger keyspace" in refused.err) == (2, True)
    assert cluster.contacts == []


@pytest.mark.parametrize("answer", [True, False, None])
def test_a_person_is_asked_whether_a_new_name_is_a_typo(cluster: MigrationCluster, *, answer: bool | None) -> None:
    """Before the keyspace is created; no, and where nobody can answer, is exit code 2."""
    cluster.keyspaces["apache_james"] = served(AUGUST_2026.schema)
    asked: list[object] = []

    def ask(question: object) -> bool:
        asked.append(question)
        return bool(answer)

    caller = Caller(ask=None if answer is None else ask)
    wanted = ApplyRequest(connection=ConnectionSettings(keyspace="apache_jmes"))
    if answer:
        schema.apply(wanted, caller)
    else:
        with pytest.raises(LikeAnotherKeyspace):
            schema.apply(wanted, caller)
    assert ("apache_jmes" in cluster.keyspaces) is bool(answer)
    question = "keyspace 'apache_jmes' does not exist: did you mean 'apache_james'? Create apache_jmes all the same?"
    assert asked == ([] if answer is None else [question])

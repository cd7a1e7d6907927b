"""A schema's risks are run only where somebody agreed to them: by name, or at a terminal."""

from pathlib import Path

import pytest

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.admin.schema import apply as schema
from mailmend.admin.schema.apply import ApplyRequest
from mailmend.cql.schema.generations import JAMES_3_9
from mailmend.cql.schema.risk import Risk
from mailmend.model.errors import ExitCode, RisksNotAllowed
from tests.support.commands import CommandLine, Ended, command_line
from tests.support.migrating import SHOP
from tests.support.migration_cluster import MigrationCluster
from tests.support.schema_twin import ONE_COPY
from tests.support.schemas import served

NEW = ("--replication-factor", "1")


@pytest.fixture
def mailmend(tmp_path: Path) -> CommandLine:
    """A shell in which nothing is allowed beforehand."""
    return command_line(tmp_path, None, MAILMEND_HOST="10.0.0.1", MAILMEND_KEYSPACE="shop")


@pytest.fixture
def half(cluster: MigrationCluster, mailmend: CommandLine, shop: tuple[str, ...]) -> tuple[str, ...]:
    """What is left: a column and a table are dropped, deleted rows may come back; its first half risked nothing."""
    assert mailmend("schema", "apply", *shop, *NEW, "--to", "2").code == 0
    cluster.forget()
    return shop


def refused(ended: Ended, cluster: MigrationCluster) -> bool:
    return (ended.code, ended.out, cluster.untouched) == (ExitCode.NOT_ALLOWED, "", True)


def test_without_a_terminal_each_risk_has_to_be_named(
    cluster: MigrationCluster, mailmend: CommandLine, half: tuple[str, ...]
) -> None:
    """What, where, why, and what would allow it; of other risks the name helps nothing; then it is run."""
    ended = mailmend("schema", "apply", *half)
    assert refused(ended, cluster)
    for said in (
        "shop would be changed with risks: data loss (0003_post_no_totals.cql, line 5): The data in these columns",
        "resurrection (0003_post_no_totals.cql, line 6)",
        "data loss (0004_pre_places.cql, line 6)",
        "Look with --dry-run; then, if it is meant: --allow data-loss,resurrection\n",
    ):
        assert said in ended.err
    for names in ("data-loss", "resurrection,rewrite,breaking,stale,long"):
        assert refused(mailmend("schema", "apply", *half, "--allow", names), cluster)

    done = mailmend("schema", "apply", *half, "--allow", "resurrection, DATA_LOSS", "--json")
    assert (done.code, done.json["applied"]) == (0, list(SHOP)[2:])


def test_what_is_only_looked_at_is_no_question(
    cluster: MigrationCluster, mailmend: CommandLine, half: tuple[str, ...]
) -> None:
    """A plan says what an apply will take; a dry run and what risks nothing need no name."""
    asks = "-- an apply asks about these risks on a terminal; elsewhere it takes --allow data-loss,resurrection"
    for words in (("plan",), ("apply", "--dry-run")):
        assert asks in mailmend("schema", *words, *half).out.splitlines()
    assert cluster.untouched
    assert "risks on a terminal" not in mailmend("schema", "plan", *half, "--to", "2").out
    assert mailmend("schema", "apply", *half, "--to", "2").code == 0


def test_a_risk_that_is_none_is_refused_with_the_names_of_all(mailmend: CommandLine) -> None:
    for word in ("everything", "none"):
        ended = mailmend("schema", "apply", "--allow", word)
        assert (ended.code, "data-loss, resurrection, stale, breaking, rewrite, long" in ended.err) == (2, True)


@pytest.mark.parametrize("answer", [True, False])
def test_a_person_is_asked_once_about_all_that_is_not_allowed(
    cluster: MigrationCluster, half: tuple[str, ...], *, answer: bool
) -> None:
    """Before anything is done; a plan that is the same once the lease is held is not asked about again."""
    asked: list[str] = []

    def ask(question: object) -> bool:
        asked.append(str(question))
        return answer

    request = ApplyRequest(
        connection=ConnectionSettings(keyspace="shop"), migrations=Path(half[1]), allow=frozenset({Risk.RESURRECTION})
    )
    if answer:
        assert schema.apply(request, Caller(ask=ask)).exit == 0  # type: ignore[union-attr] # no optional one
    else:
        with pytest.raises(RisksNotAllowed, match="the answer was no"):
            schema.apply(request, Caller(ask=ask))
        assert cluster.untouched
    (question,) = asked
    assert question.startswith("shop would be changed with risks: data loss (0003_post_no_totals.cql, line 5)")
    assert question.endswith("Do it?")
    assert "line 6): Rows" not in question


def test_a_note_of_james_is_no_exception(cluster: MigrationCluster, mailmend: CommandLine) -> None:
    cluster.keyspaces["mail"], cluster.replications["mail"] = served(JAMES_3_9.schema), ONE_COPY
    note = ("schema", "apply", "--optional", "tune-mail-compaction", "--keyspace", "mail")

    ended = mailmend(*note)
    assert refused(ended, cluster)
    assert "rewrite (tune-mail-compaction, imapUidTable): " in ended.err
    assert len(mailmend(*note, "--allow", "rewrite", "--json").json["sent"]) > 0

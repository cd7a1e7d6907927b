"""Every command of every runbook page, typed as it stands, against a keyspace in exactly the state it describes.

A page is walked from top to bottom: Check, Do, Verify, Undo; each command must end with the exit code that the page
promises. `$RUN` is what a person would read from `mailmend runs list` at that point.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from uuid import uuid4

import pytest

from mailmend.admin.frame.runbooks import SECTIONS, RunbookPage, page_named, pages
from mailmend.admin.frame.settings_file import settings_path
from mailmend.cql.driver.session import Keyspace, connect
from mailmend.cql.introspect import live_schema
from mailmend.cql.migrate.files import shipped
from mailmend.cql.migrate.history import History
from mailmend.cql.render import schema_cql
from mailmend.cql.schema.migration_plan import declared_by
from mailmend.mailqueue.rules.configuration import AGGREGATE
from mailmend.model.catalog.james_tables import EVENT_STORE
from mailmend.model.catalog.ledger import SCHEMA_MIGRATION, SCHEMA_STATEMENT, KeyspaceLease
from mailmend.model.catalog.mail import FIRST_UNSEEN, IMAP_UID, MAILBOX_COUNTERS, MESSAGE_COUNTER, MESSAGE_ID
from mailmend.model.instants import MICROS, instant_of
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Count, Put, Remove
from mailmend.model.ports import Tables
from mailmend.model.projections.verdicts import Verdict
from mailmend.repair.clock import SystemClock
from mailmend.repair.ledger.jobs import JobRuns
from mailmend.repair.ledger.lags import LagJournal
from mailmend.repair.ledger.leases import Leases
from mailmend.repair.ledger.runs import Ledger
from tests.support.commands import CommandLine, Ended, command_line, contact_of
from tests.support.james_queue import james_queue_rows
from tests.support.keyspaces import LEDGER, created, dropped
from tests.support.mail_states import QUIET, MailKeyspace, mail_keyspace
from tests.support.queue_pages import JAMMED_PAGE, PULSAR_PAGES, QUEUE_PAGES, lacking
from tests.support.repairing import mirror_row, mirror_suspect
from tests.support.servers import CassandraServer

_LAST = shipped()[-1]
_LAST_TABLE = declared_by([_LAST]).tables[-1].name


def migration_pending(mail: Keyspace, ledger: Tables, mailmend: CommandLine) -> None:
    """All is there but what the last statement of the last migration makes; the history begins anew."""
    _belongs_to(mail, IMAP_UID.comment)
    made = mailmend("schema", "apply", "--keyspace", mail.name)
    assert made.code == 0, made.err
    ledger.write(Remove(SCHEMA_MIGRATION, (mail.name,)))
    for migration in shipped():
        ledger.write(Remove(SCHEMA_STATEMENT, (mail.name, migration.number)))
    mail.cluster.execute_ddl(f"DROP TABLE {mail.name}.{_LAST_TABLE}")


def migration_interrupted(mail: Keyspace, ledger: Tables, mailmend: CommandLine) -> None:
    """The last migration's last statement was begun by an applier that is gone, and still holds its lease."""
    migration_pending(mail, ledger, mailmend)
    clock, owner = SystemClock(), "deploy@pod-7 pid 1"
    history = History(ledger, clock, mail.name, owner, "0.1.0")
    claim = clock.new_uuid()
    history.baseline(shipped()[:-1], claim, "there before the history began")
    history.begin(_LAST, claim, None)
    for position in range(len(_LAST.statements)):
        begun = history.begun(_LAST.number, position, _LAST.cql(position), _LAST.cql(position), clock.new_uuid())
        if position < len(_LAST.statements) - 1:
            history.done(begun)
    Leases(ledger, clock, owner).acquire(KeyspaceLease.SCHEMA.of(mail.name), "schema apply")


def made_by_james(mail: Keyspace, ledger: Tables, mailmend: CommandLine) -> None:
    """The same tables, one of them with words of James; nobody has adopted it, and it has no history."""
    migration_pending(mail, ledger, mailmend)
    _belongs_to(mail, "the truth, in the words of James")


def table_dropped(mail: Keyspace, ledger: Tables, mailmend: CommandLine) -> None:
    migration_pending(mail, ledger, mailmend)
    made = mailmend("schema", "apply", "--keyspace", mail.name)
    assert made.code == 0, made.err
    mail.cluster.execute_ddl(f"DROP TABLE {mail.name}.{FIRST_UNSEEN.name}")


def _belongs_to(mail: Keyspace, comment: str) -> None:
    found = live_schema(mail.cluster, mail.name).table(IMAP_UID.name)
    assert found is not None
    if found.comment != comment:
        mail.cluster.execute_ddl(f"ALTER TABLE {mail.name}.{IMAP_UID.name} WITH comment = '{comment}'")


pytestmark = pytest.mark.cassandra

SMALL: Mapping[str, str] = {
    **QUIET,
    "MAILMEND_CHECK_ENGINE": "local",
    "MAILMEND_REPAIR_MESSAGES_ENGINE": "local",
    "MAILMEND_CHECK_DELAY": "0",
    "MAILMEND_REPAIR_MESSAGES_DELAY": "0",
    "MAILMEND_REPAIR_LAGS_DELAY": "0",
    "MAILMEND_SCHEMA_ADVISE_WAVES": "1",
    "MAILMEND_SCHEMA_ADVISE_READS": "2",
}
"""What makes a page's commands quick here: no wait, no Spark. The commands themselves stay as they are written."""

_PROMISED = re.compile(r"#\s*exit (\d+)")


@dataclass(frozen=True, slots=True)
class Scene:
    """A keyspace, its ledger, and a shell that knows both."""

    mail: MailKeyspace
    ledger: Ledger
    mailmend: CommandLine

    def run_of(self, verdict: str) -> str:
        """The run that a person would pick: the newest repair that mended this, or anything, or the newest of all."""
        repairs = [run for run in self.ledger.runs(self.mail.name) if run.command == "repair"]
        fixed = {run.id: run.summary.get("fixed") or {} for run in repairs}
        mended = [run for run in repairs if verdict in fixed[run.id] or (not verdict and fixed[run.id])]
        return next((str(run.id) for run in (*mended, *repairs)), "")


State = Callable[[Scene], None]


def _message_lost_its_projection(scene: Scene) -> None:
    for truth in scene.mail.truths[:2]:
        scene.mail.lose_projection(truth)


def _flag_update_was_lost(scene: Scene) -> None:
    scene.mail.lose_flag_update(scene.mail.truths[0])


def _a_check_found_both(scene: Scene) -> None:
    scene.mail.lose_projection(scene.mail.truths[0])
    scene.mail.lose_flag_update(scene.mail.truths[1])


def _repair_was_interrupted(scene: Scene) -> None:
    first, second = scene.mail.truths[:2]
    scene.mail.lose_projection(first)
    one = ("--message", str(first["messageid"]), "--keyspace", scene.mail.name)
    mended = scene.mailmend("repair", "messages", *one, "--json")
    scene.mail.lose_projection(second)
    run = scene.ledger.get(scene.ledger.runs(scene.mail.name)[0].id)
    assert mended.code == 0, mended.err
    scene.ledger.interrupt(run, mended.json)


def _a_repair_is_declared(scene: Scene) -> None:
    """As the page says, which both pages of jobs are about."""
    _message_lost_its_projection(scene)
    (declared,) = re.findall(r"```toml\n(.*?)```", page_named("schedule-a-repair").text, re.DOTALL)
    settings = settings_path({"XDG_CONFIG_HOME": str(scene.mailmend.home / "config")}, scene.mailmend.home)
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(declared)


def _projection_lags(scene: Scene) -> None:
    truth = scene.mail.truths[0]
    scene.mail.lose_flag_update(truth)
    journal = LagJournal(scene.ledger.tables, scene.mail.name, SystemClock())
    journal.journal([mirror_suspect(truth, Verdict.AMEND)], "no node answered")


def _written_ahead(scene: Scene) -> None:
    """By a clock that is half a minute ahead; of a message that no other page is about."""
    ahead = SystemClock().micros() + 30 * MICROS
    scene.mail.tables.write(Put(MESSAGE_ID, mirror_row(scene.mail.truths[3], modseq=9), at=ahead))


def _counter_is_wrong(scene: Scene) -> None:
    scene.mail.tables.write(Count(MAILBOX_COUNTERS, (scene.mail.mailbox,), {"unseen": 1}))


def _job_is_at_work(scene: Scene) -> None:
    _a_repair_is_declared(scene)
    clock, owner = SystemClock(), "cron@mx-1 pid 1"
    ends_by = instant_of(clock.micros() + 3600 * MICROS)
    JobRuns(scene.ledger.tables, scene.mail.name, clock, owner).start("nightly-repair", "repair messages", ends_by)
    Leases(scene.ledger.tables, clock, owner).acquire(f"job {scene.mail.name} nightly-repair", "repair messages")


def _drift_came_back(scene: Scene) -> None:
    _message_lost_its_projection(scene)
    assert scene.mailmend("repair", "messages", "--keyspace", scene.mail.name).code == 0
    _message_lost_its_projection(scene)


def _ledger_was_lost(scene: Scene) -> None:
    _a_repair_is_declared(scene)
    scene.mail.tables.cluster.execute_ddl(f"DROP KEYSPACE {scene.mailmend.environment['MAILMEND_LEDGER_KEYSPACE']}")


def _table_was_restored(scene: Scene) -> None:
    """The uids of the mailbox are those of yesterday, messages came since, and two of them lost their projection."""
    _message_lost_its_projection(scene)
    scene.mail.tables.write(Put(MESSAGE_COUNTER, {"mailboxid": scene.mail.mailbox, "nextuid": 3}))


def _content_is_lost(scene: Scene) -> None:
    scene.mail.lose_content(scene.mail.truths[0])


def _compaction_is_open(_: Scene) -> None:
    """Any keyspace with mail will do; the trial runs on the server at hand."""


def _migration_is_pending(scene: Scene) -> None:
    migration_pending(scene.mail.tables, scene.ledger.tables, scene.mailmend)


def _migration_died_half_way(scene: Scene) -> None:
    migration_interrupted(scene.mail.tables, scene.ledger.tables, scene.mailmend)


def _james_made_it(scene: Scene) -> None:
    made_by_james(scene.mail.tables, scene.ledger.tables, scene.mailmend)


def _a_table_was_dropped(scene: Scene) -> None:
    table_dropped(scene.mail.tables, scene.ledger.tables, scene.mailmend)


def _queue_was_configured(scene: Scene) -> None:
    for text in schema_cql(scene.mail.name, Schema((), (EVENT_STORE,))):
        scene.mail.tables.cluster.execute_ddl(text)
    scene.mail.tables.write(Remove(EVENT_STORE, (AGGREGATE,)))
    for row in james_queue_rows(EVENT_STORE):
        scene.mail.tables.write(Put(EVENT_STORE, row))


STATES: Mapping[str, State] = {
    "change-slice-window": _queue_was_configured,
    "take-over-a-james-keyspace": _james_made_it,
    "schema-differs": _a_table_was_dropped,
    "apply-a-migration": _migration_is_pending,
    "migration-died-half-way": _migration_died_half_way,
    "schema-disagreement": _migration_is_pending,
    "choose-compaction": _compaction_is_open,
    "message-in-jmap-not-in-imap": _message_lost_its_projection,
    "check-found-inconsistencies": _a_check_found_both,
    "flags-differ": _flag_update_was_lost,
    "approve-a-plan": _message_lost_its_projection,
    "repair-was-interrupted": _repair_was_interrupted,
    "schedule-a-repair": _a_repair_is_declared,
    "scheduled-repair-failed": _a_repair_is_declared,
    "projection-lags": _projection_lags,
    "content-is-lost": _content_is_lost,
    "drift-comes-back": _drift_came_back,
    "slow-down-a-repair": _job_is_at_work,
    "clocks-differ": _written_ahead,
    "counters-never-settle": _counter_is_wrong,
    "ledger-was-lost": _ledger_was_lost,
    "table-was-restored": _table_was_restored,
    "spark-job-died": _repair_was_interrupted,
    "servers-do-not-answer": _message_lost_its_projection,
}


def _damage_is_back(scene: Scene) -> None:
    """Of the two messages that lost their projection the page mends one, and takes it back."""
    assert [scene.mail.mirror(truth) is None for truth in scene.mail.truths] == [False, True, False, False]


def _row_is_out(scene: Scene) -> None:
    truth = scene.mail.truths[0]
    assert scene.mail.get(IMAP_UID, IMAP_UID.key_of(truth)) is None
    assert scene.mail.mirror(truth) is None


def _row_is_back(scene: Scene) -> None:
    assert scene.mail.get(IMAP_UID, IMAP_UID.key_of(scene.mail.truths[0])) is not None


OUTCOMES: Mapping[tuple[str, str], State] = {
    ("message-in-jmap-not-in-imap", "Undo"): _damage_is_back,
    ("content-is-lost", "Do"): _row_is_out,
    ("content-is-lost", "Undo"): _row_is_back,
}
"""What has come to pass at the end of a section."""


@pytest.fixture(scope="module")
def scene(cassandra: CassandraServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    name, home = f"g_runbooks_{uuid4().hex[:8]}", tmp_path_factory.mktemp("home")
    with connect(contact_of(cassandra)) as cluster:
        mail = mail_keyspace(cluster, name)
        ledger = Ledger(created(cluster, f"{name}_ledger", LEDGER), SystemClock())
        trial = {"MAILMEND_SCHEMA_ADVISE_TRIAL_AT": f"{cassandra.host}:{cassandra.port}"}
        shell = command_line(home, cassandra, MAILMEND_LEDGER_KEYSPACE=f"{name}_ledger", **SMALL, **trial)
        yield Scene(mail, ledger, shell)
        dropped(cluster, (name, f"{name}_ledger"))


def test_every_page_has_its_state() -> None:
    assert {page.name for page in pages()} == {*STATES, *QUEUE_PAGES, *PULSAR_PAGES, JAMMED_PAGE}


@pytest.mark.parametrize("page", [page for page in pages() if page.name in STATES], ids=lambda page: page.name)
def test_every_command_does_what_its_page_says(
    scene: Scene, page: RunbookPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Walked from top to bottom, each command ends as the page promises, and `OUTCOMES` come to pass."""
    monkeypatch.chdir(scene.mailmend.home)
    scene.mail.refill()
    STATES[page.name](scene)

    for section in SECTIONS:
        for command, output in page.steps(section):
            ended = _typed(scene, page, command)
            promised = _PROMISED.search(command)
            said = f"{ended.out}\n{ended.err}"
            assert ended.code == int(promised[1] if promised else 0), f"{command}\n{said}"
            assert not lacking(output, said, scene.mail.name), f"{command}\n{said}"
        if outcome := OUTCOMES.get((page.name, section)):
            outcome(scene)


def _typed(scene: Scene, page: RunbookPage, command: str) -> Ended:
    filled: Mapping[str, Callable[[], str]] = {
        "$KEYSPACE": lambda: scene.mail.name,
        "$MAILBOX": lambda: str(scene.mail.mailbox),
        "$MESSAGE": lambda: str(scene.mail.truths[0]["messageid"]),
        "$RUN": lambda: scene.run_of("LOST_CONTENT" if "content" in page.name else ""),
    }
    for placeholder, value in filled.items():
        command = command.replace(placeholder, value()) if placeholder in command else command
    words = shlex.split(command, comments=True)
    assert words[0] == "mailmend"
    return scene.mailmend(*words[1:])

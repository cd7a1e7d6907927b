"""`mailmend.open`: one object with what a program does with mail, by the settings of the commands."""

import asyncio
import os
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest

import mailmend
from mailmend.admin.frame.cluster import lag_journal, open_cluster
from mailmend.admin.messages.check import CHECK
from mailmend.admin.messages.repair import REPAIR_LAGS, REPAIR_MESSAGES
from mailmend.admin.messages.repair_mailboxes import REPAIR_MAILBOXES
from mailmend.admin.messages.repair_tables import REPAIR_TABLES
from mailmend.admin.messages.runs import UNDO
from mailmend.admin.program import NAMES, settings_of
from mailmend.admin.queue import openers
from mailmend.choices import (
    CheckChoices,
    LagChoices,
    MailboxChoices,
    OpenSettings,
    RepairChoices,
    UndoChoices,
)
from mailmend.cql.driver.session import Keyspace
from mailmend.mailqueue.pulsar.settings import PulsarSettings
from mailmend.mailqueue.rabbitmq.broker.settings import BrokerSettings
from mailmend.model.catalog.mail import FAMILIES, MAILBOX, MESSAGE_ID, MESSAGES
from mailmend.model.errors import BadSettings, UnknownRun, WrongUse
from mailmend.model.operations import Remove
from mailmend.model.projections.findings import Suspect
from mailmend.model.projections.verdicts import Verdict
from tests.support.cluster_twin import ClusterTwin, cluster_in_memory
from tests.support.mail_states import MailKeyspace, register
from tests.support.memory_topics import MemoryTopics
from tests.support.queue_commands import KEYSPACE, QueueShell, queue_shell
from tests.support.queues import CONTENT, mail
from tests.support.repairing import message

BYTES = b"Subject: hello\r\n\r\nGood day.\r\n"
NEW = mailmend.NewMail(*mailmend.split_mail(BYTES), datetime(2026, 11, 29, tzinfo=UTC))
AT_ONCE: Mapping[str, Any] = {"engine": "local", "delay": timedelta(), "no_writers": True}
"""How a check or a repair of a quiet keyspace waits for nothing."""


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings but those of the test."""
    for name in list(os.environ):
        if name.startswith("MAILMEND_"):
            monkeypatch.delenv(name)
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "CQLSHRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> ClusterTwin:
    return cluster_in_memory(monkeypatch)


@pytest.fixture
def drifted(cluster: ClusterTwin) -> MailKeyspace:
    """A keyspace in which one message lacks its row of the mirror, for longer than any margin."""
    keyspace = MailKeyspace("mail", cast("Keyspace", cluster.keyspace("mail")))
    keyspace.refill()
    cluster.clock.advance(100)
    keyspace.lose_projection(keyspace.truths[0])
    cluster.clock.advance(100)
    return keyspace


@pytest.fixture
def unnamed(cluster: ClusterTwin) -> MailKeyspace:
    """A keyspace with a mailbox that lacks its row, and another with two paths."""
    keyspace = MailKeyspace("mail", cast("Keyspace", cluster.keyspace("mail")))
    keyspace.refill()
    register(keyspace, 1, "Lost", row_says=None)
    register(keyspace, 2, "Before", row_says="After")
    register(keyspace, 2, "After", row_says="After")
    cluster.clock.advance(100)
    return keyspace


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> QueueShell:
    return queue_shell(monkeypatch, tmp_path)


@pytest.mark.usefixtures("cluster")
class TestOpened:
    """What a program does with an open keyspace."""

    def test_a_message_that_is_added_has_no_drift(self) -> None:
        with mailmend.open(host="127.0.0.1", keyspace="mail") as opened:
            mailbox = opened.mailboxes.ensure("ann@example.org", "INBOX")
            stored = opened.messages.add(mailbox, NEW)

            checked = opened.check("messages", **AT_ONCE)

            assert not stored.lagged
            assert opened.messages.content(stored.message_id) == BYTES
            assert checked.summary.scanned[MESSAGE_ID.spelling] == 1
            assert checked.summary.findings == {}

    def test_drift_is_found_mended_and_put_back(self, drifted: MailKeyspace) -> None:
        lost = drifted.truths[0]
        with mailmend.open(host="127.0.0.1", keyspace="mail") as opened:
            found = opened.check("messages", **AT_ONCE)
            looked = opened.repair(dry_run=True, **AT_ONCE)
            repaired = opened.repair(**AT_ONCE)
            assert drifted.mirror(lost) is not None
            assert repaired.summary.run is not None
            undone = opened.undo(repaired.summary.run, no_writers=True)

        assert found.summary.findings[MESSAGE_ID.spelling] == {Verdict.PROJECT: 1}
        assert (looked.summary.due, looked.summary.run) == ({Verdict.PROJECT: 1}, None)
        assert repaired.summary.fixed == {Verdict.PROJECT: 1}
        assert undone.summary.failed == 0
        assert drifted.mirror(lost) is None

    @pytest.mark.usefixtures("drifted")
    def test_a_repair_may_be_narrowed_to_verdicts(self) -> None:
        with mailmend.open(host="127.0.0.1", keyspace="mail") as opened:
            repaired = opened.repair(only=frozenset({Verdict.AMEND}), **AT_ONCE)
        assert repaired.summary.fixed == {}
        assert repaired.summary.left == {Verdict.PROJECT: 1}

    def test_a_row_of_a_mailbox_is_mended_and_put_back(self, unnamed: MailKeyspace) -> None:
        lost = (message(1),)
        with mailmend.open(host="127.0.0.1", keyspace="mail") as opened:
            looked = opened.repair_mailboxes(dry_run=True, **AT_ONCE)
            assert unnamed.get(MAILBOX, lost) is None
            repaired = opened.repair_mailboxes(**AT_ONCE)
            mended = unnamed.get(MAILBOX, lost)
            assert repaired.summary.run is not None
            undone = opened.undo(repaired.summary.run)

        assert (looked.summary.due.total(), looked.summary.run) == (1, None)
        assert repaired.summary.fixed == {Verdict.PROJECT: 1}
        assert repaired.summary.left == {Verdict.CLASH: 1}
        assert mended is not None
        assert mended["name"] == "Lost"
        assert undone.summary.fixed == {Verdict.PROJECT: 1}
        assert unnamed.get(MAILBOX, lost) is None

    def test_a_repair_of_mailboxes_may_be_planned_and_narrowed(self, unnamed: MailKeyspace, tmp_path: Path) -> None:
        plan = tmp_path / "plan.jsonl"
        with mailmend.open(host="127.0.0.1", keyspace="mail") as opened:
            planned = opened.repair_mailboxes(plan=plan, **AT_ONCE)
            narrowed = opened.repair_mailboxes(only=frozenset({Verdict.AMEND}), **AT_ONCE)
            with pytest.raises(mailmend.FixLimit):
                opened.repair_mailboxes(max_fixes=0, **AT_ONCE)

        assert (planned.plan, planned.summary.due.total()) == (plan, 1)
        assert "PROJECT" in plan.read_text()
        assert narrowed.summary.left == {Verdict.PROJECT: 1, Verdict.CLASH: 1}
        assert unnamed.get(MAILBOX, (message(1),)) is None

    def test_mailboxes_that_are_no_more_are_in_the_result(self, unnamed: MailKeyspace) -> None:
        with mailmend.open(host="127.0.0.1", keyspace="mail") as opened:
            repaired = opened.repair_mailboxes(dry_run=True, **AT_ONCE)
            messages = opened.repair(dry_run=True, **AT_ONCE)

        assert repaired.gone_mailboxes is not None
        (gone,) = repaired.gone_mailboxes
        assert gone.mailbox == unnamed.mailbox
        assert "messageIdTable" in gone.tables
        assert messages.gone_mailboxes is None, "no other repair looks for them"

    def test_a_choice_of_messages_is_none_of_mailboxes(self) -> None:
        given: Mapping[str, Any] = {"torn": "accept"}
        with (
            mailmend.open(host="127.0.0.1", keyspace="mail") as opened,
            pytest.raises(WrongUse, match="'torn' is not a setting"),
        ):
            opened.repair_mailboxes(**given)

    def test_a_write_that_outlived_its_retries_is_mended_by_its_lag(self, cluster: ClusterTwin) -> None:
        """A projection was lost, and the journal names it: nothing is scanned."""
        with mailmend.open(host="127.0.0.1", keyspace="mail") as opened:
            mailbox = opened.mailboxes.ensure("ann@example.org", "INBOX")
            stored = opened.messages.add(mailbox, NEW)
            key = (stored.mailbox_id, stored.uid)
            cluster.keyspace("mail").write(Remove(MESSAGE_ID, key))
            suspect = Suspect(MESSAGES.mirror.name, key, Verdict.PROJECT, ((stored.message_id,),))
            with open_cluster(opened.connection) as connected:
                lag_journal(connected, connected.ledger()).journal([suspect], "a test")
            cluster.clock.advance(100)

            looked = opened.repair_lags(dry_run=True, delay=timedelta(), no_writers=True)
            mended = opened.repair_lags(delay=timedelta(), no_writers=True)

        assert (looked.summary.due, looked.summary.run) == ({Verdict.PROJECT: 1}, None)
        assert mended.summary.fixed == {Verdict.PROJECT: 1}

    def test_what_a_command_has_in_the_settings_holds_for_a_program(
        self, drifted: MailKeyspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A margin that the operator wrote down is not forgotten; an argument counts before it."""
        file = tmp_path / "settings.toml"
        file.write_text('[repair.messages]\nengine = "local"\nno-writers = true\ndelay = "0s"\nmax-fixes = 0\n')
        monkeypatch.setenv("MAILMEND_CHECK_NO_RECHECK", "1")
        monkeypatch.setenv("MAILMEND_CHECK_ENGINE", "local")
        with mailmend.open(file, host="127.0.0.1", keyspace="mail") as opened:
            assert opened.check("messages").summary.suspects == 1
            with pytest.raises(mailmend.FixLimit):
                opened.repair()
            assert drifted.mirror(drifted.truths[0]) is None
            assert opened.repair(max_fixes=1).summary.fixed == {Verdict.PROJECT: 1}

    def test_a_wrong_table_of_a_command_is_an_error_of_ours(self, tmp_path: Path) -> None:
        file = tmp_path / "settings.toml"
        file.write_text('[repair.messages]\nmargins = "5m"\n')
        with mailmend.open(file, host="127.0.0.1") as opened, pytest.raises(BadSettings, match="'margins' is not"):
            opened.repair()

    def test_the_projections_are_those_of_the_live_keyspace(self) -> None:
        with mailmend.open(host="127.0.0.1", keyspace="mail") as opened:
            families = opened.projections
        assert [family.truth.name for family in families] == [family.truth.name for family in FAMILIES]

    @pytest.mark.usefixtures("drifted")
    def test_a_run_that_is_not_kept_is_an_error_of_ours(self) -> None:
        with (
            mailmend.open(host="127.0.0.1", keyspace="mail") as opened,
            pytest.raises(UnknownRun, match="there is no run"),
        ):
            opened.undo(uuid4())

    def test_nothing_is_connected_to_before_it_is_used(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("mailmend.cql.driver.session.connect", lambda _: pytest.fail("it connects"))
        with mailmend.open(host="127.0.0.1") as opened:
            assert opened.connection.hosts == ("127.0.0.1",)

    def test_one_cluster_serves_every_use(self, cluster: ClusterTwin, monkeypatch: pytest.MonkeyPatch) -> None:
        connected: list[object] = []

        def connect(contact: object) -> ClusterTwin:
            connected.append(contact)
            return cluster

        monkeypatch.setattr("mailmend.cql.driver.session.connect", connect)
        with mailmend.open(host="127.0.0.1", keyspace="mail") as opened:
            assert opened.messages is opened.messages
            assert opened.projections
            assert opened.mailboxes.names("ann@example.org") == []
        assert len(connected) == 1

    @pytest.mark.parametrize(
        "use",
        [
            lambda opened: opened.check(),
            lambda opened: opened.repair(),
            lambda opened: opened.repair_mailboxes(),
            lambda opened: opened.repair_lags(),
            lambda opened: opened.undo(uuid4()),
            lambda opened: opened.messages,
            lambda opened: opened.mailboxes,
            lambda opened: opened.projections,
        ],
        ids=["check", "repair", "repair_mailboxes", "lags", "undo", "messages", "mailboxes", "projections"],
    )
    def test_what_is_closed_is_refused(self, use: Callable[[mailmend.Mailmend], object]) -> None:
        opened = mailmend.open(host="127.0.0.1", keyspace="mail")
        opened.close()
        with pytest.raises(WrongUse, match="this is closed"):
            use(opened)


@pytest.mark.usefixtures("cluster")
class TestOpenedInALoop:
    """The same from an event loop."""

    def test_drift_is_found_mended_and_put_back(self, drifted: MailKeyspace) -> None:
        lost = drifted.truths[0]

        async def story() -> tuple[Any, Any]:
            async with mailmend.open_async(host="127.0.0.1", keyspace="mail") as opened:
                found = await opened.check("messages", **AT_ONCE)
                repaired = await opened.repair(**AT_ONCE)
                assert repaired.summary.run is not None
                await opened.undo(repaired.summary.run, no_writers=True)
                return found.summary.findings, repaired.summary.fixed

        found, fixed = asyncio.run(story())

        assert found[MESSAGE_ID.spelling] == {Verdict.PROJECT: 1}
        assert fixed == {Verdict.PROJECT: 1}
        assert drifted.mirror(lost) is None

    def test_a_row_of_a_mailbox_is_mended(self, unnamed: MailKeyspace) -> None:
        async def story() -> mailmend.MendingResult:
            async with mailmend.open_async(host="127.0.0.1", keyspace="mail") as opened:
                return await opened.repair_mailboxes(**AT_ONCE)

        repaired = asyncio.run(story())

        assert repaired.summary.fixed == {Verdict.PROJECT: 1}
        assert unnamed.get(MAILBOX, (message(1),)) is not None

    def test_a_message_is_added(self) -> None:
        async def story() -> tuple[list[str], int]:
            async with mailmend.open_async(host="127.0.0.1", keyspace="mail") as opened:
                mailboxes = await opened.mailboxes()
                mailbox = await asyncio.to_thread(mailboxes.ensure, "ann@example.org", "Sent")
                store = await opened.messages()
                added = await asyncio.to_thread(store.add, mailbox, NEW)
                assert len(await opened.projections()) == len(FAMILIES)
                return mailboxes.names("ann@example.org"), added.uid

        assert asyncio.run(story()) == (["Sent"], 1)

    def test_what_blocks_says_so_in_a_loop(self) -> None:
        """The store's blobs are looked for, which a loop that runs already cannot wait for."""

        async def story() -> None:
            with mailmend.open(host="127.0.0.1", keyspace="mail") as opened:
                assert opened.messages is not None

        with mailmend.open(host="127.0.0.1", keyspace="mail") as opened:
            opened.messages.add(opened.mailboxes.ensure("ann@example.org", "INBOX"), NEW)
        with pytest.raises(WrongUse, match=r"an event loop runs in this thread\nOpen with mailmend.open_async"):
            asyncio.run(story())

    @pytest.mark.parametrize("opener", ["open", "open_async"])
    def test_a_mail_goes_through_a_queue_over_rabbitmq(self, shell: QueueShell, opener: str, tmp_path: Path) -> None:
        opened: mailmend.Mailmend | mailmend.AsyncMailmend = getattr(mailmend, opener)(
            host="127.0.0.1", keyspace=KEYSPACE, broker="amqp://127.0.0.1", blobs=f"file://{tmp_path}/blobs"
        )

        async def story() -> tuple[str, bytes]:
            async with opened.queue("outgoing") as queue:
                await queue.enqueue(mail("one"), CONTENT)
                async with queue.dequeue() as mails:
                    dequeued = await anext(mails)
                    await dequeued.ack()
                    return dequeued.mail.name, dequeued.content

        assert asyncio.run(story()) == ("one", CONTENT)
        assert "publish" in shell.asked

    def test_a_mail_goes_through_a_queue_over_pulsar(
        self, shell: QueueShell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        topics = MemoryTopics(shell.clock)
        monkeypatch.setattr(openers, "topics_behind", lambda _settings, _clock: topics)
        monkeypatch.setattr("mailmend.opening.SystemClock", lambda: shell.clock)

        async def story() -> tuple[str, bytes]:
            broker = "pulsar://127.0.0.1/public/default"
            blobs = f"file://{tmp_path}/blobs"
            async with mailmend.open_async(broker=broker, blobs=blobs) as opened, opened.queue() as queue:
                assert queue.name == "spool"
                await queue.enqueue(mail("one"), CONTENT)
                async with queue.dequeue() as mails:
                    dequeued = await anext(mails)
                    await dequeued.ack()
                    return dequeued.mail.name, dequeued.content

        assert asyncio.run(story()) == ("one", CONTENT)

    def test_a_queue_without_a_broker_is_refused(self) -> None:
        async def story() -> None:
            async with mailmend.open_async(host="cassandra1") as opened, opened.queue("spool"):
                pytest.fail("it opened")

        with pytest.raises(WrongUse, match="no message broker is named"):
            asyncio.run(story())


@pytest.mark.usefixtures("cluster")
class TestSettings:
    """Where the settings come from, and which of them count."""

    def test_arguments_count_before_the_environment_and_that_before_the_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = tmp_path / "settings.toml"
        file.write_text('host = "of-file"\nkeyspace = "of_file"\nlocal_dc = "of-file"\n')
        monkeypatch.setenv("MAILMEND_KEYSPACE", "of_environment")
        monkeypatch.setenv("MAILMEND_LOCAL_DC", "of-environment")

        found = mailmend.open(file, local_dc="of-argument").connection

        assert found.hosts == ("of-file",)
        assert found.keyspace == "of_environment"
        assert found.local_dc == "of-argument"

    def test_the_usual_file_is_read_and_its_profile(self, tmp_path: Path) -> None:
        folder = tmp_path / ".config" / "mailmend"
        folder.mkdir(parents=True)
        text = 'host = "a"\nport = 9043\n[profiles.other]\nhost = "b"\n'
        (folder / "config.toml").write_text(text)

        usual = mailmend.open().connection
        other = mailmend.open(profile="other").connection

        assert (usual.hosts, usual.port) == (("a",), 9043)
        assert (other.hosts, other.port) == (("b",), 9043)

    def test_a_file_that_is_named_counts_before_one_of_the_environment(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "one.toml").write_text('host = "one"\n')
        (tmp_path / "two.toml").write_text('host = "two"\n')
        monkeypatch.setenv("MAILMEND_CONFIG", str(tmp_path / "one.toml"))
        assert mailmend.open().connection.hosts == ("one",)
        assert mailmend.open(str(tmp_path / "two.toml")).connection.hosts == ("two",)

    def test_several_hosts_are_several(self) -> None:
        assert mailmend.open(host=["a", "b"]).connection.hosts == ("a", "b")
        assert mailmend.open(host="a,b").connection.hosts == ("a", "b")

    def test_a_password_that_is_an_argument_counts_first_and_shows_nowhere(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MAILMEND_PASSWORD", "of-environment")
        opened = mailmend.open(host="a", username="ann", password="of-argument")
        assert opened.connection.password == "of-argument"
        assert mailmend.open(host="a", username="ann").connection.password == "of-environment"
        assert "of-argument" not in repr(opened.connection)

    def test_nobody_is_asked_for_a_password(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("mailmend.admin.frame.terminal.somebody_types", lambda: True)
        monkeypatch.setattr("mailmend.admin.frame.terminal.hidden_password", lambda _: pytest.fail("it asks"))
        with pytest.raises(BadSettings, match="the password of 'ann' is not known"):
            mailmend.open(host="a", username="ann").check("messages")

    @pytest.mark.parametrize(
        "given",
        [
            {"broker": "amqp://james:p%40ss@rabbit"},
            {"broker": "amqp://james@rabbit", "broker_password": "p@ss"},
        ],
    )
    def test_the_brokers_password_may_be_an_argument(
        self, given: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MAILMEND_BROKER_PASSWORD", "of-environment")
        found = settings_of(None, None, {"host": "a", "blobs": "cassandra:", **given}).queue("outgoing")
        assert isinstance(found.broker, BrokerSettings)
        assert (found.name, found.broker.username, found.broker.password) == ("outgoing", "james", "p@ss")

    def test_a_token_for_pulsar_may_be_an_argument(self, tmp_path: Path) -> None:
        given = {"broker": "pulsar://:t0ken@pulsar/public/mail", "blobs": f"file://{tmp_path}"}
        found = settings_of(None, None, given).queue()
        assert isinstance(found.pulsar, PulsarSettings)
        assert (found.pulsar.password, found.pulsar.namespace) == ("t0ken", "public/mail")

    def test_keys_of_a_bucket_may_be_arguments(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MAILMEND_S3_ACCESS_KEY", "of-environment")
        given = {"blobs": "s3://mail?endpoint=https://s3", "s3_access_key": "a", "s3_secret_key": "b"}
        found = settings_of(None, None, given).message_blobs
        assert found is not None
        assert found.bucket is not None
        assert (found.bucket.access_key, found.bucket.secret_key) == ("a", "b")

    @pytest.mark.parametrize(
        ("given", "why"),
        [
            ({"hots": "a"}, r"'hots' is not a setting\nDid you mean 'host'\?"),
            ({"zzz": "a"}, r"'zzz' is not a setting\nThere are: blobs, broker"),
            ({"port": 0}, r"^port: 0 is not a port"),
            ({"broker_form": "stream"}, "^broker_form: 'stream' is not one of"),
            ({"config": "/nowhere.toml"}, r"/nowhere.toml cannot be read"),
        ],
    )
    def test_a_wrong_setting_is_an_error_of_ours(self, given: Mapping[str, Any], why: str) -> None:
        with pytest.raises(mailmend.MailmendError, match=why):
            mailmend.open(**given)

    def test_what_is_no_setting_of_queues_is_refused_in_the_file(self, tmp_path: Path) -> None:
        file = tmp_path / "settings.toml"
        file.write_text('[queue]\nbrokr = "amqp://a"\n')
        with pytest.raises(BadSettings, match=r"settings.toml, line 2: 'brokr' is not a setting of `queue`"):
            mailmend.open(file)

    @pytest.mark.parametrize(
        ("given", "why"),
        [
            ({"orphans": "remove"}, "^orphans: 'remove' is not one of"),
            ({"max_fix": 3}, r"'max_fix' is not a setting\nDid you mean 'max_fixes'\?"),
            ({"max_fixes": -1}, "^max_fixes: -1 is not in the range"),
        ],
    )
    def test_a_wrong_choice_is_an_error_of_ours(self, given: Mapping[str, Any], why: str) -> None:
        with mailmend.open(host="a", keyspace="mail") as opened, pytest.raises(WrongUse, match=why):
            opened.repair(**given)


def _names(options: Collection[Any]) -> set[str]:
    return {str(option.name) for option in options}


def test_the_typed_settings_are_the_options_of_the_commands() -> None:
    """A new option is a new key, so that a type checker knows it."""
    assert set(OpenSettings.__annotations__) == NAMES
    assert set(CheckChoices.__annotations__) == _names(CHECK.options) - {"what"}
    assert set(RepairChoices.__annotations__) == _names((*REPAIR_MESSAGES.options, *REPAIR_TABLES.options))
    assert set(MailboxChoices.__annotations__) == _names(REPAIR_MAILBOXES.options)
    assert set(LagChoices.__annotations__) == _names(REPAIR_LAGS.options)
    assert set(UndoChoices.__annotations__) == _names(UNDO.options) - {"run"}

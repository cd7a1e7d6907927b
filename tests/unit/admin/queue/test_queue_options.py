"""What the commands of the queue are told, and by whom: options, environment, the table [queue], local servers."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import pytest

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.command import DeclaredGroup, made
from mailmend.admin.frame.settings import BlobsAddress, BlobsSettings, QueueSettings, Store
from mailmend.admin.local.s3proxy import keys_file
from mailmend.admin.local.server import Site
from mailmend.admin.queue import connections, openers, options
from mailmend.admin.queue.group import QUEUE
from mailmend.admin.queue.options import local_blobs
from mailmend.admin.queue.request import QueueAnswer
from mailmend.admin.queue.tend import SweepRequest
from mailmend.cql.driver import session
from mailmend.cql.schema.generations import AUGUST_2026
from mailmend.mailqueue.blobs.s3 import S3Settings
from mailmend.mailqueue.blobs.stores import NamedBlobs
from mailmend.mailqueue.comparison import Swept
from mailmend.mailqueue.rabbitmq.broker.settings import BrokerSettings, Form, Host
from mailmend.model.errors import BrokerUnreachable
from tests.support.clock import VirtualClock
from tests.support.cluster_twin import ClusterTwin
from tests.support.commands import CommandLine, Ended, command_line
from tests.support.in_turn import InTurn
from tests.support.queue_commands import KEYSPACE, QueueShell
from tests.support.schemas import served, without_tables

KEYS = {"MAILMEND_S3_ACCESS_KEY": "AK", "MAILMEND_S3_SECRET_KEY": "hunter2"}
BUCKET = {"MAILMEND_BLOBS": "s3://mails?endpoint=https://s3.example.org", **KEYS}
BROKER = {"MAILMEND_BROKER": "amqp://rabbit"}


@pytest.fixture
def shell(tmp_path: Path) -> CommandLine:
    return command_line(tmp_path, None, MAILMEND_HOST="cassandra-1")


@pytest.fixture
def settings_seen(monkeypatch: pytest.MonkeyPatch) -> list[QueueSettings]:
    """What a command that needs all three sides is told, in place of `sweep`."""
    found: list[QueueSettings] = []

    def look(request: SweepRequest, _: Caller) -> QueueAnswer[SweepRequest, Swept]:
        found.append(request.settings)
        return QueueAnswer(request, Swept())

    monkeypatch.setattr("mailmend.admin.queue.tend.sweep", look)
    return found


Look = Callable[..., QueueSettings]


def broker_in(found: QueueSettings) -> BrokerSettings:
    assert found.broker is not None
    return found.broker


def bucket_in(found: QueueSettings) -> S3Settings:
    assert found.blobs is not None
    assert found.blobs.bucket is not None
    return found.blobs.bucket


def address_in(found: QueueSettings) -> BlobsAddress:
    assert found.blobs is not None
    return found.blobs.address


@pytest.fixture
def look(shell: CommandLine, settings_seen: list[QueueSettings]) -> Look:
    def call(*arguments: str, **environment: str) -> QueueSettings:
        ended = shell("queue", "sweep", *arguments, **environment)
        assert ended.code == 0, ended.err
        return settings_seen[-1]

    return call


@pytest.fixture
def refused(shell: CommandLine, settings_seen: list[QueueSettings]) -> Callable[..., Ended]:
    def call(*arguments: str, **environment: str) -> Ended:
        ended = shell("queue", "sweep", *arguments, **environment)
        assert (ended.code, settings_seen, ended.out) == (2, [], ""), ended.err
        assert "Traceback" not in ended.err
        return ended

    return call


class TestBroker:
    """Where the broker is."""

    def test_from_the_environment(self, look: Look) -> None:
        broker = broker_in(look(**BROKER, **BUCKET, MAILMEND_BROKER_PASSWORD="hunter2"))

        assert (broker.hosts, broker.password, broker.management) == ((Host("rabbit", 5672),), "hunter2", None)

    def test_an_option_outweighs_it(self, look: Look) -> None:
        form = ("--broker-form", "quorum", "--broker-replicas", "3")
        where = ("--broker", "amqp://other:1/v", "--broker-management", "http://other:15672")

        broker = broker_in(look(*where, *form, **BROKER, **BUCKET))

        assert (broker.hosts, broker.vhost) == ((Host("other", 1),), "v")
        assert (broker.form.form, broker.form.replicas) == (Form.QUORUM, 3)
        assert broker.management is not None
        assert (broker.management.url, broker.management.username) == ("http://other:15672", "guest")

    def test_a_password_on_the_command_line_is_refused_unseen(self, refused: Callable[..., Ended]) -> None:
        """Every user of the machine could read it; the message does not repeat it."""
        ended = refused("--broker", "amqp://u:hunter2@rabbit", **BUCKET)

        assert "MAILMEND_BROKER_PASSWORD" in ended.err
        assert "hunter2" not in ended.err

    def test_in_the_environment_a_url_may_hold_it(self, look: Look) -> None:
        broker = broker_in(look(**BUCKET, MAILMEND_BROKER="amqp://u:hunter2@rabbit"))

        assert (broker.username, broker.password) == ("u", "hunter2")

    def test_a_file_named_now_outweighs_the_environment(self, look: Look, tmp_path: Path) -> None:
        file = tmp_path / "secret"
        file.write_text("from-file\n")
        both = {**BROKER, **BUCKET, "MAILMEND_BROKER_PASSWORD": "from-environment"}

        now = broker_in(look("--broker-password-file", str(file), **both))
        before = broker_in(look(**both, MAILMEND_BROKER_PASSWORD_FILE=str(file)))

        assert (now.password, before.password) == ("from-file", "from-environment")

    def test_a_user_without_a_password_is_refused(self, refused: Callable[..., Ended]) -> None:
        assert "password of 'james'" in refused(**BUCKET, MAILMEND_BROKER="amqp://james@rabbit").err

    def test_files_for_tls_go_with_amqps(
        self, look: Look, refused: Callable[..., Ended], settings_seen: list[QueueSettings], tmp_path: Path
    ) -> None:
        """Without it they are a mistake, and so is one that is not there."""
        authority = tmp_path / "ca.pem"
        authority.write_text("x")

        assert "amqps" in refused("--broker-tls-ca", str(authority), **BROKER, **BUCKET).err
        assert "does not exist" in refused("--broker-tls-ca", "/none", **BUCKET, MAILMEND_BROKER="amqps://r").err
        broker = broker_in(look("--broker-tls-ca", str(authority), **BUCKET, MAILMEND_BROKER="amqps://r"))
        assert broker.tls is not None
        assert broker.tls.ca == authority
        assert len(settings_seen) == 1

    def test_none_at_all_is_reported_with_both_ways_out(self, refused: Callable[..., Ended]) -> None:
        ended = refused(**BUCKET)

        assert "--broker amqp://host:5672" in ended.err
        assert "mailmend local up --with rabbitmq,s3" in ended.err


class TestBlobs:
    """Where contents are."""

    def test_a_bucket_and_its_keys(self, look: Look) -> None:
        found = look(**BROKER, **BUCKET)

        bucket = bucket_in(found)
        assert (address_in(found).store, bucket.bucket) == (Store.S3, "mails")
        assert (bucket.access_key, bucket.secret_key) == ("AK", "hunter2")
        assert "hunter2" not in repr(found)

    def test_keys_from_a_file(self, look: Look, refused: Callable[..., Ended], tmp_path: Path) -> None:
        one, two, three = tmp_path / "one", tmp_path / "two", tmp_path / "three"
        one.write_text("AK\n")
        two.write_text("AK\nhunter2\n")
        three.write_text("AK\nhunter2\ntoken\n")
        where = {"MAILMEND_BLOBS": BUCKET["MAILMEND_BLOBS"], **BROKER}

        assert "no second line" in refused("--s3-keys-file", str(one), **where).err
        assert bucket_in(look("--s3-keys-file", str(two), **where)).secret_key == "hunter2"
        assert bucket_in(look("--s3-keys-file", str(three), **where)).session_token == "token"

    def test_without_keys_they_are_to_be_found(self, look: Look, refused: Callable[..., Ended]) -> None:
        """A profile that is named now outweighs keys of the environment; half a pair of keys is a mistake."""
        where = {"MAILMEND_BLOBS": BUCKET["MAILMEND_BLOBS"], **BROKER}

        half = refused(**where, MAILMEND_S3_ACCESS_KEY="AK").err
        none, profile = bucket_in(look(**where)), bucket_in(look("--s3-profile", "mail", **BROKER, **BUCKET))
        token = bucket_in(look(**BROKER, **BUCKET, MAILMEND_S3_SESSION_TOKEN="token", MAILMEND_S3_PROFILE="mail"))

        assert "one of the keys to the bucket mails is missing" in half
        assert (none.access_key, none.secret_key, none.profile) == ("", "", "")
        assert (profile.access_key, profile.profile) == ("", "mail")
        assert (token.access_key, token.session_token) == ("AK", "token")

    def test_files_and_tables_need_no_keys(self, look: Look) -> None:
        for url, store in (("file:///var/blobs", Store.FILES), ("cassandra:", Store.CASSANDRA)):
            found = look("--blobs", url, **BROKER)
            assert found.blobs is not None
            assert (found.blobs.address.store, found.blobs.bucket) == (store, None)

    def test_none_at_all_is_reported(self, refused: Callable[..., Ended]) -> None:
        assert "--blobs file:///folder" in refused(**BROKER).err

    def test_a_bucket_in_the_clear_is_refused_far_away(self, refused: Callable[..., Ended]) -> None:
        where = {"MAILMEND_BLOBS": "s3://mails?endpoint=http://s3.example.org", **KEYS}

        assert "not encrypted" in refused(**BROKER, **where).err


class TestSettingsFile:
    """The table [queue]."""

    def write(self, shell: CommandLine, text: str) -> None:
        file = shell.home / "config" / "mailmend" / "config.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def test_it_serves_every_command(self, shell: CommandLine, look: Look) -> None:
        """Queue, broker, blobs, secrets; below the environment in weight."""
        self.write(
            shell,
            """
[queue]
queue = "outgoing"
broker = "amqp://james@from-file"
broker-password = "hunter2"
blobs = "s3://from-file?endpoint=https://s3.example.org"
s3-access-key = "AK"
s3-secret-key = "SK"
""",
        )

        found = look()

        broker = broker_in(found)
        assert (found.name, broker.hosts[0].name, broker.password) == ("outgoing", "from-file", "hunter2")
        assert address_in(found).bucket == "from-file"
        assert look(MAILMEND_QUEUE="spool").name == "spool"

    def test_a_commands_own_table_lies_in_it(self, queue: QueueShell) -> None:
        queue.put("one", "two")
        self.write(queue.line, "[queue.browse]\nlimit = 1\n")

        assert len(queue("browse", "--json").json["mails"]) == 1

    def test_a_misspelt_setting_is_named(self, shell: CommandLine, refused: Callable[..., Ended]) -> None:
        self.write(shell, '[queue]\nbroker = "amqp://x"\nblops = "y"\n')

        assert "line 3: 'blops' is not a setting of `queue`" in refused().err


class TestLocalServers:
    """Those of a running `mailmend local up --with rabbitmq,s3`."""

    @pytest.fixture(autouse=True)
    def _running(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        keys = keys_file(Site(tmp_path, {}))
        keys.write_text("[default]\naws_access_key_id = AK\naws_secret_access_key = SK\n")
        contacts: Mapping[str, Mapping[str, str]] = {
            "rabbitmq": {"amqp": "amqp://127.0.0.1:5673", "management": "http://127.0.0.1:15673"},
            "s3": {"s3": "http://127.0.0.1:9000", "keys": str(keys)},
        }
        monkeypatch.setattr(options, "local_service", contacts.get)

    def test_they_are_found_where_the_cluster_is_here_too(self, look: Look) -> None:
        found = look(MAILMEND_HOST="127.0.0.1")

        assert broker_in(found).hosts == (Host("127.0.0.1", 5673),)
        assert broker_in(found).management is not None
        assert (bucket_in(found).endpoint, bucket_in(found).create_bucket) == ("http://127.0.0.1:9000", True)

    def test_mail_of_another_cluster_is_not_put_into_them(self, refused: Callable[..., Ended]) -> None:
        assert "no message broker is named" in refused().err

    def test_one_that_was_named_outweighs_them(self, look: Look) -> None:
        found = look("--broker", "amqp://other", MAILMEND_HOST="127.0.0.1")

        assert broker_in(found).hosts[0].name == "other"
        assert address_in(found).endpoint == "http://127.0.0.1:9000"

    def test_keys_that_cannot_be_read_are_reported(self, tmp_path: Path) -> None:
        with pytest.raises(Exception, match="cannot be read"):
            local_blobs({"s3": "http://127.0.0.1:9000", "keys": str(tmp_path / "none" / "credentials")})


class TestFailures:
    """What a person reads when a side is not as it should be."""

    @pytest.mark.parametrize(
        ("missing", "said"),
        [(("enqueuedMailsV4",), "schema apply"), (("deletedMailsV2", "browseStart"), "schema apply")],
    )
    def test_a_keyspace_without_a_queue_is_reported(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, missing: tuple[str, ...], said: str
    ) -> None:
        cluster = ClusterTwin(VirtualClock(), **{KEYSPACE: served(without_tables(AUGUST_2026.schema, *missing))})
        monkeypatch.setattr(session, "connect", lambda _contact: cluster)

        ended = command_line(tmp_path, None, MAILMEND_HOST="127.0.0.1", MAILMEND_KEYSPACE=KEYSPACE)("queue", "size")

        assert (ended.code, missing[0] in ended.err, said in ended.err) == (2, True, True), ended.err

    def test_an_unknown_keyspace_is_reported(self, queue: QueueShell) -> None:
        ended = queue("size", "--keyspace", "none")

        assert (ended.code, "'none' does not exist" in ended.err) == (2, True)

    @pytest.mark.parametrize("command", [("sweep",), ("tend", "--once"), ("dequeue", "--dir", "x"), ("reconcile",)])
    def test_a_broker_that_refuses_is_reported(
        self, queue: QueueShell, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], tmp_path: Path
    ) -> None:
        """Exit 4, its own words, no traceback; a sweep of nothing needs no answer."""
        monkeypatch.chdir(tmp_path)

        class Refusing:
            def __getattr__(self, name: str) -> Any:
                if name == "close":
                    return queue.broker.close
                raise BrokerUnreachable("the broker refused the password of 'james'", mend="Set another.")

        monkeypatch.setattr(openers, "broker_behind", lambda _settings, _clock: Refusing())

        ended = queue(*command)

        assert ended.code == (0 if command[0] in {"sweep", "tend"} else 4), ended.err
        assert "Traceback" not in ended.err
        assert ended.code == 0 or "refused the password" in ended.err

    def test_a_side_that_was_not_named_says_so_when_it_is_needed(self) -> None:
        with pytest.raises(Exception, match="none is named"):
            connections._NO_BROKER.publish  # noqa: B018 - asking is enough


def test_every_command_has_examples_exit_codes_and_json() -> None:
    queue_group = made(QUEUE)
    assert isinstance(queue_group, DeclaredGroup)
    context = click.Context(queue_group)
    for name in queue_group.list_commands(context):
        command = queue_group.get_command(context, name)
        assert command is not None
        help_text = command.get_help(click.Context(command, info_name=name))
        assert "Examples:" in help_text, name
        assert "Exit codes:" in help_text, name
        assert "--json" in help_text or name == "metrics", name


def test_the_list_of_commands_needs_no_library(shell: CommandLine) -> None:
    ended = shell("queue", "--help")

    assert (ended.code, "reconcile" in ended.out, "advise" in ended.out) == (0, True, True)


class TestAdapters:
    """What stands behind the ports."""

    def test_each_kind_of_store_has_its_adapter(self, tmp_path: Path) -> None:
        bucket = S3Settings("https://s3.example.org", "mails", "AK", "SK")
        for address, settings in (
            (BlobsAddress(Store.FILES, folder=tmp_path / "blobs"), None),
            (BlobsAddress(Store.S3, "mails", "https://s3.example.org"), bucket),
            (BlobsAddress(Store.CASSANDRA), None),
        ):
            clock = VirtualClock()
            tables = InTurn(ClusterTwin(clock, mail=served(AUGUST_2026.schema)).keyspace("mail"))
            assert isinstance(openers.blobs_behind(BlobsSettings(address, settings), tables, clock), NamedBlobs)

    def test_the_broker_is_rabbitmq(self) -> None:
        broker = openers.broker_behind(BrokerSettings((Host("127.0.0.1", 1),)), VirtualClock())

        assert type(broker).__name__ == "RabbitBroker"

    def test_servers_of_this_machine_are_looked_for(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """None was ever started in a new home; an unknown kind is none either."""
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))

        assert options.local_service("rabbitmq") is None
        assert options.local_service("carrier-pigeon") is None

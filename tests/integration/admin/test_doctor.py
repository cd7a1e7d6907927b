"""`mailmend doctor` on real servers: each part where all is well, and with parts that are broken on purpose."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mailmend.model.catalog.mail import MESSAGES
from tests.support.brokers import Broker
from tests.support.commands import CommandLine, Ended
from tests.support.mail_states import MailKeyspace, emptied, make_anew, shell_on
from tests.support.object_stores import S3
from tests.support.servers import CassandraServer

pytestmark = [pytest.mark.cassandra, pytest.mark.broker, pytest.mark.object_store]


LOST = MESSAGES.filters[0].table


@pytest.fixture
def keyspace(shared_mail: MailKeyspace) -> MailKeyspace:
    return emptied(shared_mail)


@pytest.fixture
def without_a_table(keyspace: MailKeyspace) -> Iterator[None]:
    """The keyspace lacks `LOST` during a test."""
    keyspace.tables.cluster.execute_ddl(f"DROP TABLE {keyspace.name}.{LOST.spelling}")
    yield
    make_anew(keyspace, LOST)


@pytest.fixture
def doctor(  # noqa: PLR0917 - pytest gives them by name
    cassandra: CassandraServer, rabbitmq: Broker, vhost: str, s3: S3, keyspace: MailKeyspace, tmp_path: Path
) -> CommandLine:
    shell = shell_on(cassandra, keyspace, tmp_path)
    environment = {
        **shell.environment,
        "MAILMEND_BROKER": f"amqp://{rabbitmq.host}:{rabbitmq.port}/{vhost}",
        "MAILMEND_BROKER_MANAGEMENT": f"http://{rabbitmq.host}:{rabbitmq.management_port}",
        "MAILMEND_BLOBS": f"s3://{s3.bucket().bucket}?endpoint={s3.endpoint}",
        "MAILMEND_S3_ACCESS_KEY": s3.access_key,
        "MAILMEND_S3_SECRET_KEY": s3.secret_key,
    }
    return CommandLine(tmp_path, environment)


def parts(ended: Ended) -> dict[str, dict[str, Any]]:
    return {one["part"]: one for one in ended.json["parts"]}


def test_where_all_is_well_nothing_is_to_be_done(doctor: CommandLine) -> None:
    ended = doctor("doctor", "--json")

    found = parts(ended)
    servers = ("settings", "cluster", "clocks", "keyspace", "ledger", "broker", "blobs")
    assert {part: found[part]["state"] for part in servers} == dict.fromkeys(servers, "OK"), ended.out
    assert (found["driver"]["state"], "1 of 1 nodes up" in found["cluster"]["seen"]) == ("OK", True)
    assert re.match(r"RabbitMQ \d+\.\d+\S* at 127", found["broker"]["seen"]), found["broker"]
    assert ended.code == any(one["state"] == "TO_CHANGE" for one in found.values())


@pytest.mark.usefixtures("without_a_table")
def test_what_is_broken_is_named_with_the_next_step(
    doctor: CommandLine, keyspace: MailKeyspace, s3: S3, tmp_path: Path
) -> None:
    """A table is gone, the broker is away, the bucket is another's, others may read the keys: each its own line."""
    keys = tmp_path / "keys"
    keys.write_text(f"{s3.access_key}\nwrong\n")
    keys.chmod(0o644)

    ended = doctor("doctor", "--s3-keys-file", str(keys), "--json", MAILMEND_BROKER="amqp://127.0.0.1:1")
    cluster_away = doctor("doctor", "--json", MAILMEND_PORT="1")

    found = parts(ended)
    assert ended.code == 4, ended.out
    broken = {"keyspace": "TO_CHANGE", "settings": "TO_CHANGE", "broker": "CANNOT_REACH", "blobs": "CANNOT_REACH"}
    assert {part: found[part]["state"] for part in broken} == broken
    assert found["cluster"]["state"] == found["clocks"]["state"] == "OK"
    assert LOST.spelling in found["keyspace"]["seen"]
    assert found["keyspace"]["next"] == f"mailmend schema verify --keyspace {keyspace.name}"
    assert "Check the access key" in found["blobs"]["next"]
    assert not any(secret in ended.out + ended.err for secret in (s3.access_key, s3.secret_key, "wrong"))
    assert (cluster_away.code, parts(cluster_away)["cluster"]["state"]) == (4, "CANNOT_REACH")
    assert parts(cluster_away)["broker"]["state"] == "OK", "the others are looked at all the same"

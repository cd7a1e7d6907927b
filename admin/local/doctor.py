"""Declaration of doctor."""

import re
from collections.abc import Callable
from typing import Final, TypeVar

import click

from mailmend.admin.frame.command import Command, Shared, Values
from mailmend.admin.frame.options import connection_of, local_instance, option
from mailmend.admin.frame.settings import is_pulsar
from mailmend.admin.frame.settings_file import settings_file_of
from mailmend.admin.local.doctor_service import DoctorSettings
from mailmend.admin.queue.broker_options import broker_of, pulsar_of
from mailmend.admin.queue.options import blobs_of, local_for, queue_settings
from mailmend.mailqueue.pulsar.broker.settings import PulsarSettings
from mailmend.mailqueue.rabbitmq.broker.settings import BrokerSettings
from mailmend.model.errors import MailmendError

T = TypeVar("T")

_SECRET_FILES: Final = ("password_file", "broker_password_file", "s3_keys_file", "tls_key", "broker_tls_key")
_HOLDS_SECRETS: Final = re.compile(r"(?m)^[^\S\n]*[\w-]*(?:password|secret[-_]key|session[-_]token)\s*=")
_MASTER: Final = option(
    "--master",
    "Spark's master: spark://HOST:PORT, with its page at http://HOST:8080; or that page, where it is another.",
    metavar="URL",
)
_EVERYTHING: Final = queue_settings(broker=lambda _: True, blobs=lambda _: True)


def _build(own: Values, others: Values, context: click.Context) -> DoctorSettings:  # noqa: ARG001 - a Shared's signature
    """What is named, and for each part that is named badly the reason: the others are looked at all the same."""
    refused = dict[str, MailmendError]()

    def tried(part: str, make: Callable[[], T]) -> T | None:
        try:
            return make()
        except MailmendError as error:
            refused[part] = error
            return None

    def broker() -> BrokerSettings | PulsarSettings:
        return pulsar_of(own, context) if is_pulsar(own["broker"] or "") else broker_of(own, context, local)

    named = own["host"] or local_instance()
    connection = tried("cluster", lambda: connection_of(own, context)) if named else None
    local = local_for(connection) if connection else lambda _: None
    broker_named = own["broker"] or local("rabbitmq")
    blobs_named = own["blobs"] or local("s3")
    file, text = settings_file_of(context)
    secrets = [own[name] for name in _SECRET_FILES if own[name]]
    return DoctorSettings(
        own["queue"],
        connection,
        tried("broker", broker) if broker_named else None,
        tried("blobs", lambda: blobs_of(own, context, local)) if blobs_named else None,
        refused,
        file,
        [*secrets, file] if file and _HOLDS_SECRETS.search(text) else secrets,
        own["master"],
    )


DOCTOR: Final = Command(
    name="doctor",
    summary="What is well with this installation, and what to change.",
    about="""One line each for Python, driver, libraries, Java, Spark, Scala, connector, a Spark cluster that is
    named, settings, cluster, clocks, keyspace, ledger, broker and blobs: OK, to change, not configured, or cannot
    be reached; with the next command where there is one. Of a broker that is Pulsar: whether it and its admin API
    answer and let us in, its version, the namespace, and the policies of the queue's topics, delayed delivery among
    them. Nothing is written anywhere, and no Spark is started.""",
    service="mailmend.admin.local.doctor_service:doctor",
    present="mailmend.admin.local.tools_document:doctor_document",
    shared=(Shared("settings", {**_EVERYTHING.groups, "Spark": [_MASTER]}, _build),),
    examples="""
        mailmend doctor
        mailmend doctor --host cassandra-1 --broker amqp://rabbit-1 --blobs cassandra: --json
        mailmend doctor --broker pulsar://pulsar-1/mail/queues --blobs s3://mails?endpoint=https://s3.example.org""",
    exits="0 all is well, 1 something is to be changed, 2 wrong use (a settings file that cannot be read), 4 something "
    "cannot be reached.",
)

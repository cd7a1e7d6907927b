"""Options that the commands of `mailmend queue` share: which queue, which broker, which blobs.

They are read from the settings file's table [queue] too, once for all of its commands. Where nothing is named, servers
of a running `mailmend local up --with rabbitmq,s3` are used.
"""

import shlex
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from mailmend.admin.frame.command import Shared, Values
from mailmend.admin.frame.completion import completed_queues
from mailmend.admin.frame.kinds import Duration, ParsedValue
from mailmend.admin.frame.options import (
    CONNECTION,
    connection_of,
    flag,
    option,
    settings_table,
    shared_file,
    shared_option,
    stated_secret,
    typed,
)
from mailmend.admin.frame.settings import (
    QUEUE_DEFAULT,
    BlobsAddress,
    BlobsSettings,
    ConnectionSettings,
    QueueSettings,
    Store,
    first_line,
    has_password,
    is_pulsar,
    parse_blobs,
    refuse_missing_folder,
)
from mailmend.admin.frame.settings_file import CONNECTION_NAMES
from mailmend.admin.queue.broker_options import (
    BROKER_OPTIONS,
    START_HERE,
    TABLE,
    Local,
    broker_of,
    contacts_of,
    existing,
    pulsar_of,
)
from mailmend.admin.queue.request import MailSelection
from mailmend.mailqueue.blobs.s3 import S3Settings
from mailmend.mailqueue.pulsar.settings import PulsarForm
from mailmend.mailqueue.queue import IDS_MAX
from mailmend.mailqueue.rules.mails import Whereabouts, queue_name
from mailmend.model.errors import BadSettings, WrongUse
from mailmend.model.grammar import is_here, wanted_mailbox
from mailmend.model.ids import QueueName

LOCAL_BUCKET: Final = "mailmend"
DRY_RUN: Final = flag("--dry-run", "Write nothing: say what would be done.")
ALL: Final = flag("--all", "All of them: every queue of the keyspace.", "everything")
NO_BROKER: Final = flag("--no-broker", "Leave the broker out: only the tables are read.")
YES: Final = flag("--yes", "Do not ask: the answer is yes.")

QUEUE_NAME: Final = ParsedValue("queue", lambda value: queue_name(str(value)))
QUEUE_ARGUMENT: Final = click.Argument(
    ["queue_named"], type=QUEUE_NAME, required=False, metavar="[QUEUE]", shell_complete=completed_queues
)
"""The queue's name, in place of --queue."""

AGE_MAX: Final = timedelta(days=3650)
_AGE: Final = Duration(AGE_MAX, zero=False)

_MAILBOX: Final = ParsedValue("address", lambda value: wanted_mailbox(str(value)))
_OF_MAILS: Final = (
    option(
        "--sender",
        "Sender of the mail: in any case; * stands for anything, <> is the null sender.",
        type=_MAILBOX,
        metavar="ADDRESS",
    ),
    option(
        "--recipient",
        "Recipient of the mail: one of several; * stands for anything.",
        type=_MAILBOX,
        metavar="ADDRESS",
    ),
    option("--name", "Name of the mail: * stands for anything.", metavar="NAME"),
    option("--state", "Processor that the mail waits for: like root; * stands for anything.", metavar="STATE"),
)
_ID: Final = option(
    "--id", "Only this mail: by its id; may be given again.", "ids", type=click.UUID, multiple=True, metavar="ID"
)
FILTERS: Final = Shared(
    "selection",
    {
        "": (
            *_OF_MAILS,
            option("--older-than", "Only mails enqueued longer ago than this.", type=_AGE),
            option("--newer-than", "Only mails enqueued no longer ago than this.", type=_AGE),
            _ID,
            option(
                "--where",
                "Only mails that wait, or only delayed ones.",
                type=click.Choice([whereabouts.value for whereabouts in Whereabouts]),
            ),
        )
    },
    lambda own, _others, _context: MailSelection(**own),
)
"""Which mails, as `selection: MailSelection` of the request."""

MAIL_FILTERS: Final = Shared("selection", {"": (*_OF_MAILS, _ID)}, lambda own, _others, _context: MailSelection(**own))
"""The same for mails of which only the envelope is known."""

_option = partial(shared_option, table=TABLE)
_file = partial(shared_file, table=TABLE)
_QUEUE: Final = _option(
    "--queue",
    "Name of the queue; James has spool and outgoing.",
    type=QUEUE_NAME,
    shell_complete=completed_queues,
    default=QUEUE_DEFAULT,
    metavar="NAME",
)
BLOB_OPTIONS: Final = (
    _option(
        "--blobs",
        "Blob store with the contents of mails: s3://bucket?endpoint=URL, file:///folder, or cassandra: (tables of the "
        "mail keyspace).",
        type=ParsedValue("blobs", lambda value: parse_blobs(str(value))),
        metavar="URL",
    ),
    _file(
        "--s3-keys-file",
        "A file with the S3 server's keys, a line each: access key, secret key, session token if any; or "
        "MAILMEND_S3_ACCESS_KEY, MAILMEND_S3_SECRET_KEY, MAILMEND_S3_SESSION_TOKEN. Without keys they are found as "
        "Amazon's tools find them.",
    ),
    _option(
        "--s3-profile",
        "Profile in ~/.aws whose keys are taken. Without it AWS_PROFILE counts, as with Amazon's tools.",
        metavar="NAME",
    ),
    _file("--s3-tls-ca", "Certificate of the authority that signed the S3 server's certificate."),
)
_SECRETS: Final = ("broker_password", "s3_access_key", "s3_secret_key", "s3_session_token")
SETTINGS_NAMES: Final = frozenset(
    {*(str(declared.name) for declared in (_QUEUE, *BROKER_OPTIONS, *BLOB_OPTIONS)), *_SECRETS}
)
"""What the table [queue] may hold in addition to the tables of its commands."""


def typed_stores(context: click.Context) -> list[str]:
    """The words of store and broker as a person typed them; no URL with a password, which is refused elsewhere."""
    words = list[str]()
    for declared in (*BLOB_OPTIONS, *BROKER_OPTIONS):
        of_option = typed(context, (declared,))
        if not any(map(has_password, of_option)):
            words += of_option
    return words


STORES_TYPED: Final = Shared("typed", {}, lambda _own, _others, context: shlex.join(typed_stores(context)))
"""The words of `typed_stores` as one command line, as `typed` of the request."""

NameOf = Callable[[Values, Values, click.Context], QueueName]
"""The name of the queue by the options that are given."""

Needs = Callable[[Mapping[str, Any]], bool]
"""Whether a command needs the broker, or the blobs, by its other options."""


def ids_max(text: str) -> click.Option:
    return option("--ids-max", text, type=click.IntRange(min=1), default=IDS_MAX)


def unless(*options: str) -> Needs:
    """A need that none of these flags takes away; without names the part is always needed."""
    return lambda given: not any(given[option] for option in options)


def where(option: str) -> Needs:
    return lambda given: bool(given[option])


def queue_settings(
    *,
    broker: Needs | None = None,
    blobs: Needs | None = None,
    blobs_if_named: Needs | None = None,
    named: bool = True,
    ledger: bool = False,
    check: Callable[[Values, click.Context], None] | None = None,
) -> Shared:
    """The options that build `settings: QueueSettings` of the request.

    Args:
        broker: when it talks to RabbitMQ; None: never. Whether it talks to Pulsar the broker's address says.
        blobs: when it reads or writes contents; None: never.
        blobs_if_named: when it does, too, but only where a store is known.
        named: whether it is about one queue.
        ledger: whether it reads or writes the ledger, which is in tables over any broker.
        check: refuses options that contradict each other.
    """
    groups = {
        "": (_QUEUE,) if named else (),
        "Broker": BROKER_OPTIONS,
        "Blobs": BLOB_OPTIONS if blobs else (),
    }
    name_of = _queue_named if named else _queue_default

    def build(own: Values, others: Values, context: click.Context) -> QueueSettings:
        if check:
            check(others, context)
        connection = CONNECTION.build(own, others, context)
        local = local_for(connection)
        if is_pulsar(own["broker"] or ""):
            return _over_pulsar(own, others, context, name_of=name_of, ledger=ledger, blobs=blobs or blobs_if_named)
        carrier = None
        if broker and broker(others):
            carrier = broker_of(own, context, local)
        store = None
        if (blobs and blobs(others)) or (blobs_if_named and blobs_if_named(others) and own["blobs"]):
            store = blobs_of(own, context, local)
        return QueueSettings(connection, name_of(own, others, context), carrier, store)

    return Shared("settings", {**groups, **CONNECTION.groups}, build)


def _over_pulsar(
    own: Values, others: Values, context: click.Context, *, name_of: NameOf, ledger: bool, blobs: Needs | None
) -> QueueSettings:
    """Of a queue over Pulsar; without a ledger only what is typed of the tables' connection is looked at."""
    connection = connection_of({name: own[name] for name in CONNECTION_NAMES}, context, asks=ledger)
    name = name_of(own, others, context)
    store = None
    if blobs and blobs(others):
        store = blobs_of(own, context, local_service)
    return QueueSettings(connection, name, blobs=store, pulsar=pulsar_of(own, context), james=james_of(own))


def james_of(options: Mapping[str, Any]) -> PulsarForm | None:
    """The James that a queue over Pulsar is written for; None: what lies in its topics says it."""
    if not options["broker_james"]:
        return None
    return PulsarForm(options["broker_james"])


def _checked_blobs(own: Values, others: Values, context: click.Context) -> BlobsSettings | None:
    """None where the settings outside the command line do not suffice; then the result says that blobs were skipped."""
    if own["blobs"] is None or others["what"] == "messages":
        return None
    is_typed = context.get_parameter_source("blobs") is ParameterSource.COMMANDLINE
    try:
        found = blobs_of(own, context, lambda _name: None)
        if is_typed or others["what"] == "all":
            refuse_missing_folder(found.address)
    except (BadSettings, WrongUse):
        if is_typed:
            raise
        return None
    return found


CHECKED_BLOBS: Final = Shared("blobs", {"Blobs": BLOB_OPTIONS}, _checked_blobs)
"""Where the contents of mails in queues are, if that is known."""


def _message_blobs(own: Values, _: Values, context: click.Context) -> BlobsSettings | None:
    if own["blobs"] is None:
        return None
    return blobs_of(own, context, lambda _name: None)


MESSAGE_BLOBS: Final = Shared("blobs", {"Blobs": BLOB_OPTIONS}, _message_blobs)
"""Where the contents of messages are, where a store is named, as `blobs` of the request."""


def _queue_named(own: Values, others: Values, context: click.Context) -> QueueName:
    """The queue's name from argument or option."""
    argument: QueueName | None = others.pop("queue_named", None)
    option: QueueName = own["queue"]
    typed = context.get_parameter_source("queue") is ParameterSource.COMMANDLINE
    if argument and typed and argument != option:
        raise WrongUse(f"two queues are named: {argument} and --queue {option}", mend="Name one of them.")
    return argument or option


def _queue_default(_own: Values, _others: Values, _context: click.Context) -> QueueName:
    """A command about all queues is about no name."""
    return QueueName(QUEUE_DEFAULT)


_NAME_BLOBS: Final = (
    f"Name the store with --blobs s3://bucket?endpoint=URL, --blobs file:///folder or MAILMEND_BLOBS; {START_HERE}"
)


def blobs_of(options: Mapping[str, Any], context: click.Context, local: Local) -> BlobsSettings:
    """The blob store from options, environment and files together."""
    found: BlobsAddress | None = options["blobs"]
    if found is None:
        return local_blobs(contacts_of(local, "s3", "it is not said where the contents of mails are", _NAME_BLOBS))
    if found.store is not Store.S3:
        return BlobsSettings(found)
    access_key, secret_key, session_token = _s3_keys(options, context)
    return BlobsSettings(
        found,
        S3Settings(
            found.endpoint,
            found.bucket,
            access_key=access_key,
            secret_key=secret_key,
            session_token=session_token,
            profile=options["s3_profile"] or "",
            region=found.region,
            allow_http=found.allow_http,
            tls_ca=existing(options["s3_tls_ca"]),
        ),
    )


def local_for(connection: ConnectionSettings) -> Local:
    """Local servers only for a cluster on this machine; another cluster's mail is not put into them unasked."""
    if all(map(is_here, connection.hosts)):
        return local_service
    return lambda _: None


def local_service(name: str) -> Mapping[str, str] | None:
    """Contacts of a server that `mailmend local up --with` started and that answers, or None."""
    from mailmend.admin.local import ServerState, local_servers  # noqa: PLC0415 - only where no server is named

    run = local_servers().services.get(name)
    if not run or not run.exists:
        return None
    found = run.status()
    if found.state is not ServerState.UP:
        return None
    return found.contacts


def local_blobs(contacts: Mapping[str, str]) -> BlobsSettings:
    """The bucket in a local S3 server; the first blob creates it."""
    from mailmend.admin.local.s3proxy import keys_of  # noqa: PLC0415 - only where no server is named
    from mailmend.admin.local.server import Site  # noqa: PLC0415

    keys = keys_of(Site(Path(contacts["keys"]).parent, {}))
    address = BlobsAddress(Store.S3, LOCAL_BUCKET, contacts["s3"], allow_http=True)
    bucket = S3Settings(
        address.endpoint, address.bucket, keys.access_key, keys.secret_key, allow_http=True, create_bucket=True
    )
    return BlobsSettings(address, bucket)


def _s3_keys(options: Mapping[str, Any], context: click.Context) -> tuple[str, str, str]:
    """Access key, secret key, session token: what is typed first, then environment and table, then another file.

    All empty: they are to be found.
    """

    def known(name: str) -> str:
        name = f"s3_{name}"
        return stated_secret(context, name) or settings_table(context, TABLE).get(name) or ""

    def is_typed(name: str) -> bool:
        return context.get_parameter_source(name) is ParameterSource.COMMANDLINE

    file = options["s3_keys_file"]
    keys = (known("access_key"), known("secret_key"), known("session_token"))
    if is_typed("s3_keys_file"):
        return _in_file(file)
    if is_typed("s3_profile"):
        return "", "", ""
    if file and not all(keys[:2]):
        return _in_file(file)
    return keys


def _in_file(file: Path) -> tuple[str, str, str]:
    first_line(file)  # says what is wrong with a file that cannot be read
    access, secret, token, *_ = [*file.expanduser().read_text(encoding="utf-8").splitlines(), "", ""]
    if not secret:
        raise BadSettings(
            f"keys file {file} has no second line", mend="Its lines must be the access and the secret key."
        )
    return access, secret, token

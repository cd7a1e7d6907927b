"""The public face of mailmend: what a Python program may rely on.

A service that writes mail takes `MessageStore`; one that works on the mail queue takes `open_queue`; whoever has
tables of their own declares them (`Table`, `Column`, `Mirror`, `Filter`, `Union`, `Counts`, `Content`, `Family`).
What the commands do, a program does with `check`, `repair` and `undo`, from a request to a result:

    from mailmend import Caller, CheckRequest, ConnectionSettings, check

    result = check(CheckRequest(connection=ConnectionSettings(hosts=("cassandra1",)), engine="local"), Caller())
    print(result.summary.findings)

Names are loaded when they are first used, so that `import mailmend` needs no driver and costs nothing. If another
package of the process has the name of one of ours (`model`, `admin`, `cql`, `repair`, ...), the first use says which
one, where it lies, and how to get out (`mailmend.own_packages`).
"""

from importlib import import_module
from importlib.metadata import version as _version
from typing import TYPE_CHECKING, Any, Final

from mailmend.own_packages import claim

if TYPE_CHECKING:
    from admin.services.caller import Caller as Caller
    from admin.services.checking import check as check
    from admin.services.mending import CheckRequest as CheckRequest
    from admin.services.mending import MendingResult as MendingResult
    from admin.services.mending import RepairRequest as RepairRequest
    from admin.services.mending import UndoRequest as UndoRequest
    from admin.services.mending import repair as repair
    from admin.services.mending import undo as undo
    from admin.settings import ConnectionSettings as ConnectionSettings
    from cql.driver.asynchronous import AsyncKeyspace as AsyncKeyspace
    from cql.driver.session import Contact as Contact
    from cql.driver.session import connect as connect
    from mailqueue.blobs.cassandra import open_cassandra as open_cassandra
    from mailqueue.blobs.object_storage import open_files as open_files
    from mailqueue.blobs.object_storage import open_s3 as open_s3
    from mailqueue.blobs.s3 import S3Settings as S3Settings
    from mailqueue.queue import MailQueue as MailQueue
    from mailqueue.rabbitmq.mail_queue import open_queue as open_queue
    from model.errors import ExitCode as ExitCode
    from model.errors import MailmendError as MailmendError
    from model.ids import MailboxId as MailboxId
    from model.messages.flags import Flags as Flags
    from model.messages.flags import FlagsChange as FlagsChange
    from model.messages.flags import FlagsMode as FlagsMode
    from model.messages.flags import parse_flags as parse_flags
    from model.messages.message import MessageKey as MessageKey
    from model.messages.message import NewMail as NewMail
    from model.messages.message import Stored as Stored
    from model.projections.content import Content as Content
    from model.projections.family import Family as Family
    from model.projections.filters import Filter as Filter
    from model.projections.groups import Counts as Counts
    from model.projections.groups import Union as Union
    from model.projections.mirror import Mirror as Mirror
    from model.queue.filters import MailFilter as MailFilter
    from model.queue.mails import Mail as Mail
    from model.queue.mails import queue_name as queue_name
    from model.schema.table import Column as Column
    from model.schema.table import Table as Table
    from repair.clock import SystemClock as SystemClock
    from repair.writing.message_store import MessageStore as MessageStore
    from repair.writing.truth_writes import StampSource as StampSource
    from repair.writing.truth_writes import WriterSettings as WriterSettings

__version__ = _version("mailmend")

_NAMES_IN: Final = {
    "admin.services.caller": ("Caller",),
    "admin.services.checking": ("check",),
    "admin.services.mending": ("CheckRequest", "MendingResult", "RepairRequest", "UndoRequest", "repair", "undo"),
    "admin.settings": ("ConnectionSettings",),
    "cql.driver.asynchronous": ("AsyncKeyspace",),
    "cql.driver.session": ("Contact", "connect"),
    "mailqueue.blobs.cassandra": ("open_cassandra",),
    "mailqueue.blobs.object_storage": ("open_files", "open_s3"),
    "mailqueue.blobs.s3": ("S3Settings",),
    "mailqueue.queue": ("MailQueue",),
    "mailqueue.rabbitmq.mail_queue": ("open_queue",),
    "model.errors": ("ExitCode", "MailmendError"),
    "model.ids": ("MailboxId",),
    "model.messages.flags": ("Flags", "FlagsChange", "FlagsMode", "parse_flags"),
    "model.messages.message": ("MessageKey", "NewMail", "Stored"),
    "model.projections.content": ("Content",),
    "model.projections.family": ("Family",),
    "model.projections.filters": ("Filter",),
    "model.projections.groups": ("Counts", "Union"),
    "model.projections.mirror": ("Mirror",),
    "model.queue.filters": ("MailFilter",),
    "model.queue.mails": ("Mail", "queue_name"),
    "model.schema.table": ("Column", "Table"),
    "repair.clock": ("SystemClock",),
    "repair.writing.message_store": ("MessageStore",),
    "repair.writing.truth_writes": ("StampSource", "WriterSettings"),
}
_HOMES: Final = {name: module for module, names in _NAMES_IN.items() for name in names}
__all__ = sorted(_HOMES)  # noqa: PLE0605 - as long as the table


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    claim(warn=True)
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)

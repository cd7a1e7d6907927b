"""The public face of mailmend: what a Python program may rely on.

A service that writes mail takes `MessageStore`; one that works on the mail queue takes `open_queue`; whoever has
tables of their own declares them (`Table`, `Column`, `Mirror`, `Filter`, `Union`, `Counts`, `Content`, `Family`).
What the commands do, a program does with `check`, `repair` and `undo`, from a request to a result:

    from mailmend import Caller, CheckRequest, ConnectionSettings, check

    result = check(CheckRequest(connection=ConnectionSettings(hosts=("cassandra1",)), engine="local"), Caller())
    print(result.summary.findings)

Names are loaded when they are first used, so that `import mailmend` needs no driver and costs nothing.
"""

import sys
from importlib import import_module
from importlib.metadata import version
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mailmend.admin.frame.caller import Caller as Caller
    from mailmend.admin.frame.settings import ConnectionSettings as ConnectionSettings
    from mailmend.admin.messages.check import check as check
    from mailmend.admin.messages.mending import CheckRequest as CheckRequest
    from mailmend.admin.messages.mending import MendingResult as MendingResult
    from mailmend.admin.messages.repair import RepairRequest as RepairRequest
    from mailmend.admin.messages.repair import repair as repair
    from mailmend.admin.messages.runs import UndoRequest as UndoRequest
    from mailmend.admin.messages.runs import undo as undo
    from mailmend.cql.driver.asynchronous import AsyncKeyspace as AsyncKeyspace
    from mailmend.cql.driver.session import Contact as Contact
    from mailmend.cql.driver.session import connect as connect
    from mailmend.mailqueue.blobs.cassandra import open_cassandra as open_cassandra
    from mailmend.mailqueue.blobs.object_storage import open_files as open_files
    from mailmend.mailqueue.blobs.object_storage import open_s3 as open_s3
    from mailmend.mailqueue.blobs.s3 import S3Settings as S3Settings
    from mailmend.mailqueue.queue import MailQueue as MailQueue
    from mailmend.mailqueue.rabbitmq.mail_queue import open_queue as open_queue
    from mailmend.mailqueue.rules.mails import Mail as Mail
    from mailmend.mailqueue.rules.mails import MailFilter as MailFilter
    from mailmend.mailqueue.rules.mails import queue_name as queue_name
    from mailmend.model.errors import ExitCode as ExitCode
    from mailmend.model.errors import MailmendError as MailmendError
    from mailmend.model.ids import MailboxId as MailboxId
    from mailmend.model.projections.family import Content as Content
    from mailmend.model.projections.family import Counts as Counts
    from mailmend.model.projections.family import Family as Family
    from mailmend.model.projections.family import Filter as Filter
    from mailmend.model.projections.family import Union as Union
    from mailmend.model.projections.projection import Mirror as Mirror
    from mailmend.model.table import Column as Column
    from mailmend.model.table import Table as Table
    from mailmend.opening import AsyncMailmend as AsyncMailmend
    from mailmend.opening import Mailmend as Mailmend
    from mailmend.opening import open as open  # noqa: A004 - read as mailmend.open
    from mailmend.opening import open_async as open_async
    from mailmend.repair.clock import SystemClock as SystemClock
    from mailmend.repair.store.message import Flags as Flags
    from mailmend.repair.store.message import FlagsChange as FlagsChange
    from mailmend.repair.store.message import FlagsMode as FlagsMode
    from mailmend.repair.store.message import MessageKey as MessageKey
    from mailmend.repair.store.message import NewMail as NewMail
    from mailmend.repair.store.message import Stored as Stored
    from mailmend.repair.store.message import parse_flags as parse_flags
    from mailmend.repair.store.message import split_mail as split_mail
    from mailmend.repair.store.message_store import MessageStore as MessageStore
    from mailmend.repair.store.writes import StampSource as StampSource
    from mailmend.repair.store.writes import WriterSettings as WriterSettings

_NAMES_IN: Final = {
    "mailmend.opening": ("AsyncMailmend", "Mailmend", "open", "open_async"),
    "mailmend.admin.frame.caller": ("Caller",),
    "mailmend.admin.messages.check": ("check",),
    "mailmend.admin.messages.mending": ("CheckRequest", "MendingResult"),
    "mailmend.admin.messages.repair": ("RepairRequest", "repair"),
    "mailmend.admin.messages.runs": ("UndoRequest", "undo"),
    "mailmend.admin.frame.settings": ("ConnectionSettings",),
    "mailmend.cql.driver.asynchronous": ("AsyncKeyspace",),
    "mailmend.cql.driver.session": ("Contact", "connect"),
    "mailmend.mailqueue.blobs.cassandra": ("open_cassandra",),
    "mailmend.mailqueue.blobs.object_storage": ("open_files", "open_s3"),
    "mailmend.mailqueue.blobs.s3": ("S3Settings",),
    "mailmend.mailqueue.queue": ("MailQueue",),
    "mailmend.mailqueue.rabbitmq.mail_queue": ("open_queue",),
    "mailmend.model.errors": ("ExitCode", "MailmendError"),
    "mailmend.model.ids": ("MailboxId",),
    "mailmend.repair.store.message": (
        "Flags",
        "FlagsChange",
        "FlagsMode",
        "MessageKey",
        "NewMail",
        "Stored",
        "parse_flags",
        "split_mail",
    ),
    "mailmend.model.projections.family": ("Content", "Counts", "Family", "Filter", "Union"),
    "mailmend.model.projections.projection": ("Mirror",),
    "mailmend.mailqueue.rules.mails": ("Mail", "MailFilter", "queue_name"),
    "mailmend.model.table": ("Column", "Table"),
    "mailmend.repair.clock": ("SystemClock",),
    "mailmend.repair.store.message_store": ("MessageStore",),
    "mailmend.repair.store.writes": ("StampSource", "WriterSettings"),
}
_HOMES: Final = {name: module for module, names in _NAMES_IN.items() for name in names}
__all__ = sorted(_HOMES)  # noqa: PLE0605 - as long as the table


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return version("mailmend")  # not at import: executors of Spark get the packages without their metadata
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


class _CallableRepair(ModuleType):
    """The package `mailmend.repair`, which is also the function `repair`: both names are public."""

    def __call__(self, request: "RepairRequest", caller: "Caller") -> "MendingResult":
        from mailmend.admin.messages.repair import repair as run_repair  # noqa: PLC0415 - loaded when used

        return run_repair(request, caller)


class _PublicFace(ModuleType):
    def __setattr__(self, name: str, value: object) -> None:
        """Python sets a package as an attribute of its parent when the package is first imported."""
        if name == "repair" and isinstance(value, ModuleType):
            value.__class__ = _CallableRepair
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _PublicFace

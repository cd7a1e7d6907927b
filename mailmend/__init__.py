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
    from admin.services.caller import Caller
    from admin.services.mending import (
        CheckRequest,
        MendingResult,
        RepairRequest,
        UndoRequest,
        check,
        repair,
        undo,
    )
    from admin.settings import ConnectionSettings
    from mailqueue.queue import MailQueue
    from mailqueue.rabbitmq.mail_queue import open_queue
    from model.errors import ExitCode, MailmendError
    from model.messages.flags import FlagsChange
    from model.projections.content import Content
    from model.projections.family import Family
    from model.projections.filters import Filter
    from model.projections.groups import Counts, Union
    from model.projections.mirror import Mirror
    from model.schema.table import Column, Table
    from repair.writing.message_store import MessageStore
    from repair.writing.truth_writes import WriterSettings

__version__ = _version("mailmend")

_HOMES: Final = {
    "Caller": "admin.services.caller",
    "CheckRequest": "admin.services.mending",
    "Column": "model.schema.table",
    "ConnectionSettings": "admin.settings",
    "Content": "model.projections.content",
    "Counts": "model.projections.groups",
    "ExitCode": "model.errors",
    "Family": "model.projections.family",
    "Filter": "model.projections.filters",
    "FlagsChange": "model.messages.flags",
    "MailQueue": "mailqueue.queue",
    "MailmendError": "model.errors",
    "MendingResult": "admin.services.mending",
    "MessageStore": "repair.writing.message_store",
    "Mirror": "model.projections.mirror",
    "RepairRequest": "admin.services.mending",
    "Table": "model.schema.table",
    "UndoRequest": "admin.services.mending",
    "Union": "model.projections.groups",
    "WriterSettings": "repair.writing.truth_writes",
    "check": "admin.services.mending",
    "open_queue": "mailqueue.rabbitmq.mail_queue",
    "repair": "admin.services.mending",
    "undo": "admin.services.mending",
}
"""Where each public name stands."""

__all__ = [
    "Caller",
    "CheckRequest",
    "Column",
    "ConnectionSettings",
    "Content",
    "Counts",
    "ExitCode",
    "Family",
    "Filter",
    "FlagsChange",
    "MailQueue",
    "MailmendError",
    "MendingResult",
    "MessageStore",
    "Mirror",
    "RepairRequest",
    "Table",
    "UndoRequest",
    "Union",
    "WriterSettings",
    "check",
    "open_queue",
    "repair",
    "undo",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    claim(warn=True)
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)

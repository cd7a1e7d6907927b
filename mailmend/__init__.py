"""The public face of mailmend: what a Python program may rely on.

`open` gives a program all of it in one object, by the settings of the commands; `open_async` does
the same in an event loop:

    import mailmend

    with mailmend.open(host="cassandra1", keyspace="apache_james") as mail:
        found = mail.check(engine="local")
        print(found.summary.findings)

`Mailmend` tells what the object has. The names of `__all__` are public, and nothing else is: what
methods take, give and raise, values of delivery hooks (`PreDelivery`, `PostDelivery`), and classes
that declare tables (`Table`, `Column`, `Mirror`, `Filter`, `Union`, `Counts`, `Content`,
`Family`). docs/how-to/use-as-a-library.md has a script of each kind.

Names are loaded when they are first used: `import mailmend` alone needs no driver and costs nothing.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mailmend.admin.frame.caller import Caller as Caller
    from mailmend.admin.frame.examples import Example as Example
    from mailmend.admin.frame.settings import ConnectionSettings as ConnectionSettings
    from mailmend.admin.frame.settings import Tls as Tls
    from mailmend.admin.messages.mending import CheckedTopics as CheckedTopics
    from mailmend.admin.messages.mending import MendingResult as MendingResult
    from mailmend.choices import CheckChoices as CheckChoices
    from mailmend.choices import LagChoices as LagChoices
    from mailmend.choices import MailboxChoices as MailboxChoices
    from mailmend.choices import OpenSettings as OpenSettings
    from mailmend.choices import RepairChoices as RepairChoices
    from mailmend.choices import ScanChoices as ScanChoices
    from mailmend.choices import UndoChoices as UndoChoices
    from mailmend.delivery.mail.attempts import AttemptStage as AttemptStage
    from mailmend.delivery.mail.entries import EntryEnd as EntryEnd
    from mailmend.delivery.mail.entries import EntryId as EntryId
    from mailmend.delivery.mail.hooks import AcceptMail as AcceptMail
    from mailmend.delivery.mail.hooks import ArrivalDecision as ArrivalDecision
    from mailmend.delivery.mail.hooks import ArrivedRecipient as ArrivedRecipient
    from mailmend.delivery.mail.hooks import AttemptState as AttemptState
    from mailmend.delivery.mail.hooks import BounceRecipient as BounceRecipient
    from mailmend.delivery.mail.hooks import DelayMail as DelayMail
    from mailmend.delivery.mail.hooks import DeleteRecipient as DeleteRecipient
    from mailmend.delivery.mail.hooks import EndOfData as EndOfData
    from mailmend.delivery.mail.hooks import HoldRecipient as HoldRecipient
    from mailmend.delivery.mail.hooks import HookedArrival as HookedArrival
    from mailmend.delivery.mail.hooks import HookedAttempt as HookedAttempt
    from mailmend.delivery.mail.hooks import HookedRecipient as HookedRecipient
    from mailmend.delivery.mail.hooks import HookOrder as HookOrder
    from mailmend.delivery.mail.hooks import HookResult as HookResult
    from mailmend.delivery.mail.hooks import LimitMails as LimitMails
    from mailmend.delivery.mail.hooks import PostDecision as PostDecision
    from mailmend.delivery.mail.hooks import PostDelivery as PostDelivery
    from mailmend.delivery.mail.hooks import PreDecision as PreDecision
    from mailmend.delivery.mail.hooks import PreDelivery as PreDelivery
    from mailmend.delivery.mail.hooks import PutOffDelivery as PutOffDelivery
    from mailmend.delivery.mail.hooks import RejectMail as RejectMail
    from mailmend.delivery.mail.hooks import SuspendMails as SuspendMails
    from mailmend.delivery.mail.hooks import TryDelivery as TryDelivery
    from mailmend.delivery.policy.policy import PickupField as PickupField
    from mailmend.delivery.policy.policy import Threshold as Threshold
    from mailmend.delivery.policy.rates import DeliveryRate as DeliveryRate
    from mailmend.delivery.transports import SourceAddress as SourceAddress
    from mailmend.delivery.transports import TlsLevel as TlsLevel
    from mailmend.mailqueue.codec import BrokenRow as BrokenRow
    from mailmend.mailqueue.comparison import Redriven as Redriven
    from mailmend.mailqueue.queue import AffectedMails as AffectedMails
    from mailmend.mailqueue.queue import ChangedMail as ChangedMail
    from mailmend.mailqueue.queue import Delays as Delays
    from mailmend.mailqueue.queue import Dequeued as Dequeued
    from mailmend.mailqueue.queue import FailedMail as FailedMail
    from mailmend.mailqueue.queue import MailQueue as MailQueue
    from mailmend.mailqueue.rules.backlogs import SubQueueName as SubQueueName
    from mailmend.mailqueue.rules.mails import Listed as Listed
    from mailmend.mailqueue.rules.mails import ListingPosition as ListingPosition
    from mailmend.mailqueue.rules.mails import Mail as Mail
    from mailmend.mailqueue.rules.mails import MailBlobs as MailBlobs
    from mailmend.mailqueue.rules.mails import MailFilter as MailFilter
    from mailmend.mailqueue.rules.mails import QueuedMail as QueuedMail
    from mailmend.mailqueue.rules.mails import RecipientHeader as RecipientHeader
    from mailmend.mailqueue.rules.mails import Whereabouts as Whereabouts
    from mailmend.mailqueue.rules.mails import queue_name as queue_name
    from mailmend.mailqueue.rules.places import MessagePlace as MessagePlace
    from mailmend.mailqueue.rules.size import CountedBy as CountedBy
    from mailmend.mailqueue.rules.size import Size as Size
    from mailmend.mailqueue.rules.size import SizeKind as SizeKind
    from mailmend.model.errors import AccessDenied as AccessDenied
    from mailmend.model.errors import BadSettings as BadSettings
    from mailmend.model.errors import BlobMissing as BlobMissing
    from mailmend.model.errors import BlobsUnreachable as BlobsUnreachable
    from mailmend.model.errors import CannotReach as CannotReach
    from mailmend.model.errors import Contended as Contended
    from mailmend.model.errors import Delayed as Delayed
    from mailmend.model.errors import ExitCode as ExitCode
    from mailmend.model.errors import FixLimit as FixLimit
    from mailmend.model.errors import LeaseHeld as LeaseHeld
    from mailmend.model.errors import MailmendError as MailmendError
    from mailmend.model.errors import MissingExtra as MissingExtra
    from mailmend.model.errors import PublishFailed as PublishFailed
    from mailmend.model.errors import SchemaMismatch as SchemaMismatch
    from mailmend.model.errors import Unjournalled as Unjournalled
    from mailmend.model.errors import UnknownKeyspace as UnknownKeyspace
    from mailmend.model.errors import UnknownMessage as UnknownMessage
    from mailmend.model.errors import UnknownRow as UnknownRow
    from mailmend.model.errors import UnknownRun as UnknownRun
    from mailmend.model.errors import UnsafeRequest as UnsafeRequest
    from mailmend.model.errors import WrongUse as WrongUse
    from mailmend.model.ids import BlobId as BlobId
    from mailmend.model.ids import EnqueueId as EnqueueId
    from mailmend.model.ids import MailboxId as MailboxId
    from mailmend.model.ids import MessageId as MessageId
    from mailmend.model.ids import ModSeq as ModSeq
    from mailmend.model.ids import QueueName as QueueName
    from mailmend.model.ids import RunId as RunId
    from mailmend.model.ids import Uid as Uid
    from mailmend.model.operations import Change as Change
    from mailmend.model.operations import ChangeIf as ChangeIf
    from mailmend.model.operations import Count as Count
    from mailmend.model.operations import Level as Level
    from mailmend.model.operations import Put as Put
    from mailmend.model.operations import PutIfAbsent as PutIfAbsent
    from mailmend.model.operations import Remove as Remove
    from mailmend.model.operations import RemoveIf as RemoveIf
    from mailmend.model.operations import Seen as Seen
    from mailmend.model.ports import Progress as Progress
    from mailmend.model.projections.conditions import Condition as Condition
    from mailmend.model.projections.conditions import Either as Either
    from mailmend.model.projections.conditions import Every as Every
    from mailmend.model.projections.conditions import IsNull as IsNull
    from mailmend.model.projections.conditions import Not as Not
    from mailmend.model.projections.conditions import OneOf as OneOf
    from mailmend.model.projections.conditions import RowCondition as RowCondition
    from mailmend.model.projections.conditions import StartsWith as StartsWith
    from mailmend.model.projections.content import Content as Content
    from mailmend.model.projections.declaration_file import read_declaration as read_declaration
    from mailmend.model.projections.declaration_nodes import BadDeclaration as BadDeclaration
    from mailmend.model.projections.declarations import Declaration as Declaration
    from mailmend.model.projections.family import Counts as Counts
    from mailmend.model.projections.family import Family as Family
    from mailmend.model.projections.family import Filter as Filter
    from mailmend.model.projections.family import Union as Union
    from mailmend.model.projections.findings import Excess as Excess
    from mailmend.model.projections.findings import Finding as Finding
    from mailmend.model.projections.findings import Suspect as Suspect
    from mailmend.model.projections.projection import Mirror as Mirror
    from mailmend.model.projections.valued import Bound as Bound
    from mailmend.model.projections.valued import Bounds as Bounds
    from mailmend.model.projections.valued import Numbers as Numbers
    from mailmend.model.projections.verdicts import Reason as Reason
    from mailmend.model.projections.verdicts import Verdict as Verdict
    from mailmend.model.projections.verdicts import Why as Why
    from mailmend.model.table import Column as Column
    from mailmend.model.table import Compaction as Compaction
    from mailmend.model.table import Kind as Kind
    from mailmend.model.table import OtherColumn as OtherColumn
    from mailmend.model.table import Table as Table
    from mailmend.model.transforms import Transform as Transform
    from mailmend.opening import AsyncMailmend as AsyncMailmend
    from mailmend.opening import Mailmend as Mailmend
    from mailmend.opening import open as open  # noqa: A004 - read as mailmend.open
    from mailmend.opening import open_async as open_async
    from mailmend.repair.binding import MissingColumn as MissingColumn
    from mailmend.repair.decisions.engines import Engine as Engine
    from mailmend.repair.decisions.left_sample import LeftSample as LeftSample
    from mailmend.repair.ledger.runs import RunKind as RunKind
    from mailmend.repair.mending.engine import RepairResult as RepairResult
    from mailmend.repair.mending.generators import BehindGenerator as BehindGenerator
    from mailmend.repair.retries import RetryPolicy as RetryPolicy
    from mailmend.repair.scanners.gone_mailboxes import GoneMailbox as GoneMailbox
    from mailmend.repair.store.mailboxes import BadName as BadName
    from mailmend.repair.store.mailboxes import Mailboxes as Mailboxes
    from mailmend.repair.store.message import Attachment as Attachment
    from mailmend.repair.store.message import Flags as Flags
    from mailmend.repair.store.message import FlagsChange as FlagsChange
    from mailmend.repair.store.message import FlagsMode as FlagsMode
    from mailmend.repair.store.message import MessageKey as MessageKey
    from mailmend.repair.store.message import NewMail as NewMail
    from mailmend.repair.store.message import Stored as Stored
    from mailmend.repair.store.message import SystemFlag as SystemFlag
    from mailmend.repair.store.message import parse_flags as parse_flags
    from mailmend.repair.store.message import split_mail as split_mail
    from mailmend.repair.store.message_store import MessageStore as MessageStore
    from mailmend.repair.store.projection_writer import (
        AsyncProjectionWriter as AsyncProjectionWriter,
    )
    from mailmend.repair.store.projection_writer import ProjectionWriter as ProjectionWriter
    from mailmend.repair.store.projection_writer import WrittenRow as WrittenRow
    from mailmend.repair.store.writes import StampSource as StampSource
    from mailmend.repair.store.writes import WriterSettings as WriterSettings

_NAMES_IN: Final = {
    "mailmend.admin.frame.caller": ("Caller",),
    "mailmend.admin.frame.examples": ("Example",),
    "mailmend.admin.frame.settings": ("ConnectionSettings", "Tls"),
    "mailmend.admin.messages.mending": ("CheckedTopics", "MendingResult"),
    "mailmend.choices": (
        "CheckChoices",
        "LagChoices",
        "MailboxChoices",
        "OpenSettings",
        "RepairChoices",
        "ScanChoices",
        "UndoChoices",
    ),
    "mailmend.delivery.mail.attempts": ("AttemptStage",),
    "mailmend.delivery.mail.entries": ("EntryEnd", "EntryId"),
    "mailmend.delivery.mail.hooks": (
        "AcceptMail",
        "ArrivalDecision",
        "ArrivedRecipient",
        "AttemptState",
        "BounceRecipient",
        "DelayMail",
        "DeleteRecipient",
        "EndOfData",
        "HoldRecipient",
        "HookOrder",
        "HookResult",
        "HookedArrival",
        "HookedAttempt",
        "HookedRecipient",
        "LimitMails",
        "PostDecision",
        "PostDelivery",
        "PreDecision",
        "PreDelivery",
        "PutOffDelivery",
        "RejectMail",
        "SuspendMails",
        "TryDelivery",
    ),
    "mailmend.delivery.policy.policy": ("PickupField", "Threshold"),
    "mailmend.delivery.policy.rates": ("DeliveryRate",),
    "mailmend.delivery.transports": ("SourceAddress", "TlsLevel"),
    "mailmend.mailqueue.codec": ("BrokenRow",),
    "mailmend.mailqueue.comparison": ("Redriven",),
    "mailmend.mailqueue.queue": (
        "AffectedMails",
        "ChangedMail",
        "Delays",
        "Dequeued",
        "FailedMail",
        "MailQueue",
    ),
    "mailmend.mailqueue.rules.backlogs": ("SubQueueName",),
    "mailmend.mailqueue.rules.mails": (
        "Listed",
        "ListingPosition",
        "Mail",
        "MailBlobs",
        "MailFilter",
        "QueuedMail",
        "RecipientHeader",
        "Whereabouts",
        "queue_name",
    ),
    "mailmend.mailqueue.rules.places": ("MessagePlace",),
    "mailmend.mailqueue.rules.size": ("CountedBy", "Size", "SizeKind"),
    "mailmend.model.errors": (
        "AccessDenied",
        "BadSettings",
        "BlobMissing",
        "BlobsUnreachable",
        "CannotReach",
        "Contended",
        "Delayed",
        "ExitCode",
        "FixLimit",
        "LeaseHeld",
        "MailmendError",
        "MissingExtra",
        "PublishFailed",
        "SchemaMismatch",
        "Unjournalled",
        "UnknownKeyspace",
        "UnknownMessage",
        "UnknownRow",
        "UnknownRun",
        "UnsafeRequest",
        "WrongUse",
    ),
    "mailmend.model.ids": (
        "BlobId",
        "EnqueueId",
        "MailboxId",
        "MessageId",
        "ModSeq",
        "QueueName",
        "RunId",
        "Uid",
    ),
    "mailmend.model.operations": (
        "Change",
        "ChangeIf",
        "Count",
        "Level",
        "Put",
        "PutIfAbsent",
        "Remove",
        "RemoveIf",
        "Seen",
    ),
    "mailmend.model.ports": ("Progress",),
    "mailmend.model.projections.conditions": (
        "Condition",
        "Either",
        "Every",
        "IsNull",
        "Not",
        "OneOf",
        "RowCondition",
        "StartsWith",
    ),
    "mailmend.model.projections.declaration_file": ("read_declaration",),
    "mailmend.model.projections.declaration_nodes": ("BadDeclaration",),
    "mailmend.model.projections.declarations": ("Declaration",),
    "mailmend.model.projections.family": (
        "Content",
        "Counts",
        "Family",
        "Filter",
        "Union",
    ),
    "mailmend.model.projections.findings": ("Excess", "Finding", "Suspect"),
    "mailmend.model.projections.projection": ("Mirror",),
    "mailmend.model.projections.valued": ("Bound", "Bounds", "Numbers"),
    "mailmend.model.projections.verdicts": ("Reason", "Verdict", "Why"),
    "mailmend.model.table": ("Column", "Compaction", "Kind", "OtherColumn", "Table"),
    "mailmend.model.transforms": ("Transform",),
    "mailmend.opening": ("AsyncMailmend", "Mailmend", "open", "open_async"),
    "mailmend.repair.binding": ("MissingColumn",),
    "mailmend.repair.decisions.engines": ("Engine",),
    "mailmend.repair.decisions.left_sample": ("LeftSample",),
    "mailmend.repair.ledger.runs": ("RunKind",),
    "mailmend.repair.mending.engine": ("RepairResult",),
    "mailmend.repair.mending.generators": ("BehindGenerator",),
    "mailmend.repair.retries": ("RetryPolicy",),
    "mailmend.repair.scanners.gone_mailboxes": ("GoneMailbox",),
    "mailmend.repair.store.mailboxes": ("BadName", "Mailboxes"),
    "mailmend.repair.store.message": (
        "Attachment",
        "Flags",
        "FlagsChange",
        "FlagsMode",
        "MessageKey",
        "NewMail",
        "Stored",
        "SystemFlag",
        "parse_flags",
        "split_mail",
    ),
    "mailmend.repair.store.message_store": ("MessageStore",),
    "mailmend.repair.store.projection_writer": (
        "AsyncProjectionWriter",
        "ProjectionWriter",
        "WrittenRow",
    ),
    "mailmend.repair.store.writes": ("StampSource", "WriterSettings"),
}
_HOMES: Final = {name: module for module, names in _NAMES_IN.items() for name in names}
__all__ = sorted(_HOMES)  # noqa: PLE0605 - as long as the table


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return version("mailmend")  # not at import: executors of Spark get the packages without their metadata
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from mailmend.signatures import with_short_signatures  # noqa: PLC0415 - loaded when used

    value = with_short_signatures(getattr(import_module(_HOMES[name]), name))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

"""One object with all that a program does with mail: messages, queues, checks, repairs, undo.

It connects by the settings of the commands, through the functions that the commands call.
"""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from pathlib import Path
from typing import Final, Self, Unpack
from uuid import UUID

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import OpenCluster, open_cluster
from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.admin.messages.bound_tables import projection_writer
from mailmend.admin.messages.check import CHECK, check
from mailmend.admin.messages.load import message_store
from mailmend.admin.messages.mending import CheckRequest, MendingResult
from mailmend.admin.messages.repair import (
    REPAIR_LAGS,
    REPAIR_MESSAGES,
    RepairRequest,
    repair,
    repair_lags,
)
from mailmend.admin.messages.repair_mailboxes import REPAIR_MAILBOXES, repair_mailboxes
from mailmend.admin.messages.repair_tables import REPAIR_TABLES
from mailmend.admin.messages.runs import UNDO, UndoRequest, undo
from mailmend.admin.program import ProgramSettings, settings_of
from mailmend.admin.queue.connections import QueueConnections, tables_and_broker, topics_of
from mailmend.choices import (
    CheckChoices,
    LagChoices,
    MailboxChoices,
    OpenSettings,
    RepairChoices,
    UndoChoices,
)
from mailmend.cql.introspect import live_schema
from mailmend.mailqueue.queue import MailQueue
from mailmend.model.errors import WrongUse
from mailmend.model.projections.declarations import Declaration
from mailmend.model.projections.family import Family
from mailmend.repair.clock import SystemClock
from mailmend.repair.store.mailboxes import Mailboxes
from mailmend.repair.store.message_store import MessageStore
from mailmend.repair.store.projection_writer import AsyncProjectionWriter, ProjectionWriter
from mailmend.repair.store.writes import WriterSettings

_LOG: Final = logging.getLogger("mailmend")


class Mailmend:
    """The mail of one keyspace, with its queues: a context, from `mailmend.open`. Thread-safe.

    Nothing is connected to before it is used. Messages, mailboxes, projections and queues share one
    connection to the cluster, which the context closes. Each check, repair and undo connects anew,
    as a command does, and closes what it opened. Every method raises `MailmendError`, or an error
    derived from it, where the cluster, the broker or the settings are at fault: `what` says what
    happened, `mend` what to do about it.

        with mailmend.open(host="cassandra1", keyspace="apache_james") as mail:
            found = mail.check(engine="local")
            if found.summary.findings:
                repaired = mail.repair(engine="local", max_fixes=1000)
                print(repaired.summary.fixed, "mended by the run", repaired.summary.run)
    """

    def __init__(self, settings: ProgramSettings, writer: WriterSettings | None = None) -> None:
        self._settings = settings
        self._writer = writer
        self._lock = threading.RLock()
        self._closing = ExitStack()
        self._is_closed = False
        self._cluster: OpenCluster | None = None
        self._messages: MessageStore | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the threads of the messages after their current work, and close the cluster."""
        with self._lock:
            self._is_closed = True
            self._closing.close()

    @property
    def connection(self) -> ConnectionSettings:
        """The cluster, its role and its keyspaces, as the settings say it.

        Raises:
            BadSettings: the role has no password, or a file that is named cannot be read.
        """
        return self._settings.connection

    @property
    def messages(self) -> MessageStore:
        """The messages, to be written; the ledger, which journals lags, is created if missing.

        A projection that could not be written is a lag (`Stored.lagged`): `repair_lags` mends it.

        Raises:
            SchemaMismatch: the keyspace lacks a table or column that mail is written to.
            UnsafeRequest: no store is named, and the contents are not in the keyspace's tables.
            CannotReach: the cluster does not answer.
        """
        with self._lock:
            if self._messages is None:
                named = self._settings.message_blobs
                store = message_store(self._opened(), named, _LOG.warning, self._writer)
                self._messages = self._closing.enter_context(store)
            return self._messages

    @property
    def mailboxes(self) -> Mailboxes:
        """The mailboxes by user and name; `ensure` creates one that is missing, and gives its id.

        Raises:
            CannotReach: the cluster does not answer.
        """
        opened = self._opened()
        return Mailboxes(opened.mail, opened.clock)

    @property
    def projections(self) -> tuple[Family, ...]:
        """The declared families: each a truth with its projections, restricted to the keyspace.

        Raises:
            UnknownKeyspace: there is no such keyspace.
            CannotReach: the cluster does not answer.
        """
        return self._opened().families()

    def writer(self, truth: str, projections: str | Path | Declaration) -> ProjectionWriter:
        """A writer of one declared table, and of all that follows from it.

        The ledger, which journals lags, is created if missing.

            users = shop.writer("users", "shop.toml")
            users.put({"user_id": ann, "email": "ann@example.org", "name": "Ann"})

        Args:
            truth: the name of the table.
            projections: a declaration that has it, or its file.

        Raises:
            WrongUse: the declaration has no such truth, or does not fit the keyspace.
            CannotReach: the cluster does not answer.
        """
        if isinstance(projections, str):
            projections = Path(projections)
        return projection_writer(self._opened(), truth, projections, self._writer)

    def queue(self, name: str | None = None) -> AbstractAsyncContextManager[MailQueue]:
        """A mail queue over RabbitMQ or Pulsar, as the broker's address says it.

        The queue is an asynchronous context, and belongs to the event loop that enters it.

            async with mail.queue("outgoing") as queue:
                await queue.enqueue(envelope, content)

        Args:
            name: of the queue; None: the queue of the settings, else `spool`.

        Raises:
            WrongUse: no broker is named, or no store of the mails' contents, or the name is wrong.
            MissingExtra: the broker's library is not installed.
            CannotReach: the cluster or the broker does not answer.
        """
        return self._queue(name)

    def check(
        self,
        what: str = "all",
        *,
        caller: Caller | None = None,
        **choices: Unpack[CheckChoices],
    ) -> MendingResult:
        """Find drift, without writing anything but a record (`record`): what `mailmend check` does.

        Args:
            what: messages, queues where the keyspace has them, or both with the paths of mailboxes;
                with `projections` or `projection` the name of a table.
            caller: receives findings and progress while they come.
            choices: how to look.

        Returns:
            The sums (`summary`) and some findings (`examples`).

        Raises:
            WrongUse: a choice is not of its kind.
            CannotReach: the cluster does not answer.
        """
        blobs = None
        pulsar = None
        is_mail = choices.get("projections") is None and choices.get("projection") is None
        if is_mail and what != "messages":
            blobs = self._settings.checked_blobs(what)
            pulsar = self._settings.checked_pulsar(what)
        chosen = self._settings.chosen(CHECK, choices, words=(what,))
        request = CheckRequest(
            connection=self._known(),
            blobs=blobs,
            pulsar=pulsar,
            **chosen,
        )
        return check(request, caller or Caller())

    def repair(
        self,
        *,
        caller: Caller | None = None,
        **choices: Unpack[RepairChoices],
    ) -> MendingResult:
        """Mend drift after a second look: what `mailmend repair messages` does.

        With `projections` it mends declared tables, as `mailmend repair tables` does.

        Args:
            caller: receives findings and progress while they come; is asked about too many fixes.
            choices: what may be mended, and where.

        Returns:
            The sums (`summary`), with the run's id to `undo` it by: None after a dry run.

        Raises:
            FixLimit: more is due than `max_fixes` allows; nothing was written.
            LeaseHeld: another repair of the keyspace is at work.
            UnsafeRequest: what may bring back deleted messages was not agreed to (`yes`).
            CannotReach: the cluster does not answer.
        """
        command = REPAIR_MESSAGES
        words: tuple[str, ...] = ()
        if choices.get("projections") is not None:
            command = REPAIR_TABLES
            words = ("--projections=FILE",)  # the command needs one; the choice takes its place
        chosen = self._settings.chosen(command, choices, words=words, below=("repair",))
        return repair(RepairRequest(connection=self._known(), **chosen), caller or Caller())

    def repair_mailboxes(
        self,
        *,
        caller: Caller | None = None,
        **choices: Unpack[MailboxChoices],
    ) -> MendingResult:
        """Mend rows of mailboxes by their paths: what `mailmend repair mailboxes` does.

        A row of `mailbox` is written where exactly one path in `mailboxPathV3` tells it. A mailbox
        with two paths, or with none, is only reported (`summary.left`), and James need not stop.

        Args:
            caller: receives findings and progress while they come; is asked about too many fixes.
            choices: what may be mended.

        Returns:
            The sums (`summary`), with the run's id to `undo` it by: None after a dry run. In
            `gone_mailboxes`: mailboxes that are no more, of which rows are left.

        Raises:
            FixLimit: more is due than `max_fixes` allows; nothing was written.
            LeaseHeld: another repair of the keyspace is at work.
            SchemaMismatch: the keyspace lacks a table or column of mailboxes.
            WrongUse: a choice is not of its kind.
            CannotReach: the cluster does not answer.
        """
        chosen = self._settings.chosen(REPAIR_MAILBOXES, choices, below=("repair",))
        request = RepairRequest(connection=self._known(), **chosen)
        return repair_mailboxes(request, caller or Caller())

    def repair_lags(
        self,
        *,
        caller: Caller | None = None,
        **choices: Unpack[LagChoices],
    ) -> MendingResult:
        """Mend the rows whose writes outlived their retries: what `mailmend repair lags` does.

        Args:
            caller: receives findings and progress while they come.
            choices: what may be mended.

        Raises:
            WrongUse: a choice is not of its kind.
            LeaseHeld: another repair of the keyspace is at work.
            CannotReach: the cluster does not answer.
        """
        chosen = self._settings.chosen(REPAIR_LAGS, choices, below=("repair",))
        return repair_lags(RepairRequest(connection=self._known(), **chosen), caller or Caller())

    def undo(
        self,
        run: UUID,
        *,
        caller: Caller | None = None,
        **choices: Unpack[UndoChoices],
    ) -> MendingResult:
        """Put back what a run changed, where it has not changed since: what `mailmend undo` does.

        Args:
            run: its id, from the result of a repair or of an undo.
            caller: receives findings and progress while they come.
            choices: how to put it back.

        Raises:
            UnknownRun: no such run is kept.
            WrongUse: a choice is not of its kind.
            CannotReach: the cluster does not answer.
        """
        chosen = self._settings.chosen(UNDO, choices, words=(str(run),))
        return undo(UndoRequest(connection=self._known(), **chosen), caller or Caller())

    def _known(self) -> ConnectionSettings:
        if self._is_closed:
            raise WrongUse("this is closed", mend="Use it within its context, or open it again.")
        return self._settings.connection

    def _opened(self) -> OpenCluster:
        """The cluster; the first who asks connects."""
        with self._lock:
            connection = self._known()
            if self._cluster is None:
                self._cluster = self._closing.enter_context(open_cluster(connection))
            return self._cluster

    @asynccontextmanager
    async def _queue(self, name: str | None) -> AsyncIterator[MailQueue]:
        settings = await asyncio.to_thread(self._settings.queue, name)
        connecting: AbstractAsyncContextManager[QueueConnections]
        if settings.pulsar:
            connecting = topics_of(settings, settings.pulsar, SystemClock(), makes=True)
        else:
            opened = await asyncio.to_thread(self._opened)
            schema = await asyncio.to_thread(live_schema, opened.cluster, opened.mail.name)
            connecting = tables_and_broker(settings, opened, schema, makes=True)
        async with connecting as connections, connections.open() as queue:
            yield queue


class AsyncMailmend:
    """`Mailmend` for programs in an event loop: an asynchronous context, from `open_async`.

    What blocks runs in a thread of its own, which goes on where the caller is cancelled.

        async with mailmend.open_async() as mail:
            async with mail.queue("spool") as queue:
                await queue.enqueue(envelope, content)
            found = await mail.check("messages", engine="local")
    """

    def __init__(self, blocking: Mailmend) -> None:
        self._blocking = blocking

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """As `Mailmend.close`."""
        await asyncio.to_thread(self._blocking.close)

    @property
    def connection(self) -> ConnectionSettings:
        """As `Mailmend.connection`."""
        return self._blocking.connection

    async def messages(self) -> MessageStore:
        """As `Mailmend.messages`. Its methods block: call them with `asyncio.to_thread`."""
        return await asyncio.to_thread(lambda: self._blocking.messages)

    async def mailboxes(self) -> Mailboxes:
        """As `Mailmend.mailboxes`. Its methods block: call them with `asyncio.to_thread`."""
        return await asyncio.to_thread(lambda: self._blocking.mailboxes)

    async def projections(self) -> tuple[Family, ...]:
        """As `Mailmend.projections`."""
        return await asyncio.to_thread(lambda: self._blocking.projections)

    async def writer(
        self,
        truth: str,
        projections: str | Path | Declaration,
    ) -> AsyncProjectionWriter:
        """As `Mailmend.writer`."""
        blocking = await asyncio.to_thread(self._blocking.writer, truth, projections)
        return AsyncProjectionWriter(blocking)

    def queue(self, name: str | None = None) -> AbstractAsyncContextManager[MailQueue]:
        """As `Mailmend.queue`."""
        return self._blocking.queue(name)

    async def check(
        self,
        what: str = "all",
        *,
        caller: Caller | None = None,
        **choices: Unpack[CheckChoices],
    ) -> MendingResult:
        """As `Mailmend.check`; the caller's functions are called in the thread."""
        return await asyncio.to_thread(self._blocking.check, what, caller=caller, **choices)

    async def repair(
        self,
        *,
        caller: Caller | None = None,
        **choices: Unpack[RepairChoices],
    ) -> MendingResult:
        """As `Mailmend.repair`; the caller's functions are called in the thread."""
        return await asyncio.to_thread(self._blocking.repair, caller=caller, **choices)

    async def repair_mailboxes(
        self,
        *,
        caller: Caller | None = None,
        **choices: Unpack[MailboxChoices],
    ) -> MendingResult:
        """As `Mailmend.repair_mailboxes`; the caller's functions are called in the thread."""
        repair = self._blocking.repair_mailboxes
        return await asyncio.to_thread(repair, caller=caller, **choices)

    async def repair_lags(
        self,
        *,
        caller: Caller | None = None,
        **choices: Unpack[LagChoices],
    ) -> MendingResult:
        """As `Mailmend.repair_lags`; the caller's functions are called in the thread."""
        return await asyncio.to_thread(self._blocking.repair_lags, caller=caller, **choices)

    async def undo(
        self,
        run: UUID,
        *,
        caller: Caller | None = None,
        **choices: Unpack[UndoChoices],
    ) -> MendingResult:
        """As `Mailmend.undo`; the caller's functions are called in the thread."""
        return await asyncio.to_thread(self._blocking.undo, run, caller=caller, **choices)


def open(  # noqa: A001 - read as mailmend.open
    config: str | Path | None = None,
    profile: str | None = None,
    *,
    writer: WriterSettings | None = None,
    **settings: Unpack[OpenSettings],
) -> Mailmend:
    """Open the mail of a keyspace by the settings of the commands; nothing is connected to yet.

    Precedence, lowest first: cqlshrc, settings file, its profile, environment, arguments.

        with mailmend.open() as mail:
            mailbox = mail.mailboxes.ensure("ann@example.org", "INBOX")
            new = mailmend.NewMail(*mailmend.split_mail(content), datetime.now(UTC))
            stored = mail.messages.add(mailbox, new)

    Args:
        config: the settings file; None: `~/.config/mailmend/config.toml`, where there is one.
        profile: the name of a profile in that file.
        writer: how `messages` writes; None: conditionally, as James does by default.
        settings: as the options of the commands.

    Raises:
        WrongUse: a setting has no such name, or its value is not of its kind.
        BadSettings: a file cannot be read, or holds what is no setting.
    """
    file = None
    if config is not None:
        file = Path(config)
    return Mailmend(settings_of(file, profile, settings), writer)


def open_async(
    config: str | Path | None = None,
    profile: str | None = None,
    *,
    writer: WriterSettings | None = None,
    **settings: Unpack[OpenSettings],
) -> AsyncMailmend:
    """As `open`, for programs that run in an event loop.

        async with mailmend.open_async() as mail:
            async with mail.queue("outgoing") as queue:
                await queue.enqueue(envelope, content)

    Args:
        config: as for `open`.
        profile: as for `open`.
        writer: as for `open`.
        settings: as for `open`.

    Raises:
        WrongUse: as `open`.
        BadSettings: as `open`.
    """
    return AsyncMailmend(open(config, profile, writer=writer, **settings))

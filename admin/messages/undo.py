"""`mailmend undo`: the rows that a run changed are put back, except rows that were changed since."""

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import open_cluster, owner_name
from mailmend.admin.frame.command import Command
from mailmend.admin.frame.examples import Examples
from mailmend.admin.frame.options import CONNECTION, flag
from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.admin.messages.mending import MendingResult
from mailmend.admin.messages.options import COUNTERS_AT_ONCE, RESULTS, RUN_ARGUMENT
from mailmend.admin.messages.runs import affected
from mailmend.model.catalog.mail import MESSAGES
from mailmend.model.ids import RunId
from mailmend.repair.clock import Timing
from mailmend.repair.mending.counters import CounterMender
from mailmend.repair.mending.undo import UndoSettings, UndoTools, undoable
from mailmend.repair.mending.undo import undo as undo_run


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoRequest:
    """Which run is undone."""

    connection: ConnectionSettings
    run: UUID
    dry_run: bool = False
    no_writers: bool = False


def undo(request: UndoRequest, caller: Caller) -> MendingResult:
    """Restore the rows that a run changed, where they have not changed since.

    Raises:
        UnknownRun: no such run is kept.
    """
    examples = Examples(caller)
    with open_cluster(request.connection) as opened:
        undoable(opened.known_ledger(request.run), request.run, opened.mail.name)
        families = opened.bound((MESSAGES,)).whole(opened.mail.name, may_leave_out=False)
        settings = UndoSettings(
            RunId(request.run),
            opened.mail.name,
            families,
            dry_run=request.dry_run,
            owner=owner_name(),
            options={"run": str(request.run), "no_writers": request.no_writers},
        )
        mail = opened.mail
        ledger = opened.ledger()
        leases = opened.leases()
        timing = Timing(no_writers=request.no_writers)
        counters = CounterMender(mail, mail.name, families, opened.clock, timing, ledger, leases)
        tools = UndoTools(mail, ledger, opened.clock, caller.progress, leases, counters)
        summary = undo_run(settings, tools, examples.take)
        whose = affected(examples, opened)
    return MendingResult(summary, examples.sorted(), affected=whose)


UNDO: Final = Command(
    name="undo",
    summary="Put back what a run changed.",
    about="""A row returns to its before-image only if it has not changed since; the other rows are left and counted as
    moved. The undo is a run of its own, so it can be undone as well.""",
    service="mailmend.admin.messages.undo:undo",
    present="mailmend.admin.messages.shared_document:document_of",
    options=(RUN_ARGUMENT, flag("--dry-run", "Write nothing: say what would be put back."), COUNTERS_AT_ONCE),
    shared=(CONNECTION,),
    output=RESULTS,
    examples="""
        mailmend runs list                  which runs there were
        mailmend undo RUN --dry-run         what would return
        mailmend undo RUN                   put it back
        mailmend undo UNDO_RUN              put the undo back: the repair's state again""",
    exits="0 all of it was put back, 1 some rows have been used since and were left, 2 wrong use, 3 some rows failed, "
    "4 the cluster cannot be reached.",
)

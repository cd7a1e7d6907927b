"""`mailmend repair mailboxes`: rows of `mailbox` that are missing, or that name another path."""

from collections.abc import Container
from dataclasses import replace
from typing import Final

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import OpenCluster, open_cluster
from mailmend.admin.frame.command import Command
from mailmend.admin.frame.kinds import VERDICTS
from mailmend.admin.frame.options import CONNECTION, MAX_FIXES, STAGING, option
from mailmend.admin.messages.mending import CommandResult
from mailmend.admin.messages.options import (
    BEAT_AHEAD,
    LOOKING_TWICE,
    MEASURED,
    PLAN,
    REPAIR_EXITS,
    SCANNING_ALL,
    TIMING,
    WRITING,
)
from mailmend.admin.messages.repair import RepairRequest, repair_in
from mailmend.cql.introspect import tables_of
from mailmend.model.errors import AccessDenied
from mailmend.repair.mending.limits import Pace
from mailmend.repair.scanners.gone_mailboxes import MailboxRows, gone_mailboxes, suspect_mailboxes


def repair_mailboxes(request: RepairRequest, caller: Caller) -> CommandResult:
    """Mend the rows of `mailbox`, as `repair` mends what follows from messages.

    Rows of mailboxes that are no more are looked for before and after it: the delay passes in
    between.
    """
    with open_cluster(request.connection) as opened:
        live = tables_of(opened.cluster, opened.mail.name)
        before = _suspects(request, opened, live, caller)
        found = repair_in(replace(request, mailboxes=True), caller, opened)
        after = before
        if before:
            after = _suspects(request, opened, live, caller)
    if before is None or after is None:
        return found
    return replace(found, gone_mailboxes=gone_mailboxes(before, after))


def _suspects(
    request: RepairRequest,
    opened: OpenCluster,
    live: Container[str],
    caller: Caller,
) -> MailboxRows | None:
    """One look; None where the role may not read a table."""
    mail = Pace(request.rows_per_second, opened.clock).over(opened.mail)
    try:
        return suspect_mailboxes(mail, live, request.level)
    except AccessDenied as error:
        caller.remark(f"Mailboxes that are no more were not looked for: {error.what}.")
        return None


REPAIR_MAILBOXES: Final = Command(
    name="mailboxes",
    summary="Mend the rows of mailboxes that their paths tell.",
    about="""The registry of paths, mailboxPathV3, is the source of truth; mailbox has the path of
    each mailbox by its id. A row of mailbox that is missing is written, and a row with another path
    or another uid validity is overwritten, where exactly one path is registered for the mailbox.

    Nothing is removed, and no path is written. A person decides about the rest, which is reported
    with its reason and with all paths: CLASH, a mailbox with two paths (a rename that did not
    remove the old one); WITHDRAW, a mailbox without a path, whose messages are still there; TORN, a
    path without a uid validity.

    Rows of mailboxes that are no more, neither in mailbox nor with a path, are named and kept:
    messages, counters, flags, rights and annotations (`gone_mailboxes` in the JSON). They change no
    exit code.

    The repair reads both tables once, waits, looks at every suspect again, keeps what it overwrites
    (see `mailmend undo`), and writes with a timestamp from before its scan, so that changes by
    users in the meantime win. James need not stop.""",
    service="mailmend.admin.messages.repair_mailboxes:repair_mailboxes",
    present="mailmend.admin.messages.shared_document:document_of",
    options=(
        *TIMING,
        LOOKING_TWICE,
        PLAN,
        option(
            "--only",
            "Only these: PROJECT (missing rows), AMEND (rows that differ).",
            type=VERDICTS,
            multiple=True,
            metavar="VERDICT",
        ),
        MAX_FIXES,
        BEAT_AHEAD,
        *WRITING,
        *SCANNING_ALL,
        STAGING,
    ),
    shared=(CONNECTION,),
    output=MEASURED,
    alone={"plan": ("max_fixes", "keep")},
    examples="""
        mailmend repair mailboxes --dry-run           what would be mended, and what is left
        mailmend repair mailboxes --findings -        mend it; every finding with both rows
        mailmend repair mailboxes --plan plan.jsonl   to be approved: then mailmend apply
        mailmend undo RUN                             put it back""",
    exits=REPAIR_EXITS,
)

"""Declarations of runs: what was done, and what it found."""

from typing import Final

from mailmend.admin.frame.command import JSON, Command, CommandGroup
from mailmend.admin.frame.kinds import KEEP, duration_text
from mailmend.admin.frame.options import ANONYMOUS, CONNECTION, FILE, FINDINGS, REPORT, flag, option
from mailmend.admin.messages.mending import RUN_ARGUMENT
from mailmend.model.catalog.ledger import KEEP as KEEP_DEFAULT

_WHICH: Final = (
    flag("--all", "All of them: the runs of every mail keyspace, not only of --keyspace.", "everything"),
    option(
        "--since",
        "How far to look back; a repair's own --keep may be longer.",
        type=KEEP,
        default=duration_text(KEEP_DEFAULT),
    ),
)

RUNS: Final = CommandGroup(
    name="runs",
    summary="What ran, and what it found.",
    about="Kept for 30 days unless a repair said otherwise (`--keep`).",
    commands=(
        Command(
            name="list",
            summary="List the runs, newest first.",
            service="mailmend.admin.messages.runs_service:list_runs",
            present="mailmend.admin.messages.runs_document:runs_document",
            options=_WHICH,
            shared=(CONNECTION,),
        ),
        Command(
            name="trend",
            summary="What was found, fixed and left by verdict, run after run, the oldest first.",
            about="""Whether drift comes back, and whether repairs keep up with it. A check writes nothing, so it is not
            among the runs; its report shows them beside what it found. With --json each of `runs` has `findings`,
            `fixed` and `left` as the run's own result had them.""",
            service="mailmend.admin.messages.runs_service:list_runs",
            present="mailmend.admin.messages.runs_document:trend_document",
            options=_WHICH,
            shared=(CONNECTION,),
            output=(JSON, REPORT),
        ),
        Command(
            name="show",
            summary="Show one run: what was asked for, its sums, whose mail it found, some findings with both rows.",
            about="""For each of the mailboxes with most findings: user and path, what was found and what is still so;
            for some findings both rows side by side, what differs marked, with the times of writing. With --json
            `mailboxes` (each with `mailbox`, `user`, `path`, `findings`, `left`) and `in_other_mailboxes` stand beside
            the run's own fields.""",
            service="mailmend.admin.messages.runs_service:show_run",
            present="mailmend.admin.messages.runs_document:run_document",
            options=(RUN_ARGUMENT,),
            shared=(CONNECTION,),
            output=(
                JSON,
                REPORT,
                ANONYMOUS,
                option("--findings", str(FINDINGS.help), is_flag=False, flag_value="-", type=FILE, metavar="FILE"),
            ),
        ),
    ),
    examples="""
        mailmend runs list
        mailmend runs show 6e0ab5e0-8d1c-11f0-9a5e-0242ac120002
        mailmend runs show RUN --findings - | jq .key
        mailmend runs trend --report trend.html""",
)

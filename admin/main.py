"""The command `mailmend`: everything that a person types comes in here, and every ending goes out through one door."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any, Final, NoReturn

import click

from mailmend.admin.frame.command import CommandGroup, DeclaredGroup, Late, made
from mailmend.admin.frame.endings import PipeClosed, ending_of, heed_termination, quiet_libraries
from mailmend.admin.frame.options import CONFIG, PROFILE
from mailmend.admin.frame.whole_files import replace_closed_streams
from mailmend.model.errors import WrongUse

EXIT_CODES = """\b
Exit codes:
  0    fine
  1    drift was found, or left
  2    wrong use: an option, a name, a file, a guard that refused
  3    partly failed: what succeeded is kept, the rest is named
  4    the cluster cannot be reached, or will not serve
  5    not allowed: the schema's plan has risks that were not agreed to; nothing was done
  130  interrupted; type the same command again to go on"""

COMMANDS: Final = CommandGroup(
    name="mailmend",
    summary="Keep denormalised mail data in Apache Cassandra true.",
    about="""Every command takes --help, most take --json. Settings: cqlshrc < ~/.config/mailmend/config.toml <
    environment (MAILMEND_HOST, ...) < options.""",
    commands=(
        Late(
            "check",
            "Find drift, without writing anything.",
            "mailmend.admin.messages.check:CHECK",
        ),
        Late(
            "repair",
            "Mend drift: messages, declared tables, journalled lags, what queues have left, blobs.",
            "mailmend.admin.messages.repair:REPAIR",
        ),
        Late("apply", "Do exactly what a plan says.", "mailmend.admin.messages.apply:APPLY"),
        Late(
            "undo",
            "Put back what a run changed.",
            "mailmend.admin.messages.runs:UNDO",
        ),
        Late("runs", "What ran, and what it found.", "mailmend.admin.messages.runs:RUNS"),
        Late(
            "jobs", "Scheduled checks and repairs: when they run, and how they ended.", "mailmend.admin.jobs.jobs:JOBS"
        ),
        Late(
            "serve",
            "One server: a page to look at, the API, and the jobs.",
            "mailmend.admin.serve:SERVE",
        ),
        Late(
            "projections",
            "Files that declare which tables follow from which truth.",
            "mailmend.admin.projections.projections:PROJECTIONS",
        ),
        Late("load", "Read mbox, Maildir, .eml or .emlx files into a mailbox.", "mailmend.admin.messages.load:LOAD"),
        Late(
            "schema", "Own the tables: plan, apply, verify, adopt, lint, advise.", "mailmend.admin.schema.schema:SCHEMA"
        ),
        Late("queue", "The distributed mail queue: look, take, put, mend, tend.", "mailmend.admin.queue.group:QUEUE"),
        Late(
            "delivery",
            "Deliver the mails of a queue to their recipients' servers.",
            "mailmend.admin.delivery.delivery:DELIVERY",
        ),
        Late(
            "suspend", "Hold mails of a queue back, on all of its servers.", "mailmend.admin.delivery.suspend:SUSPEND"
        ),
        Late(
            "policy",
            "Limits of deliveries: the policy file, and temporary limits outside it.",
            "mailmend.admin.delivery.policy:POLICY",
        ),
        Late(
            "metrics", "What monitoring sees: metrics, alerts, a dashboard.", "mailmend.admin.metrics.metrics:METRICS"
        ),
        Late(
            "runbook",
            "Pages for the operator's questions.",
            "mailmend.admin.local.about:RUNBOOK",
        ),
        Late("local", "A real Cassandra on this machine.", "mailmend.admin.local.local:LOCAL"),
        Late(
            "demo",
            "Write mail, break it, find it, mend it, undo it.",
            "mailmend.admin.local.demo:DEMO",
        ),
        Late(
            "doctor", "What is well with this installation, and what to change.", "mailmend.admin.local.doctor:DOCTOR"
        ),
        Late(
            "version",
            "The version of everything, and of a server that is named.",
            "mailmend.admin.local.about:VERSION",
        ),
        Late("completion", "Completion for bash, zsh and fish.", "mailmend.admin.frame.completion:COMPLETION"),
    ),
    examples="""
        mailmend demo                                  see it all on this machine
        mailmend doctor                                is everything there that is needed? what has to change?
        mailmend check --host cassandra-1              find drift; writes nothing
        mailmend repair messages --dry-run             say what a repair would mend
        mailmend repair messages                       mend it
        mailmend undo RUN                              put back what that run changed
        mailmend runbook list                          what to do at 3 in the morning""",
    epilog=EXIT_CODES,
)


class _Mailmend(DeclaredGroup):
    """The outermost group: handles a closed pipe itself, as click would exit with 1 (drift)."""

    def make_context(self, *arguments: Any, **settings: Any) -> click.Context:
        """--help and --version write while the arguments are read."""
        with _closed_pipes_raised():
            return super().make_context(*arguments, **settings)

    def invoke(self, ctx: click.Context) -> Any:
        with _closed_pipes_raised():
            return super().invoke(ctx)


@contextmanager
def _closed_pipes_raised() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise PipeClosed from error


mailmend = made(
    COMMANDS,
    cls=_Mailmend,
    params=[CONFIG, PROFILE],
    context_settings={
        "help_option_names": ["-h", "--help"],
        "auto_envvar_prefix": "MAILMEND",
        "max_content_width": 110,
    },
)
click.version_option(version("mailmend"), prog_name="mailmend")(mailmend)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command with these arguments (the process's own when None) and return its exit code."""
    given = arguments
    if given is None:
        given = sys.argv[1:]
    return ending_of(lambda: mailmend.main(args=_checked(given), prog_name="mailmend", standalone_mode=False))


def _checked(arguments: Sequence[str]) -> list[str]:
    """The arguments, all of them text.

    Raises:
        WrongUse: one holds bytes that are not UTF-8.
    """
    for argument in arguments:
        if any("\ud800" <= character <= "\udfff" for character in argument):
            raise WrongUse(
                f"the argument {os.fsencode(argument)!r} is not UTF-8",
                mend="Nothing was done. Rename the file; a message may also come from standard input: "
                "mailmend queue enqueue - < FILE",
            )
    return list(arguments)


def main() -> NoReturn:
    replace_closed_streams()
    heed_termination()
    quiet_libraries()
    sys.exit(run())

"""The command `mailmend`: everything that a person types comes in here, and every ending goes out through one door."""

import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import NoReturn

import click

from admin.cli.endings import PipeClosed, ending_of, heed_termination, quiet_libraries
from admin.cli.groups import Later, LazyGroup
from admin.cli.options import config_option

EXIT_CODES = """\b
Exit codes:
  0    fine
  1    drift was found, or left
  2    wrong use: an option, a name, a file, a guard that refused
  3    partly failed: what succeeded stands, the rest is named
  4    the cluster cannot be reached, or will not serve
  130  interrupted; type the same command again to go on"""

_EXAMPLES = """\b
Examples:
  mailmend demo                                  see it all on this machine
  mailmend check --host cassandra-1              find drift; writes nothing
  mailmend repair messages --dry-run             say what a repair would mend
  mailmend repair messages                       mend it
  mailmend undo RUN                              put back what that run changed
  mailmend runbook list                          what to do at 3 in the morning"""


class _Mailmend(LazyGroup):
    """The outermost group: a closed pipe leaves by our own door instead of click's, which would exit with 1 (drift)."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise PipeClosed from error


@click.group(
    cls=_Mailmend,
    epilog=f"{_EXAMPLES}\n\n{EXIT_CODES}",
    context_settings={
        "help_option_names": ["-h", "--help"],
        "auto_envvar_prefix": "MAILMEND",
        "max_content_width": 110,
    },
    later={
        "check": Later("admin.cli.check", "check", "Find drift, without writing anything."),
        "repair": Later("admin.cli.repair", "repair", "Mend drift: messages, or journalled lags."),
        "undo": Later("admin.cli.undo", "undo", "Put back what a run changed."),
        "runs": Later("admin.cli.runs", "runs", "What ran, and what it found."),
        "load": Later("admin.cli.load", "load", "Read mbox, Maildir or .eml files into a mailbox."),
        "schema": Later("admin.cli.schema", "schema", "Own the tables: plan, apply, verify, adopt, lint, advise."),
        "queue": Later("admin.cli.queue", "queue", "The distributed mail queue: look, take, put, mend, tend."),
        "runbook": Later("admin.cli.runbook", "runbook", "Pages for the operator's questions."),
        "local": Later("admin.cli.local", "local", "A real Cassandra on this machine."),
        "demo": Later("admin.demo", "demo", "Write mail, break it, find it, mend it, undo it."),
    },
)
@click.version_option(version("mailmend"), prog_name="mailmend")
@config_option
def mailmend() -> None:
    """Keep denormalised mail data in Apache Cassandra true.

    Every command takes --help, most take --json. Settings: cqlshrc < ~/.config/mailmend/config.toml < environment
    (MAILMEND_HOST, ...) < options.
    """


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command with these arguments (those of the process when None) and return its exit code."""
    return ending_of(lambda: mailmend.main(args=arguments, prog_name="mailmend", standalone_mode=False))


def main() -> NoReturn:
    """The entry point of the installed command."""
    heed_termination()
    quiet_libraries()
    sys.exit(run())

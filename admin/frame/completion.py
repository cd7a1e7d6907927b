"""Completion in a shell: the script that a shell reads, and the values that it offers for runs, runbooks and queues.

A value that cannot be read is not offered; nothing is asked and no error is shown while a person types.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Final

import click
from click.shell_completion import CompletionItem, get_completion_class

from mailmend.admin.frame.extras import imported
from mailmend.admin.frame.options import connection_of, known_password
from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.admin.frame.settings_file import CONNECTION_NAMES

SHELLS: Final = ("bash", "zsh", "fish")
_VARIABLE: Final = "_MAILMEND_COMPLETE"


def completed_runs(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    def found() -> Iterator[CompletionItem]:
        for run in imported("mailmend.admin.messages.runs:list_runs")(_connection(context)).runs:
            yield CompletionItem(str(run.id), help=f"{run.command} {run.started_at:%Y-%m-%d %H:%M}")

    return _offered(found(), incomplete)


def completed_runbooks(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    def found() -> Iterator[CompletionItem]:
        for page in imported("mailmend.admin.frame.runbooks:pages")():
            yield CompletionItem(page.name, help=page.title)

    return _offered(found(), incomplete)


def completed_queues(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    def found() -> Iterator[CompletionItem]:
        settings = imported("mailmend.admin.frame.settings:QueueSettings")(_connection(context), "")
        request = imported("mailmend.admin.queue.request:QueueRequest")(settings=settings)
        list_queues = imported("mailmend.admin.queue.reading:list_queues")
        caller = imported("mailmend.admin.frame.caller:Caller")
        for queue in list_queues(request, caller()).found:
            yield CompletionItem(queue.name)

    return _offered(found(), incomplete)


def _offered(found: Iterator[CompletionItem], incomplete: str) -> list[CompletionItem]:
    offered: list[CompletionItem] = []
    with suppress(Exception):
        offered += [item for item in found if item.value.startswith(incomplete)]
    return offered


def _connection(context: click.Context) -> ConnectionSettings:
    """The connection as far as it is known; never asks for a password."""
    given = {name: context.params.get(name) for name in CONNECTION_NAMES}
    connection = connection_of(given, context, asks=False)
    return replace(connection, password=known_password(given, context))


def _write_script(shell: str) -> None:
    mailmend = click.get_current_context().find_root().command
    kind = get_completion_class(shell)
    if kind is not None:
        click.echo(kind(mailmend, {}, "mailmend", _VARIABLE).source())


COMPLETION: Final = click.Command(
    "completion",
    params=[click.Argument(["shell"], type=click.Choice(SHELLS))],
    callback=_write_script,
    help="""Write the script with which a shell completes `mailmend`: commands, options, and the names of runs, runbooks
    and queues.""",
    epilog="""\b
Examples:
  mailmend completion bash > ~/.local/share/bash-completion/completions/mailmend
  mailmend completion zsh > ~/.zfunc/_mailmend            with fpath+=~/.zfunc before compinit in ~/.zshrc
  mailmend completion fish > ~/.config/fish/completions/mailmend.fish

\b
Exit codes: 0 it was written, 2 wrong use.""",
)

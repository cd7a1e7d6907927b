"""The reference of the command line, `docs/cli.md`, generated from the declarations of the commands themselves.

`python -m mailmend.admin.reference` writes it; with `--check` it exits 1 when it is not up to date.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from inspect import cleandoc
from pathlib import Path
from typing import Final

import click

from mailmend.admin.main import mailmend
from mailmend.cql.generated import write_or_check
from mailmend.model.errors import MailmendError

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "cli.md"
_LETTER_FIRST: Final = re.compile(r"^(-\w), (--[\w-]+)")
SHARED_BY_MIN: Final = 8
"""The number of commands from which a shared option is described once."""

_HEAD: Final = """\
# The command line

Generated from the commands' declarations: `python -m mailmend.admin.reference` writes it anew.

Every option can also be set in the environment and in the settings file. The variable is named next
to the option. The key in the settings file is the end of the variable's name, in small letters:
`MAILMEND_QUEUE_SWEEP_DRY_RUN` is `dry_run` in the table `[queue.sweep]`. Options of the connection
(`MAILMEND_HOST`) are above all tables, options of broker and blobs in the table `[queue]`. An option
overrides the environment, which overrides the settings file, which overrides cqlshrc.

A letter means the same option in every command. A terminal that is too narrow for a table shows the
last columns below their row, and ids of runs by their beginnings; `undo`, `runs show` and
`jobs set` take these. A wider terminal, a pipe and `--json` have whole tables. A list that is longer than the
terminal goes through MAILMEND_PAGER, PAGER or less.
"""


@dataclass(frozen=True, slots=True)
class ListedOption:
    """One option as the page shows it; equal where two commands declare the same."""

    names: str
    text: str
    default: str
    variable: str

    @property
    def row(self) -> str:
        return (
            "| " + " | ".join((_code(self.names), _plain(self.text), _code(self.default), _code(self.variable))) + " |"
        )


@dataclass(frozen=True, slots=True)
class ListedCommand:
    """One command and its context, which knows its full name."""

    command: click.Command
    context: click.Context

    @property
    def path(self) -> str:
        return self.context.command_path

    def options(self) -> list[ListedOption]:
        own = (param for param in self.command.params if isinstance(param, click.Option) and not param.hidden)
        return [_option(option, self.context) for option in own]


def commands_of(command: click.Command, context: click.Context) -> Iterator[ListedCommand]:
    yield ListedCommand(command, context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and not below.hidden:
                yield from commands_of(below, _context(below, name, context))


def page_text() -> str:
    commands = list(commands_of(mailmend, _context(mailmend, "mailmend", None)))
    declared = Counter[ListedOption]()
    for command in commands:
        declared.update(command.options())
    shared = {option: number for option, number in declared.items() if number >= SHARED_BY_MIN}
    parts = (
        _HEAD,
        *(_section(command, shared) for command in commands),
        "## Shared options\n\nMany commands take these; each command names those that it takes.\n",
        _table(shared),
        _errors(),
    )
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).rstrip() + "\n"


def _context(command: click.Command, name: str, parent: click.Context | None) -> click.Context:
    settings = {**command.context_settings, "show_default": True}
    return command.context_class(command, info_name=name, parent=parent, **settings)


def _option(option: click.Option, context: click.Context) -> ListedOption:
    names = ""
    record = option.get_help_record(context)
    if record:
        names = _LETTER_FIRST.sub(r"\2, \1", record[0])
    extra = option.get_help_extra(context)
    variable = option.envvar or f"{context.auto_envvar_prefix}_{str(option.name).upper()}"
    text = " ".join((option.help or "").split())
    limits = "; ".join(filter(None, (extra.get("range"), extra.get("required"))))
    if limits:
        text += f" [{limits}]"
    return ListedOption(names, text, extra.get("default", ""), str(variable))


def _section(command: ListedCommand, shared: Mapping[ListedOption, int]) -> str:
    pieces = " ".join((command.path, *command.command.collect_usage_pieces(command.context)))
    links = ""
    if isinstance(command.command, click.Group):
        for name in command.command.list_commands(command.context):
            path = f"{command.path} {name}"
            links += f"- [`{path}`](#{path.replace(' ', '-')})\n"
    own = []
    named = []
    for option in command.options():
        if option in shared:
            first_name = option.names.split()[0].rstrip(",")
            named.append(f"`{first_name}`")
        else:
            own.append(option)
    blocks = [f"## {command.path}\n\n```\n{pieces}\n```\n", *_paragraphs(command.command.help), links, _table(own)]
    if named:
        blocks.append(f"[Shared options](#shared-options): {', '.join(named)}.\n")
    blocks += _paragraphs(command.command.epilog)
    return "\n".join(blocks)


def _table(options: Iterable[ListedOption]) -> str:
    rows = "\n".join(option.row for option in options)
    if not rows:
        return ""
    return f"| option | meaning | default | environment |\n|---|---|---|---|\n{rows}\n"


def _paragraphs(text: str | None) -> Iterator[str]:
    """Help or epilog as Markdown; preformatted paragraphs (after click's backspace mark) become blocks of code."""
    for paragraph in cleandoc(text or "").split("\n\n"):
        first, _, rest = paragraph.partition("\n")
        if first == "\b":
            title, _, block = rest.partition("\n")
            if block and title.endswith(":"):
                yield f"{title}\n\n```\n{cleandoc(block)}\n```\n"
            else:
                yield f"```\n{rest}\n```\n"
        elif paragraph:
            yield _plain(paragraph) + "\n"


def _errors() -> str:
    kinds = sorted(_kinds_of(MailmendError), key=lambda kind: (kind.exit_code, kind.__name__))
    rows = "\n".join(f"| {kind.exit_code} | `{kind.__name__}` | {_meaning(kind)} | {_page(kind)} |" for kind in kinds)
    head = "| exit code | kind | meaning | runbook |\n|---|---|---|---|"
    return f"## Kinds of errors\n\nWhat ends a command.\n\n{head}\n{rows}\n"


def _meaning(kind: type[MailmendError]) -> str:
    return _plain(cleandoc(kind.__doc__ or "").splitlines()[0])


def _page(kind: type[MailmendError]) -> str:
    if not kind.page:
        return ""
    return f"[{kind.page}](../runbooks/{kind.page}.md)"


def _kinds_of(kind: type[MailmendError]) -> set[type[MailmendError]]:
    kinds: set[type[MailmendError]] = set()
    if kind.__module__ == MailmendError.__module__:
        kinds.add(kind)
    for child in kind.__subclasses__():
        kinds |= _kinds_of(child)
    return kinds


def _code(text: str) -> str:
    if not text:
        return ""
    return "`" + text.replace("|", "\\|") + "`"


def _plain(text: str) -> str:
    pieces = text.split("`")
    pieces[::2] = [re.sub(r"([*<|\[\]])", r"\\\1", piece) for piece in pieces[::2]]
    return "`".join(pieces)


def main(arguments: list[str]) -> int:
    """With --check, exit 1 when the page is out of date; else write it."""
    otherwise = "is not what the commands say: python -m mailmend.admin.reference writes it anew"
    return write_or_check(arguments, PAGE, page_text(), otherwise)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

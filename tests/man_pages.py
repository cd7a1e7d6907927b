"""Man pages of every command in `build/man`, from the commands' own declarations: `make man` writes them.

click-man writes the head, the options and the list of commands. The examples and the exit codes of a command's help
follow as sections of their own. A page has no date: the same version has the same bytes.
"""

import sys
from collections.abc import Iterator
from importlib.metadata import version
from inspect import cleandoc
from typing import Final

import click
from click_man.man import ManPage

from mailmend.admin.main import mailmend
from mailmend.admin.reference import ListedCommand, commands_of
from tests.support.checkout import CHECKOUT

PAGES: Final = CHECKOUT / "build" / "man"
PREFORMATTED: Final = "\b\n"
"""How click marks a paragraph that it does not fill."""


def pages() -> Iterator[tuple[str, str]]:
    """The name and the text of each page."""
    context = click.Context(mailmend, info_name="mailmend")
    for command in commands_of(mailmend, context):
        yield f"{command.path.replace(' ', '-')}.1", page_of(command)


def page_of(command: ListedCommand) -> str:
    context = command.context
    page = ManPage(command.path)
    page.version = f"mailmend {version('mailmend')}"
    page.date = ""
    page.short_help = escaped(command.command.get_short_help_str(limit=200))
    page.description = "\n".join(described(command.command.help))
    page.synopsis = " ".join(command.command.collect_usage_pieces(context))
    page.options = list(_options(command))
    if isinstance(command.command, click.Group):
        page.commands = list(_commands(command.command, context))
    lines = [str(page).rstrip("\n")]
    for paragraph in paragraphs_of(command.command.epilog):
        lines += section_of(paragraph)
    if context.parent is not None:
        lines += [".SH SEE ALSO", f"\\fB{context.parent.command_path.replace(' ', '-')}\\fP(1)"]
    return "\n".join(lines) + "\n"


def _options(command: ListedCommand) -> Iterator[tuple[str, str]]:
    for param in command.command.params:
        record = param.get_help_record(command.context)
        if isinstance(param, click.Option) and record is not None:
            names, text = record
            yield names, escaped(text)


def _commands(group: click.Group, context: click.Context) -> Iterator[tuple[str, str]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is not None:
            yield name, escaped(command.get_short_help_str(limit=200))


def paragraphs_of(text: str | None) -> list[str]:
    return [paragraph for paragraph in cleandoc(text or "").split("\n\n") if paragraph.strip()]


def described(text: str | None) -> Iterator[str]:
    """The paragraphs of a help as lines of roff."""
    for number, paragraph in enumerate(paragraphs_of(text)):
        if number:
            yield ".PP"
        if paragraph.startswith(PREFORMATTED):
            yield from _as_it_is(paragraph.removeprefix(PREFORMATTED))
        else:
            yield escaped(paragraph)


def section_of(paragraph: str) -> Iterator[str]:
    """A paragraph after the options: examples and exit codes have sections of their own."""
    text = paragraph.removeprefix(PREFORMATTED)
    title, _, rest = text.partition("\n")
    if title == "Examples:":
        yield ".SH EXAMPLES"
        yield from _as_it_is(cleandoc(f"\n{rest}"))
    elif text.startswith("Exit codes:"):
        yield ".SH EXIT STATUS"
        yield from _exit_codes(text.removeprefix("Exit codes:").strip("\n"))
    else:
        yield ".SH NOTES"
        yield from described(paragraph)


def _exit_codes(text: str) -> Iterator[str]:
    if text.startswith("  "):
        yield from _as_it_is(cleandoc(f"\n{text}"))
    else:
        yield escaped(text.strip())


def _as_it_is(text: str) -> Iterator[str]:
    """Lines that are not filled."""
    yield ".nf"
    yield escaped(text)
    yield ".fi"


def escaped(text: str) -> str:
    """A text in which roff sees no command of its own, and no character of it as something else."""
    lines = []
    for line in text.replace("\\", "\\e").replace("-", "\\-").splitlines():
        if line.startswith((".", "'")):
            lines.append(f"\\&{line}")
        else:
            lines.append(line)
    return "\n".join(lines)


def main() -> int:
    PAGES.mkdir(parents=True, exist_ok=True)
    for older in PAGES.glob("*.1"):
        older.unlink()
    for name, text in pages():
        (PAGES / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

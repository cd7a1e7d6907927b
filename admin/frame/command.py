"""The command line is a table of declarations: this module makes click's commands of them.

To add a command, write a service `(request, caller) -> result` next to its declaration, whose request is a frozen
dataclass with one field for each option (where there are few, the service takes them itself); a function
`result -> Document` in that file; and a declaration in a table:

    Command(
        name="size",
        summary="How many mails wait; exact or estimate.",          # the line in the group's list
        about="Delayed ones are counted too. ...",                  # further paragraphs of its help
        service="mailmend.admin.queue.reading:queue_size",      # imported when it is called
        present="mailmend.admin.queue.reading:size_document",
        options=(flag("--recount", "Look at every row first."),),   # `recount: bool` of the request
        shared=(QUEUE, CONNECTION),     # each builds one field of the request; listed at the end of the help
        output=(JSON, REPORT),          # the presenter's, not the request's; --json alone unless said otherwise
        examples="mailmend queue size --queue outgoing",
        exits="0 it was counted, 2 wrong use, 4 the cluster cannot be reached.",
    )

Options are click's own values, so that one may stand in many declarations.
"""

import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import click
from click.core import ParameterSource

from mailmend.admin.frame.extras import imported
from mailmend.admin.frame.logs import command_began
from mailmend.admin.frame.settings_file import refuse_unknown_settings
from mailmend.model.errors import ResultUnwritten, WrongUse

Values = dict[str, Any]
TYPED: Final = ParameterSource.COMMANDLINE
SHORT: Final[Mapping[str, str]] = {
    "--keyspace": "-k",
    "--queue": "-Q",
    "--dry-run": "-n",
    "--only": "-o",
    "--broker": "-b",
    "--engine": "-e",
    "--domain": "-d",
    "--json": "-j",
    "--listen": "-l",
    "--why": "-w",
    "--quiet": "-q",
    "--verbose": "-v",
    "--yes": "-y",
}
"""The letters of options; a letter means the same in every command (docs/adr/0062)."""


def names_of(name: str, field: str | None = None) -> list[str]:
    """The names by which an option is declared, its long name first.

    Args:
        name: with the hyphens.
        field: of the request; None: the name's own field.
    """
    names = [name]
    if name in SHORT:
        names.append(SHORT[name])
    if field is not None:
        names.append(field)
    return names


JSON: Final = click.Option(
    names_of("--json", "as_json"),
    is_flag=True,
    help="One JSON object on stdout.",
)


@dataclass(frozen=True, slots=True)
class Shared:
    """Options that several commands have, and the field of the request that is built from them.

    Attributes:
        field: of the request.
        groups: the options below the titles under which a help lists them; "" is with the command's own.
        build: (what was given for them, what was given for the other options, the context) -> the field's value.
        among: more options that the field is built of. The command lists them among its own.
    """

    field: str
    groups: Mapping[str, Sequence[click.Option]]
    build: Callable[[Values, Values, click.Context], Any]
    among: Sequence[click.Option] = ()

    @property
    def names(self) -> list[str]:
        options = [*self.among, *chain.from_iterable(self.groups.values())]
        return [str(option.name) for option in options if option.expose_value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command: see the head of this module.

    Attributes:
        about: split into paragraphs by empty lines.
        item: what makes JSON of each item that the service gives to the caller: a line on stdout.
        paged: whether a long result goes to a pager on a terminal: of commands that list or show.
        alone: options (or `argument=value`) with which other options have no effect; the others are refused where they
            are typed.
    """

    name: str
    summary: str
    service: str
    present: str
    about: str = ""
    item: str = ""
    options: Sequence[click.Parameter] = ()
    shared: Sequence[Shared] = ()
    output: Sequence[click.Option] = (JSON,)
    paged: bool = False
    alone: Mapping[str, Sequence[str]] = field(default_factory=dict)
    examples: str = ""
    exits: str = ""


@dataclass(frozen=True, slots=True)
class Late:
    """A group or command whose module is imported when it is called."""

    name: str
    summary: str
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandGroup:
    """Commands under a noun.

    Attributes:
        settings: names that the group's table of the settings file may hold, for all of its commands; None: it holds
            tables that people name.
        by_option: the command that is meant where this option is typed without the name of a
            command.
        epilog: what its help says after the examples.
    """

    name: str
    summary: str
    commands: Sequence["Command | CommandGroup | Late"]
    about: str = ""
    examples: str = ""
    epilog: str = ""
    settings: frozenset[str] | None = frozenset()
    by_option: Mapping[str, str] = field(default_factory=dict)


class GroupedCommand(click.Command):
    """A command whose help lists its own options first, and those that many share under titles of their own."""

    def __init__(
        self,
        *args: Any,
        titled: Mapping[str, Sequence[click.Option]],
        paged: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(*args, **settings)
        self.titled = titled
        self.paged = paged

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Of similar names only those that the help shows are offered."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            names: list[str] = []
            for param in self.params:
                if isinstance(param, click.Option) and not param.hidden:
                    names += (*param.opts, *param.secondary_opts)
            raise click.NoSuchOption(error.option_name, possibilities=names, ctx=ctx) from error

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        elsewhere = list(chain.from_iterable(self.titled.values()))
        own = [param for param in self.get_params(ctx) if isinstance(param, click.Option) and param not in elsewhere]
        for title, options in {"Options": own, **self.titled}.items():
            records = []
            for option in options:
                record = option.get_help_record(ctx)
                if record:
                    records.append(record)
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class DeclaredGroup(click.Group):
    """A group that makes or imports a command when it is called: its help needs neither driver nor Spark."""

    def __init__(self, *args: Any, declared: CommandGroup, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.declared: Mapping[str, Command | CommandGroup | Late] = {
            command.name: command for command in declared.commands
        }
        self.settings = declared.settings
        self.by_option = declared.by_option

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self.with_command(args))

    def with_command(self, words: list[str]) -> list[str]:
        """The words behind the name of the command that one of them, an option, stands for."""
        if words and words[0] not in self.declared:
            for word in words:
                name = self.by_option.get(word.partition("=")[0])
                if name is not None:
                    return [name, *words]
        return words

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(self.declared)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Also checks the settings file's table of the command."""
        if cmd_name not in self.declared:
            return None
        if cmd_name not in self.commands:
            found: Any = self.declared[cmd_name]
            if isinstance(found, Late):
                found = imported(found.place)
            if not isinstance(found, click.Command):
                found = made(found)
            self.commands[cmd_name] = found
        command = self.commands[cmd_name]
        if not isinstance(command, DeclaredGroup) or command.settings is not None:
            refuse_unknown_settings(ctx, cmd_name, _settings_of(command, ctx))
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            raise click.NoSuchCommand(error.command_name, possibilities=self.declared, ctx=ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Imports none of the commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.summary) for name, command in self.declared.items()])


def made(declared: Command | CommandGroup, **settings: Any) -> click.Command:
    summary = declared.summary
    about = inspect.cleandoc(declared.about)
    text: dict[str, Any] = {"help": f"{summary}\n\n{about}".strip(), "short_help": summary}
    if isinstance(declared, CommandGroup):
        epilog = "\n\n".join(filter(None, (_examples(declared.examples), declared.epilog)))
        cls: type[DeclaredGroup] = settings.pop("cls", DeclaredGroup)
        return cls(declared.name, declared=declared, epilog=epilog, **text, **settings)
    titled: dict[str, list[click.Option]] = {}
    for shared in declared.shared:
        for title, options in shared.groups.items():
            titled.setdefault(title, []).extend(options)
    own = titled.pop("", [])
    titled["Output"] = [*declared.output, *imported("mailmend.admin.frame.options:LOG")]
    paragraphs = [_examples(declared.examples)]
    if declared.exits:
        exits = textwrap.fill(f"Exit codes: {declared.exits}", 118)
        paragraphs.append(f"\b\n{exits}")
    return GroupedCommand(
        declared.name,
        params=[*declared.options, *own, *chain.from_iterable(titled.values())],
        callback=lambda **values: run(declared, values),
        epilog="\n\n".join(filter(None, paragraphs)),
        titled=titled,
        paged=declared.paged,
        **text,
    )


def run(command: Command, values: Values) -> int:
    context = click.get_current_context()
    command_began(context.command_path, _log_level(values, context), values.pop("log_format"))
    _refuse_beside(command, values, context)
    outputs = {name: values.pop(name) for name in OUTPUT_NAMES if name in values}
    no_pager = values.pop("no_pager")
    paged = command.paged and not no_pager
    output = imported("mailmend.admin.frame.output:Output")(**outputs, paged=paged)
    with output.metrics_of(context) as metrics:
        given = []
        for shared in command.shared:
            given.append((shared, {name: values.pop(name) for name in shared.names}))
        # The values now hold the command's own options alone, as `build` takes them.
        built = {shared.field: shared.build(own, values, context) for shared, own in given}
        result, unwritten = _served(command, {**values, **built}, output)
        code: int = output.show(imported(command.present)(result), unwritten, metrics)
    return code


def _log_level(values: Values, context: click.Context) -> str:
    """The level of the log: as typed, else as --verbose or --quiet means it, else as set.

    Raises:
        WrongUse: both of them are given.
    """
    level = str(values.pop("log_level"))
    verbose = values.pop("verbose")
    if verbose and values["quiet"]:
        raise WrongUse("--verbose has no effect with --quiet", mend="Leave one of them out.")
    if context.get_parameter_source("log_level") is TYPED:
        return level
    if verbose:
        return "debug"
    if values["quiet"]:
        return "error"
    return level


def _served(command: Command, arguments: Values, output: Any) -> tuple[Any, Sequence[ResultUnwritten]]:
    """What the service gives, and what of it could not be written while it came."""
    service: Callable[..., Any] = imported(command.service)
    item_json = None
    if command.item:
        item_json = imported(command.item)
    parameters = inspect.signature(service).parameters
    results = list[Any]()
    try:
        with output.caller(item_json) as caller:
            if "request" in parameters:
                results.append(service(parameters["request"].annotation(**arguments), caller))
            elif "caller" in parameters:
                results.append(service(**arguments, caller=caller))
            else:
                results.append(service(**arguments))
    except ResultUnwritten as error:
        if not results:
            raise
        return results[0], [error]
    return results[0], ()


def _refuse_beside(command: Command, values: Values, context: click.Context) -> None:
    """Refuse typed options that would have no effect; the settings file may hold them."""
    for given, others in command.alone.items():
        option, _, value = given.partition("=")
        in_force = bool(values[option])
        if value:
            in_force = str(values[option]) == value
        if not in_force:
            continue
        for name in others:
            if context.get_parameter_source(name) is TYPED:
                beside = f"{_typed(option, context)} {value}".strip() or str(values[option])
                what = f"{_typed(name, context)} has no effect with {beside}"
                raise WrongUse(what, mend="Leave one of them out.")


def _typed(name: str, context: click.Context) -> str:
    """The name of an option as it is typed; "" for an argument."""
    for param in context.command.params:
        if param.name == name and isinstance(param, click.Option):
            return param.opts[0]
    return ""


OUTPUT_NAMES: Final = (
    "as_json",
    "report",
    "findings",
    "anonymous",
    "metrics_file",
    "quiet",
    "no_progress",
)


def _settings_of(command: click.Command, context: click.Context) -> set[str]:
    known = {str(parameter.name) for parameter in command.params}
    if isinstance(command, click.Group):
        known |= {name.replace("-", "_") for name in command.list_commands(context)}
        known |= getattr(command, "settings", None) or frozenset()
    return known


def _examples(text: str) -> str:
    if not text:
        return ""
    lines = []
    for line in inspect.cleandoc(text).splitlines():
        if line.strip():
            lines.append(f"  {line}")
        else:
            # The mark of click: it does not fill the paragraph that follows.
            lines.append("\b")
    return "\n".join(("\b\nExamples:", *lines))

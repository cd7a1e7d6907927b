"""`mailmend queue configure`: how the queues of a keyspace are cut, since when, and how to change it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import click

from admin.awaiting import awaited
from admin.cli.kinds import Duration
from admin.cli.options import connection_options
from admin.present.presenter import rows_grid, stderr_console, stdout_console, write_json
from admin.settings import ConnectionSettings
from admin.wiring import open_place
from cql.driver.asynchronous import AsyncKeyspace
from mailqueue.rabbitmq.view.configuration import Configurations
from model.errors import ExitCode
from model.queue.configuration import DEFAULT, ConfigurationEvent, QueueConfiguration, change, window_text
from model.queue.slices import SECOND, Slicing

_EPILOG = """\b
Examples:
  mailmend queue configure                                what counts, and what was set before
  mailmend queue configure --slice-window 30m --dry-run   whether that may be, and what would be allowed instead
  mailmend queue configure --slice-window 30m --buckets 2

One configuration serves every queue of the keyspace. A new slice window must divide the last one, buckets only grow:
else mails would be lost sight of. Every process of the queues must be started again afterwards, James with the same
values in its rabbitmq.properties.

\b
How:
  mailmend runbook show change-slice-window

\b
Exit codes: 0 it is shown, set or may be set; 2 wrong use, or a change that would lose sight of mails; 4 the cluster
cannot be reached."""

_COLUMNS: Final = ("event", "slice window", "buckets", "pace")
_WINDOW: Final = Duration(timedelta(days=3_650))


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be changed; None: stays as it is."""

    window: timedelta | None
    buckets: int | None
    pace: int | None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be changed."""
        return (self.window, self.buckets, self.pace) == (None, None, None)

    def on(self, current: QueueConfiguration) -> QueueConfiguration:
        """The configuration that is wanted where this one counts."""
        slicing, pace = current.slicing, current.pace
        window = slicing.window if self.window is None else self.window
        buckets = slicing.buckets if self.buckets is None else self.buckets
        return QueueConfiguration(Slicing(window, buckets), pace if self.pace is None else self.pace)


@dataclass(frozen=True, slots=True)
class Configured:
    """What came of it.

    Attributes:
        before: what counted; None where nothing was ever set.
        after: what counts now, or would.
        history: every event, the new one too.
    """

    before: QueueConfiguration | None
    after: QueueConfiguration | None
    history: Sequence[ConfigurationEvent]

    @property
    def is_changed(self) -> bool:
        """Whether something else counts now, or would."""
        return self.before != self.after


@click.command("configure", epilog=_EPILOG)
@click.option("--slice-window", type=_WINDOW, metavar="DURATION", help="The length of a slice: 1h, 30m, 90s.")
@click.option("--buckets", type=int, metavar="N", help="How many partitions each slice has.")
@click.option("--pace", type=int, metavar="N", help="One of N dequeues and deletes moves the browse start.")
@click.option("--dry-run", is_flag=True, help="Say whether the change may be; change nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@connection_options
def configure(
    connection: ConnectionSettings,
    *,
    slice_window: timedelta | None,
    buckets: int | None,
    pace: int | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Show how the queues are cut into slices and buckets, or change it. Without options it writes nothing.

    It is kept as James keeps it: each change is an event in eventStore, the last one counts.
    """
    wish = Wish(slice_window, buckets, pace)
    with open_place(connection) as place:
        configurations = Configurations(AsyncKeyspace(place.mail))
        configured = awaited(_configured(configurations, wish, dry_run=dry_run))
    if as_json:
        write_json(configured_json(connection.keyspace, configured, dry_run=dry_run))
    else:
        _show(connection.keyspace, configured, dry_run=dry_run)


async def _configured(configurations: Configurations, wish: Wish, *, dry_run: bool) -> Configured:
    history = await configurations.history()
    before = history[-1].configuration if history else None
    if wish.is_empty:
        return Configured(before, before, history)
    if dry_run:
        return Configured(before, change(before, wish.on(before or DEFAULT)), history)
    after = await configurations.alter(wish.on)
    return Configured(before, after, await configurations.history())


def configured_json(keyspace: str, configured: Configured, *, dry_run: bool) -> dict[str, Any]:
    """What came of it under the names that scripts rely on."""
    after = configured.after
    return {
        "keyspace": keyspace,
        "before": configuration_json(configured.before),
        "configuration": configuration_json(after),
        "changed": configured.is_changed and not dry_run,
        "dry_run": dry_run,
        "history": [{"event": one.event_id, **_figures(one.configuration)} for one in configured.history],
        "james_properties": properties_of(after) if after else None,
        "exit": int(ExitCode.FINE),
    }


def configuration_json(configuration: QueueConfiguration | None) -> dict[str, int] | None:
    """A configuration in figures."""
    return _figures(configuration) if configuration else None


def properties_of(configuration: QueueConfiguration) -> dict[str, str]:
    """The same as James's rabbitmq.properties has it."""
    return {
        "mailqueue.view.sliceWindow": window_text(configuration.slicing.window),
        "mailqueue.view.bucketCount": str(configuration.slicing.buckets),
        "mailqueue.view.updateBrowseStartPace": str(configuration.pace),
    }


def _figures(configuration: QueueConfiguration) -> dict[str, int]:
    return {
        "slice_window_seconds": configuration.slicing.window // SECOND,
        "buckets": configuration.slicing.buckets,
        "pace": configuration.pace,
    }


def _show(keyspace: str, configured: Configured, *, dry_run: bool) -> None:
    console = stdout_console()
    if configured.history:
        rows = [_cells(one) for one in configured.history]
        console.print(rows_grid(f"How the queues of {keyspace} are cut", _COLUMNS, rows))
    console.print(_sentence(keyspace, configured, dry_run=dry_run), soft_wrap=True, markup=False)
    if configured.is_changed and configured.after:
        lines = ", ".join(f"{name}={value}" for name, value in properties_of(configured.after).items())
        stderr_console().print(
            f"Next: start every process of these queues again{', after the change' if dry_run else ''}; a James with "
            f"{lines} in its rabbitmq.properties. How: mailmend runbook show change-slice-window",
            soft_wrap=True,
        )


def _sentence(keyspace: str, configured: Configured, *, dry_run: bool) -> str:
    if configured.after is None:
        return (
            f"Nothing was set in {keyspace} yet: whatever opens a queue first sets {_in_words(DEFAULT)}, unless it is "
            "told otherwise."
        )
    if not configured.is_changed:
        return f"What counts: {_in_words(configured.after)}."
    return f"{'It may be set' if dry_run else 'Set'}: {_in_words(configured.after)}."


def _in_words(configuration: QueueConfiguration) -> str:
    buckets = configuration.slicing.buckets
    cut = f"slices of {window_text(configuration.slicing.window)} in {buckets:,} bucket{'' if buckets == 1 else 's'}"
    return f"{cut}, the browse start moved on one of {configuration.pace:,} dequeues and deletes"


def _cells(event: ConfigurationEvent) -> Sequence[str]:
    configuration = event.configuration
    window, buckets = window_text(configuration.slicing.window), configuration.slicing.buckets
    return (str(event.event_id), window, f"{buckets:,}", f"{configuration.pace:,}")

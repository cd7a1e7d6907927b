"""`mailmend queue metrics`: figures of queues in Prometheus's text form, on stdout or in a file."""

from datetime import timedelta
from pathlib import Path
from typing import Final

import click

from admin.cli.kinds import Duration
from admin.cli.queue.shared import all_option, named_queues, no_broker_option, remark
from admin.cli.queue_options import QueueSettings, queue_options, unless
from admin.present.files import whole_file
from admin.wiring_queue import Sides, on_sides
from mailqueue.health import QueueFigures
from mailqueue.metrics import QueueRates, gauges_text
from mailqueue.rabbitmq.figures import figures_of, pace_between, sums_of
from model.errors import ExitCode

OVER_MAX: Final = timedelta(minutes=10)

Look = tuple[QueueFigures, QueueRates | None]


@click.command(
    epilog="""\b
Examples:
  mailmend queue metrics --all
  mailmend queue metrics --all --output /var/lib/node_exporter/mailmend_queue.prom      from cron, each minute

\b
mailmend_queue_mails, _delayed_mails, _size_exact, _oldest_age_seconds, _browse_start_age_seconds,
_content_start_lag_seconds, _last_sweep_age_seconds, _enqueued_per_second, _marked_per_second, _broker_up,
_broker_ready, _broker_unacked, _broker_consumers, _broker_dead_letters, _trouble (1 where health names it). What a
process of the queue counts itself (delivered, retried, filtered, ...) `mailmend queue tend --metrics FILE` tells.

\b
Exit codes: 0 told, 2 wrong use, 3 the broker does not answer (the rest is told), 4 the cluster cannot be reached."""
)
@click.option(
    "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write them there, whole or not at all."
)
@click.option(
    "--over",
    type=Duration(OVER_MAX),
    default="5s",
    show_default=True,
    help="Measure rates between two looks that far apart; 0 leaves them out.",
)
@all_option
@no_broker_option
@queue_options(broker=unless("no_broker"))
def metrics(settings: QueueSettings, *, output: Path | None, over: timedelta, everything: bool, no_broker: bool) -> int:  # noqa: ARG001
    """Tell the figures of a queue for Prometheus: how much waits, since when, how fast it goes. Writes no table."""
    looks = on_sides(settings, lambda sides: _looks(sides, over, everything=everything))
    text = gauges_text(looks)
    if output is None:
        click.echo(text, nl=False)
    else:
        with whole_file(output) as stream:
            stream.write(text)
    away = {figures.broker_away for figures, _ in looks} - {None}
    for why in away:
        remark(f"the broker's figures are missing: {why}")
    return int(ExitCode.PARTLY_FAILED if away else ExitCode.FINE)


async def _looks(sides: Sides, over: timedelta, *, everything: bool) -> list[Look]:
    """Rates between the first and the second look, everything else from the second."""
    names, view = await named_queues(sides, everything=everything), sides.view
    before = {name: await sums_of(view, name) for name in names} if over else {}
    if before:
        await sides.clock.pause(over.total_seconds())
    broker = sides.broker if sides.settings.broker else None
    found = []
    for name in names:
        first = before.get(name)
        pace = pace_between(first, await sums_of(view, name, first)) if first else None
        found.append((await figures_of(view, name, broker), pace))
    return found

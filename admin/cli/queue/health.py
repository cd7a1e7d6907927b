"""`mailmend queue health`: whether queues are well, for people and for whoever watches."""

from collections.abc import Sequence

import click

from admin.cli.queue.shared import all_option, json_option, named_queues, no_broker_option, say
from admin.cli.queue_options import QueueSettings, queue_options, unless
from admin.present.presenter import write_json
from admin.queue_output import figures_json
from admin.wiring_queue import Sides, on_sides
from mailqueue.health import HealthReason, QueueFigures, judged
from mailqueue.rabbitmq.figures import figures_of
from model.errors import ExitCode

Judged = tuple[QueueFigures, Sequence[HealthReason]]


@click.command(
    epilog="""\b
Examples:
  mailmend queue health --all
  mailmend queue health --queue outgoing --json | jq '.queues[].reasons'

\b
What is wrong: the browse start is older than 7 days; somebody moved it back; nothing was swept for half of what tables
live longer than mails stay; a mail stays longer than the tables are made for; dead letters; mails wait and nobody takes
any; the broker does not answer.

\b
Exit codes: 0 well, 1 something is wrong (each reason is named), 2 wrong use, 4 the cluster cannot be reached."""
)
@all_option
@no_broker_option
@json_option
@queue_options(broker=unless("no_broker"))
def health(settings: QueueSettings, *, everything: bool, no_broker: bool, as_json: bool) -> int:  # noqa: ARG001
    """Say whether a queue is well, and why not. Writes nothing."""
    found = on_sides(settings, lambda sides: _judged(sides, everything=everything))
    code = ExitCode.DRIFT if any(reasons for _, reasons in found) else ExitCode.FINE
    if as_json:
        queues = [figures_json(figures, reasons) for figures, reasons in found]
        write_json({"keyspace": settings.connection.keyspace, "queues": queues, "exit": int(code)})
    else:
        for figures, reasons in found:
            say(*_lines(figures, reasons))
    return int(code)


async def _judged(sides: Sides, *, everything: bool) -> list[Judged]:
    found: list[Judged] = []
    for name in await named_queues(sides, everything=everything):
        figures = await figures_of(sides.view, name, sides.broker if sides.settings.broker else None)
        found.append((figures, judged(figures)))
    return found


def _lines(figures: QueueFigures, reasons: Sequence[HealthReason]) -> list[str]:
    about = "" if figures.exact else "about "
    if not reasons:
        return [f"{figures.queue} is well: {about}{figures.mails:,} mails wait, {figures.delayed:,} are delayed."]
    told = [f"  {reason.what}\n    -> {reason.mend}" for reason in reasons]
    return [f"{figures.queue} is not well ({about}{figures.mails:,} mails wait):", *told]

"""`mailmend queue tend`: what has to go on beside a queue, as a service of its own or once from a scheduler."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import click

from admin.awaiting import told_to_stop
from admin.cli.queue.shared import (
    all_option,
    dry_run_option,
    json_option,
    logging_on_stderr,
    named_queues,
    remark,
    say,
)
from admin.cli.queue.sweep import NOTHING_WRITTEN, foreseen_json, foreseen_lines, swept_json, swept_line
from admin.cli.queue_options import QueueSettings, queue_options, unless
from admin.present.files import refuse_unwritable, whole_file
from admin.present.presenter import write_json
from admin.wiring_queue import Sides, on_sides
from mailqueue.maintenance.loops import paused
from mailqueue.maintenance.sweep import Swept
from mailqueue.maintenance.sweep_dry_run import Foreseeing, Foreseen
from mailqueue.metrics import PrometheusCounts, gauges_text
from mailqueue.rabbitmq.figures import figures_of, pace_between, sums_of
from mailqueue.rabbitmq.mail_queue import MailQueue
from mailqueue.rabbitmq.view.delays import delays
from model.errors import MailmendError, WrongUse
from model.ids import QueueName

METRICS_EVERY: Final = timedelta(seconds=15)


@dataclass(frozen=True, slots=True)
class Round:
    """What one round on one queue has done."""

    queue: MailQueue
    moved: int
    swept: Swept


@dataclass(frozen=True, slots=True)
class Look:
    """What one round on one queue would do now."""

    queue: QueueName
    due: int
    foreseen: Foreseen


@click.command(
    epilog="""\b
Examples:
  mailmend queue tend --all                                    as a service; ends in good order on SIGTERM
  mailmend queue tend --all --dry-run                          what a round would move, sweep and renew now
  mailmend queue tend --all --once                             one round, from cron or a systemd timer
  mailmend queue tend --all --metrics /var/lib/node_exporter/mailmend_tend.prom

\b
One such process for each keyspace is enough; several do no harm, and take over from each other. Without any, delayed
mails stay where they are, and mails that wait for longer than the tables' time to live expire.

\b
Exit codes: 0 it was told to stop, or the round is done; 2 wrong use; 4 cannot reach (at the start; later it waits
longer and longer between its tries, and says so on stderr)."""
)
@click.option("--once", is_flag=True, help="One round, then end.")
@click.option(
    "--metrics", "file", type=click.Path(path_type=Path), metavar="FILE", help="Keep a file for Prometheus up to date."
)
@all_option
@dry_run_option
@json_option
@queue_options(broker=unless("dry_run"), blobs=unless("dry_run"))
def tend(
    settings: QueueSettings, *, once: bool, file: Path | None, everything: bool, dry_run: bool, as_json: bool
) -> None:
    """Do what a queue needs in the background: due mails are moved, slices swept, old mails renewed, tallies told.

    A dry run is one look at what a round would do now.
    """
    _refuse(file, once=once, dry_run=dry_run, as_json=as_json)
    if dry_run:
        looks = on_sides(settings, lambda sides: _looked(sides, everything=everything))
        _show_looks(settings, looks, as_json=as_json)
        return
    if once:
        _show(settings, on_sides(settings, lambda sides: _once(sides, file, everything=everything)), as_json=as_json)
        return
    with logging_on_stderr():
        on_sides(settings, lambda sides: _served(sides, file, everything=everything))


def _refuse(file: Path | None, *, once: bool, dry_run: bool, as_json: bool) -> None:
    if dry_run and file:
        raise WrongUse("--metrics writes a file, and --dry-run writes nothing", mend="Leave one of them out.")
    if file:
        refuse_unwritable(file)
    if as_json and not (once or dry_run):
        raise WrongUse(
            "--json is for --once and --dry-run", mend="A service tells what it does on stderr, and in --metrics FILE."
        )


async def _looked(sides: Sides, *, everything: bool) -> list[Look]:
    """What a round on each queue would do; nothing is written."""
    looks = []
    for name in await named_queues(sides, everything=everything):
        due = await delays(sides.view, name, sides.now)
        looks.append(Look(name, due.count, await Foreseeing(sides.tables, sides.view).sweep(name)))
    return looks


async def _once(sides: Sides, file: Path | None, *, everything: bool) -> list[Round]:
    counts, rounds = PrometheusCounts(), []
    for name in await named_queues(sides, everything=everything):
        async with sides.queue(name, counts) as queue:
            moved = await queue.move_due()
            rounds.append(Round(queue, moved, await queue.parts.sweeper.sweep(name)))
    if file:
        await _write(sides, file, counts, [one.queue for one in rounds], None)
    return rounds


async def _served(sides: Sides, file: Path | None, *, everything: bool) -> None:
    counts = PrometheusCounts()
    async with AsyncExitStack() as stack:
        names = await named_queues(sides, everything=everything)
        queues = [await stack.enter_async_context(sides.queue(name, counts)) for name in names]
        stop = stack.enter_context(told_to_stop())
        remark(f"Tending {', '.join(names)}.")
        async with asyncio.TaskGroup() as tasks:
            for queue in queues:
                tasks.create_task(queue.tend(stop))
            if file:
                tasks.create_task(_written(sides, file, counts, queues, stop))
    remark("Told to stop; what was under way is finished.")


async def _written(
    sides: Sides, file: Path, counts: PrometheusCounts, queues: list[MailQueue], stop: asyncio.Event
) -> None:
    """Keep the file up to date until told to stop; what fails now is tried again at the next turn."""
    before: dict[str, Any] = {}
    while True:
        try:
            before = await _write(sides, file, counts, queues, before)
        except MailmendError as error:
            remark(f"{file} is not up to date: {error.what}")
        if stop.is_set():
            return
        await paused(sides.clock, METRICS_EVERY, stop)


async def _write(
    sides: Sides, file: Path, counts: PrometheusCounts, queues: list[MailQueue], before: dict[str, Any] | None
) -> dict[str, Any]:
    """Counters of this process, and a look at each queue; rates since the look before."""
    looks, sums = [], {}
    for queue in queues:
        view, first = queue.parts.view, (before or {}).get(queue.name)
        sums[str(queue.name)] = now = await sums_of(view, queue.name, first)
        looks.append((await figures_of(view, queue.name, sides.broker), pace_between(first, now)))
    with whole_file(file) as stream:
        stream.write(counts.text() + gauges_text(looks))
    return sums


def _show(settings: QueueSettings, rounds: list[Round], *, as_json: bool) -> None:
    if as_json:
        queues = [{"queue": one.queue.name, "moved_due": one.moved, **swept_json(one.swept)} for one in rounds]
        write_json({"keyspace": settings.connection.keyspace, "dry_run": False, "queues": queues, "exit": 0})
        return
    for one in rounds:
        say(f"{one.moved:,} delayed mails of {one.queue.name} became due. {swept_line(one.queue.name, one.swept)}")


def _show_looks(settings: QueueSettings, looks: list[Look], *, as_json: bool) -> None:
    if as_json:
        queues = [{"queue": one.queue, "moved_due": one.due, **foreseen_json(one.foreseen)} for one in looks]
        write_json({"keyspace": settings.connection.keyspace, "dry_run": True, "queues": queues, "exit": 0})
        return
    say(NOTHING_WRITTEN)
    for one in looks:
        say(f"{one.due:,} delayed mails of {one.queue} are due, and would be moved into it.")
        say(*foreseen_lines(one.queue, one.foreseen))

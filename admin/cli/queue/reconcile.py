"""`mailmend queue reconcile`: broker, tables and blobs of a queue compared, and mended where somebody asks for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import click

from admin.cli.kinds import Duration
from admin.cli.queue.aside import Aside
from admin.cli.queue.shared import answer_json, ask, dry_run_option, json_option, remark, say, yes_option
from admin.cli.queue_options import QueueSettings, always, queue_options, unless
from admin.present.presenter import rows_grid, stderr_console, stdout_console
from admin.progress import progress_on
from admin.queue_output import finding_rows, named_lines, reconciled_json, sides_rows
from admin.wiring_queue import Sides, on_sides
from mailqueue.maintenance.comparison import (
    DRAIN_MAX,
    IDS_MAX,
    BlobsSide,
    Drained,
    Mended,
    QueueFinding,
    Reconciled,
    TablesSide,
    compared,
    left_after,
    refuse_drain,
    why_unsure,
)
from mailqueue.maintenance.reconcile import (
    blobs_stored_before,
    drained,
    missing_among,
    tables_side,
    with_lookups,
    without_references,
)
from mailqueue.maintenance.reconcile_mend import Keeping, MendRequest, mended, would_mend
from model.errors import ExitCode, WrongUse
from model.ids import BlobId, EnqueueId, QueueName
from model.ports import Depth
from repair.clock import SystemClock

AGE_MAX: Final = timedelta(days=3650)


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for."""

    wishes: MendRequest
    drain: bool
    force: bool
    min_age: timedelta
    ids_max: int
    dry_run: bool
    with_blobs: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was found, what was done, where what went is kept."""

    found: Reconciled
    done: Mended
    kept: tuple[Path, ...] = ()
    without_content: int = 0


@click.command(
    epilog="""\b
Examples:
  mailmend queue reconcile                                    look only; traffic goes on
  mailmend queue reconcile --drain --yes                      name what is only in the broker or only in the table
  mailmend queue reconcile --drain --republish --dry-run      who would be published again
  mailmend queue reconcile --mark ID                          take one mail out, whatever is wrong with it
  mailmend queue reconcile --remove-orphan-blobs --dry-run

\b
Without --drain the broker's side is counts, for it cannot be searched. --republish then publishes every live mail older
than --older-than, if some surely lack their message, and none if not; with --drain exactly those that lack it.

\b
What is removed is kept first, in ~/.local/share/mailmend/queue; `mailmend queue restore` puts it back. A mail that only
a message tells of is kept with --drain. Killed, the same command goes on.

\b
Exit codes: 0 nothing was found, or all of it was mended; 1 something is found, or left; 2 wrong use, or a guard
refused; 3 some of it could not be mended (each is named); 4 cannot reach."""
)
@click.option("--drain", is_flag=True, help="Take every message in hand, name it, give it back; asks. Pause consumers.")
@click.option("--force", is_flag=True, help="Drain in spite of consumers, or of a delivery limit.")
@click.option("--republish", is_flag=True, help="Publish again what lacks its message.")
@click.option(
    "--older-than",
    type=Duration(AGE_MAX),
    default="1h",
    show_default=True,
    help="Republish only mails enqueued longer ago.",
)
@click.option(
    "--mark", type=click.UUID, multiple=True, metavar="ID", help="Take this mail out of the queue; may be repeated."
)
@click.option(
    "--remove-orphan-blobs",
    is_flag=True,
    help="Remove blobs that nothing refers to; asks. Where messages wait, it needs --drain: of every queue.",
)
@click.option(
    "--min-age", type=Duration(AGE_MAX), default="1h", show_default=True, help="A younger blob is no orphan yet."
)
@click.option("--no-blobs", is_flag=True, help="Leave the blobs out: two requests for each live mail.")
@click.option(
    "--ids-max",
    type=click.IntRange(min=1),
    default=IDS_MAX,
    show_default=True,
    help="How many live mails, or blobs, are held in memory, about half a KiB each; more is refused. Delayed mails "
    "beyond that are counted, and not named.",
)
@dry_run_option
@yes_option
@json_option
@queue_options(broker=always, blobs=unless("no_blobs"))
def reconcile(
    settings: QueueSettings,
    *,
    drain: bool,
    force: bool,
    republish: bool,
    older_than: timedelta,
    mark: tuple[UUID, ...],
    remove_orphan_blobs: bool,
    min_age: timedelta,
    no_blobs: bool,
    ids_max: int,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Compare the three sides of a queue, without stopping traffic; and mend, where that is asked for.

    The table's live mails against the broker's counts and against their blobs; rows that cannot be read; blobs that
    nothing refers to (of random ids only: others may be shared). Nothing is written without a mending option.
    """
    wishes = MendRequest(republish, older_than, frozenset(map(EnqueueId, mark)), remove_orphan_blobs)
    request = Request(wishes, drain, force, min_age, ids_max, dry_run, not no_blobs)
    _refuse(request)
    _ask(settings, request, yes=yes)
    outcome = on_sides(settings, lambda sides: _reconciled(sides, request))
    left = left_after(outcome.found, Mended() if dry_run else outcome.done)
    code = _code(outcome, left)
    if as_json:
        answer_json(settings, _json(outcome, left, dry_run=dry_run), code)
    else:
        _show(settings, outcome, left, request)
    return int(code)


def _refuse(request: Request) -> None:
    if request.wishes.remove_orphans and not request.with_blobs:
        raise WrongUse("--remove-orphan-blobs needs the blobs", mend="Leave --no-blobs out.")
    if request.force and not request.drain:
        raise WrongUse("--force is for --drain", mend="Say both, or neither.")


def _ask(settings: QueueSettings, request: Request, *, yes: bool) -> None:
    if request.drain:
        which = "every queue" if request.wishes.remove_orphans else settings.name
        ask(f"Take every message of {which} in hand for a moment? Consumers must be paused.", yes=yes)
    if request.wishes.remove_orphans and not request.dry_run:
        ask("Remove blobs that nothing in the keyspace refers to?", yes=yes)


async def _reconciled(sides: Sides, request: Request) -> Outcome:
    with progress_on(stderr_console(), SystemClock()) as progress:
        progress.stage("looking at broker and tables")
        found = await _looked(sides, request)
        if request.wishes.nothing or request.dry_run:
            return Outcome(found, would_mend(found, request.wishes))
        progress.stage("mending")
        return await _mended(sides, found, request)


async def _looked(sides: Sides, request: Request) -> Reconciled:
    view, name = sides.view, sides.settings.name
    depth = await sides.broker.depth(name)
    named = await _drained(sides, name, depth, request) if request.drain else None
    tables = await tables_side(view, name, request.ids_max)
    blobs = await _blobs_side(sides, tables, named, request) if request.with_blobs else None
    if named is not None:
        named = await with_lookups(view, name, named, tables)
    return compared(name, sides.now, tables, depth=depth, blobs=blobs, drained=named)


async def _drained(sides: Sides, queue: QueueName, depth: Depth, request: Request) -> Drained:
    refuse_drain(queue, depth, forced=request.force)
    return await drained(sides.broker, sides.clock, queue, depth, DRAIN_MAX, request.wishes.mark)


async def _blobs_side(sides: Sides, tables: TablesSide, named: Drained | None, request: Request) -> BlobsSide:
    """Blobs are listed first, references read afterwards."""
    missing = await missing_among(sides.blobs, tables.live)
    candidates = await blobs_stored_before(sides.blobs, sides.now - request.min_age, request.ids_max)
    unsure, kept = await _of_brokers(sides, named, request) if candidates else (None, frozenset[BlobId]())
    candidates = {one: blob for one, blob in candidates.items() if one not in kept}
    return BlobsSide(missing, await without_references(candidates, sides.tables, sides.schema), unsure)


async def _of_brokers(sides: Sides, named: Drained | None, request: Request) -> tuple[str | None, frozenset[BlobId]]:
    """What messages refer to, in every queue: the store is one for all. And why that may not be all."""
    own = sides.settings.name
    depths = {name: await sides.broker.depth(name) for name in {own, *await sides.view.queues()}}
    drains = {own: named} if named else {}
    if request.drain and request.wishes.remove_orphans:
        for name, depth in depths.items():
            if name != own:
                drains[name] = await _drained(sides, name, depth, request)
    return why_unsure(depths, drains), frozenset().union(*(one.blobs for one in drains.values()))


async def _mended(sides: Sides, found: Reconciled, request: Request) -> Outcome:
    aside = Aside.of(sides, with_bytes=request.with_blobs)
    try:
        async with sides.queue() as queue:
            keeping = Keeping(aside.keep_mail, aside.keep_row, aside.keep_blob)
            done = await mended(queue, sides.blobs, found, request.wishes, keeping)
    except BaseException:
        for file in aside.files:
            remark(f"Kept in {file}")
        raise
    return Outcome(found, done, aside.files, aside.without_content)


def _code(outcome: Outcome, left: Mapping[QueueFinding, int]) -> ExitCode:
    if outcome.done.failed:
        return ExitCode.PARTLY_FAILED
    return ExitCode.DRIFT if left else ExitCode.FINE


def _json(outcome: Outcome, left: Mapping[QueueFinding, int], *, dry_run: bool) -> dict[str, Any]:
    done = outcome.done
    return {
        **reconciled_json(outcome.found),
        "dry_run": dry_run,
        "mended": {
            "republished": done.republished,
            "marked": sorted(map(str, done.marked)),
            "unkept": sorted(map(str, done.unkept)),
            "removed_blobs": done.removed_blobs,
            "failed": list(done.failed),
        },
        "left": {kind.value: count for kind, count in left.items()},
        "kept": [str(file) for file in outcome.kept],
        "kept_without_content": outcome.without_content,
    }


def _show(settings: QueueSettings, outcome: Outcome, left: Mapping[QueueFinding, int], request: Request) -> None:
    console, found = stdout_console(), outcome.found
    console.print(rows_grid(f"Sides of {settings.name}", ("side", "what", "count"), sides_rows(found)))
    if not found.clean:
        console.print(rows_grid("Found", ("finding", "count", "meaning"), finding_rows(found)))
        say(*named_lines(found))
    say(*_remarks(found))
    say(*_done_lines(outcome, request))
    for why in outcome.done.failed:
        remark(why)
    if found.clean and found.lacking is not None:
        say("Nothing is lost, and nothing is left over.")
    elif left:
        say(*_next_lines(settings, left))


def _remarks(found: Reconciled) -> list[str]:
    lines = []
    if found.lacking is None:
        lines.append(
            "The broker does not tell what is in consumers' hands: name --broker-management to compare counts."
        )
    if found.tables.delayed_beyond:
        lines.append(f"{found.tables.delayed_beyond:,} delayed mails beyond --ids-max are counted, and not named.")
    if found.blobs and found.blobs.orphans and found.blobs.unsure:
        lines.append(f"Orphan blobs are left where they are: {found.blobs.unsure}.")
    return lines


def _done_lines(outcome: Outcome, request: Request) -> list[str]:
    done, would = outcome.done, "Would have " if request.dry_run else ""
    what = {
        "published": (done.republished, "mails again") if request.wishes.republish else None,
        "marked": (len(done.marked), "mails") if request.wishes.mark else None,
        "removed": (done.removed_blobs, "orphan blobs") if request.wishes.remove_orphans else None,
    }
    lines = [f"{would}{verb} {one[0]:,} {one[1]}.".capitalize() for verb, one in what.items() if one]
    if outcome.without_content:
        lines.append(f"Of {outcome.without_content:,} of them the envelope is kept, and no bytes.")
    if done.unkept:
        lines.append(f"Nothing told of {len(done.unkept):,} of them, so nothing was kept of those now.")
    return [*lines, *(f"To put it back: mailmend queue restore {file}" for file in outcome.kept)]


def _next_lines(settings: QueueSettings, left: Mapping[QueueFinding, int]) -> list[str]:
    command = f"mailmend queue reconcile --queue {settings.name}"
    lines = {
        QueueFinding.LACKS_MESSAGE: f"To deliver what lacks its message: {command} --drain --republish",
        QueueFinding.BLOB_MISSING: f"To take out what has lost its bytes: {command} --mark ID",
        QueueFinding.BROKEN_ROW: f"To take out what cannot be read: {command} --mark ID",
        QueueFinding.ORPHAN_BLOB: f"To remove orphans: {command} --remove-orphan-blobs --dry-run",
        QueueFinding.ONLY_IN_BROKER: f"To drop what has no row: {command} --drain --mark ID",
        QueueFinding.DEAD_LETTER: "Dead letters: mailmend runbook show queue-does-not-drain",
    }
    return [lines[kind] for kind in left if kind in lines]

"""`mailmend queue sweep`: the browse start moves, what lies before it is cleaned, what grows old is renewed."""

from datetime import datetime
from typing import Any, Final

import click

from admin.cli.queue.shared import answer_json, dry_run_option, json_option, remark, say
from admin.cli.queue_options import QueueSettings, queue_options, unless
from admin.queue_output import IDS_SHOWN, instant_text, shown
from admin.wiring_queue import Sides, on_sides
from mailqueue.maintenance.sweep import Moved, Swept
from mailqueue.maintenance.sweep_dry_run import Foreseeing, Foreseen
from model.errors import ExitCode

NOTHING_WRITTEN: Final = "Nothing was written."


@click.command(
    epilog="""\b
Examples:
  mailmend queue sweep --dry-run              how far it would go, what would be cleaned, put back and renewed
  mailmend queue sweep
  mailmend queue sweep --move-only            the browse start alone: needs no broker
  mailmend queue sweep --json | jq .rescued

\b
Exit codes: 0 done (or nothing was to do), 1 somebody had moved the browse start back (James does so without looking; it
is where it belongs again, or a mail holds it), 2 wrong use, 4 cannot reach: the next sweep completes what was begun."""
)
@click.option("--move-only", is_flag=True, help="Only move the browse start.")
@dry_run_option
@json_option
@queue_options(broker=unless("move_only", "dry_run"), blobs=unless("move_only", "dry_run"))
def sweep(settings: QueueSettings, *, move_only: bool, dry_run: bool, as_json: bool) -> int:
    """Move the browse start of a queue to its first mail, and clean up behind it.

    Only slices without any unmarked mail are cleaned; a mail that is found there all the same is put back in sight, and
    published again. Marks stay, so nothing that was deleted comes back. Mails that would expire soon are renewed. The
    first 15 minutes, and at least a slice, are never touched. Consumers sweep now and then by themselves: this is for
    queues in which little happens, and for who does not want to wait.
    """

    async def story(sides: Sides) -> Swept | Moved | Foreseen:
        if dry_run:
            looking = Foreseeing(sides.tables, sides.view)
            return await (looking.move(settings.name) if move_only else looking.sweep(settings.name))
        async with sides.queue() as queue:
            sweeper = queue.parts.sweeper
            return await (sweeper.move(settings.name) if move_only else sweeper.sweep(settings.name))

    found = on_sides(settings, story)
    code = ExitCode.DRIFT if was_back(found) else ExitCode.FINE
    if as_json:
        answer_json(settings, {"dry_run": dry_run, **_json(found)}, code)
    else:
        say(*_lines(settings.name, found, dry_run=dry_run))
    if was_back(found):
        remark("Somebody had moved the browse start back. James does so when it moves it without looking.")
    return int(code)


def was_back(found: Swept | Moved | Foreseen) -> bool:
    """Whether somebody else had put the browse start back."""
    match found:
        case Moved():
            return found.back
        case Swept():
            return found.moved_back
        case Foreseen():
            return found.swept.moved_back


def _json(found: Swept | Moved | Foreseen) -> dict[str, Any]:
    match found:
        case Moved():
            return moved_json(found)
        case Swept():
            return swept_json(found)
        case Foreseen():
            return foreseen_json(found)


def _lines(queue: str, found: Swept | Moved | Foreseen, *, dry_run: bool) -> list[str]:
    match found:
        case Moved() if dry_run:
            return [NOTHING_WRITTEN, _start_line(queue, "browse", found.before, found.after)]
        case Moved():
            return [moved_line(queue, found)]
        case Swept():
            return [swept_line(queue, found)]
        case Foreseen():
            return [NOTHING_WRITTEN, *foreseen_lines(queue, found)]


def swept_json(found: Swept) -> dict[str, Any]:
    """A sweep under the names that scripts rely on."""
    return {
        "slices": found.slices,
        "rows": found.rows,
        "blobs": found.blobs,
        "rescued": found.rescued,
        "renewed": found.renewed,
        "orphan_marks": found.orphan_marks,
        "moved_back": found.moved_back,
        "browse_start": instant_text(found.browse_start),
        "content_start": instant_text(found.content_start),
    }


def moved_json(found: Moved) -> dict[str, Any]:
    """A move under the names that scripts rely on."""
    return {"before": instant_text(found.before), "browse_start": instant_text(found.after), "moved_back": found.back}


def swept_line(queue: str, found: Swept) -> str:
    """A sweep in a sentence."""
    if found.browse_start is None:
        return f"{queue} is new: nothing was ever enqueued."
    told = f"{queue} begins at {shown(found.browse_start)}. Cleaned {found.slices:,} slices, {found.rows:,} rows"
    more = {"left-over blobs": found.blobs, "mails put back in sight": found.rescued, "mails renewed": found.renewed}
    return told + "".join(f", {count:,} {what}" for what, count in more.items() if count) + "."


def moved_line(queue: str, found: Moved) -> str:
    """A move in a sentence."""
    if found.before is None or found.after is None:
        return f"{queue} is new: nothing was ever enqueued."
    if found.before == found.after:
        return f"{queue} begins at {shown(found.after)}, as before."
    return f"{queue} begins at {shown(found.after)}; it began at {shown(found.before)}."


def foreseen_json(found: Foreseen) -> dict[str, Any]:
    """What a sweep would do, under the names of what it does, and where the starts are now."""
    return {
        **swept_json(found.swept),
        "browse_start_before": instant_text(found.browse_start),
        "content_start_before": instant_text(found.content_start),
        "would_rescue": [str(one) for one in found.rescued],
    }


def foreseen_lines(queue: str, found: Foreseen) -> list[str]:
    """What a sweep would do, in sentences; whom it would put back, by name."""
    swept = found.swept
    lines = [_start_line(queue, "browse", found.browse_start, swept.browse_start)]
    if found.browse_start is None:
        return lines
    lines.append(_start_line(queue, "content", found.content_start, swept.content_start))
    what = {
        "slices cleaned": swept.slices,
        "rows removed": swept.rows,
        "left-over blobs looked for": swept.blobs,
        "mails put back in sight": swept.rescued,
        "mails renewed": swept.renewed,
    }
    lines.append(f"There would be {', '.join(f'{count:,} {each}' for each, count in what.items())}.")
    return [*lines, *_named(found)]


def _start_line(queue: str, which: str, before: datetime | None, after: datetime | None) -> str:
    if after is None:
        return f"{queue} is new: nothing was ever enqueued."
    if before is None:
        return f"The {which} start of {queue} would be put at {shown(after)}; it has none."
    if before == after:
        return f"The {which} start of {queue} would stay at {shown(after)}."
    return f"The {which} start of {queue} would move from {shown(before)} to {shown(after)}."


def _named(found: Foreseen) -> list[str]:
    """The first of those that would be put back."""
    if not found.rescued:
        return []
    more = found.swept.rescued - IDS_SHOWN
    lines = ["Without a mark, before the browse start:", *(f"    {one}" for one in found.rescued[:IDS_SHOWN])]
    return [*lines, f"    and {more:,} more"] if more > 0 else lines

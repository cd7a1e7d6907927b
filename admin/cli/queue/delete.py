"""`mailmend queue delete` and `purge`: mails leave a queue at an operator's word, kept in a file first."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click

from admin.cli.queue.browse import content_found
from admin.cli.queue.filters import Filters, filter_options, refuse_everything
from admin.cli.queue.shared import answer_json, ask, dry_run_option, json_option, remark, say, yes_option
from admin.cli.queue_options import QueueSettings, queue_options, unless
from admin.kept_mails import KeptMails, kept_file
from admin.present.presenter import stderr_console
from admin.progress import progress_on
from admin.queue_output import mail_cells, mail_json, show_mails
from admin.wiring import state_folders
from admin.wiring_queue import Sides, on_sides
from mailqueue.rabbitmq.mail_queue import Removed
from model.errors import ExitCode
from model.queue.mails import Listed
from repair.clock import SystemClock

NAMED_MAX: Final = 1000
"""How many of those that would be removed a dry run names; all are counted."""

_KEEPING: Final = """\b
Each mail is kept first, envelope and bytes, in a file that only you may read, in ~/.local/share/mailmend/queue; the
answer names it, and `mailmend queue restore FILE` puts its mails back. --no-keep forgets them for good."""

_EXIT_CODES: Final = """\b
Exit codes: 0 done (or nothing matched), 2 wrong use, or nobody agreed; 3 some could not be removed (each is named),
4 cannot reach: what was removed stays removed, the same command goes on."""

no_keep_option: Final = click.option("--no-keep", is_flag=True, help="Do not keep them in a file: they are gone.")


@dataclass(slots=True)
class Gone:
    """What a removal came to, and where it is kept."""

    removed: Removed = field(default_factory=Removed)
    named: list[dict[str, Any]] = field(default_factory=list)
    rows: list[Any] = field(default_factory=list)
    kept: Path | None = None
    without_content: int = 0


@click.command(
    epilog=f"""\b
Examples:
  mailmend queue delete --sender spammer@example.org --dry-run     who would go
  mailmend queue delete --sender spammer@example.org
  mailmend queue delete --queue outgoing --older-than 5d --state error --no-keep

{_KEEPING}

{_EXIT_CODES}"""
)
@filter_options
@dry_run_option
@no_keep_option
@json_option
@queue_options(blobs=unless("dry_run"))
def delete(settings: QueueSettings, *, filters: Filters, dry_run: bool, no_keep: bool, as_json: bool) -> int:
    """Remove the mails that match, delayed ones too: none of them is delivered afterwards.

    One that a consumer has in hand at that moment may still be finished. The broker is not asked: what it still holds
    of them is dropped on delivery, and never becomes a dead letter.
    """
    refuse_everything(filters)
    return _remove(settings, filters, Wanted("delete", dry_run=dry_run, keep=not no_keep, as_json=as_json))


@click.command(
    epilog=f"""\b
Examples:
  mailmend queue purge --queue outgoing --dry-run
  mailmend queue purge --queue outgoing --yes

{_KEEPING}

{_EXIT_CODES}"""
)
@dry_run_option
@yes_option
@no_keep_option
@json_option
@queue_options(blobs=unless("dry_run"))
def purge(settings: QueueSettings, *, dry_run: bool, yes: bool, no_keep: bool, as_json: bool) -> int:
    """Remove every mail of a queue, delayed ones too; asks first."""
    if not dry_run:
        forgotten = ", without keeping them" if no_keep else ""
        ask(f"Remove every mail of {settings.name} in {settings.connection.keyspace}{forgotten}?", yes=yes)
    return _remove(settings, Filters(), Wanted("purge", dry_run=dry_run, keep=not no_keep, as_json=as_json))


@dataclass(frozen=True, slots=True)
class Wanted:
    """How the removal is wanted."""

    verb: str
    dry_run: bool
    keep: bool
    as_json: bool


def _remove(settings: QueueSettings, filters: Filters, wanted: Wanted) -> int:
    story = _looked if wanted.dry_run else _carried_out
    gone = on_sides(settings, lambda sides: story(sides, filters, wanted))
    code = ExitCode.PARTLY_FAILED if gone.removed.failed else ExitCode.FINE
    if wanted.as_json:
        answer_json(settings, _json(gone, wanted), code)
    else:
        _show(settings, gone, wanted)
    return int(code)


async def _looked(sides: Sides, filters: Filters, _: Wanted) -> Gone:
    """Who would go; nothing is written."""
    gone, count = Gone(), 0
    async for listed in sides.view.browse(sides.settings.name, filters.meant(sides.now)):
        count += 1
        if count <= NAMED_MAX:
            gone.named.append(mail_json(listed, sides.now))
            gone.rows.append(mail_cells(listed, sides.now))
    gone.removed = Removed(count)
    return gone


async def _carried_out(sides: Sides, filters: Filters, wanted: Wanted) -> Gone:
    gone = Gone()
    name = sides.settings.name
    keeper = KeptMails(kept_file(state_folders().kept_mails, name, sides.now, wanted.verb), name)
    with progress_on(stderr_console(), SystemClock()) as progress:
        progress.stage(f"{wanted.verb} {name}")

        async def told(listed: Listed) -> None:
            if wanted.keep:
                await _kept(sides, keeper, gone, listed)
            progress.advance(1)

        try:
            async with sides.queue() as queue:
                gone.removed = await queue.delete(filters.meant(sides.now), on_removed=told)
        finally:
            gone.kept = keeper.file if keeper.count else None
            if gone.kept:
                remark(f"Kept in {gone.kept}")
    return gone


async def _kept(sides: Sides, keeper: KeptMails, gone: Gone, listed: Listed) -> None:
    found = await content_found(sides, listed)
    gone.without_content += found.content is None
    await keeper.keep(listed, found.content)


def _json(gone: Gone, wanted: Wanted) -> dict[str, Any]:
    return {
        "dry_run": wanted.dry_run,
        "removed": 0 if wanted.dry_run else gone.removed.count,
        "would_remove": gone.removed.count if wanted.dry_run else None,
        "failed": [{"id": str(one.enqueue_id), "why": one.why} for one in gone.removed.failed],
        "kept": str(gone.kept) if gone.kept else None,
        "kept_without_content": gone.without_content,
        "mails": gone.named if wanted.dry_run else None,
    }


def _show(settings: QueueSettings, gone: Gone, wanted: Wanted) -> None:
    if wanted.dry_run:
        if gone.rows:
            show_mails(f"Would be removed from {settings.name}", gone.rows)
        say(f"Nothing was written. {gone.removed.count:,} would be removed from {settings.name}.")
        return
    for one in gone.removed.failed:
        remark(f"not removed: {one.enqueue_id}: {one.why}")
    say(f"Removed {gone.removed.count:,} mails from {settings.name}.")
    if gone.without_content:
        say(f"The bytes of {gone.without_content:,} of them were missing already; their envelopes are kept.")
    if gone.kept:
        say(f"To put them back: mailmend queue restore {gone.kept}")

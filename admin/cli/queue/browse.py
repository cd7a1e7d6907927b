"""`mailmend queue browse`: the mails of a queue, page by page; contents on request."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from datetime import datetime
from typing import Final

import click

from admin.cli.kinds import Named
from admin.cli.queue.filters import Filters, filter_options
from admin.cli.queue.shared import answer_json, json_option, remark, say
from admin.cli.queue_options import QueueSettings, queue_options, where
from admin.present.presenter import write_json
from admin.queue_output import Content, mail_cells, mail_json, printable, show_mails
from admin.wiring_queue import Sides, on_sides
from mailqueue.blobs.contents import content_of
from mailqueue.concurrency import in_batches, in_order
from mailqueue.rabbitmq.view.slices import Broken
from model.errors import BadPayload, BlobMissing, ExitCode
from model.ids import BlobId
from model.queue.blob_ids import is_blob_id
from model.queue.mails import Listed
from model.queue.positions import ListingPosition

LIMIT_DEFAULT: Final = 100
CONTENTS_AT_ONCE: Final = 16

Shown = tuple[Listed, Content | None]


@click.command(
    epilog="""\b
Examples:
  mailmend queue browse                                        the first 100 of spool
  mailmend queue browse --queue outgoing --sender '*@example.org' --older-than 1h
  mailmend queue browse --id ID --with-content                 one mail, its bytes too
  mailmend queue browse --lines | jq -r .id                    all of them, a line each

\b
Exit codes: 0 it was shown, 2 wrong use, 3 rows were found that cannot be read (each is named), 4 cannot reach."""
)
@filter_options
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    help=f"At most so many mails. [default: {LIMIT_DEFAULT}; all of them with --lines]",
)
@click.option(
    "--after",
    type=Named(
        "position", lambda value: value if isinstance(value, ListingPosition) else ListingPosition.parse(str(value))
    ),
    metavar="TOKEN",
    help="Go on behind the page before, whose end names this.",
)
@click.option("--with-content", is_flag=True, help="Read the bytes too; what is missing is named, and the rest shown.")
@click.option("--lines", is_flag=True, help="Each mail as a line of JSON on stdout, nothing else.")
@json_option
@queue_options(blobs=where("with_content"))
def browse(
    settings: QueueSettings,
    *,
    filters: Filters,
    limit: int | None,
    after: ListingPosition | None,
    with_content: bool,
    lines: bool,
    as_json: bool,
) -> int:
    """List the mails of a queue: those that wait, slice by slice, the oldest first; then those that are delayed.

    Only metadata is read, and no broker is asked. A mail that is in a consumer's hands is still listed: it leaves the
    queue when it is done with. Writes nothing.
    """
    broken: list[Broken] = []
    most = limit or (None if lines else LIMIT_DEFAULT)

    async def story(sides: Sides) -> tuple[list[Shown], bool, datetime]:
        found: list[Shown] = []
        listing = sides.view.browse(settings.name, filters.meant(sides.now), after, on_broken=broken.append)
        async with aclosing(_contents(sides, listing, wanted=with_content)) as mails:
            async for mail in mails:
                if most is not None and len(found) == most:
                    return found, True, sides.now
                if lines:
                    write_json(mail_json(mail[0], sides.now, mail[1]))
                else:
                    found.append(mail)
        return found, False, sides.now

    found, more, now = on_sides(settings, story)
    for row in broken:
        remark(f"not readable: {row.enqueue_id} in the slice of {row.slice_start:%Y-%m-%d %H:%M:%S}: {row.problem}")
    code = ExitCode.PARTLY_FAILED if broken else ExitCode.FINE
    token = ListingPosition.of(found[-1][0]).token if more else None
    if as_json:
        answer_json(settings, {"mails": [mail_json(*_with(now, one)) for one in found], "next": token}, code)
    elif not lines:
        _show(settings, found, token, now)
    return int(code)


async def _contents(sides: Sides, listing: AsyncIterator[Listed], *, wanted: bool) -> AsyncGenerator[Shown]:
    """Each mail, its bytes behind it where they are wanted; some are read ahead."""
    if not wanted:
        async for listed in listing:
            yield listed, None
        return
    async for page in in_batches(listing, CONTENTS_AT_ONCE):
        async with aclosing(in_order(page, lambda one: content_found(sides, one), CONTENTS_AT_ONCE)) as mails:
            async for mail in mails:
                yield mail


async def content_found(sides: Sides, listed: Listed) -> Content:
    """The bytes of a mail, or which of its blobs is missing; what is no id of a blob is the name of none."""
    blobs = listed.queued.blobs
    try:
        return Content(await content_of(sides.blobs, blobs))
    except BlobMissing as missing:
        return Content(None, BlobId(missing.blob_id))
    except BadPayload:
        return Content(None, blobs.body if is_blob_id(blobs.header) else blobs.header)


def _with(now: datetime, one: Shown) -> tuple[Listed, datetime, Content | None]:
    return one[0], now, one[1]


def _show(settings: QueueSettings, found: list[Shown], token: str | None, now: datetime) -> None:
    if not found:
        say(f"No mail of {settings.name} matches.")
        return
    show_mails(f"Mails of {settings.name}", [mail_cells(one, now) for one, _ in found])
    for listed, content in found:
        if content is not None:
            say(f"--- {listed.queued.enqueue_id}", _text(content))
    if token:
        say(f"There are more. Next: mailmend queue browse --queue {settings.name} --after {token}")


def _text(content: Content) -> str:
    if content.content is None:
        return f"(its content is missing: blob {content.missing})"
    return printable(content.content.decode("utf-8", "replace").replace("\r\n", "\n"), kept="\n\t")

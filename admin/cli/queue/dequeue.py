"""`mailmend queue dequeue`: mails out of a queue, into a folder, or each to a command that decides its fate."""

import asyncio
from collections import Counter
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from admin.awaiting import told_to_stop
from admin.cli.kinds import Duration
from admin.cli.queue.shared import answer_json, dry_run_option, json_option, remark, say
from admin.cli.queue_options import QueueSettings, queue_options, unless
from admin.mail_consumers import Consumer, Outcome, consumer_in_command, consumer_in_folder
from admin.queue_output import mail_cells, mail_json, show_mails
from admin.wiring_queue import Sides, on_sides
from mailqueue.rabbitmq.mail_queue import Dequeued
from model.errors import ExitCode, MailmendError, WrongUse
from model.ports import Clock
from model.queue.mails import Listed

PREFETCH_DEFAULT: Final = 5
WAIT_MAX: Final = timedelta(days=1)


@dataclass(slots=True)
class Taken:
    """What became of the mails, and which could not be settled."""

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    unsettled: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        """How many were taken."""
        return self.outcomes.total() + len(self.unsettled)


@click.command(
    epilog="""\b
Examples:
  mailmend queue dequeue --dry-run --limit 10                   who would be handed over first, as they are listed
  mailmend queue dequeue --to /var/tmp/mails --limit 10         ID.eml and ID.json for each, then acked
  mailmend queue dequeue --exec 'sendmail -i -t' --forever      a consumer; ends in good order on SIGTERM

\b
A command gets the message on its standard input; MAIL_ID, MAIL_NAME, MAIL_SENDER, MAIL_RECIPIENTS (with spaces),
MAIL_STATE, MAIL_ATTEMPTS and MAIL_QUEUE say the rest. It exits with 0: done with; 75 (EX_TEMPFAIL): tried again later;
anything else, or a signal: rejected, to the dead letter queue. No shell is between; secrets are not in its environment.

\b
Exit codes: 0 every mail that was taken was done with or will be tried again, 1 some were rejected, 2 wrong use,
3 some could not be settled (they will be delivered again), 4 cannot reach."""
)
@click.option(
    "--to", "folder", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Write them there."
)
@click.option("--exec", "command", metavar="COMMAND", help="Give each to this command.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Take at most so many.")
@click.option(
    "--wait", type=Duration(WAIT_MAX), default="5s", show_default=True, help="End when no mail came for so long."
)
@click.option("--forever", is_flag=True, help="Never end for want of mails.")
@click.option(
    "--prefetch",
    type=click.IntRange(1, 1000),
    default=PREFETCH_DEFAULT,
    show_default=True,
    help="How many mails of each level are in hand, and worked on at once.",
)
@dry_run_option
@json_option
@queue_options(broker=unless("dry_run"), blobs=unless("dry_run"))
def dequeue(
    settings: QueueSettings,
    *,
    folder: Path | None,
    command: str | None,
    limit: int | None,
    wait: timedelta,
    forever: bool,
    prefetch: int,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Take mails out of a queue: into a folder, or each to a command.

    A mail leaves the queue only when its files are on the disk, or its command has ended with 0. After Ctrl-C or
    SIGTERM what is in hand is finished; a second one gives it back to the broker.

    A dry run takes none: it lists the first that wait, --limit of them or as many as --prefetch. Where they go need not
    be said then; a command that is named must be there.
    """
    if dry_run:
        _refuse(settings, folder, command, forever=forever)
        looked = on_sides(settings, lambda sides: _looked(sides, limit or prefetch))
        return _show_look(settings, looked, as_json=as_json)
    consumer = _consumer(settings, folder, command)
    taken = Taken()

    async def story(sides: Sides) -> None:
        taking = Taking(consumer, sides.clock, taken, prefetch, limit, None if forever else wait)
        async with sides.queue() as queue:
            with told_to_stop() as stop:
                async with queue.dequeue(prefetch) as mails:
                    await taking.take(mails, stop)

    on_sides(settings, story)
    code = _code(taken)
    if as_json:
        answer_json(settings, {"dry_run": False, **_json(taken)}, code)
    else:
        say(_sentence(settings, taken))
    return int(code)


@dataclass(frozen=True, slots=True)
class Look:
    """The first mails that wait, in the order of the listing; and whether there are more."""

    mails: list[Listed]
    more: bool
    at: datetime


def _refuse(settings: QueueSettings, folder: Path | None, command: str | None, *, forever: bool) -> None:
    waits = click.get_current_context().get_parameter_source("wait") is ParameterSource.COMMANDLINE
    for name, said in (("--forever", forever), ("--wait", waits)):
        if said:
            raise WrongUse(f"{name} is for taking mails, and --dry-run takes none", mend="Leave one of them out.")
    if folder and command:
        _consumer(settings, folder, command)
    if command is not None:
        consumer_in_command(command, settings.name)


async def _looked(sides: Sides, most: int) -> Look:
    found = list[Listed]()
    async with aclosing(sides.view.browse(sides.settings.name, include_delayed=False)) as mails:
        async for listed in mails:
            if len(found) == most:
                return Look(found, more=True, at=sides.now)
            found.append(listed)
    return Look(found, more=False, at=sides.now)


def _show_look(settings: QueueSettings, look: Look, *, as_json: bool) -> int:
    if as_json:
        would = {"would_take": [mail_json(one, look.at) for one in look.mails], "more": look.more}
        answer_json(settings, {"dry_run": True, **_json(Taken()), **would})
    elif not look.mails:
        say(f"Nothing was taken. No mail waits in {settings.name}.")
    else:
        show_mails(f"First in {settings.name}, as listed", [mail_cells(one, look.at) for one in look.mails])
        say(
            f"Nothing was taken. {len(look.mails):,} mails would be handed over{', and there are more' * look.more}.",
            "This is the order of the listing; the broker's own may differ: urgent mails come more often, and what came"
            " back comes later. One that a consumer has in hand is listed too.",
        )
    return int(ExitCode.FINE)


@dataclass(slots=True)
class Taking:
    """Takes mails until told to stop, or there are enough, or none comes any more; several are worked on at once."""

    consumer: Consumer
    clock: Clock
    taken: Taken
    at_once: int
    limit: int | None
    wait: timedelta | None
    _begun: int = 0

    async def take(self, mails: Any, stop: asyncio.Event) -> None:
        """Take them; on return all that were begun are settled, or back with the broker."""
        room = asyncio.Semaphore(self.at_once)
        async with asyncio.TaskGroup() as working:
            while not stop.is_set() and (self.limit is None or self._begun < self.limit):
                await room.acquire()
                mail = await self._next(mails, stop)
                if mail is None:
                    return
                self._begun += 1
                working.create_task(self._work(mail)).add_done_callback(lambda _: room.release())

    async def _next(self, mails: Any, stop: asyncio.Event) -> Dequeued | None:
        """The next mail; None where somebody wants us to stop, or none came for too long.

        One that came with the wish to stop is left to the broker: it has it back when the stream is closed.
        """
        coming = asyncio.ensure_future(anext(mails))
        others: list[asyncio.Future[Any]] = [asyncio.ensure_future(stop.wait())]
        if self.wait is not None:
            others.append(asyncio.ensure_future(self.clock.pause(self.wait.total_seconds())))
        try:
            await asyncio.wait([coming, *others], return_when=asyncio.FIRST_COMPLETED)
            return coming.result() if coming.done() and not stop.is_set() else None
        except StopAsyncIteration:
            return None
        finally:
            for one in (coming, *others):
                one.cancel()
            await asyncio.gather(coming, *others, return_exceptions=True)

    async def _work(self, mail: Dequeued) -> None:
        try:
            outcome = await self.consumer(mail)
            await outcome.settle(mail)
        except MailmendError as error:
            self.taken.unsettled.append(str(mail.enqueue_id))
            remark(f"not settled: {mail.enqueue_id}: {error}")
        else:
            self.taken.outcomes[outcome] += 1


def _consumer(settings: QueueSettings, folder: Path | None, command: str | None) -> Consumer:
    if (folder is None) == (command is None):
        raise WrongUse(
            "it is not said what becomes of the mails",
            mend="Give --to DIR, or --exec COMMAND. To see them without taking them: mailmend queue browse",
        )
    return consumer_in_folder(folder) if folder else consumer_in_command(str(command), settings.name)


def _code(taken: Taken) -> ExitCode:
    if taken.unsettled:
        return ExitCode.PARTLY_FAILED
    return ExitCode.DRIFT if taken.outcomes[Outcome.REJECTED] else ExitCode.FINE


def _json(taken: Taken) -> dict[str, Any]:
    counts = {outcome.value: taken.outcomes[outcome] for outcome in Outcome}
    return {"taken": taken.total, **counts, "unsettled": taken.unsettled}


def _sentence(settings: QueueSettings, taken: Taken) -> str:
    counts = ", ".join(f"{taken.outcomes[one]:,} {one.value}" for one in Outcome if taken.outcomes[one])
    return f"Took {taken.total:,} mails from {settings.name}" + (f": {counts}." if counts else ".")

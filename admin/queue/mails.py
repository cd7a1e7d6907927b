"""Declarations of the queue's commands that put mails into it, take them out, and put them back."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from mailmend.admin.frame.command import Command
from mailmend.admin.frame.kinds import Duration, ParsedValue
from mailmend.admin.frame.options import FILE, flag, option
from mailmend.admin.queue.options import DRY_RUN, FILTERS, QUEUE_ARGUMENT, YES, queue_settings, unless
from mailmend.admin.queue.request import PREFETCH_DEFAULT
from mailmend.mailqueue.rules.mails import DELAY_MAX, PRIORITIES
from mailmend.model.errors import WrongUse

WAIT_MAX: Final = timedelta(days=1)


def _attribute(value: Any) -> tuple[str, str]:
    name, equals, text = str(value).partition("=")
    if not name or not equals:
        raise WrongUse(f"{value!r} is not NAME=VALUE", mend="Write it like --attribute source=import.")
    return name, text


def _instant(value: Any) -> datetime:
    try:
        at = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    except ValueError as error:
        raise WrongUse(f"{value!r} is not a time", mend="Write it like 2026-05-01T08:00:00Z.") from error
    return at if at.tzinfo else at.replace(tzinfo=UTC)


ENQUEUE: Final = Command(
    name="enqueue",
    summary="Put .eml files into a queue; now, or later.",
    about="""Each file (or standard input, as -) is one mail. When this ends with 0 each mail is stored by broker,
    tables and object store. A mail that is named as failed is not in the queue, unless its message says what is left of
    it. The beginnings of all files are read before the first is taken, then read one after the other. A dry run reads
    them all, and checks settings, envelope, delay and priority against the keyspace; it asks neither broker nor
    store.

    With --policies the queue is counted once, before the first mail is put; what others put there meanwhile is not
    seen. Quotas go by --attribute (tenantid, jobid, transportid, grouping) and the recipients' domains; the rules of
    `incoming` are for mails of clients.

    A mail with more than 5,000 recipients, or with recipients of more than 4 MiB, becomes several mails of the queue,
    each with some of them. They are put one after the other, so a kill or an error may leave some of them in the queue:
    with --idempotency-key the same command puts the others, and none twice. Where there is no key, the message of an
    error names one.

    What is empty, or white space alone, is no mail: a file that is named is refused before anything is put. Arguments
    are UTF-8; others are refused.""",
    service="mailmend.admin.queue.enqueue:enqueue",
    present="mailmend.admin.queue.mails_document:enqueue_document",
    options=(
        click.Argument(
            ["files"], nargs=-1, required=True, type=click.Path(path_type=Path, allow_dash=True), metavar="FILE..."
        ),
        option("--sender", "Sender of the mail: of its envelope. [default: the null sender]", metavar="ADDRESS"),
        option(
            "--recipient",
            "Recipient of the mail: of its envelope; may be given again.",
            "recipients",
            multiple=True,
            metavar="ADDRESS",
        ),
        option(
            "--recipients-file",
            "More recipients of the mail: a file with one address a line.",
            type=FILE,
            metavar="FILE",
        ),
        option("--name", "Name of the mail: as listings show it. [default: a name of its own]", metavar="NAME"),
        option("--state", "Processor that the mail waits for: it gets the mail.", default="root", metavar="STATE"),
        option(
            "--attribute",
            "An attribute of the mail: a text for James's mailets; may be given again.",
            "attributes",
            type=ParsedValue("attribute", _attribute),
            multiple=True,
            metavar="NAME=VALUE",
        ),
        option(
            "--priority",
            "Priority of the mail, from 0, the last, to 9, the first. [default: 5]",
            type=click.IntRange(PRIORITIES.start, PRIORITIES.stop - 1),
            metavar="N",
        ),
        option(
            "--due-in",
            "Deliver it no sooner than after this time.",
            before="--delay",
            type=Duration(DELAY_MAX, zero=False),
        ),
        option(
            "--at",
            "Deliver it no sooner than then, like 2026-05-01T08:00:00Z.",
            type=ParsedValue("time", _instant),
            metavar="TIME",
        ),
        option(
            "--policies",
            "Policies in YAML: mails that would exceed a quota of theirs are not put. [default: there are no quotas]",
            type=FILE,
            metavar="FILE",
        ),
        option(
            "--idempotency-key",
            "A text that no other command has: the ids of the mails follow from it and from their content. The same "
            "command with the same key, after an error or a kill, puts no mail twice. [default: the ids are random]",
            metavar="KEY",
        ),
        DRY_RUN,
    ),
    shared=(queue_settings(broker=unless(), blobs=unless()),),
    examples="""
        mailmend queue enqueue letter.eml --sender ann@example.org --recipient bob@example.org
        mailmend queue enqueue *.eml --recipient archive@example.org --due-in 2h --priority 1
        mailmend queue enqueue *.eml --recipient archive@example.org --due-in 2h --dry-run     whether all of them could
        mailmend queue enqueue *.eml --recipient bob@example.org --attribute tenantid=acme --policies policies.yaml
        mailmend queue enqueue letter.eml --recipients-file members.txt --idempotency-key letter-2026-05
        mail-source | mailmend queue enqueue - --recipient bob@example.org --at 2026-05-01T08:00:00Z""",
    exits="0 every mail is in the queue, confirmed by the broker; 2 wrong use; 3 some are not, or none as a quota is "
    "full (each is named); 4 none is: broker, tables or blobs cannot be reached.",
)


def _refuse_waiting(others: dict[str, Any], context: click.Context) -> None:
    waits = context.get_parameter_source("wait") is ParameterSource.COMMANDLINE
    for name, given in (("--forever", others["forever"]), ("--wait", waits)):
        if given and others["dry_run"]:
            raise WrongUse(f"{name} is for taking mails, and --dry-run takes none", mend="Leave one of them out.")


DEQUEUE: Final = Command(
    name="dequeue",
    summary="Take mails: into a folder, or to a command each.",
    about="""A mail leaves the queue only when its files are on the disk, or its command has ended with 0. After Ctrl-C
    or SIGTERM what is unacked is finished; a second one gives it back to the broker.

    A command gets the message on its standard input; MAIL_ID, MAIL_NAME, MAIL_SENDER, MAIL_RECIPIENTS (with spaces),
    MAIL_STATE, MAIL_ATTEMPTS and MAIL_QUEUE describe it. MAIL_RECIPIENTS_FILE names a file with one recipient a line;
    recipients of more than 64 KiB are in that file only. The command exits with 0: done with; 75 (EX_TEMPFAIL): tried
    again later; anything else, or a signal: rejected, to the dead letter queue. A command that cannot be started is
    tried again later. No shell is between; no variable of ours (MAILMEND_*) and none of AWS_* is in its environment.
    What it prints goes to stdout, or, with --json, to stderr.

    A dry run takes none: it lists the first that wait, --limit of them or as many as --prefetch. Where they go need not
    be said then; a command that is named must be there.""",
    service="mailmend.admin.queue.dequeue:dequeue",
    present="mailmend.admin.queue.mails_document:dequeue_document",
    options=(
        QUEUE_ARGUMENT,
        option(
            "--dir",
            "Folder for the files: ID.eml and ID.json of each mail.",
            "folder",
            before="--to",
            type=click.Path(path_type=Path, file_okay=False),
            metavar="DIR",
        ),
        option("--exec", "Give each mail to this command.", "command", metavar="COMMAND"),
        option("--limit", "At most so many mails.", type=click.IntRange(min=1), metavar="N"),
        option("--wait", "End when no mail came for so long.", type=Duration(WAIT_MAX), default="5s"),
        flag("--forever", "Do not end where no mail comes."),
        option(
            "--prefetch",
            "How many mails of each priority are taken, and worked on, at once.",
            type=click.IntRange(1, 1000),
            default=PREFETCH_DEFAULT,
        ),
        DRY_RUN,
    ),
    shared=(queue_settings(broker=unless("dry_run"), blobs=unless("dry_run"), check=_refuse_waiting),),
    examples="""
        mailmend queue dequeue --dry-run --limit 10                   who would be handed over first, as they are listed
        mailmend queue dequeue --dir /var/tmp/mails --limit 10        ID.eml and ID.json for each, then acked
        mailmend queue dequeue --exec 'sendmail -i -t' --forever      a consumer; ends in good order on SIGTERM""",
    exits="0 every mail that was taken was done with or will be tried again, 1 some were rejected, 2 wrong use, 3 some "
    "could not be settled (they will be delivered again), 4 cannot reach.",
)

_KEEPING: Final = """Each mail is kept first, envelope and bytes, in a file that only you may read, in
    ~/.local/share/mailmend/queue; the answer names it, and `mailmend queue restore FILE` puts its mails back. --no-keep
    forgets them for good."""

_REMOVE_EXITS: Final = (
    "0 done (or nothing matched), 2 wrong use, or nobody agreed; 3 some could not be removed (each is named), 4 cannot "
    "reach: what was removed stays removed, the same command goes on."
)
_NO_KEEP: Final = flag("--no-keep", "Do not keep the removed mails in a file: they are gone.")

DELETE: Final = Command(
    name="delete",
    summary="Remove the mails that match; keeps them in a file first.",
    about=f"""Delayed ones too: none of them is delivered any more. One that a consumer has at that moment may still
    be finished. The broker is not asked: what it still holds of them is dropped on delivery, and never becomes a dead
    letter. Over Pulsar they are acknowledged where they are; the answer comes half a second later, when every process
    knows. What a James has prefetched by then it may still deliver.

    {_KEEPING}""",
    service="mailmend.admin.queue.remove:delete",
    present="mailmend.admin.queue.mails_document:remove_document",
    options=(QUEUE_ARGUMENT, DRY_RUN, _NO_KEEP),
    shared=(FILTERS, queue_settings(blobs=unless("dry_run"))),
    examples="""
        mailmend queue delete --sender spammer@example.org --dry-run     who would go
        mailmend queue delete --sender spammer@example.org
        mailmend queue delete outgoing --older-than 5d --state error --no-keep""",
    exits=_REMOVE_EXITS,
)

PURGE: Final = Command(
    name="purge",
    summary="Remove every mail; asks, and keeps them in a file first.",
    about=f"""Delayed ones too. Dead letters stay; over Pulsar they go too, kept in the file like the others: only
    what no mail can be made of stays among them. Messages about deletions stay over Pulsar until they
    expire (`mailmend queue tend`): none of them is about a mail that comes later, James's neither.

    {_KEEPING}""",
    service="mailmend.admin.queue.remove:purge",
    present="mailmend.admin.queue.mails_document:remove_document",
    options=(QUEUE_ARGUMENT, DRY_RUN, YES, _NO_KEEP),
    shared=(queue_settings(blobs=unless("dry_run")),),
    examples="""
        mailmend queue purge outgoing --dry-run
        mailmend queue purge outgoing --yes""",
    exits=_REMOVE_EXITS,
)

RESTORE: Final = Command(
    name="restore",
    summary="Put back what a delete or purge removed.",
    about="""Each mail returns into the queue that it was in. Each is enqueued anew, under a new id that follows from
    its old one; one whose time is still to come is delayed again. What is back is written down beside the file, so a
    restore that was interrupted goes on where it stopped. One that is still listed under its old id, because its
    removal was interrupted, stays as it is. --id restores only the mails that it names, by the ids they had; one that
    the file does not hold is refused before anything is put back.""",
    service="mailmend.admin.queue.restore:restore",
    present="mailmend.admin.queue.mails_document:restore_document",
    options=(
        click.Argument(["file"], type=click.Path(path_type=Path)),
        option(
            "--id",
            "Only this mail: by the id it had; may be given again.",
            "ids",
            type=click.UUID,
            multiple=True,
            metavar="ID",
        ),
        flag("--again", "Once more what was done already: a second copy of each mail that is back."),
        DRY_RUN,
    ),
    shared=(queue_settings(broker=unless("dry_run"), blobs=unless("dry_run"), named=False),),
    examples="""
        mailmend queue restore ~/.local/share/mailmend/queue/spool-purge-20260501T120000.000000Z-77.jsonl.gz
        mailmend queue restore FILE --dry-run
        mailmend queue restore FILE --id 5f0c2d1e-0000-4000-8000-000000000001       this one alone""",
    exits="0 all of them are back, 2 wrong use (no such file or id; restored already), 3 some are not (each is named), "
    "4 cannot reach: the same command goes on from there. After a kill too: each mail is back once.",
)

"""A program of a user, with types: it imports public names alone, and `mypy --strict` has nothing to say of it."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from uuid import UUID

import mailmend
from mailmend import Finding, MailmendError, MessageStore, NewMail, Stored, Verdict

_LOG = logging.getLogger(__name__)


def archive(mail: mailmend.Mailmend, user: str, content: bytes) -> Stored:
    """Store a mail, seen, in the user's archive."""
    header, body = mailmend.split_mail(content)
    store: MessageStore = mail.messages
    mailbox: mailmend.MailboxId = mail.mailboxes.ensure(user, "Archive")
    stored = store.add(mailbox, NewMail(header, body, datetime.now(UTC)))
    place: mailmend.MessageKey = stored.place
    seen = mailmend.FlagsChange(mailmend.FlagsMode.ADD, mailmend.parse_flags([r"\Seen"]))
    store.set_flags(place, seen)
    return stored


def mended(mail: mailmend.Mailmend, users: list[str]) -> Mapping[Verdict, int]:
    """Repair what a check finds; the counts by verdict."""
    found: list[Finding] = []
    checked = mail.check("messages", engine="local", caller=mailmend.Caller(finding=found.append))
    keys = [finding.suspect.key for finding in found]
    if not keys or checked.summary.exit_code is mailmend.ExitCode.FINE:
        return Counter()
    repaired = mail.repair(engine="local", user=users, only=frozenset({Verdict.PROJECT}), margin=timedelta(minutes=5))
    run: UUID | None = repaired.summary.run
    if run is not None:
        mail.undo(run, dry_run=True)
    return repaired.summary.fixed


def left_behind(mail: mailmend.Mailmend) -> dict[UUID, list[str]]:
    """Mend the rows of mailboxes; the tables that have rows of mailboxes that are no more."""
    choices: mailmend.MailboxChoices = {"max_fixes": 100, "only": frozenset({Verdict.PROJECT})}
    repaired = mail.repair_mailboxes(**choices)
    gone: tuple[mailmend.GoneMailbox, ...] = repaired.gone_mailboxes or ()
    return {mailbox.mailbox: list(mailbox.tables) for mailbox in gone}


async def forwarded(mail: mailmend.AsyncMailmend) -> int:
    """Take one mail of a queue, and put it into another."""
    opened: AbstractAsyncContextManager[mailmend.MailQueue] = mail.queue("incoming")
    async with opened as incoming, mail.queue("outgoing") as outgoing, incoming.dequeue(prefetch=1) as mails:
        taken: AsyncIterator[mailmend.Dequeued] = mails
        async for dequeued in taken:
            id_: mailmend.EnqueueId = await outgoing.enqueue(dequeued.mail, dequeued.content, priority=9)
            _LOG.info("put as %s", id_)
            await dequeued.ack()
            break
        size: mailmend.Size = await outgoing.size()
        where = mailmend.MailFilter(whereabouts=mailmend.Whereabouts.DELAYED)
        delayed = [listed.queued.enqueue_id async for listed in outgoing.browse(where)]
        return size.mails + len(delayed)


def before(recipient: mailmend.HookedRecipient) -> mailmend.PreDecision | mailmend.HookResult[mailmend.PreDecision]:
    """A hook before each attempt."""
    if recipient.recipient.endswith("@closed.example.org"):
        domain = {mailmend.PickupField.RECIPIENT_DOMAIN: ("closed.example.org",)}
        order = mailmend.SuspendMails(domain, timedelta(hours=1), "closed")
        return mailmend.HookResult(mailmend.HoldRecipient("closed"), (order,))
    return mailmend.TryDelivery()


HOOK: mailmend.PreDelivery = before

NAMES = mailmend.Table(
    "names",
    (mailmend.Column("id", "uuid", mailmend.Kind.PARTITION), mailmend.Column("name", "text")),
)


async def main() -> None:
    """Run all of it."""
    try:
        with mailmend.open(host=["cassandra1", "cassandra2"], port=9042, keyspace="apache_james") as mail:
            archive(mail, "ann@example.org", b"Subject: hello\r\n\r\nGood day.\r\n")
            _LOG.info("mended: %s", mended(mail, ["ann@example.org"]))
            _LOG.info("rows are left of: %s", left_behind(mail))
        async with mailmend.open_async(broker="pulsar://pulsar1/public/default") as queues:
            _LOG.info("in the queue: %s", await forwarded(queues))
    except MailmendError as error:
        _LOG.error("%s. %s", error.what, error.mend)


if __name__ == "__main__":
    asyncio.run(main())

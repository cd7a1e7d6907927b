"""A small Flask application: it stores mails, and sends them through a queue."""

import asyncio
import atexit
from datetime import UTC, datetime
from typing import Any

import mailmend
from flask import Flask, request

MAIL = mailmend.open()
atexit.register(MAIL.close)

app = Flask(__name__)


@app.post("/mail/<user>")
def keep(user: str) -> dict[str, Any]:
    """Keep a mail in the user's mailbox of sent mails, and put it into the queue."""
    content = request.get_data()
    mailbox = MAIL.mailboxes.ensure(user, "Sent")
    header, body = mailmend.split_mail(content)
    stored = MAIL.messages.add(mailbox, mailmend.NewMail(header, body, datetime.now(UTC)))
    envelope = mailmend.Mail("sent", ("bob@example.org",), user)
    asyncio.run(_send(envelope, content))
    return {"uid": stored.uid}


@app.get("/next")
async def take() -> dict[str, Any]:
    """Take the next mail of the queue."""
    async with MAIL.queue("outgoing") as queue, queue.dequeue(prefetch=1) as mails:
        dequeued = await anext(mails)
        await dequeued.ack()
        return {"sender": dequeued.mail.sender, "bytes": len(dequeued.content)}


@app.get("/drift")
def drift() -> dict[str, Any]:
    """What a check of the keyspace finds."""
    found = MAIL.check("messages", engine="local")
    return {"findings": found.summary.findings}


async def _send(envelope: mailmend.Mail, content: bytes) -> None:
    async with MAIL.queue("outgoing") as queue:
        await queue.enqueue(envelope, content)

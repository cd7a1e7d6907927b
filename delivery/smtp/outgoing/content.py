"""The content of a mail on its way, and the replies to its end: one for SMTP, one for each recipient for LMTP.

Once the last line is on its way, a server that goes without a reply may have taken the mail: that is uncertain, and
said so. Before, it has not.
"""

import asyncio
import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from mailmend.delivery.mail.attempts import SmtpReply, StageTimeouts
from mailmend.delivery.mail.mail_lines import transparent_blocks

_REPLY_BYTES_MAX: Final = 32_768
_LINE: Final = re.compile(rb"([2-5][0-9]{2})(?:([ -])(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ContentEnd:
    """A reply to the end of the content, or what stands for it; `uncertain` as in a recipient's result."""

    reply: SmtpReply
    uncertain: bool = False


class ReplyParser:
    """Replies out of bytes as they come; what is no reply of RFC 5321 counts as one of ours.

    Attributes:
        replies: those that are whole.
    """

    def __init__(self) -> None:
        self.replies: deque[SmtpReply] = deque()
        self._buffer = bytearray()
        self._lines: list[bytes] = []
        self._code = b""
        self._bytes = 0

    def feed(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\n")) >= 0:
            line = bytes(self._buffer[: end + 1])
            del self._buffer[: end + 1]
            self._bytes += len(line)
            self._take(line.rstrip(b"\r\n"))
        if self._bytes + len(self._buffer) > _REPLY_BYTES_MAX:
            self._buffer.clear()
            self._refuse("too long")

    def _take(self, line: bytes) -> None:
        found = _LINE.fullmatch(line)
        if not found or (self._code and found[1] != self._code):
            self._refuse(line.decode("utf-8", "replace"))
            return
        self._code = found[1]
        self._lines.append(found[3] or b"")
        if found[2] != b"-":
            text = b"\n".join(self._lines).decode("utf-8", "replace")
            self._whole(SmtpReply.parsed(int(self._code), text))

    def _refuse(self, text: str) -> None:
        self._whole(SmtpReply(451, "4.5.0", f"the server answered what is no reply: {text}", ours=True))

    def _whole(self, reply: SmtpReply) -> None:
        self.replies.append(reply)
        self._lines = []
        self._code = b""
        self._bytes = 0


def refusing(reply: SmtpReply) -> SmtpReply:
    """The reply, where it takes nothing; one that does, and was not asked for, counts as a refusal for now."""
    if not reply.positive:
        return reply
    return SmtpReply(451, "4.5.0", f"the server answered what was not asked: {reply}", ours=True)


class ContentSender(asyncio.Protocol):
    """Sends a content over a connection, and reads the replies.

    It takes the place of the connection's protocol for that time.

    Attributes:
        intact: whether the connection can be used further.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._parser = ReplyParser()
        self._lost = transport.is_closing()
        self._lost_by: Exception | None = None
        self._paused = False
        self._changed = asyncio.Event()
        self.intact = True

    async def send(self, lines: bytes, replies: int, timeouts: StageTimeouts) -> Sequence[ContentEnd]:
        """Send the lines, and the one of one dot; that many ends follow.

        Args:
            lines: as the mail has them: dots are added while they are sent.
            replies: how many the server owes.
            timeouts: `data` for each piece, `end` for each reply.
        """
        refusal = await self._sent(lines, timeouts.data)
        if refusal:
            return [ContentEnd(refusal)] * replies
        ends = [await self._end(timeouts.end) for _ in range(replies)]
        self.intact &= not self._parser.replies
        return ends

    async def _sent(self, lines: bytes, limit: timedelta) -> SmtpReply | None:
        """Send; None once all of it is on its way, else what became of it instead: then its end was not sent."""
        for block in transparent_blocks(lines):
            await self._changes(lambda: not self._paused or self._stopped, limit)
            reply = self._next()
            if reply or self._lost or self._paused:
                return self._gives_up(refusing(reply) if reply else self._silence("before the end of the mail"))
            self._transport.write(block)
        return None

    async def _end(self, limit: timedelta) -> ContentEnd:
        await self._changes(lambda: self._stopped, limit)
        reply = self._next()
        if reply is None:
            text = "after the end of the mail: the server may have taken it"
            return ContentEnd(self._gives_up(self._silence(text)), uncertain=True)
        self.intact &= not reply.closes and not reply.ours
        return ContentEnd(reply, uncertain=reply.ours)

    def _gives_up(self, reply: SmtpReply) -> SmtpReply:
        self.intact = False
        return reply

    def _silence(self, when: str) -> SmtpReply:
        what = "the connection was lost" if self._lost else "the server took too long"
        why = f" ({self._lost_by})" if self._lost_by else ""
        return SmtpReply(451, "4.4.2", f"{what} {when}{why}", ours=True)

    @property
    def _stopped(self) -> bool:
        return self._lost or bool(self._parser.replies)

    def _next(self) -> SmtpReply | None:
        return self._parser.replies.popleft() if self._parser.replies else None

    async def _changes(self, condition: Callable[[], bool], limit: timedelta) -> None:
        """Wait until it holds, or for that long."""
        try:
            async with asyncio.timeout(limit.total_seconds()):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pass

    def data_received(self, data: bytes) -> None:
        self._parser.feed(data)
        self._changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._lost_by = exc
        self.intact = False
        self._changed.set()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._changed.set()

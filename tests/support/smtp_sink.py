"""A server of mail that does what a test says: refuse, stall or drop at any stage, by SMTP or LMTP, on loopback."""

import asyncio
import ssl
from base64 import b64decode
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum

from mailmend.delivery.mail.attempts import NextHop

HOST = "127.0.0.1"
_LEAVING_SECONDS_MAX = 5.0
EXTENSIONS = ("8BITMIME", "SMTPUTF8", "DSN", "SIZE 100000", "ENHANCEDSTATUSCODES")


class AfterAnswer(Enum):
    """What follows an answer."""

    GO_ON = 1
    DROP = 2
    STALL = 3  # it reads on, and says nothing
    DEAF = 4  # it reads no more


@dataclass(frozen=True, slots=True)
class Answer:
    """What is said at a stage."""

    text: bytes = b""
    then: AfterAnswer = AfterAnswer.GO_ON


DROP = Answer(then=AfterAnswer.DROP)
STALL = Answer(then=AfterAnswer.STALL)
DEAF = Answer(then=AfterAnswer.DEAF)


def say(text: str, then: AfterAnswer = AfterAnswer.GO_ON) -> Answer:
    return Answer(text.encode() + b"\r\n", then)


@dataclass(frozen=True, slots=True)
class TakenMail:
    """What the sink said 250 to."""

    sender: str
    recipients: Sequence[str]
    content: bytes
    secured: bool
    peer: str
    user: str = ""


@dataclass
class SmtpSink:
    """The server; `script` says by the word of a command what is answered the first time, the second, ...

    The words besides commands: GREETING; CONTENT for the first line of the content, which nothing is said to otherwise;
    END for its end (of LMTP, for each recipient). What the script does not say is answered well. `ends` is what was
    answered to each end. `passwords` are of users that may log in (AUTH).
    """

    script: Mapping[str, Sequence[Answer]] = field(default_factory=dict)
    extensions: Sequence[str] = EXTENSIONS
    tls: ssl.SSLContext | None = None
    host: str = HOST
    port: int = 0
    lmtp: bool = False
    passwords: Mapping[str, str] = field(default_factory=dict)
    mails: list[TakenMail] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    connections: int = 0

    def __post_init__(self) -> None:
        self._asked: defaultdict[str, int] = defaultdict(int)
        self._running: set[asyncio.Task[None]] = set()
        self.ends: list[bytes] = []
        self.leaving = asyncio.Event()
        self.ended = asyncio.Event()

    def hop(self, host: str = "localhost") -> NextHop:
        return NextHop(host, self.host, self.port)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["SmtpSink"]:
        server = await asyncio.start_server(self._connected, self.host, self.port)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.leaving.set()
            if self._running:  # until the clients have gone, which were to close
                await asyncio.wait(self._running, timeout=_LEAVING_SECONDS_MAX)
            for task in self._running:
                task.cancel()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task
        self._running.add(task)
        try:
            await _Session(self, reader, writer).carry_out()
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass
        finally:
            self.ended.set()
            self._running.discard(task)
            writer.close()

    def answer(self, word: str, otherwise: str) -> Answer:
        said = self.script.get(word, ())
        place = self._asked[word]
        self._asked[word] += 1
        return said[place] if place < len(said) else say(otherwise)


class Ended(ConnectionError):
    """The script ends the connection."""


@dataclass
class _Session:
    sink: SmtpSink
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    secured: bool = False
    user: str = ""
    sender: str = ""
    recipients: list[str] = field(default_factory=list)

    async def carry_out(self) -> None:
        await self._say("GREETING", "220 sink")
        while line := (await self.reader.readline()).decode().rstrip("\r\n"):
            self.sink.lines.append(line)
            if not await self._take(line):
                return

    async def _take(self, line: str) -> bool:
        word = line.split(" ", 1)[0].upper()
        match word:
            case "EHLO" | "LHLO":
                await self._say(word, self._introduction())
            case "STARTTLS":
                await self._secure()
            case "AUTH":
                await self._log_in(line.split(" ")[1:])
            case "MAIL":
                self.sender, self.recipients = line, []
                await self._say(word, "250 2.1.0 fine")
            case "RCPT":
                if await self._say(word, "250 2.1.5 fine"):
                    self.recipients.append(line)
            case "DATA":
                if await self._say(word, "354 go on"):
                    await self._content()
            case "QUIT":
                await self._say(word, "221 bye")
                return False
            case _:
                await self._say(word, "250 fine")
        return True

    async def _secure(self) -> None:
        if await self._say("STARTTLS", "220 go on"):
            await self.writer.start_tls(self.sink.tls)  # type: ignore[arg-type]
            self.secured = True

    async def _log_in(self, words: Sequence[str]) -> None:
        if words[0] == "PLAIN":
            _, user, password = b64decode(words[1]).decode().split("\0")
        else:
            await self._say("USER", "334 VXNlcm5hbWU6")
            user = b64decode(await self.reader.readline()).decode()
            await self._say("PASSWORD", "334 UGFzc3dvcmQ6")
            password = b64decode(await self.reader.readline()).decode()
        is_right = self.sink.passwords.get(user) == password
        if await self._say("AUTH", "235 2.7.0 welcome" if is_right else "535 5.7.8 who are you"):
            self.user = user

    async def _content(self) -> None:
        lines = []
        if "CONTENT" in self.sink.script:
            lines.append(await self.reader.readline())
            await self._say("CONTENT", "")
        while (line := await self.reader.readuntil(b"\r\n")) != b".\r\n":
            lines.append(line.removeprefix(b"."))
        self.sink.ends.append(b"")
        if self.sink.lmtp:
            taken = [one for one in self.recipients if await self._say("END", "250 2.0.0 taken")]
        else:
            taken = self.recipients if await self._say("END", "250 2.0.0 taken") else []
        if taken:
            peer = self.writer.get_extra_info("peername")[0]
            self.sink.mails.append(TakenMail(self.sender, taken, b"".join(lines), self.secured, peer, self.user))

    def _introduction(self) -> str:
        offered = [*self.sink.extensions, *(["STARTTLS"] if self.sink.tls and not self.secured else [])]
        lines = ["sink", *offered]
        return "\r\n".join(f"250{' ' if line is lines[-1] else '-'}{line}" for line in lines)

    async def _say(self, word: str, otherwise: str) -> bool:
        """Whether it was answered well."""
        answer = self.sink.answer(word, otherwise)
        if word == "END":
            self.sink.ends[-1] += answer.text
        self.writer.write(answer.text)
        await self.writer.drain()
        if answer.then is AfterAnswer.STALL:
            await self.reader.read()
        if answer.then is AfterAnswer.DEAF:
            await self.sink.leaving.wait()
        if answer.then is not AfterAnswer.GO_ON:
            raise Ended
        return answer.text[:1] in {b"2", b"3"}

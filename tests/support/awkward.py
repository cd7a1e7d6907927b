"""Mail as the world sends it: well-formed, odd, and plainly broken. Made here, so that nobody's mail is copied."""

from collections.abc import Mapping
from email.message import EmailMessage
from email.policy import SMTP


def _multipart() -> bytes:
    message = EmailMessage(policy=SMTP)
    message["Subject"] = "Grüße aus Köln"
    message["From"] = "Ærø <aeroe@peer.example>"
    message["Date"] = "Fri, 06 Mar 2026 10:11:12 +0100"
    message.set_content("Hallo\n\nFrom here on it goes up.\n")
    message.add_attachment(bytes(range(256)), maintype="application", subtype="octet-stream", filename="é.bin")
    return message.as_bytes()


AWKWARD: Mapping[str, bytes] = {
    "plain": b"Subject: hi\nDate: Fri, 6 Mar 2026 10:11:12 +0100\n\nbody\n",
    "multipart": _multipart(),
    "no body": b"Subject: alone\r\n",
    "no header": b"\njust a body\n",
    "no empty line": b"Subject: x\nthis is no header line\nnor this\n",
    "empty": b"",
    "only newlines": b"\n\n\n\n",
    "bare carriage returns": b"Subject: x\rFrom: y\r\rbody\r",
    "nul bytes": b"Subject: a\x00b\n\nbody\x00\x00\n",
    "raw 8 bit header": b"Subject: Gr\xfc\xdfe\nX-Keywords: caf\xe9 ok\n\nbody \xff\xfe\n",
    "broken encoded word": b"Subject: =?utf-8?B?%%%?=\nDate: =?x-unknown?Q?never?=\n\nb\n",
    "absurd date": b"Date: Mon, 99 Foo 0000 99:99:99 +9999\n\nb\n",
    "date long ago": b"Date: Tue, 1 Jan 1901 00:00:00 +2359\n\nb\n",
    "date far ahead": b"Date: Mon, 1 Jan 2199 00:00:00 +0000\n\nb\n",
    "huge header": b"X-Long: " + b"x" * 300_000 + b"\nSubject: x\n\nb\n",
    "many headers": b"".join(b"X-%d: y\n" % number for number in range(5_000)) + b"\nb\n",
    "folded oddly": b"Subject: a\n b\n\tc\n  \nReceived: from x\n by y;\n Fri, 6 Mar 2026 10:11:12 +0100\n\nb\n",
    "boundary never closed": b'Content-Type: multipart/mixed; boundary="b"\n\n--b\n\npart\n--b\nContent-Type: te',
    "boundary missing": b"Content-Type: multipart/mixed\n\n--b\n",
    "from lines in the body": b"Subject: x\n\n>From me\nFrom time to time\n\nFrom the start it was so.\n",
    "no newline at the end": b"Subject: x\n\nno newline",
    "long line": b"Subject: x\n\n" + b"y" * 2_500_000 + b"\n",
    "status fields": b"Status: RO\nX-Status: AF\nX-Keywords: work,  later\nSubject: x\n\nb\n",
}
"""By what is odd about it."""

NO_MAIL = frozenset({"empty", "only newlines", "no header"})
"""Without any header field, and so refused by name."""


def mbox_of(mails: Mapping[str, bytes]) -> bytes:
    """The mails as an mbox: a dated `From ` line above each, an empty line below, `From ` in bodies quoted."""
    return b"".join(
        b"From sender@peer.example Fri Mar  6 10:11:12 2026\n" + quoted(content) + b"\n" for content in mails.values()
    )


def quoted(content: bytes) -> bytes:
    """What an mbox makes of a mail: whole lines, those that begin with `From ` behind a `>`."""
    lines = [b">" + line if line.startswith(b"From ") else line for line in content.splitlines(keepends=True)]
    whole = b"".join(lines)
    return whole if whole.endswith(b"\n") or not whole else whole + b"\n"

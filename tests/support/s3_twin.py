"""A small server that speaks as much of S3 as blobs need, and keeps every key as it is.

The real one of these tests lays objects out as files, where `a//b` is `a/b`; S3 itself does not. This one also answers
what a test wants it to answer, and remembers what it was asked. It checks no signatures: the real one does.
"""

import re
import ssl
import threading
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

from mailmend.mailqueue.blobs.s3 import S3Settings
from tests.support.certificates import Signed

WHEN = "2026-11-20T17:40:18.000Z"
HANG_UP, STALL = 0, -1
_SECONDS_MAX = 30
_RANGE = re.compile("bytes=([0-9]+)-([0-9]+)")
_KEYS = re.compile("<Key>(.*?)</Key>")
SECRET = "wJalr-a-secret-of-tests"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that came in: what for, and with which headers, their names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]


@dataclass(slots=True)
class S3Twin:
    """The server's side of the tests.

    Attributes:
        objects: what is kept, by key.
        ordered: its keys in order, where they stay as they are: a page then costs what it holds; None: sorted for each.
        headers: what is sent with an object, by key.
        refusals: status and code of the next answers, before it serves again; `HANG_UP` and `STALL` are no answers.
        has_bulk: whether it deletes many objects in one request, as not every store does.
        kept_from_us: keys that are not deleted with many others.
        pages_until_cut_off: after so many pages of a listing one does not say how to go on; None: all do.
        denies_more: such a page says that it is the last one.
        go_on: what stalled requests wait for.
    """

    endpoint: str = ""
    bucket: str = "twin"
    buckets: set[str] = field(default_factory=lambda: {"twin"})
    objects: dict[str, bytes] = field(default_factory=dict)
    ordered: list[str] | None = None
    headers: dict[str, dict[str, str]] = field(default_factory=dict)
    refusals: list[tuple[int, str]] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    has_bulk: bool = True
    kept_from_us: set[str] = field(default_factory=set)
    pages_until_cut_off: int | None = None
    denies_more: bool = False
    go_on: threading.Event = field(default_factory=threading.Event)
    stalled: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def settings(self, **changed: Any) -> S3Settings:
        given = {"bucket": self.bucket, "access_key": "AKIATEST", "secret_key": SECRET, "allow_http": True, **changed}
        return S3Settings(self.endpoint, **given)

    def wait_stalled(self, requests: int) -> None:
        for _ in range(requests):
            assert self.stalled.acquire(timeout=_SECONDS_MAX)

    def listing(self, after: str, most: int) -> bytes:
        ordered = sorted(self.objects) if self.ordered is None else self.ordered
        first = bisect_right(ordered, after)
        keys = ordered[first : first + most + 1]
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>{WHEN}</LastModified>"
            f"<Size>{len(self.objects[key])}</Size></Contents>"
            for key in keys[:most]
        )
        more = len(keys) > most
        token = f"<NextContinuationToken>{escape(keys[most - 1])}</NextContinuationToken>" if more else ""
        if more and self.pages_until_cut_off is not None:
            token = token if self.pages_until_cut_off else ""
            more = bool(token) or not self.denies_more
            self.pages_until_cut_off -= 1
        cut = f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}"
        return f"<ListBucketResult>{cut}{rows}</ListBucketResult>".encode()


@contextmanager
def s3_twin(tls: Signed | None = None) -> Iterator[S3Twin]:
    """The server, as long as the block lasts; with a certificate it speaks TLS only."""
    twin = S3Twin()

    class Answering(_Answering):
        of = twin

    server = _Server(("127.0.0.1", 0), Answering)
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls.certificate, tls.key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    twin.endpoint = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield twin
    finally:
        twin.go_on.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # with fewer, a client that is not let in at once tries again a second later


class _Answering(BaseHTTPRequestHandler):
    of: S3Twin
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # headers and body in one packet

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.of.asked.append(
            Asked(self.command, self.path, {name.lower(): value for name, value in self.headers.items()})
        )
        if self.of.refusals:
            self._refuse(*self.of.refusals.pop(0))
            return
        url = urlsplit(self.path)
        bucket, _, key = unquote(url.path).removeprefix("/").partition("/")
        if bucket not in self.of.buckets and not (self.command == "PUT" and not key):
            self._refuse(404, "NoSuchBucket")
        elif key:
            self._object(key, body)
        else:
            self._bucket(bucket, parse_qs(url.query, keep_blank_values=True), body)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _answer  # noqa: N815 - the base class looks for these names

    def _object(self, key: str, body: bytes) -> None:
        match self.command:
            case "PUT":
                self.of.objects[key] = body
                self._send(200, b"", {"ETag": '"e"'})
            case "DELETE":
                self.of.objects.pop(key, None)
                self._send(204, b"", {})
            case _ if key in self.of.objects:
                beside = {
                    "ETag": '"e"',
                    "Last-Modified": "Fri, 20 Nov 2026 17:40:18 GMT",
                    **self.of.headers.get(key, {}),
                }
                self._send_object(self.of.objects[key], beside)
            case _:
                self._refuse(404, "NoSuchKey")

    def _send_object(self, content: bytes, beside: Mapping[str, str]) -> None:
        asked = _RANGE.fullmatch(self.headers.get("Range") or "")
        if asked is None:
            self._send(200, content, beside)
        elif int(asked[1]) >= len(content):
            self._refuse(416, "InvalidRange")
        else:
            part = content[int(asked[1]) : int(asked[2]) + 1]
            place = f"bytes {asked[1]}-{int(asked[1]) + len(part) - 1}/{len(content)}"
            self._send(206, part, {**beside, "Content-Range": place})

    def _bucket(self, bucket: str, query: dict[str, list[str]], body: bytes) -> None:
        if self.command == "POST":
            self._delete_all(body)
        elif self.command == "PUT":
            if bucket in self.of.buckets:
                self._refuse(409, "BucketAlreadyOwnedByYou")
                return
            self.of.buckets.add(bucket)
            self._send(200, b"", {})
        else:
            after = query.get("continuation-token", query.get("start-after", [""]))[0]
            most = int(query.get("max-keys", ["1000"])[0])
            self._send(200, self.of.listing(after, most), {"Content-Type": "application/xml"})

    def _delete_all(self, body: bytes) -> None:
        if not self.of.has_bulk:
            self._refuse(501, "NotImplemented")
            return
        result = "".join(self._deleted(unescape(key)) for key in _KEYS.findall(body.decode()))
        self._send(200, f"<DeleteResult>{result}</DeleteResult>".encode(), {"Content-Type": "application/xml"})

    def _deleted(self, key: str) -> str:
        if key in self.of.kept_from_us:
            return f"<Error><Key>{escape(key)}</Key><Code>AccessDenied</Code><Message>{SECRET}</Message></Error>"
        self.of.objects.pop(key, None)
        return f"<Deleted><Key>{escape(key)}</Key></Deleted>"

    def _refuse(self, status: int, code: str) -> None:
        if status <= HANG_UP:
            self._stall(wait=status == STALL)
            return
        self._send(status, f"<Error><Code>{code}</Code><StringToSign>{SECRET}</StringToSign></Error>".encode(), {})

    def _stall(self, *, wait: bool) -> None:
        self.close_connection = True
        if wait:
            self.of.stalled.release()
            self.of.go_on.wait()

    def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def handle_expect_100(self) -> bool:
        goes_on = super().handle_expect_100()
        self.wfile.flush()
        return goes_on

    def handle_one_request(self) -> None:
        """A client that goes away, or refuses the certificate, is no error of the server's."""
        try:
            super().handle_one_request()
        except OSError:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Say nothing."""

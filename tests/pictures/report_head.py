"""The head of a report as Chromium shows it, in a PNG that carries a digest of the text that was shown.

So `make verify` notices, without a browser, that today's report says something else.
"""

import hashlib
import os
import re
import shutil
import struct
import zlib
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from playwright.sync_api import sync_playwright

WIDTH: Final = 1180
HEIGHT: Final = 2000
BELOW: Final = 24
"""Pixels below the first table of the report, which is the last thing in the picture."""

SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
KEY: Final = b"Source-Digest"
BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")
WRITTEN: Final = re.compile("^written .* by mailmend .*$", re.MULTILINE)
"""The line that differs from one report to the next."""


class Texts(HTMLParser):
    """The text of a page up to the end of its first table, without styles."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._in_style = False
        self._is_over = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002 - as the parser calls it
        self._in_style = tag == "style"

    def handle_endtag(self, tag: str) -> None:
        self._in_style = False
        self._is_over = self._is_over or tag == "table"

    def handle_data(self, data: str) -> None:
        words = " ".join(data.split())
        if words and not self._in_style and not self._is_over:
            self.texts.append(words)


def digest_of(report: str) -> str:
    """A digest of the text of the head of a report; when it was written, and by which version, does not count."""
    texts = Texts()
    texts.feed(report)
    head = WRITTEN.sub("", "\n".join(texts.texts))
    return hashlib.sha256(head.encode()).hexdigest()


def digest_in(picture: bytes) -> str:
    """The digest that a picture carries; empty without one."""
    found = re.search(re.escape(KEY) + rb"\x00([0-9a-f]{64})", picture)
    if found is None:
        return ""
    return found[1].decode()


def with_digest(picture: bytes, digest: str) -> bytes:
    """A PNG with a text chunk after its first chunk, as the format allows."""
    assert picture.startswith(SIGNATURE)
    (length,) = struct.unpack(">I", picture[8:12])
    end = len(SIGNATURE) + 12 + length
    body = b"tEXt" + KEY + b"\x00" + digest.encode()
    chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    return picture[:end] + chunk + picture[end:]


def browser() -> str | None:
    """The Chromium of this machine; MAILMEND_TEST_CHROMIUM names another one."""
    named = os.environ.get("MAILMEND_TEST_CHROMIUM")
    return named or next(filter(None, map(shutil.which, BROWSERS)), None)


def drawn(report: str, chromium: str) -> bytes:
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder, "report.html")
        file.write_text(report, encoding="utf-8")
        started = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = started.new_page(color_scheme="light", viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(file.as_uri(), timeout=0)
        table = page.locator("table").first.bounding_box()
        assert table is not None
        height = table["y"] + table["height"] + BELOW
        picture = page.screenshot(timeout=0, clip={"x": 0, "y": 0, "width": WIDTH, "height": height})
        started.close()
    return with_digest(picture, digest_of(report))

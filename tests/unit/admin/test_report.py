"""The HTML report: one file, offline, escaped, written whole or not at all."""

import errno
import io
import os
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from stat import S_IMODE
from typing import IO, Any

import pytest

from mailmend.admin.frame.document import Document
from mailmend.admin.frame.examples import Examples
from mailmend.admin.frame.presenter import html_of
from mailmend.admin.frame.presenter import write_report as write_document
from mailmend.admin.frame.whole_files import refuse_unwritable, whole_file, write_text
from mailmend.admin.messages.mending import CommandResult
from mailmend.admin.messages.shared_document import document_of
from mailmend.model.errors import ResultUnwritten, WrongUse
from mailmend.model.projections.verdicts import Verdict
from mailmend.repair.mending.engine import RepairResult
from tests.unit.admin.outcomes import MAILBOX, RUN, check_summary, outcome, repair_summary


class _Page(HTMLParser):
    """Collects what a browser would fetch or run, and whether every element is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.fetched += [value or "" for name, value in attrs if name in {"src", "href"}]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def _parsed(html: str) -> _Page:
    page = _Page()
    page.feed(html)
    page.close()
    return page


def _examples() -> Examples:
    examples = Examples()
    examples.add(outcome())
    return examples


def render_report(summary: RepairResult, examples: Examples, now_micros: int) -> str:
    return html_of(document_of(CommandResult(summary, examples.sorted())), now_micros)


def write_report(file: Path, text: str) -> None:
    write_document(file, Document(body=(text,)), 0)


def text_in(file: Path) -> str:
    found = re.search('<p class="line">(.*)</p>', file.read_text())
    return found[1] if found else ""


def test_a_report_is_whole_and_fetches_nothing() -> None:
    page = _parsed(render_report(repair_summary(), _examples(), 1_790_000_000_000_000))

    assert page.open == []
    assert all(link.startswith("#") for link in page.fetched)
    assert not page.tags.keys() & {"script", "link", "img", "iframe"}


def test_a_report_shows_counts_examples_and_the_run() -> None:
    html = render_report(repair_summary(), _examples(), 1_790_000_000_000_000)

    for text in ("PROJECT", "messageIdTable", f"{MAILBOX} 7", str(RUN), "apache_james", "2026-09-21", "1,500", "drift"):
        assert text in html, text


def test_a_check_without_findings_says_so() -> None:
    summary = check_summary(0)
    summary.findings.clear()

    html = render_report(summary, Examples(), 0)

    assert "No drift." in html
    assert "a check writes nothing" in html


def test_whatever_stands_in_the_keyspace_is_escaped() -> None:
    examples = Examples()
    examples.add(outcome(Verdict.PROJECT, error="<script>alert(1)</script>"))
    summary = check_summary()
    summary.findings["<img src=x>"] = Counter({Verdict.AMEND: 1})

    page = _parsed(render_report(summary, examples, 0))

    assert not page.tags.keys() & {"script", "img"}


def test_a_report_replaces_the_one_before(tmp_path: Path) -> None:
    file = tmp_path / "report.html"

    write_report(file, "one")
    write_report(file, "two")

    assert text_in(file) == "two"
    assert list(tmp_path.iterdir()) == [file]


def test_a_full_disk_leaves_the_old_report_whole(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    write_report(file, "old")

    with pytest.raises(ResultUnwritten, match="No space left on device"), whole_file(file, _full) as stream:
        stream.write("new")

    assert text_in(file) == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_stop_half_way_leaves_nothing(tmp_path: Path) -> None:
    def interrupted() -> None:
        with whole_file(tmp_path / "report.html") as stream:
            stream.write("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_a_new_report_is_its_owners_alone_and_an_old_one_keeps_its_permissions(tmp_path: Path) -> None:
    shown = tmp_path / "shown.html"
    shown.touch()
    shown.chmod(0o664)

    for file, mode in ((tmp_path / "report.html", 0o600), (shown, 0o664)):
        write_report(file, "x")
        assert S_IMODE(file.stat().st_mode) == mode


def test_other_files_have_the_permissions_of_any_file(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()

    write_text(tmp_path / "metrics.prom", "x")

    assert (tmp_path / "metrics.prom").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_device_or_a_pipe_is_written_to_and_never_replaced(tmp_path: Path) -> None:
    """`--report /dev/stdout` and `--findings >(jq .)` are no files to be moved into place."""
    device, pipe = Path("/dev/full"), tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    write_report(pipe, "through the pipe")
    with pytest.raises(ResultUnwritten, match="No space left on device"):
        write_report(device, "x")

    assert b"through the pipe" in os.read(reader, 10_000)
    assert pipe.is_fifo()
    assert device.is_char_device()


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link.html").symlink_to(tmp_path / "real.html")

    write_report(tmp_path / "link.html", "x")

    assert (tmp_path / "link.html").is_symlink()
    assert text_in(tmp_path / "real.html") == "x"


def test_an_impossible_place_is_refused_before_the_work(tmp_path: Path) -> None:
    refuse_unwritable(tmp_path / "report.html")
    with pytest.raises(WrongUse, match="is a folder"):
        refuse_unwritable(tmp_path)
    with pytest.raises(WrongUse, match="no folder"):
        refuse_unwritable(tmp_path / "no" / "report.html")
    with pytest.raises(WrongUse, match="cannot be written"):
        write_report(tmp_path / "no" / "report.html", "x")


class _FullDisk(io.StringIO):
    """A file on a disk that fills up while it is written."""

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _full(handle: int, *_: Any, **__: Any) -> IO[str]:
    os.close(handle)
    return _FullDisk()

"""The report as a real Chromium shows it: by day, at night, on a telephone and on paper; nothing is asked of a network.

The browser is the one of the machine: MAILMEND_TEST_CHROMIUM names it, else it is looked for by its usual names.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from mailmend.model.catalog.mail import FIRST_UNSEEN, IMAP_UID, MESSAGE_ID
from mailmend.model.operations import Change, Put
from tests.support.cluster_twin import cluster_in_memory
from tests.support.commands import QUICK, command_line
from tests.support.mail_states import QUIET, MailKeyspace, register
from tests.support.repairing import DAY_SECONDS, message, mirror_row, truth_row
from tests.support.servers import unavailable

pytestmark = pytest.mark.thorough

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")
_LONG: Final = "a-folder-with-a-name-that-does-not-end-" * 4 + "<b>&\N{RIGHT-TO-LEFT OVERRIDE}"

_CONTRASTS: Final = """
() => {
  const light = ([r, g, b]) => [r, g, b].map(c => (c /= 255) <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
    .reduce((sum, c, at) => sum + c * [.2126, .7152, .0722][at], 0);
  const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
  const behind = element => {
    for (; element; element = element.parentElement) {
      const colour = numbers(getComputedStyle(element).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.getClientRects().length || element.closest("svg")) continue;
    const [one, other] = [light(numbers(getComputedStyle(element).color)), light(behind(element))];
    const contrast = (Math.max(one, other) + .05) / (Math.min(one, other) + .05);
    found.push([contrast, walker.currentNode.data.trim().slice(0, 40)]);
  }
  return found;
}
"""
"""WCAG's contrast of every piece of text against what is behind it."""

_OUTSIDE: Final = """
() => [...document.querySelectorAll("body *")]
  .filter(one => getComputedStyle(one).position !== "absolute" && !one.closest("thead"))
  .map(one => [one, one.getBoundingClientRect()])
  .filter(([, at]) => at.width && (at.right > innerWidth + 1 || at.left < -1))
  .map(([one]) => one.outerHTML.slice(0, 120))
"""

_MARKED: Final = """
() => [...document.querySelectorAll("mark")].map(one => [
  one.innerText, getComputedStyle(one).backgroundColor, getComputedStyle(document.body).backgroundColor])
"""

_BARS: Final = """
() => [...document.querySelectorAll("svg:not(.key) rect")].map(one => {
  const [bar, all] = [one.getBoundingClientRect(), one.ownerSVGElement.getBoundingClientRect()];
  return bar.width > 0 && bar.height > 0 && bar.top >= all.top - 1 && bar.bottom <= all.bottom + 1
    && bar.left >= all.left - 1 && bar.right <= all.right + 1;
})
"""


@pytest.fixture(scope="module")
def browser(report: Path) -> Iterator[Browser]:
    """Started after the report was made: beside it no other event loop runs."""
    found = os.environ.get("MAILMEND_TEST_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        unavailable("there is no Chromium: apt-get install chromium, or name one in MAILMEND_TEST_CHROMIUM")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of a check that finds every kind of row, in mailboxes of short and of long and hostile names, after a repair."""
    home = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        cluster = cluster_in_memory(patch)
        mail = MailKeyspace("mail", cluster.keyspace("mail"))  # type: ignore[arg-type] # the twin of a real one
        mailmend = command_line(home, None, MAILMEND_HOST="127.0.0.1", MAILMEND_KEYSPACE="mail", **QUIET)
        mail.refill(8)
        register(mail, 1, "INBOX", row_says="INBOX", mailbox=mail.mailbox)
        register(mail, 2, _LONG, row_says=_LONG)
        mail.lose_projection(mail.truths[4])
        cluster.clock.advance(DAY_SECONDS)
        mailmend("repair", "messages", *QUICK)
        mail.lose_projection(mail.truths[0])
        mail.lose_flag_update(mail.truths[1])
        mail.lose_content(mail.truths[2])
        mail.lose_truth(mail.truths[3])
        mail.tables.write(Put(FIRST_UNSEEN, {"mailboxid": mail.mailbox, "uid": 2}))
        mail.tables.write(Put(IMAP_UID, truth_row(9, uid=6)))
        cluster.clock.advance(DAY_SECONDS / 2)
        key = IMAP_UID.key_of(mail.truths[6])
        mail.tables.write(Change(IMAP_UID, key, assign={"headercontent": "<script>x()</script>" + "h" * 200}))
        elsewhere = truth_row(10, mailboxid=message(2))
        mail.tables.write(Put(MESSAGE_ID, mirror_row(elsewhere)))
        cluster.clock.advance(1)
        ended = mailmend("check", *QUICK, "--report", str(home / "report.html"))
        assert ended.code == 1, ended.err
        yield home / "report.html"


@dataclass(frozen=True, slots=True)
class Opened:
    """The report in a browser, and what it asked for."""

    page: Page
    asked: list[str]


@pytest.fixture
def opened(browser: Browser, report: Path) -> Iterator[Callable[..., Opened]]:
    pages = []

    def open_(**settings: Any) -> Opened:
        page = browser.new_page(**settings)
        pages.append(page)
        asked = list[str]()
        page.on("request", lambda request: asked.append(request.url))
        page.goto(report.as_uri())
        return Opened(page, asked)

    yield open_
    for page in pages:
        page.close()


VIEWS: Final = {
    "light": {"color_scheme": "light", "viewport": {"width": 1200, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1200, "height": 900}},
    "narrow": {"color_scheme": "light", "viewport": {"width": 360, "height": 740}},
    "narrow at night": {"color_scheme": "dark", "viewport": {"width": 320, "height": 740}},
    "paper": {"color_scheme": "dark", "viewport": {"width": 718, "height": 1000}},  # A4 without its margins
}


@pytest.mark.parametrize("view", VIEWS)
def test_it_can_be_read(opened: Callable[..., Opened], report: Path, view: str) -> None:
    """Nothing leaves the page, every text stands out from what is behind it, and so do differences and bars."""
    shown = opened(**VIEWS[view])
    page = shown.page
    if view == "paper":
        page.emulate_media(media="print")

    assert page.evaluate(_OUTSIDE) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    contrasts = page.evaluate(_CONTRASTS)
    assert len(contrasts) > 200
    assert [one for one in contrasts if one[0] < 4.5] == []
    marked = page.evaluate(_MARKED)
    assert any(text.startswith("≠ flagFlagged") for text, *_ in marked)
    assert all(behind != body for _, behind, body in marked)
    bars = page.evaluate(_BARS)
    assert len(bars) > 5
    assert all(bars)
    assert shown.asked == [report.as_uri()]


def test_what_rows_hold_is_text_and_links_lead_into_the_file(opened: Callable[..., Opened], report: Path) -> None:
    shown = opened(viewport={"width": 1200, "height": 900})
    page = shown.page

    assert page.evaluate("document.scripts.length + document.querySelectorAll('b, img, iframe, link').length") == 0
    assert page.get_by_text("<script>x()</script>").count() >= 1
    link = page.get_by_role("link", name="content-is-lost").first
    link.click()
    assert page.evaluate("document.querySelector(':target').getBoundingClientRect().top < innerHeight")
    assert shown.asked == [report.as_uri()]


def test_it_is_printed(opened: Callable[..., Opened]) -> None:
    paper = opened(color_scheme="dark").page.pdf(format="A4")

    assert paper.startswith(b"%PDF")
    assert paper.count(b"/Type /Page\n") + paper.count(b"/Type /Page ") != 0

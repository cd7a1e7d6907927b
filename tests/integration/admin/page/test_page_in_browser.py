"""The page as a real Chromium shows it, without scripts: wide and narrow, by day and at night, by keyboard alone."""

import asyncio
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from mailmend.admin.frame.http.access import Access, Listening
from mailmend.admin.frame.http.server import listen
from mailmend.admin.jobs.declaration import job_of
from mailmend.admin.local.processes import free_port
from mailmend.admin.page.pages import PAGES
from mailmend.admin.page.table import SettingShown
from mailmend.admin.routes import SERVED
from mailmend.model.catalog.mail import IMAP_UID
from mailmend.model.operations import Change
from tests.support.cluster_twin import ClusterTwin, cluster_in_memory
from tests.support.commands import QUICK, command_line
from tests.support.mail_states import QUIET, MailKeyspace, register
from tests.support.page_desk import OPERATE, TOKENS, PageWorld
from tests.support.servers import unavailable

pytestmark = pytest.mark.thorough

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")
_LONG: Final = "a-folder-with-a-name-that-does-not-end-" * 4 + "<b>&"
_NIGHTLY: Final = job_of("nightly", {"command": "repair messages", "schedule": "30 1 * * *"})

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
    if (!walker.currentNode.data.trim() || !element.getClientRects().length || element.closest("svg, option")) continue;
    const [one, other] = [light(numbers(getComputedStyle(element).color)), light(behind(element))];
    const contrast = (Math.max(one, other) + .05) / (Math.min(one, other) + .05);
    if (contrast < 4.5) found.push([contrast, walker.currentNode.data.trim().slice(0, 40)]);
  }
  return found;
}
"""
"""WCAG's contrast of every piece of text against what is behind it, where it is too low."""

_WITHOUT_LABEL: Final = """
() => [...document.querySelectorAll("input:not([type=hidden]), select")]
  .filter(field => !field.labels.length).map(field => field.outerHTML)
"""


@contextmanager
def served(world: PageWorld) -> Iterator[str]:
    """The address of a server in a thread of its own."""
    port = free_port(["127.0.0.1"])
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    listening = Listening("127.0.0.1", port, world.access)
    thread = threading.Thread(target=lambda: loop.run_until_complete(listen(SERVED, listening, world.desk, stop)))
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PageWorld:
    """With drift that a repair left, in a mailbox of a long and hostile name."""
    cluster: ClusterTwin = cluster_in_memory(monkeypatch)
    mail = MailKeyspace("mail", cluster.keyspace("mail"))  # type: ignore[arg-type] # the twin of a real one
    mailmend = command_line(tmp_path, None, MAILMEND_HOST="127.0.0.1", MAILMEND_KEYSPACE="mail", **QUIET)
    mail.refill(8)
    register(mail, 1, _LONG, row_says=_LONG, mailbox=mail.mailbox)
    mail.lose_projection(mail.truths[0])
    mail.lose_content(mail.truths[2])
    key = IMAP_UID.key_of(mail.truths[4])
    mail.tables.write(Change(IMAP_UID, key, assign={"headercontent": "<script>x()</script>" + "h" * 200}))
    cluster.clock.advance(1)
    mailmend("repair", "messages", *QUICK)
    shown = [SettingShown("host", "a-host-with-a-long-name." * 8, "command line")]
    return PageWorld(cluster, Access(TOKENS), jobs=[_NIGHTLY], shown=shown)


@pytest.fixture
def browser() -> Iterator[Browser]:
    found = os.environ.get("MAILMEND_TEST_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        unavailable("there is no Chromium: apt-get install chromium, or name one in MAILMEND_TEST_CHROMIUM")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield started
        started.close()


def watched(page: Page) -> tuple[list[str], list[str]]:
    """The addresses that the page asks, and what its browser says; both are filled as they come."""
    asked = list[str]()
    said = list[str]()
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    return asked, said


def signed_in(page: Page, address: str) -> None:
    """By the keyboard alone: the field for the token has the focus."""
    page.goto(f"{address}/")
    page.keyboard.type(OPERATE)
    page.keyboard.press("Enter")
    page.wait_for_url(f"{address}/")


VIEWS: Final[dict[str, dict[str, Any]]] = {
    "wide": {"color_scheme": "light", "viewport": {"width": 1600, "height": 900}},
    "wide at night": {"color_scheme": "dark", "viewport": {"width": 1600, "height": 900}},
    "narrow": {"color_scheme": "light", "viewport": {"width": 380, "height": 740}},
    "narrow at night": {"color_scheme": "dark", "viewport": {"width": 380, "height": 740}},
}


def test_every_page_can_be_read_without_scripts_and_nothing_is_asked_of_elsewhere(
    world: PageWorld, browser: Browser
) -> None:
    """In each view: no text beyond the window, no contrast below 4.5, a label for each field, one main heading."""
    ledger = world.desk.page.data.opened.existing_ledger()
    assert ledger is not None
    (run,) = ledger.runs()
    paths = [page.path for page in PAGES if page.menu]
    paths += [f"/runs/{run.id}", "/jobs/nightly", "/runbooks/content-is-lost", "/nowhere"]
    with served(world) as address:
        for view, settings in VIEWS.items():
            scripted = browser.new_context(**settings)
            page = scripted.new_page()
            asked, refused = watched(page)
            signed_in(page, address)
            for path in paths:
                page.goto(address + path)
                assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (view, path)
                assert page.evaluate(_CONTRASTS) == [], (view, path)
                assert page.evaluate(_WITHOUT_LABEL) == [], (view, path)
                assert page.evaluate("document.querySelectorAll('h1').length") == 1, (view, path)
                assert page.evaluate("document.scripts.length") == 0, (view, path)
            assert [url for url in asked if not url.startswith(address)] == []
            assert [text for text in refused if "Content Security Policy" in text] == []
            scripted.close()


def test_a_job_is_paused_by_keyboard_alone_without_scripts(world: PageWorld, browser: Browser) -> None:
    with served(world) as address:
        page = browser.new_context(java_script_enabled=False).new_page()
        signed_in(page, address)
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        assert page.url.endswith("#main")
        page.goto(f"{address}/jobs/nightly")
        page.get_by_label("Reason").focus()
        page.keyboard.type("nodes are replaced")
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Let it run again").wait_for()

        assert page.get_by_text("PAUSED").first.is_visible()
    pause = world.desk.page.data.opened.job_runs().pause_of("nightly")
    assert pause is not None
    assert pause.reason == "nodes are replaced"

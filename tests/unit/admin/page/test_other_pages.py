"""The pages of jobs, runbooks, settings, doctor and schema."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from mailmend.admin.frame.runbooks import pages
from mailmend.admin.jobs.declaration import job_of
from mailmend.admin.local.processes import free_port
from mailmend.admin.page.pages import CHANGES, PAGES
from mailmend.admin.page.runbooks import filled, html_of
from mailmend.admin.page.settings_in_force import HIDDEN, value_shown
from mailmend.admin.page.table import SettingShown
from tests.support.cluster_twin import ClusterTwin
from tests.support.commands import CommandLine
from tests.support.mail_states import MailKeyspace
from tests.support.page_desk import OPERATE, READ, PageWorld, text_of
from tests.support.real_queue import until

NIGHTLY = job_of("nightly", {"command": "repair messages", "schedule": "30 1 * * *"})
WHY = "nodes are <b>replaced</b>"


@pytest.fixture
def world(cluster: ClusterTwin, mail: MailKeyspace) -> PageWorld:
    return PageWorld(cluster, jobs=[NIGHTLY], shown=[SettingShown("host", "<i>", "command line")])


async def test_every_page_of_the_menu_is_shown_to_a_viewer_without_buttons(world: PageWorld) -> None:
    async with await world.browser().signed_in(READ) as browser:
        for page in PAGES:
            if page.menu:
                shown = await browser.get(page.path)
                assert (page.path, shown.status_code) == (page.path, 200)
                assert f'<a href="{page.path}" aria-current="page">' in shown.text
                assert set(await browser.forms(page.path)) <= {"/sign-out", "/runs", "/runbooks"}
        assert set(await browser.forms("/jobs/nightly")) == {"/sign-out"}


async def test_a_job_is_paused_and_resumed_with_a_reason_and_with_the_name_of_the_token(world: PageWorld) -> None:
    async with await world.browser().signed_in(OPERATE) as browser:
        path = "/jobs/nightly/pause"
        fields = (await browser.forms("/jobs/nightly"))[path]
        without = await browser.send(path, {**fields, "why": " "})
        paused = await browser.send(path, {**fields, "why": WHY})
        page = await browser.get("/jobs/nightly")
        pause = world.desk.page.data.opened.job_runs().pause_of("nightly")
        path = "/jobs/nightly/resume"
        await browser.send(path, {**(await browser.forms("/jobs/nightly"))[path], "why": "done"})

    assert without.status_code == 400
    assert (paused.status_code, paused.headers["location"]) == (303, "/jobs/nightly")
    assert "<b>" not in page.text
    assert "nodes are &lt;b&gt;replaced" in page.text
    assert pause is not None
    assert pause.owner.startswith("alice by the page")
    assert pause.reason == WHY
    assert world.desk.page.data.opened.job_runs().pause_of("nightly") is None


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.path)
async def test_a_viewer_changes_nothing(world: PageWorld, change: object) -> None:
    async with await world.browser().signed_in(READ) as browser:
        form = (await browser.forms("/"))["/sign-out"]
        path = change.path.format(name="nightly")  # type: ignore[attr-defined] # a PageChange
        refused = await browser.send(path, {**form, "why": "x"})
        foreign = await browser.send(path, {**form, "why": "x"}, {"Origin": "https://elsewhere.example"})

    assert (refused.status_code, foreign.status_code) == (403, 403)
    assert world.desk.page.data.opened.job_runs().pause_of("nightly") is None


async def test_a_runbook_is_filled_with_what_is_known_and_leads_to_others(world: PageWorld) -> None:
    async with await world.browser().signed_in(READ) as browser:
        page = await browser.get("/runbooks/repair-was-interrupted", Accept="text/html")
        given = await browser.get("/runbooks/repair-was-interrupted?RUN=1'; rm -rf /")

    assert "mailmend runs list --keyspace mail" in text_of(page)
    assert "mailmend runs show $RUN" in text_of(page)
    assert "$KEYSPACE<" not in page.text.partition("<article")[2].partition("<pre>")[2]
    assert "runs show &#39;1&#39;&quot;" in given.text or "show '1'" in given.text


def test_every_runbook_is_rendered_and_its_links_lead_to_pages() -> None:
    names = {page.name for page in pages()}

    for page in pages():
        html = html_of(page.text)
        assert "<h2>When</h2>" in html
        for part in html.split('href="/runbooks/')[1:]:
            assert part.split('"')[0].partition("#")[0] in names


def test_html_of_a_runbook_is_text_and_a_value_is_one_word_of_a_shell() -> None:
    text = filled("# T\n$RUN\n\n```console\n$ x $RUN\n```\n<script>x</script>", {"RUN": "a; b"})

    assert "$ x 'a; b'" in text
    assert "<script" not in html_of(text)


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("password_command", "pass show x", HIDDEN),
        ("tell_webhook", "https://hooks.example/T0/B0", HIDDEN),
        ("s3_secret_key", "abc", HIDDEN),
        ("password_file", "/etc/pw", "/etc/pw"),
        ("tls_key", "/etc/key.pem", "/etc/key.pem"),
        ("broker", "amqp://user:pw@rabbit/", "amqp://...@rabbit/"),
        ("host", ("a", "b"), "a, b"),
        ("tls", True, "yes"),
    ],
)
def test_no_setting_shows_a_secret(name: str, value: object, shown: str) -> None:
    assert value_shown(name, value) == shown


def test_the_server_answers_until_it_is_stopped(mailmend: CommandLine) -> None:
    port = free_port(["127.0.0.1"])
    before = signal.getsignal(signal.SIGTERM)

    def asked() -> tuple[int, str]:
        until(lambda: signal.getsignal(signal.SIGTERM) != before)
        try:
            with httpx2.Client(transport=httpx2.HTTPTransport(retries=8), timeout=60) as client:
                page = client.get(f"http://127.0.0.1:{port}/", headers={"Accept": "text/html"})
            return page.status_code, page.text
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(asked)
        ended = mailmend("serve", "--listen", f"127.0.0.1:{port}")

    assert (ended.code, answer.result()[0]) == (0, 200), ended.err
    assert "What is wrong now" in answer.result()[1]
    assert "Stopped on request; what ran has ended." in ended.err

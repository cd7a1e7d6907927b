"""The first page and the pages of runs, over a ledger that commands have filled."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

import pytest

from mailmend.admin.page.overview import drift_by_day
from mailmend.admin.page.problems import Problem, Urgency, of_lags, of_runs, worst_first
from mailmend.admin.page.runs import FINDINGS_SHOWN, RUNS_SHOWN
from mailmend.model.catalog.mail import IMAP_UID
from mailmend.model.operations import Change
from mailmend.repair.ledger.runs import Run, RunState
from tests.support.cluster_twin import ClusterTwin
from tests.support.commands import QUICK, CommandLine
from tests.support.mail_states import MailKeyspace, register
from tests.support.page_desk import OPERATE, READ, PageWorld, text_of

NOW = datetime(2026, 9, 2, 12, tzinfo=UTC)
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=x>"


@pytest.fixture
def world(cluster: ClusterTwin) -> PageWorld:
    return PageWorld(cluster)


async def test_where_nothing_is_wrong_the_first_page_says_so(world: PageWorld) -> None:
    async with await world.browser().signed_in(READ) as browser:
        page = await browser.get("/")

    assert page.status_code == 200
    assert "Nothing that the ledger knows of." in text_of(page)


async def test_what_a_run_left_is_on_the_first_page_with_its_runbook_and_the_next_command(
    world: PageWorld, mail: MailKeyspace, mailmend: CommandLine
) -> None:
    mail.lose_projection(mail.truths[0])
    mail.lose_content(mail.truths[2])
    world.cluster.clock.advance(1)
    mailmend("repair", "messages", *QUICK)

    async with await world.browser().signed_in(OPERATE) as browser:
        page = await browser.get("/")
        text = text_of(page)
        assert "left 1 LOST_CONTENT" in text
        assert '<a href="/runbooks/content-is-lost?RUN=' in page.text
        assert "--only LOST_CONTENT --orphans quarantine --dry-run" in text
        assert "<svg" in page.text
        assert "DONE" in text_of(await browser.get("/runs"))


async def test_runs_come_page_by_page_each_once_and_the_newest_first(
    world: PageWorld, mail: MailKeyspace, mailmend: CommandLine
) -> None:
    ledger_filled(world, mailmend, RUNS_SHOWN + 3)
    seen = list[str]()

    async with await world.browser().signed_in(READ) as browser:
        path = "/runs"
        while path:
            page = (await browser.get(path)).text
            seen += links_to_runs(page)
            path = next_of(page)

    assert len(seen) == len(set(seen)) == RUNS_SHOWN + 3
    assert seen == sorted(seen, key=lambda run: UUID(run).time, reverse=True)


async def test_findings_come_page_by_page_and_a_filter_takes_some_of_them(
    world: PageWorld, mail: MailKeyspace, mailmend: CommandLine
) -> None:
    number = 2 * FINDINGS_SHOWN + 5
    mail.refill(number)
    for truth in mail.truths[:-1]:
        mail.lose_projection(truth)
    mail.lose_flag_update(mail.truths[-1])
    world.cluster.clock.advance(1)
    run = mailmend("repair", "messages", *QUICK, "--json").json["run"]
    counts = list[int]()

    async with await world.browser().signed_in(OPERATE) as browser:
        path = f"/runs/{run}?projection=messageIdTable"
        while path:
            page = (await browser.get(path)).text
            counts.append(page.count("in messageIdTable:"))
            path = next_of(page)
        amended = await browser.get(f"/runs/{run}?verdict=AMEND&projection=messageIdTable")
        of_mailbox = await browser.get(f"/runs/{run}?mailbox={UUID(int=1)}")

    assert (sum(counts), max(counts)) == (number, FINDINGS_SHOWN)
    assert amended.text.count("in messageIdTable:") == 1
    assert "≠" in text_of(amended) or "<mark>" in amended.text
    assert "No finding fits" in text_of(of_mailbox)


async def test_only_the_role_operate_sees_rows_and_names_and_every_text_is_escaped(
    world: PageWorld, mail: MailKeyspace, mailmend: CommandLine
) -> None:
    register(mail, 1, HOSTILE, row_says=HOSTILE, mailbox=mail.mailbox)
    change = {"headercontent": HOSTILE}
    mail.tables.write(Change(IMAP_UID, IMAP_UID.key_of(mail.truths[0]), assign=change))
    world.cluster.clock.advance(1)
    run = mailmend("repair", "messages", *QUICK, "--json").json["run"]

    async with await world.browser().signed_in(READ) as viewer, await world.browser().signed_in(OPERATE) as operator:
        seen = await viewer.get(f"/runs/{run}")
        shown = await operator.get(f"/runs/{run}")
        refused = await viewer.get(f"/runs/{run}?user=x")

    assert "alert(1)" not in seen.text
    assert "AMEND" in text_of(seen)
    assert shown.text.count("&lt;script&gt;alert(1)") >= 2
    for page in (seen, shown):
        assert "<script" not in page.text
        assert "<img" not in page.text
        assert "style=" not in page.text
    assert refused.status_code == 400


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/runs/zzz", 400),
        (f"/runs/{UUID(int=0)}", 400),
        ("/runs?state=<script>", 400),
        ("/runbooks/nope", 404),
        ("/jobs/nope", 404),
        ("/nowhere<script>", 404),
    ],
)
async def test_a_wrong_address_gets_a_page_that_says_what_is_wrong(world: PageWorld, path: str, status: int) -> None:
    async with await world.browser().signed_in(OPERATE) as browser:
        page = await browser.get(path)

    assert (page.status_code, page.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert "<script" not in page.text


def test_problems_come_worst_first_and_the_oldest_of_each_urgency_first() -> None:
    note = Problem(Urgency.NOTE, "a", NOW - timedelta(days=9))
    unknown = Problem(Urgency.NOW, "b")
    old = Problem(Urgency.NOW, "c", NOW - timedelta(days=2))
    new = Problem(Urgency.NOW, "d", NOW)

    assert worst_first([note, unknown, new, old]) == [old, new, unknown, note]


@pytest.mark.parametrize(("minutes", "urgency"), [(60, Urgency.NOTE), (61, Urgency.SOON)])
def test_a_lag_that_waits_for_more_than_an_hour_is_a_problem(minutes: int, urgency: Urgency) -> None:
    (problem,) = of_lags(3, NOW - timedelta(minutes=minutes), NOW, "mail")

    assert (problem.urgency, problem.runbook) == (urgency, "projection-lags")


async def test_a_node_that_is_down_comes_first(world: PageWorld) -> None:
    world.cluster.hosts_down = ["10.0.0.7"]

    async with await world.browser().signed_in(READ) as browser:
        text = text_of(await browser.get("/"))

    assert "now Nodes are down: 10.0.0.7." in text


def test_a_run_of_one_mailbox_hides_nothing_that_the_whole_run_before_it_left() -> None:
    whole = run_on(NOW - timedelta(hours=1), 4)
    of_one_mailbox = run_on(NOW, 0, mailbox="x")
    killed = replace(whole, state=RunState.RUNNING)

    (left,) = of_runs([of_one_mailbox, whole, run_on(NOW - timedelta(days=1), 9)], ())
    (unended,) = of_runs([killed], ())

    assert "left 4 PROJECT" in left.what
    assert (unended.runbook, list(of_runs([killed], ["repair"]))) == ("repair-was-interrupted", [])


def test_a_day_of_the_chart_has_what_its_last_whole_run_found() -> None:
    early = run_on(NOW - timedelta(hours=2), 9)
    late = run_on(NOW - timedelta(hours=1), 4)
    of_one_mailbox = run_on(NOW, 7, mailbox="x")

    chart = drift_by_day([of_one_mailbox, late, early], date(2026, 9, 2))

    assert [bar.total for bar in chart.bars] == [0] * 29 + [4]


def run_on(at: datetime, found: int, **options: str) -> Run:
    counts = {"messageIdTable": {"PROJECT": found}}
    summary = {"findings": counts, "left": counts}
    return Run(UUID(int=0), "mail", "repair", RunState.DONE, 0, at, at, "", options, summary)  # type: ignore[arg-type]


def ledger_filled(world: PageWorld, mailmend: CommandLine, number: int) -> None:
    """As many runs as that."""
    mailmend("repair", "messages", *QUICK)
    ledger = world.desk.page.data.opened.ledger()
    for _ in range(number - 1):
        world.cluster.clock.advance(1)
        run = ledger.start("mail", "repair", 0, {})
        ledger.finish(run, {})


def links_to_runs(page: str) -> list[str]:
    return [part.split('"')[0] for part in page.split('href="/runs/')[1:]]


def next_of(page: str) -> str:
    """Where the link to the next page leads; "" on the last one."""
    _, _, rest = page.partition('rel="next" href="')
    return rest.split('"')[0].replace("&amp;", "&")

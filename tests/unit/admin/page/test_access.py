"""Who may look at the page, and what a form needs: by tokens, sessions, origins and hidden tokens."""

from dataclasses import replace

import pytest

from mailmend.admin.frame.document import Document
from mailmend.admin.frame.http.access import Access
from mailmend.admin.page.sessions import IDLE_SECONDS, LIFE_SECONDS
from tests.support.cluster_twin import ClusterTwin
from tests.support.page_desk import OPERATE, READ, PageWorld, text_of

ELSEWHERE = "https://elsewhere.example"


@pytest.fixture
def world(cluster: ClusterTwin) -> PageWorld:
    return PageWorld(cluster)


async def test_a_visitor_who_has_not_signed_in_is_led_to_the_sign_in_and_from_there_on(world: PageWorld) -> None:
    async with world.browser() as browser:
        asked = await browser.get("/runs")
        assert (asked.status_code, asked.headers["location"]) == (303, "/sign-in?to=%2Fruns")

        fields = (await browser.forms(asked.headers["location"]))["/sign-in"]
        signed_in = await browser.send("/sign-in", {**fields, "token": READ})

        assert (signed_in.status_code, signed_in.headers["location"]) == (303, "/runs")
        assert (await browser.get("/runs")).status_code == 200


@pytest.mark.parametrize("token", ["", "x" * 32, READ[:-1], "\N{SNOWMAN}" * 20])
async def test_a_wrong_token_begins_no_session(world: PageWorld, token: str) -> None:
    async with world.browser() as browser:
        fields = (await browser.forms("/sign-in"))["/sign-in"]
        refused = await browser.send("/sign-in", {**fields, "token": token})

        assert refused.status_code == 401
        assert "does not know this token" in text_of(refused)
        assert (await browser.get("/")).status_code == 303
        assert len(world.desk.page.sessions) == 0


async def test_a_program_without_a_token_gets_json_and_metrics_take_bearer_tokens(world: PageWorld) -> None:
    async with world.browser() as browser:
        refused = await browser.get("/", Accept="*/*")
        assert (refused.status_code, refused.json()["type"]) == (401, "Unauthorized")
        assert (await browser.get("/metrics", Accept="*/*")).status_code == 401
        metrics = await browser.get("/metrics", Accept="*/*", Authorization=f"Bearer {READ}")
        assert (metrics.status_code, "mailmend_ledger_up" in metrics.text) == (200, True)
        assert (await browser.get("/healthcheck", Accept="*/*")).status_code == 200


@pytest.mark.parametrize(
    "to",
    ["//elsewhere.example", "https://elsewhere.example", "/\\elsewhere.example", "/a\nb", "/sign-in", "javascript:x"],
)
async def test_a_sign_in_leads_to_no_other_site(world: PageWorld, to: str) -> None:
    async with world.browser() as browser:
        fields = (await browser.forms("/sign-in"))["/sign-in"]
        signed_in = await browser.send("/sign-in", {**fields, "to": to, "token": READ})

        assert signed_in.headers["location"] == "/"


@pytest.mark.parametrize(
    "headers",
    [{"Origin": ELSEWHERE}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}],
)
async def test_a_form_of_another_site_is_refused(world: PageWorld, headers: dict[str, str]) -> None:
    async with world.browser() as browser:
        fields = (await browser.forms("/sign-in"))["/sign-in"]
        refused = await browser.send("/sign-in", {**fields, "token": OPERATE}, headers)

        assert refused.status_code == 403
        assert len(world.desk.page.sessions) == 0


@pytest.mark.parametrize("form", [None, "", "0" * 64])
async def test_a_form_without_its_hidden_token_is_refused(world: PageWorld, form: str | None) -> None:
    async with world.browser() as browser:
        await browser.signed_in(OPERATE)
        fields = {"other": "1"} if form is None else {"form": form}
        refused = await browser.send("/sign-out", fields)

        assert refused.status_code == 403
        assert (await browser.get("/")).status_code == 200


async def test_the_hidden_token_of_one_visitor_is_of_no_use_to_another(world: PageWorld) -> None:
    async with world.browser() as one, world.browser() as other:
        await one.signed_in(OPERATE)
        await other.signed_in(OPERATE)
        fields = (await one.forms("/"))["/sign-out"]

        assert (await other.send("/sign-out", fields)).status_code == 403
        assert (await one.send("/sign-out", fields)).status_code == 303
        assert (await one.get("/")).status_code == 303
        assert (await other.get("/")).status_code == 200


async def test_cookies_are_for_this_server_alone_and_over_tls_for_tls_alone(world: PageWorld) -> None:
    for base, name, secure in (("http://127.0.0.1", "", False), ("https://mail.example", "__Host-", True)):
        async with world.browser(base) as browser:
            fields = (await browser.forms("/sign-in"))["/sign-in"]
            (cookie,) = (await browser.send("/sign-in", {**fields, "token": READ})).headers.get_list("set-cookie")

            assert cookie.startswith(f"{name}mailmend-session=")
            assert {"HttpOnly", "Path=/", "SameSite=strict"} < set(cookie.split("; "))
            assert ("Secure" in cookie.split("; ")) is secure
            assert READ not in cookie


@pytest.mark.parametrize(("idle", "looks", "is_over"), [(IDLE_SECONDS - 1, 1, False), (IDLE_SECONDS + 1, 1, True)])
async def test_a_session_that_is_not_used_ends(world: PageWorld, idle: float, looks: int, is_over: bool) -> None:
    async with world.browser() as browser:
        await browser.signed_in(READ)
        world.cluster.clock.advance(idle)

        assert ((await browser.get("/")).status_code == 303) is is_over


async def test_a_session_ends_after_half_a_day_however_often_it_is_used(world: PageWorld) -> None:
    async with world.browser() as browser:
        await browser.signed_in(READ)
        for _ in range(int(LIFE_SECONDS / IDLE_SECONDS * 2)):
            assert (await browser.get("/")).status_code == 200
            world.cluster.clock.advance(IDLE_SECONDS / 2)
        world.cluster.clock.advance(1)

        assert (await browser.get("/")).status_code == 303


async def test_without_tokens_every_user_of_this_machine_may_and_no_page_of_elsewhere(cluster: ClusterTwin) -> None:
    world = PageWorld(cluster, Access())
    async with world.browser() as browser:
        assert (await browser.get("/")).status_code == 200
        assert (await browser.get("/", Sec_Fetch_Site="cross-site")).status_code == 403
        assert (await browser.get("/", Host="elsewhere.example")).status_code == 403


async def test_every_answer_says_that_no_script_runs_and_no_other_site_shows_it(world: PageWorld) -> None:
    async with world.browser() as browser:
        for path in ("/sign-in", "/", "/static/page.css", "/nowhere", "/healthcheck"):
            policy = (await browser.get(path)).headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; style-src 'self'; ")
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
        assert (await browser.get("/sign-in")).headers["cache-control"] == "no-store"
        refused = await browser.get("/", Host="a b")
        assert (refused.status_code, "content-security-policy" in refused.headers) == (400, True)


async def test_a_page_that_fails_runs_no_script_either(world: PageWorld) -> None:
    def fails() -> Document:
        raise RuntimeError("unforeseen")

    page = replace(world.desk.page, data=replace(world.desk.page.data, doctor=fails))
    world.app.state.desk = replace(world.desk, page=page)
    async with world.browser() as browser:
        failed = await (await browser.signed_in(OPERATE)).get("/doctor")
    assert (failed.status_code, "unforeseen" in failed.text) == (500, False)
    assert failed.headers["content-security-policy"].startswith("default-src 'none'; ")

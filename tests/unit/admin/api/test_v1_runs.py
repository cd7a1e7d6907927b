"""Runs, findings, undo, schema and projections over HTTP, on a cluster in memory."""

import json
import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid1

import pytest

from mailmend.admin.api.desk import SERVICES_AT_ONCE
from mailmend.admin.frame.run_scopes import RunScope
from mailmend.admin.frame.settings import ConnectionSettings, QueueSettings
from mailmend.admin.messages.run_findings import RunFindings, RunFindingsRequest, findings_document
from mailmend.model.catalog.mail import MESSAGE_ID
from mailmend.model.ids import QueueName, RunId
from mailmend.model.operations import Seen
from mailmend.model.projections.findings import Finding, Suspect
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Column, Kind, Table
from mailmend.repair.ledger.runs import Ledger, Run, RunState
from tests.support.api_world import OPERATOR, VIEWER, ApiWorld
from tests.support.cluster_twin import ClusterTwin
from tests.support.commands import QUICK, CommandLine
from tests.support.mail_states import MailKeyspace
from tests.support.task_desk import TaskWorld

UNKNOWN = "6e0ab5e0-8d1c-11f1-8003-0123456789ab"
Mended = Callable[..., str]
"""The id of a repair that has put the projections of these messages back."""


@pytest.fixture
def api(cluster: ClusterTwin, mail: MailKeyspace, tmp_path: Path) -> ApiWorld:
    tasks = TaskWorld(tmp_path, cluster.clock)
    return ApiWorld(tasks, QueueSettings(ConnectionSettings(keyspace=mail.name), QueueName("spool")))


@pytest.fixture
def mended(mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin) -> Mended:
    def repair(*places: int) -> str:
        for place in places:
            mail.lose_projection(mail.truths[place])
        cluster.clock.advance(1)
        run: str = mailmend("repair", "messages", *QUICK, "--json").json["run"]
        return run

    return repair


async def got(api: ApiWorld, path: str, token: str | None = VIEWER, status: int = 200) -> Any:
    return await api.asked("GET", path, token=token, status=status)


async def test_runs_are_listed_and_shown_as_the_commands_print_them(
    api: ApiWorld, mailmend: CommandLine, mended: Mended
) -> None:
    run = mended(0)

    assert await got(api, "/v1/runs") == mailmend("runs", "list", "--json").json | {"next": None}
    assert await got(api, f"/v1/runs/{run}") == mailmend("runs", "show", run, "--json").json
    assert await got(api, "/v1/runs/trend") == mailmend("runs", "trend", "--json").json


async def test_each_run_is_on_one_page(api: ApiWorld, mended: Mended) -> None:
    """The newest first; a run that began while the pages were read moves none of them."""
    runs = list[str]()
    for place in range(3):
        runs.insert(0, mended(place))

    first = await got(api, "/v1/runs?limit=2")
    mended(0)
    last = await got(api, f"/v1/runs?limit=2&after={first['next']}")

    assert [run["run"] for run in first["runs"]] == runs[:2]
    assert ([run["run"] for run in last["runs"]], last["next"]) == (runs[2:], None)


async def test_each_finding_is_on_one_page_and_as_the_file_has_it(
    api: ApiWorld, mailmend: CommandLine, mended: Mended
) -> None:
    run = mended(0, 1, 2)

    found = list[dict[str, Any]]()
    after = ""
    for _ in range(3):
        page = await got(api, f"/v1/runs/{run}/findings?limit=1{after}")
        found += page["findings"]
        after = f"&after={page['next']}"

    assert page["next"] is None
    lines = mailmend("runs", "show", run, "--findings", "-").out.splitlines()
    by_key = lambda finding: json.dumps(finding["key"])  # noqa: E731
    assert sorted(found, key=by_key) == sorted(map(json.loads, lines), key=by_key)


async def test_findings_are_selected_by_verdict_and_result(
    api: ApiWorld, mailmend: CommandLine, mended: Mended
) -> None:
    run = mended(0)

    fixed = await got(api, f"/v1/runs/{run}/findings?verdict=PROJECT&result=FIXED")
    amended = await got(api, f"/v1/runs/{run}/findings?verdict=AMEND")
    moved = await got(api, f"/v1/runs/{run}/findings?result=MOVED")

    assert [len(page["findings"]) for page in (fixed, amended, moved)] == [1, 0, 0]


async def test_an_undo_puts_back_and_is_on_record_with_the_name_of_its_token(
    api: ApiWorld, mail: MailKeyspace, mended: Mended, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mailmend.api")
    run = mended(0)

    tried = await api.asked("POST", f"/v1/runs/{run}/undo", {"dry_run": True})
    there = mail.mirror(mail.truths[0])
    undone = await api.asked("POST", f"/v1/runs/{run}/undo", {})

    assert (tried["due"], there is not None) == ({"PROJECT": 1}, True)
    assert (undone["fixed"], mail.mirror(mail.truths[0])) == ({"PROJECT": 1}, None)
    kept = await got(api, f"/v1/runs/{undone['run']}")
    assert (kept["owner"], kept["undoes"], kept["command"]) == ("ann", run, "undo")
    (record,) = [record for record in caplog.records if record.getMessage() == "a run was undone"]
    assert (vars(record)["caller"], vars(record)["run"]) == ("ann", run)


@pytest.mark.parametrize(
    ("token", "method", "path", "status", "kind"),
    [
        (None, "GET", "/v1/runs", 401, "Unauthorized"),
        ("x" * 32, "GET", "/v1/schema", 401, "Unauthorized"),
        (VIEWER, "POST", f"/v1/runs/{UNKNOWN}/undo", 403, "Forbidden"),
        (VIEWER, "GET", f"/v1/runs/{UNKNOWN}", 404, "notFound"),
        (VIEWER, "GET", f"/v1/runs/{UNKNOWN}/findings", 404, "notFound"),
        (VIEWER, "GET", f"/v1/runs/{UNKNOWN}/events", 404, "notFound"),
        (OPERATOR, "POST", f"/v1/runs/{UNKNOWN}/undo", 404, "notFound"),
        (VIEWER, "GET", "/v1/runs/yesterday", 400, "InvalidArgument"),
        (VIEWER, "GET", "/v1/runs?limit=0", 400, "InvalidArgument"),
        (VIEWER, "GET", "/v1/runs?limit=1001", 400, "InvalidArgument"),
        (VIEWER, "GET", "/v1/runs?after=yesterday", 400, "InvalidArgument"),
        (VIEWER, "GET", "/v1/runs?pages=2", 400, "InvalidArgument"),
        (VIEWER, "GET", "/v1/projections?declaration=/etc/passwd", 400, "InvalidArgument"),
        (VIEWER, "GET", "/v1/nothing", 404, "notFound"),
    ],
)
async def test_what_is_refused_has_the_one_form_of_errors(
    api: ApiWorld, token: str | None, method: str, path: str, status: int, *, kind: str
) -> None:
    async with api.client(token) as client:
        answer = await client.request(method, path, json={} if method == "POST" else None)

    body = answer.json()
    assert (answer.status_code, body["statusCode"], body["type"]) == (status, status, kind)
    assert set(body) == {"statusCode", "type", "message", "details"}


async def test_a_position_that_no_page_gave_is_refused(api: ApiWorld, mailmend: CommandLine, mended: Mended) -> None:
    run = mended(0)
    assert "not a position" in (await got(api, f"/v1/runs/{run}/findings?after=abc", status=400))["message"]


async def test_schema_history_and_projections_are_as_the_commands_print_them(
    api: ApiWorld, mailmend: CommandLine
) -> None:
    assert await got(api, "/v1/schema") == mailmend("schema", "verify", "--json").json
    assert await got(api, "/v1/schema/history") == mailmend("schema", "history", "--json").json
    assert await got(api, "/v1/projections") == mailmend("projections", "verify", "mail", "--json").json


def test_rows_of_declared_tables_show_only_their_keys_to_a_viewer() -> None:
    """They may hold the words of mails, as message_fast_view_projection does."""
    table = Table("views", (Column("id", "uuid", Kind.PARTITION), Column("preview", "text")))
    seen = Seen({"id": UUID(UNKNOWN), "preview": "Dear Bob"}, {})
    suspect = Suspect("views", (UUID(UNKNOWN),), Verdict.AMEND)
    finding = Finding(suspect, Verdict.AMEND, truths=(seen,), projected=seen)
    run = Run(RunId(UUID(UNKNOWN)), "mail", "repair", RunState.DONE, 0, datetime.now(UTC))

    def rows(*, only_keys: bool) -> list[Any]:
        request = RunFindingsRequest(connection=ConnectionSettings(), run=run.id, limit=1, only_keys=only_keys)
        page = RunFindings(request, run, RunScope((), is_mail=False), (finding,), tables={"views": table})
        json = findings_document(page).json
        assert json is not None
        (shown,) = json["findings"]
        return [shown["truths"][0]["row"], shown["projected"]["row"]]

    assert rows(only_keys=True) == [{"id": UNKNOWN}] * 2
    assert rows(only_keys=False) == [{"id": UNKNOWN, "preview": "Dear Bob"}] * 2


async def test_a_run_is_followed_until_it_is_over(api: ApiWorld, cluster: ClusterTwin, mailmend: CommandLine) -> None:
    """An event at once, one for each change, and the end."""
    assert mailmend("repair", "messages", *QUICK).code == 0
    ledger = Ledger(cluster.keyspace("mailmend"), cluster.clock)
    run = ledger.start("mail", "repair", 0, {})
    looks = 0

    async def reading(function: Any) -> Any:
        nonlocal looks
        looks += 1
        if looks == 3:
            ledger.finish(run, {"fixed": {}})
        return function()

    api.desk.api.apart = reading
    async with api.client(VIEWER) as client:
        answer = await client.get(f"/v1/runs/{run.id}/events")

    assert answer.headers["content-type"].startswith("text/event-stream")
    events = [block.split("\n") for block in answer.text.strip().split("\n\n")]
    assert [event[0] for event in events] == ["event: run", ": nothing new", "event: run", "event: end"]
    states = [json.loads(event[1].removeprefix("data: "))["state"] for event in events if event[0] == "event: run"]
    assert states == ["RUNNING", "DONE"]


async def test_a_stream_ends_after_five_minutes(api: ApiWorld, cluster: ClusterTwin, mailmend: CommandLine) -> None:
    """Its client asks again; the connection is not kept for ever."""
    assert mailmend("repair", "messages", *QUICK).code == 0
    run = Ledger(cluster.keyspace("mailmend"), cluster.clock).start("mail", "repair", 0, {})
    began = cluster.clock.monotonic()
    async with api.client(VIEWER) as client:
        answer = await client.get(f"/v1/runs/{run.id}/events")

    assert "event: end" not in answer.text
    assert cluster.clock.monotonic() - began == pytest.approx(300, abs=1)


async def test_services_have_threads_of_their_own(api: ApiWorld) -> None:
    """Many calls take no thread from the renewal of the lease of the jobs."""
    name = await api.desk.api.done(lambda: threading.current_thread().name, asks=False)
    assert name.startswith("api")


async def test_calls_beyond_the_bound_are_refused(api: ApiWorld) -> None:
    api.desk.api._working = SERVICES_AT_ONCE
    assert "calls are at work" in (await got(api, "/v1/runs", status=429))["message"]


def test_findings_come_in_the_order_of_their_positions(cluster: ClusterTwin, mailmend: CommandLine) -> None:
    """A page goes on behind a position, so no finding may come before one of a lower position."""
    assert mailmend("repair", "messages", *QUICK).code == 0
    ledger = Ledger(cluster.keyspace("mailmend"), cluster.clock)
    run = RunId(cluster.clock.new_uuid())
    suspects = [Suspect(MESSAGE_ID.spelling, (uuid1(), number), Verdict.PROJECT) for number in range(600)]
    ledger.record(run, cluster.clock.micros(), [Finding(suspect, Verdict.PROJECT) for suspect in suspects])

    positions = [position for position, _ in ledger.findings_after(run)]

    assert (len(positions), positions) == (600, sorted(positions))
    assert [position for position, _ in ledger.findings_after(run, positions[300])] == positions[301:]

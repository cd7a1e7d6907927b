"""Requests drawn from the descriptions of HTTP sides, and against them: every answer is as described, none is 5xx."""

import asyncio
from collections.abc import Collection, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.config import SchemathesisConfig
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from mailmend.admin.api.http.routes import API
from mailmend.admin.delivery.http.routes import DELIVERIES
from mailmend.admin.frame.http.access import Access, parse_tokens
from mailmend.admin.frame.http.application import application
from mailmend.admin.frame.settings import ConnectionSettings, QueueSettings
from mailmend.admin.jobs.http import JOBS
from mailmend.model.ids import QueueName
from tests.support.api_world import ApiWorld
from tests.support.delivery_desk import DeliveryWorld
from tests.support.queue_commands import KEYSPACE, queue_shell
from tests.support.task_desk import TaskWorld

TOKEN = "w" * 32
HEADERS = {"Authorization": f"Bearer {TOKEN}", "I-KNOW-WHAT-I-M-DOING": "ALL-SERVICES-ARE-OFFLINE"}
"""One value of `task` needs the second header, which no schema of JSON can say."""

EXAMPLES = 60
EXAMPLES_OF_SERVICES = 20
REFUSALS = {"checks": {"negative_data_rejection": {"expected-statuses": ["4xx"]}}}
"""A wrong body may also be too large (413), which is no refusal to the library."""


@pytest.mark.thorough
@pytest.mark.parametrize("mode", GenerationMode)
def test_every_answer_is_as_described(tmp_path: Path, mode: GenerationMode) -> None:
    """What fits the description is taken; whatever is sent is answered as described."""
    world = TaskWorld(tmp_path)
    app = application(JOBS, world.desk, Access(parse_tokens([f"all repair {TOKEN}"], "")))
    fuzz(
        app, mode, ("/healthcheck", "/metrics"), [negative_data_rejection]
    )  # unknown parameters are ignored, as James does


@pytest.mark.thorough
@pytest.mark.parametrize("mode", GenerationMode)
def test_every_answer_of_a_server_of_deliveries_is_as_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: GenerationMode
) -> None:
    """Of recipients that wait and are deferred; no copies of mails are kept beside the test's."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    world = DeliveryWorld(tmp_path / "policies.yaml")
    (tmp_path / "policies.yaml").write_text("[{fields: [recipientdomain], default: {concurrency: 1}}]")

    async def filled() -> None:
        async with world.open():
            await world.put("bob@one.example", "cy@two.example", delay=timedelta(hours=1))
            await world.put("al@one.example")

    asyncio.run(filled())
    world.desk.server.is_ready = True
    app = application(DELIVERIES, world.desk, Access(parse_tokens([f"all operate {TOKEN}"], "")))
    # what is no value of its field, or selects nothing, no schema of JSON can say
    fuzz(app, mode, NOTHING_WRONG, [positive_data_acceptance], in_queries=[negative_data_rejection])


@pytest.mark.thorough
@pytest.mark.parametrize("mode", GenerationMode)
def test_every_answer_of_the_api_is_as_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: GenerationMode
) -> None:
    """Of a queue with mails that wait and are delayed; James's tasks have a test of their own."""
    shell = queue_shell(monkeypatch, tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    shell.put("one", "two")
    shell.put_later("later", timedelta(hours=1))
    here: Any = object()
    settings = QueueSettings(ConnectionSettings(keyspace=KEYSPACE), QueueName("spool"), here, here)
    world = ApiWorld(TaskWorld(tmp_path, shell.clock), settings)
    app = application(API, world.desk, Access(parse_tokens([f"all operate {TOKEN}"], "")))
    # a position, an address or a file that is not there is no matter of a schema; unknown parameters James ignores
    left_out = [positive_data_acceptance]
    fuzz(
        app,
        mode,
        ANYTHING_GOES,
        left_out,
        in_queries=[negative_data_rejection],
        below=("/v1/", "/mailQueues"),
        examples=EXAMPLES_OF_SERVICES,
    )


ANYTHING_GOES = (
    "/v1/queues",
    "/v1/queues/{queue}",
    "/v1/kept-mails",
    "/v1/schema",
    "/v1/schema/history",
    "/mailQueues",
    "/mailQueues/{queue}",
)


NOTHING_WRONG = (
    "/explain/{id}",
    "/entries/{id}",
    "/health",
    "/ready",
    "/metrics",
    "/policies",
    "/policies/reload",
    "/suspensions",
)


def fuzz(
    app: FastAPI,
    mode: GenerationMode,
    unfailing: Collection[str],
    excluded: Sequence[Any],
    *,
    in_queries: Sequence[Any] = (),
    below: tuple[str, ...] = ("/",),
    examples: int = EXAMPLES,
) -> None:
    """Call the routes below these paths.

    `in_queries` is left out where there is no body: what is no list becomes one of a single text on the wire.
    """
    schema = schemathesis.openapi.from_asgi("/openapi.json", app, config=SchemathesisConfig.from_dict(REFUSALS))
    for found in schema.get_all_operations():
        assert isinstance(found, Ok), found
        operation = found.ok()
        if not operation.path.startswith(below):
            continue
        if mode is GenerationMode.NEGATIVE and operation.path in unfailing and not operation.body:
            continue  # nothing can be wrong with it

        @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        @given(operation.as_strategy(generation_mode=mode))
        def each(case: Any) -> None:
            left_out = [*excluded, *(() if case.operation.body else in_queries)]
            case.call_and_validate(headers=HEADERS, excluded_checks=left_out)

        each()

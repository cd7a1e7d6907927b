"""Traces, where OTEL_* asks for them: a span for a command, its phases below it; else nothing, not even an import."""

import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from mailmend.admin.frame import logs
from tests.support.cluster_twin import ClusterTwin
from tests.support.commands import CommandLine
from tests.support.mail_states import MailKeyspace

QUICK = ("--engine", "local", "--delay", "0")


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(logs, "provider_of", lambda _: provider)
    return exporter


def test_phases_are_below_their_command(
    mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin, spans: InMemorySpanExporter
) -> None:
    mail.lose_projection(mail.truths[0])
    cluster.clock.advance(1)

    ended = mailmend("repair", "messages", *QUICK, "--json")

    *phases, command = spans.get_finished_spans()
    assert command.name == "mailmend repair messages"
    assert command.parent is None
    assert dict(command.attributes or {}) == {"process.exit.code": 0, "mailmend.run": ended.json["run"]}
    assert {"read imapUidTable", "compare", "look again"} <= {one.name for one in phases}
    assert {one.parent.span_id if one.parent else None for one in phases} == {command.context.span_id}
    (read,) = [one for one in phases if one.name == "read imapUidTable"]
    assert (read.attributes or {})["mailmend.steps"] == len(mail.truths)


def test_a_failure_is_one_in_its_span(mailmend: CommandLine, spans: InMemorySpanExporter) -> None:
    mailmend("undo", "4b0f6e1c-0000-1000-8000-000000000000")

    (command,) = spans.get_finished_spans()
    assert command.status.status_code is StatusCode.ERROR
    assert dict(command.attributes or {}) == {"process.exit.code": 2, "error.type": "UnknownRun"}


def test_the_environment_says_where_they_go(mailmend: CommandLine) -> None:
    """A collector of its own: what it gets is what the SDK's exporter sends."""
    got = list[tuple[str, bytes]]()

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """It says nothing."""

    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        where = f"http://127.0.0.1:{server.server_port}"
        ended = mailmend("version", OTEL_EXPORTER_OTLP_ENDPOINT=where, OTEL_EXPORTER_OTLP_COMPRESSION="none")
        server.shutdown()

    ((path, body),) = got
    assert (ended.code, path) == (0, "/v1/traces")
    assert b"mailmend version" in body


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"},
    ],
)
def test_nobody_asked_and_nothing_is_imported(environment: dict[str, str]) -> None:
    program = (
        "import sys; from mailmend.admin.main import run; code = run(['version']); "
        "sys.exit(code or any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    ended = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=False)

    assert ended.returncode == 0, ended.stderr


def test_without_the_extra_there_are_none(monkeypatch: pytest.MonkeyPatch, mailmend: CommandLine) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)

    ended = mailmend("version", "--log-level", "info", OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1")

    assert (ended.code, "mailmend[otel] is not installed" in ended.err) == (0, True)

"""The log of a command, and its traces. A line of the log is an event, on stderr, as text or as JSON.

Only what mailmend itself logs is heard, below the logger `mailmend`: libraries' lines may hold secrets, and what
matters of them is raised. An event is a fixed sentence; what it is about is in fields (`extra` of the standard
library): ids, names of tables and queues, counts, never a secret or anything of a mail. docs/adr/0030.

A trace has a span for the command, and below it a span for each phase. No other module knows
OpenTelemetry. The environment alone says where traces go, as the SDK reads it
(`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_TRACES_SAMPLER`, `OTEL_SERVICE_NAME`, ...). Without these
settings, or without `mailmend[otel]`, nothing is imported.
"""

import logging
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import click

from mailmend.model.ports import Clock, Progress
from mailmend.model.projections.findings import Finding
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Key
from mailmend.model.texts import printable
from mailmend.repair.clock import SystemClock
from mailmend.repair.log_fields import LINES, ROOT, LineFormatter, log_fields, own_log_fields, put_log_field

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span


_WHERE: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
RUN: Final = "mailmend.run"
_LOG: Final = logging.getLogger("mailmend.traces")


def provider_of(environment: Mapping[str, str]) -> "TracerProvider | None":
    """What makes spans and sends them; None where no spans are asked for."""
    off = environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if off or environment.get("OTEL_TRACES_EXPORTER") == "none" or not any(environment.get(name) for name in _WHERE):
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - asked for
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ModuleNotFoundError:
        _LOG.info("no traces: mailmend[otel] is not installed")
        return None
    logging.getLogger("opentelemetry").addHandler(logging.NullHandler())  # a collector that is away stops nobody
    named = {}
    if not environment.get("OTEL_SERVICE_NAME"):
        named["service.name"] = "mailmend"
    provider = TracerProvider(resource=Resource.create(named), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


@dataclass(slots=True)
class Trace:
    """The spans of one command; without a provider they cost nothing."""

    provider: "TracerProvider | None" = None
    command: "Span | None" = None
    phase: "Span | None" = field(default=None)

    def began(self, name: str) -> None:
        self.provider = provider_of(os.environ)
        self.command = self._span(name)

    def phase_began(self, name: str) -> None:
        self.phase = self._span(name, self.command)

    def phase_ended(self, run: str | None, steps: int, suspects: int) -> None:
        _end(self.phase, {RUN: run, "mailmend.steps": steps, "mailmend.suspects": suspects})
        if self.command and run:
            self.command.set_attribute(RUN, run)
        self.phase = None

    def ended(self, *, exit_code: int, error: str | None) -> None:
        """End the command's span, and send what is left."""
        attributes = {"process.exit.code": exit_code, "error.type": error}
        _end(self.command, attributes, failed=error is not None)
        if self.provider:
            self.provider.shutdown()

    def _span(self, name: str, parent: "Span | None" = None) -> "Span | None":
        if self.provider is None:
            return None
        from opentelemetry.trace import set_span_in_context  # noqa: PLC0415 - there is a provider

        context = None
        if parent:
            context = set_span_in_context(parent)
        return self.provider.get_tracer("mailmend").start_span(name, context)


def _end(span: "Span | None", attributes: Mapping[str, Any], *, failed: bool = False) -> None:
    if span is None:
        return
    span.set_attributes({name: value for name, value in attributes.items() if value not in (None, "")})
    if failed:
        from opentelemetry.trace import StatusCode  # noqa: PLC0415 - there is a span

        span.set_status(StatusCode.ERROR)
    span.end()


LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = tuple(LINES)

_COMMANDS: Final = logging.getLogger("mailmend.commands")
_PHASES: Final = logging.getLogger("mailmend.phases")
_FINDINGS: Final = logging.getLogger("mailmend.findings")

_OF_A_FOLDER: Final = "loading "
"""A stage of this name is followed by the name of a folder of mails."""

LOGGED_SECONDS: Final = 5.0
"""How often a phase says how far it is."""


def echo(message: str) -> None:
    """Write a message on stderr; nothing in it can steer the terminal. Every command's messages take this way."""
    click.echo(printable(message), err=True)


class _Lines(logging.Handler):
    """Writes to stderr as it is now: a progress bar gives way there."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            echo(self.format(record))
        except (OSError, ValueError, TypeError):
            return  # nobody hears it any more


@dataclass(slots=True)
class CommandLog:
    """The log of one command, from when its options are known to its exit code."""

    clock: Clock = field(default_factory=SystemClock)
    name: str = ""
    error: str | None = None
    crash_log: str | None = None
    began_at: float = 0.0
    trace: Trace = field(default_factory=Trace)

    def began(self, name: str, level: str, form: str) -> None:
        log = logging.getLogger(ROOT)
        lines = _Lines()
        lines.setFormatter(LineFormatter(form))
        # A command within a command: a job's. Each line is written once.
        log.handlers[:] = [*(handler for handler in log.handlers if not isinstance(handler, _Lines)), lines]
        log.setLevel(level.upper())
        self.name, self.began_at = name, self.clock.monotonic()
        if "command_id" not in log_fields():  # that of a job is its server's, or its `jobs run`'s
            put_log_field("command_id", str(self.clock.random_uuid()))
        _COMMANDS.info("command began", extra={"command": name})
        self.trace.began(name)

    def ended(self, exit_code: int) -> None:
        if self.name:
            seconds = round(self.clock.monotonic() - self.began_at, 3)
            fields = {"command": self.name, "exit": exit_code, "seconds": seconds, "error": self.error}
            _COMMANDS.info("command ended", extra={**fields, "crash_log": self.crash_log})
            self.trace.ended(exit_code=exit_code, error=self.error)


_AT_WORK: ContextVar[CommandLog | None] = ContextVar("mailmend_command_log", default=None)


@contextmanager
def command_log() -> Iterator[CommandLog]:
    """The log of the command that runs in the block; afterwards everything is as it was."""
    log = logging.getLogger(ROOT)
    one = CommandLog()
    handlers = list(log.handlers)
    level = log.level
    token = _AT_WORK.set(one)
    try:
        with own_log_fields():
            yield one
    finally:
        _AT_WORK.reset(token)
        log.handlers[:] = handlers
        log.setLevel(level)


def command_began(name: str, level: str, form: str) -> None:
    if log := _AT_WORK.get():
        log.began(name, level, form)


@dataclass(slots=True)
class LoggedProgress:
    """Tells the phases of long work to the log too. Implements `model.ports.Progress`."""

    shown: Progress
    clock: Clock
    trace: Trace = field(default_factory=Trace)
    phase: str = ""
    began_at: float = 0.0
    logged_at: float = 0.0
    steps: int = 0
    suspects: int = 0
    fixed: dict[str, Counter[str]] = field(default_factory=dict)

    def stage(self, name: str, total: int | None = None) -> None:
        self.close()
        self.phase = name
        if name.startswith(_OF_A_FOLDER):
            self.phase = _OF_A_FOLDER.strip()
        self.began_at = self.logged_at = self.clock.monotonic()
        self.steps = self.suspects = 0
        _PHASES.info("phase began", extra={"phase": self.phase, "total": total})
        self.trace.phase_began(self.phase)
        self.shown.stage(name, total)

    def advance(self, steps: int, suspects: int = 0) -> None:
        self.steps += steps
        self.suspects += suspects
        self.shown.advance(steps, suspects)
        if self.clock.monotonic() >= self.logged_at + LOGGED_SECONDS:
            self._tell("phase goes on")

    def found(self, finding: Finding) -> None:
        log_finding(finding)
        if finding.result is Verdict.FIXED:
            self.fixed.setdefault(finding.suspect.projection, Counter())[finding.verdict.value] += 1

    def _tell(self, event: str) -> None:
        self.logged_at = self.clock.monotonic()
        fields = {"phase": self.phase, "steps": self.steps, "suspects": self.suspects, "fixed": self.fixed or None}
        _PHASES.info(event, extra={**fields, "seconds": round(self.logged_at - self.began_at, 3)})

    def close(self) -> None:
        if self.phase:
            self._tell("phase ended")
            self.trace.phase_ended(log_fields().get("run"), self.steps, self.suspects)
        self.phase = ""


@contextmanager
def logged_progress(shown: Progress, clock: Clock) -> Iterator[LoggedProgress]:
    at_work = _AT_WORK.get()
    trace = Trace()
    if at_work:
        trace = at_work.trace
    progress = LoggedProgress(shown, clock, trace)
    try:
        yield progress
    finally:
        progress.close()


def log_finding(finding: Finding) -> None:
    """What failed is a warning, what was left as it is an information; the rest is for looking closely."""
    if finding.untried:
        return
    if finding.error:
        level = logging.WARNING
        event = "a suspect could not be looked at or mended"
    elif finding.result not in {None, Verdict.FIXED}:
        level = logging.INFO
        event = "a suspect was left"
    else:
        level = logging.DEBUG
        event = "a finding"
    if not _FINDINGS.isEnabledFor(level):
        return
    fields = {
        "projection": finding.suspect.projection,
        "key": [_id(value) for value in finding.suspect.key],
        "truths": list(map(_truth, finding.suspect.truth_keys)) or None,
        "verdict": finding.verdict.value,
        "result": finding.result and finding.result.value,
        "why": finding.reason and finding.reason.why.value,
        "error": finding.error,
    }
    _FINDINGS.log(level, event, extra=fields)


def _truth(key: Key) -> str | list[str]:
    """A key of one value is that value; a longer one is the list of its values."""
    parts = [_id(part) for part in key]
    if len(parts) == 1:
        return parts[0]
    return parts


def _id(part: object) -> str:
    """Ids and numbers as they are; a text may be an address."""
    if isinstance(part, UUID | int | datetime):
        return str(part)
    return "(text)"

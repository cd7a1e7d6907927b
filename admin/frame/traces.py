"""Traces: a span for each command and below it one for each of its phases; the only module that knows OpenTelemetry.

Where they go, how many, and under which name is said by the environment alone, as the SDK reads it
(`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_TRACES_SAMPLER`, `OTEL_SERVICE_NAME`, ...). Without these
settings, or without `mailmend[otel]`, nothing is imported.
"""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

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

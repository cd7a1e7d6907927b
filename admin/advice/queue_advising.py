"""`mailmend queue advise` put together and shown: what is stored, what would fit, what may be set, and how."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console

from admin.advice.measuring import measure
from admin.advice.traffic_figures import GivenTraffic
from admin.present.advice import figures_json, figures_table, reasons_table
from admin.present.presenter import grid_of
from admin.wiring import Place
from cql.introspect import live_schema
from cql.traffic import ENQUEUED
from model.advice.queue_settings import Traffic
from model.advice.queue_slices import ConfigurationAdvice, advise_configuration
from model.errors import ExitCode
from model.ports import Progress
from model.queue.configuration import QueueConfiguration, window_text
from model.queue.slices import SECOND

ASKED_OF: Final = ("mails_per_second", "peak_per_second", "longest_stay_seconds", "row_bytes", "nodes")
"""The figures that the configuration follows from."""


@dataclass(frozen=True, slots=True)
class QueueAdvised:
    """Everything that `mailmend queue advise` says."""

    keyspace: str
    traffic: Traffic
    advice: ConfigurationAdvice
    notes: tuple[str, ...]

    @property
    def command(self) -> str:
        """What sets it; empty where it is set already."""
        wanted = self.advice.advised
        window = window_text(wanted.slicing.window)
        set_it = f"--slice-window {window} --buckets {wanted.slicing.buckets} --pace {wanted.pace}"
        return f"mailmend queue configure {set_it} --keyspace {self.keyspace}" if self.advice.changes else ""


def advise_on_queue(place: Place, given: GivenTraffic, progress: Progress) -> QueueAdvised:
    """Look and reckon; nothing is written.

    Raises:
        UnknownKeyspace: there is no such keyspace.
        SchemaMismatch: it holds neither messages nor a queue.
        CannotReach: the cluster does not answer.
    """
    live = live_schema(place.cluster, place.mail.name)
    measured = measure(place, live, given, progress)
    missing = () if live.table(ENQUEUED) else (_no_queue(place.mail.name),)
    return QueueAdvised(
        place.mail.name,
        measured.traffic,
        advise_configuration(measured.traffic, measured.settings),
        (*measured.notes, *missing),
    )


def _no_queue(keyspace: str) -> str:
    return f"{keyspace} has no queue yet; mailmend schema apply --keyspace {keyspace} makes its tables."


def show_queue_advised(advised: QueueAdvised, console: Console) -> None:
    """Print it for a person."""
    for line in answer_lines(advised):
        console.print(line, markup=False, soft_wrap=True)
    console.print()
    console.print(grid_of(reasons_table("Configuration", advised.advice.reasons)))
    console.print(grid_of(figures_table(advised.traffic, ASKED_OF)))
    for note in advised.notes:
        console.print(f"Note: {note}", markup=False, soft_wrap=True)
    if advised.command:
        console.print(f"Next:\n  {advised.command}", markup=False, soft_wrap=True)


def answer_lines(advised: QueueAdvised) -> Iterator[str]:
    """The answer in short: what would fit, what is stored, what may be set."""
    advice = advised.advice
    verb = "Set" if advice.changes else "Keep"
    yield f"{verb} {_words(advice.advised)}."
    yield f"Stored: {_words(advice.present)}." if advice.present else "Stored: nothing."
    yield from (f"  {sentence}" for sentence in (*advice.allowed, *advice.hindered))


def _words(configuration: QueueConfiguration) -> str:
    slicing = configuration.slicing
    buckets = f"{slicing.buckets} bucket{'' if slicing.buckets == 1 else 's'}"
    return f"slices of {window_text(slicing.window)}, {buckets}, pace {configuration.pace:,}"


def queue_advised_json(advised: QueueAdvised) -> dict[str, Any]:
    """Everything under the names that scripts rely on."""
    advice = advised.advice
    return {
        "keyspace": advised.keyspace,
        "present": _configuration_json(advice.present) if advice.present else None,
        "advised": _configuration_json(advice.advised),
        "best": _configuration_json(advice.best),
        "changes": advice.changes,
        "command": advised.command or None,
        "reasons": [{"setting": one.setting, "value": one.value, "why": one.why} for one in advice.reasons],
        "allowed": list(advice.allowed),
        "hindered": list(advice.hindered),
        "traffic": figures_json(advised.traffic, ASKED_OF),
        "notes": list(advised.notes),
        "exit": int(ExitCode.FINE),
    }


def _configuration_json(configuration: QueueConfiguration) -> dict[str, int]:
    return {
        "slice_seconds": configuration.slicing.window // SECOND,
        "buckets": configuration.slicing.buckets,
        "pace": configuration.pace,
    }

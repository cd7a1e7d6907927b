"""A report as one HTML file that opens anywhere, offline: what was found, examples, and how the run went.

It is written beside its place and moved there whole, so a full disk leaves the old report, or none: never half of one.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from admin.output import MEANINGS, exit_meaning
from admin.samples import SAMPLES_MAX, Samples
from model.errors import WrongUse
from model.instants import MICROS
from repair.decisions.findings import Summary
from repair.decisions.verdicts import Verdict


def render_report(summary: Summary, samples: Samples, now_micros: int) -> str:
    """The report as HTML text; whatever the keyspace holds is escaped."""
    pages = Environment(
        loader=PackageLoader("admin", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return pages.get_template("report.html").render(
        summary=summary,
        outcome=exit_meaning(summary.exit),
        findings=_findings(summary),
        outcomes=_outcomes(summary),
        samples=list(samples),
        samples_max=SAMPLES_MAX,
        written_at=datetime.fromtimestamp(now_micros / MICROS, UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
        version=version("mailmend"),
    )


def write_report(file: Path, html: str) -> None:
    """Write the report whole.

    Raises:
        WrongUse: it cannot be written there; what lay there before is untouched.
    """
    with whole_file(file) as stream, named_when_refused(file):
        stream.write(html)


@contextmanager
def whole_file(file: Path, opener: Callable[..., IO[str]] = os.fdopen) -> Iterator[IO[str]]:
    """A text file that appears in its place only when everything was written, or not at all.

    A device or a pipe has no place to be moved into: it is written to as it stands.

    Raises:
        WrongUse: it cannot be written; the message says why.
    """
    file = file.resolve()
    if file.exists() and not file.is_file():
        with _written_through(file) as stream:
            yield stream
        return
    with named_when_refused(file):
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.", suffix=".part")
    part, stream = Path(name), opener(handle, "w", encoding="utf-8")
    try:
        yield stream
        with named_when_refused(file):
            stream.flush()
            os.fsync(stream.fileno())
            part.chmod(0o644 & ~_mask())
            part.replace(file)
    finally:
        with suppress(OSError):
            stream.close()
        with suppress(FileNotFoundError):
            part.unlink()


@contextmanager
def _written_through(file: Path) -> Iterator[IO[str]]:
    with named_when_refused(file):
        stream = file.open("w", encoding="utf-8")
    try:
        yield stream
        with named_when_refused(file):
            stream.flush()
    finally:
        with suppress(OSError):
            stream.close()


@contextmanager
def named_when_refused(file: Path) -> Iterator[None]:
    """Around what is written to the file, and nothing else: what fails elsewhere meanwhile is not this file's fault.

    Raises:
        WrongUse: the file refused it.
    """
    try:
        yield
    except OSError as error:
        raise _unwritable(file, error) from error


def refuse_unwritable(file: Path) -> None:
    """Find out before hours of work whether a file can be written where it is wanted.

    Raises:
        WrongUse: it cannot.
    """
    if file.is_dir():
        raise WrongUse(f"{file} is a folder, not a file")
    if not file.parent.is_dir() or not os.access(file.parent, os.W_OK):
        raise WrongUse(f"{file} cannot be written: there is no folder {file.parent} to write to")


def _unwritable(file: Path, error: OSError) -> WrongUse:
    return WrongUse(
        f"{file} cannot be written: {error.strerror or error}",
        mend="Nothing half written was left there. Choose another place, or make room.",
    )


def _mask() -> int:
    """The permissions that this process withholds from files it creates; there is no way to read it but to set it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _findings(summary: Summary) -> list[dict[str, Any]]:
    return [
        {"projection": name, "verdict": verdict.value, "count": counts[verdict], "meaning": MEANINGS[verdict]}
        for name, counts in sorted(summary.findings.items())
        for verdict in Verdict
        if counts.get(verdict)
    ]


def _outcomes(summary: Summary) -> list[dict[str, Any]]:
    return [
        {"verdict": verdict.value, "fixed": summary.fixed.get(verdict, 0), "left": summary.left.get(verdict, 0)}
        for verdict in Verdict
        if summary.fixed.get(verdict) or summary.left.get(verdict)
    ]

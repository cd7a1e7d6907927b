"""A repair's plan as a file: what was seen and would be mended, so that what a person agreed to is what is done.

Lines of JSON, streamed both ways, so any number of them needs the same memory: the head, a line for each finding, mark
or blob, their counts, and the seal, a digest of every byte before it. The seal tells the slip of an editor and a copy
cut short; it is no signature, for whoever may write the file may as well run a repair. The file names keys and holds no
mail.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from dataclasses import fields as dataclass_fields
from datetime import timedelta
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, Final

from admin.whole_files import named_when_refused, whole_file
from model.durations import format_duration
from model.errors import PlanRefused
from model.instants import MICROS, instant_of
from model.projections.findings import Finding, RepairPolicy, Suspect
from model.projections.reasons import Why
from model.projections.verdicts import Verdict
from repair.ledger.before_images import image_digest, suspect_json, suspect_of_json
from repair.mending.engine import RepairSettings

FORMAT: Final = 1
"""Counted up when a plan says something that an older version would not do, or would do otherwise."""


class PlanKind(StrEnum):
    """The commands that make plans."""

    MESSAGES = "repair messages"
    QUEUES = "repair queues"
    BLOBS = "repair blobs"


LOOKS: Final = ("delay", "clock_skew", "margin")
"""The options of a scan of queues or blobs that a plan keeps, so that its application looks in the same way."""

_KINDS: Final = frozenset(PlanKind)
_OWNER_ALONE: Final = 0o600
_HEAD_BYTES_MAX: Final = 1_000_000


def _anew(kind: PlanKind = PlanKind.MESSAGES) -> str:
    return f"Make it anew, and let it be approved again: mailmend {kind} --plan FILE"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanHead:
    """The first line of a plan: what decides beside the findings.

    Attributes:
        kind: the command that made it.
        tables: an identity of the tables: another cluster's differ, and so do these once they are altered.
        options: what was typed, as a command line.
        policy: what may be done, and T as `as_of`, in JSON's types; in plans for queues and blobs also the `broker` and
            the store (`blobs`) that were looked at.
        without, margin_seconds: only in plans for messages.
    """

    kind: PlanKind
    keyspace: str
    tables: str
    options: str
    policy: Mapping[str, Any]
    without: tuple[str, ...] = ()
    margin_seconds: float = 0.0

    @property
    def as_of(self) -> int:
        as_of: int = self.policy["as_of"]
        return as_of

    @property
    def repair_policy(self) -> RepairPolicy:
        """The policy of a plan for messages."""
        return RepairPolicy(**{**self.policy, "only": frozenset(map(Verdict, self.policy["only"]))})

    def refuse_elsewhere(self, keyspace: str, tables: str) -> None:
        if self.keyspace != keyspace:
            raise PlanRefused(
                f"the plan is of keyspace {self.keyspace!r}, not of {keyspace!r}",
                mend=f"Name that with --keyspace {self.keyspace}.",
            )
        if self.tables != tables:
            raise PlanRefused(
                f"the tables of {keyspace!r} are not those that the plan was made for: they were altered since, or "
                "made anew, or are of another cluster",
                mend=f"See that --host names the cluster that is meant. {_anew(self.kind)}",
            )

    def refuse_other(self, part: str, place: str) -> None:
        """Refuse another broker, or another store of blobs, than the plan was made with."""
        if self.policy[part] != place:
            raise PlanRefused(
                f"the plan was made with {self.policy[part] or 'none'}, not with {place or 'none'}",
                mend=f"Name that with --{part}. {_anew(self.kind)}",
            )

    def refuse_old(self, now: int, max_age: timedelta) -> None:
        """Refuse a plan by the age of what it saw.

        Args:
            now: in microseconds.
            max_age: the greatest age that is allowed.
        """
        seconds = (now - self.as_of) / MICROS
        if seconds < 0:
            raise PlanRefused(f"the plan says that it was made in the future ({self.made_at})", mend="Mend the clocks.")
        if seconds > max_age.total_seconds():
            raise PlanRefused(
                f"the plan is old: it tells how rows were at {self.made_at}, more than {format_duration(max_age)} ago",
                mend=f"{_anew(self.kind)}. What is older may be allowed with --max-age.",
            )

    @property
    def made_at(self) -> str:
        return f"{instant_of(self.as_of):%Y-%m-%d %H:%M:%S} UTC"

    @property
    def json(self) -> dict[str, Any]:
        fields = asdict(self)
        return {"plan": fields.pop("kind"), "format": FORMAT, "made_at": self.made_at, **fields}


def seconds_of(request: object, names: Iterable[str]) -> dict[str, float | None]:
    """Durations of a request in seconds, as a plan keeps them: `NAME_seconds` by name. `spans_in` is the way back."""
    spans: dict[str, timedelta | None] = {name: getattr(request, name) for name in names}
    return {f"{name}_seconds": None if span is None else span.total_seconds() for name, span in spans.items()}


def how_to_look(request: Any, as_of: int) -> dict[str, Any]:
    """How queues or blobs were looked at, as a plan keeps it: T, read level, pace, and the durations of `LOOKS`."""
    pace = {"level": request.level.value, "rows_per_second": request.rows_per_second}
    return {"as_of": as_of, **pace, **seconds_of(request, LOOKS)}


def spans_in(policy: Mapping[str, Any]) -> dict[str, timedelta]:
    """Every duration that a plan names."""
    ends = len("_seconds")
    return {
        name[:-ends]: timedelta(seconds=value)
        for name, value in policy.items()
        if name.endswith("_seconds") and value is not None
    }


def head_of(settings: RepairSettings, tables: str, options: str, without: tuple[str, ...]) -> PlanHead:
    """The head of a plan for messages."""
    assert settings.as_of is not None, "a plan says its T"
    policy, margin = asdict(settings.policy_of(settings.as_of, None)), settings.timing.margin_seconds
    return PlanHead(
        kind=PlanKind.MESSAGES,
        keyspace=settings.keyspace,
        tables=tables,
        options=options,
        without=without,
        margin_seconds=margin,
        policy={**policy, "only": sorted(one.value for one in policy["only"])},
    )


class PlanWriter:
    """Writes the lines of a plan."""

    def __init__(self, file: Path, stream: IO[str]) -> None:
        self._file, self._stream = file, stream
        self._digest, self._counts = sha256(), dict[str, Counter[str]]()

    def add(self, finding: Finding) -> None:
        """A finding that would be mended, at once or once rows agree; others are not part of a plan."""
        if finding.due or (finding.reason and finding.reason.why is Why.ROWS_DIFFER):
            self.add_seen(finding, finding.suspect)

    def add_seen(self, finding: Finding, suspect: Suspect) -> None:
        """A finding as it was seen, and the suspect that is looked at again."""
        number = {"number": finding.number} if finding.number > 1 else {}
        seen = {"verdict": finding.verdict.value, **number, "before": image_digest(finding)}
        self.add_line(suspect.projection, finding.verdict.value, {**seen, "suspect": suspect_json(suspect)})

    def add_line(self, place: str, verdict: str, fields: Mapping[str, Any]) -> None:
        """A line of any kind, counted as of that table and verdict."""
        self._counts.setdefault(place, Counter())[verdict] += 1
        self._write(fields)

    def begin(self, head: PlanHead) -> None:
        self._write(head.json)

    def end(self) -> None:
        self._write({"counts": self._counts})
        self._write({"seal": self._digest.hexdigest()})

    def _write(self, fields: Mapping[str, Any]) -> None:
        line = json.dumps(fields, separators=(",", ":")) + "\n"
        self._digest.update(line.encode())
        with named_when_refused(self._file):
            self._stream.write(line)


@contextmanager
def plan_into(file: Path, head: PlanHead) -> Iterator[PlanWriter]:
    """A plan to be filled; the file is there when the block ends well, for its owner alone."""
    with whole_file(file, mode=_OWNER_ALONE) as stream:
        plan = PlanWriter(file, stream)
        plan.begin(head)
        yield plan
        plan.end()


@contextmanager
def plan_wanted(file: Path | None, head: Callable[[], PlanHead]) -> Iterator[PlanWriter | None]:
    """As `plan_into` where a file is named; None where none is."""
    if file is None:
        yield None
        return
    with plan_into(file, head()) as plan:
        yield plan


class PlanFile:
    """A plan that is whole and as it was written.

    Attributes:
        file: where it is.
        counts: its lines by table and verdict.
        seal: names exactly this plan.
    """

    def __init__(self, file: Path, stream: IO[bytes]) -> None:
        self.file, self._stream = file, stream
        first = _fields(stream.readline(_HEAD_BYTES_MAX))
        if first.get("plan") not in _KINDS:
            raise PlanRefused(f"{file} is not a plan of a repair", mend=_anew())
        if first.get("format") != FORMAT:
            raise PlanRefused(
                f"{file} is a plan of format {first.get('format')}; this version of mailmend knows format {FORMAT}",
                mend=f"Apply it with the version that made it. Or: {_anew(first['plan'])}",
            )
        sums, self.seal = self._read_whole(file)
        self.head = _head_of(first)
        self.counts: Mapping[str, Mapping[str, int]] = sums["counts"]

    @property
    def recorded(self) -> dict[str, str]:
        """What the run that applies the plan keeps of it in the ledger."""
        return {"plan": str(self.file), "seal": self.seal, "options": self.head.options}

    def suspects(self) -> Iterator[Suspect]:
        """The findings, to be looked at again."""
        for fields in self._lines("suspect"):
            yield replace(suspect_of_json(fields["suspect"]), planned=fields["before"])

    @property
    def verdicts(self) -> Mapping[str, Counter[Verdict]]:
        """The counts of findings."""
        return {name: Counter({Verdict(one): n for one, n in of.items()}) for name, of in self.counts.items()}

    def values(self, name: str) -> Iterator[Any]:
        """What lines of one kind hold: marks, or blobs."""
        return (fields[name] for fields in self._lines(name))

    def _lines(self, name: str) -> Iterator[dict[str, Any]]:
        """One such iterator at a time."""
        self._stream.seek(0)
        for line in self._stream:
            if name in (fields := json.loads(line)):
                yield fields

    def _read_whole(self, file: Path) -> tuple[dict[str, Any], str]:
        """The counts and the seal: the last two lines."""
        self._stream.seek(0)
        digest, before, last = sha256(), b"", b""
        for line in self._stream:
            digest.update(last)
            before, last = last, line
        seal = digest.hexdigest()
        if _fields(last) != {"seal": seal}:
            raise PlanRefused(f"{file} is not as it was written: it was edited, or is not whole", mend=_anew())
        return _fields(before), seal


@contextmanager
def plan_in(file: Path) -> Iterator[PlanFile]:
    """A plan, for as long as the block lasts.

    Raises:
        PlanRefused: the file cannot be read, or is no plan that this version can apply.
    """
    if not file.is_file():
        raise PlanRefused(f"there is no file {file}")
    try:
        stream = file.open("rb")
    except OSError as error:
        raise PlanRefused(f"{file} cannot be read: {error.strerror or error}") from error
    with stream:
        yield PlanFile(file, stream)


def needs_of(file: Path, part: str) -> bool:
    """Whether the `broker` or the `blobs` are needed to apply a plan; False where it is refused anyway."""
    try:
        with file.open("rb") as stream:
            return bool(_fields(stream.readline(_HEAD_BYTES_MAX))["policy"][part])
    except (OSError, KeyError, TypeError):
        return False


def _fields(line: bytes) -> dict[str, Any]:
    """A line's fields; none where it is not of a plan."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _head_of(fields: Mapping[str, Any]) -> PlanHead:
    known = {one.name: fields[one.name] for one in dataclass_fields(PlanHead) if one.name != "kind"}
    return PlanHead(**{**known, "kind": PlanKind(fields["plan"]), "without": tuple(fields["without"])})

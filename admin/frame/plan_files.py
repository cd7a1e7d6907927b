"""A repair's plan as a file: what was seen and would be mended, so that what a person agreed to is what is done.

Lines of JSON, streamed both ways, so any number of them needs the same memory: the head, a line for
each finding, mark or blob, their counts, and the seal, a digest of every byte before it. The seal
tells the slip of an editor and a copy cut short; it is not a signature, because a user who may
write the file may also run a repair. The file names keys and holds no mail.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from enum import StrEnum
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import IO, Any, Final, TypeVar

from mailmend.admin.frame.plan_lines import (
    NotOfItsForm,
    blob_of,
    is_number,
    mark_of,
    need,
    seconds,
    suspect_of_messages,
    suspect_of_queues,
    suspect_of_tables,
    text,
    texts,
)
from mailmend.admin.frame.scan_options import ScanOptions
from mailmend.admin.frame.whole_files import named_when_refused, whole_file
from mailmend.mailqueue.rules.blob_ids import ListedBlob
from mailmend.model.durations import format_duration
from mailmend.model.errors import PlanRefused
from mailmend.model.ids import EnqueueId, QueueName
from mailmend.model.instants import MICROS, instant_of
from mailmend.model.operations import Level
from mailmend.model.projections.findings import Finding, RepairPolicy, Suspect
from mailmend.model.projections.verdicts import COUNTED_LATER, MENDABLE, Verdict
from mailmend.model.texts import keyspace_option
from mailmend.repair.ledger.before_images import BROKEN, image_digest, suspect_json
from mailmend.repair.ledger.declared_runs import DECLARATION, MAILBOXES, TABLES

T = TypeVar("T")

FORMAT: Final = 1
"""Counted up when a plan says something that an older version would not do, or would do otherwise."""


class PlanKind(StrEnum):
    """The commands that make plans."""

    MESSAGES = "repair messages"
    MAILBOXES = "repair mailboxes"
    TABLES = "repair tables"
    QUEUES = "repair queues"
    BLOBS = "repair blobs"


_KINDS: Final = frozenset(PlanKind)
_OF_ROWS: Final = frozenset({PlanKind.MESSAGES, PlanKind.MAILBOXES, PlanKind.TABLES})
"""Plans whose lines are findings of rows."""

_OWNER_ALONE: Final = 0o600
_HEAD_BYTES_MAX: Final = 1_000_000
_CLOSING_LINES: Final = 2
"""The counts and the seal."""

_LINES: Final[Mapping[PlanKind, Mapping[str, Callable[[Mapping[str, Any]], Any]]]] = {
    PlanKind.MESSAGES: {"suspect": suspect_of_messages},
    PlanKind.MAILBOXES: {"suspect": suspect_of_messages},
    PlanKind.TABLES: {"suspect": suspect_of_tables},
    PlanKind.QUEUES: {"suspect": suspect_of_queues, "mark": mark_of},
    PlanKind.BLOBS: {"blob": blob_of},
}
"""The lines of each kind of plan, by the field that tells them apart."""


def _anew(kind: PlanKind = PlanKind.MESSAGES) -> str:
    option = ""
    if kind is PlanKind.TABLES:
        option = " --projections FILE"
    return f"Make it anew, and let it be approved again: mailmend {kind}{option} --plan FILE"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanHead:
    """The first line of a plan: what decides in addition to the findings.

    Attributes:
        kind: the command that made it.
        tables: an identity of the tables: another cluster's differ, and so do these once they are altered.
        options: what was typed, as a command line.
        policy: what may be done, and T as `as_of`, in JSON's types; in plans for queues and blobs also the `broker` and
            the store (`blobs`) that were looked at.
        without, margin_seconds: only in plans for messages and declared tables.
        declared: which tables, as the run that applies the plan keeps it: the declaration, or that
            the plan is for mailboxes; empty in plans for messages.
    """

    kind: PlanKind
    keyspace: str
    tables: str
    options: str
    policy: Mapping[str, Any]
    without: tuple[str, ...] = ()
    margin_seconds: float = 0.0
    declared: Mapping[str, Any] = field(default_factory=dict)

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
                mend=f"Name that with {keyspace_option(self.keyspace)}.",
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
            raise PlanRefused(
                f"the plan says that it was made in the future ({self.made_at})", mend="Set the clocks right."
            )
        if seconds > max_age.total_seconds():
            raise PlanRefused(
                f"the plan is old: it tells how rows were at {self.made_at}, more than {format_duration(max_age)} ago",
                mend=f"{_anew(self.kind)}. What is older may be allowed with --max-age.",
            )

    @property
    def is_of_rows(self) -> bool:
        """Whether its lines are findings of rows: of messages, mailboxes or declared tables."""
        return self.kind in _OF_ROWS

    @property
    def anew(self) -> str:
        """What a person does where the plan is not applied."""
        return _anew(self.kind)

    @property
    def made_at(self) -> str:
        return f"{instant_of(self.as_of):%Y-%m-%d %H:%M:%S} UTC"

    @property
    def json(self) -> dict[str, Any]:
        fields = asdict(self)
        return {"plan": fields.pop("kind"), "format": FORMAT, "made_at": self.made_at, **fields}


def seconds_of(**spans: timedelta | None) -> dict[str, float | None]:
    """Durations in seconds, as a plan keeps them: `NAME_seconds` by name. `spans_in` is the way back."""
    seconds: dict[str, float | None] = {}
    for name, span in spans.items():
        seconds[f"{name}_seconds"] = None
        if span is not None:
            seconds[f"{name}_seconds"] = span.total_seconds()
    return seconds


def how_to_look(scan: ScanOptions, margin: timedelta, as_of: int) -> dict[str, Any]:
    """How queues or blobs were looked at, as a plan keeps it. The application of the plan looks in the same way."""
    return {
        "as_of": as_of,
        "level": scan.level.value,
        "rows_per_second": scan.rows_per_second,
        **seconds_of(delay=scan.delay, clock_skew=scan.clock_skew, margin=margin),
    }


def spans_in(policy: Mapping[str, Any]) -> dict[str, timedelta]:
    """Every duration that a plan names."""
    spans = {}
    for name, value in policy.items():
        if name.endswith("_seconds") and value is not None:
            spans[name.removesuffix("_seconds")] = timedelta(seconds=value)
    return spans


class PlanWriter:
    """Writes the lines of a plan."""

    def __init__(self, file: Path, stream: IO[str]) -> None:
        self._file = file
        self._stream = stream
        self._digest = sha256()
        self._counts = dict[str, Counter[str]]()

    def add(self, finding: Finding) -> None:
        """A finding that would be mended, at once or once rows agree; others are not part of a plan."""
        if finding.due or (finding.reason and finding.reason.why in COUNTED_LATER):
            self.add_seen(finding, finding.suspect)

    def add_seen(self, finding: Finding, suspect: Suspect) -> None:
        """A finding as it was seen, and the suspect that is looked at again."""
        fields: dict[str, Any] = {"verdict": finding.verdict.value}
        if finding.number > 1:
            fields["number"] = finding.number
        fields["before"] = image_digest(finding)
        fields["suspect"] = suspect_json(suspect)
        self.add_line(suspect.projection, finding.verdict.value, fields)

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
        self.file = file
        self._stream = stream
        first = _fields(stream.readline(_HEAD_BYTES_MAX))
        if str(first.get("plan")) not in _KINDS:
            raise PlanRefused(f"{file} is not a plan of a repair", mend=_anew())
        if first.get("format") != FORMAT:
            raise PlanRefused(
                f"{file} is a plan of format {first.get('format')}; this version of mailmend knows format {FORMAT}",
                mend=f"Apply it with the version that made it. Or: {_anew(first['plan'])}",
            )
        self._kind = PlanKind(first["plan"])
        sums, self.seal = self._read_whole(file)
        with self._refused("its first line"):
            self.head = _head_of(first)
        with self._refused("its counts"):
            self.counts = _counts_of(sums)
            if self.head.is_of_rows:
                self.verdicts  # noqa: B018 - each verdict is known
        self._check_lines()

    @property
    def recorded(self) -> dict[str, Any]:
        """What the run that applies the plan keeps of it in the ledger."""
        kept = {"plan": str(self.file), "seal": self.seal, "options": self.head.options}
        return {**kept, **self.head.declared}

    def suspects(self) -> Iterator[Suspect]:
        """The findings, to be looked at again."""
        return self.values("suspect", _LINES[self.head.kind]["suspect"])

    def marks(self) -> Iterator[tuple[QueueName, EnqueueId]]:
        """The marks that may go."""
        return self.values("mark", mark_of)

    def blobs(self) -> Iterator[ListedBlob]:
        """The blobs that may go, as their store listed them."""
        return self.values("blob", blob_of)

    @property
    def verdicts(self) -> Mapping[str, Counter[Verdict]]:
        """The counts of findings."""
        return {name: Counter({Verdict(verdict): n for verdict, n in of.items()}) for name, of in self.counts.items()}

    def values(self, name: str, build: Callable[[Mapping[str, Any]], T]) -> Iterator[T]:
        """What lines of one kind hold: suspects, marks, or blobs. One such iterator at a time.

        Args:
            name: the field that lines of the kind have.
            build: makes the value of the line's fields.

        Raises:
            PlanRefused: a line is not of its form.
        """
        self._stream.seek(0)
        for number, line in enumerate(self._stream, 1):
            fields = _fields(line)
            if name in fields:
                with self._refused(f"line {number}"):
                    value = build(fields)
                yield value

    def _check_lines(self) -> None:
        """Refuse a line that no reader of this kind of plan takes, before anything is done: half a plan is no plan."""
        self._stream.seek(0)
        builders = _LINES[self.head.kind]
        count = sum(1 for _ in self._stream)
        self._stream.seek(0)
        for number, line in enumerate(islice(self._stream, count - _CLOSING_LINES), 1):
            if number == 1:
                continue
            fields = _fields(line)
            with self._refused(f"line {number}"):
                names = builders.keys() & fields.keys()
                need(len(names) == 1, "it", f"a line of a plan of {self.head.kind}")
                builders[names.pop()](fields)

    @contextmanager
    def _refused(self, what: str) -> Iterator[None]:
        """The seal is no signature: a person who writes a plan by hand may seal anything."""
        try:
            yield
        except BROKEN as error:
            why = type(error).__name__
            if isinstance(error, NotOfItsForm):
                why = str(error)
            raise PlanRefused(f"{self.file}: {what} is not of a plan: {why}", mend=_anew(self._kind)) from error

    def _read_whole(self, file: Path) -> tuple[dict[str, Any], str]:
        """The counts and the seal: the last two lines."""
        self._stream.seek(0)
        digest = sha256()
        before = b""
        last = b""
        for line in self._stream:
            digest.update(last)
            before = last
            last = line
        seal = digest.hexdigest()
        if _fields(last) != {"seal": seal}:
            why = f"{file} is not as it was written: it was edited, or is not whole"
            raise PlanRefused(why, mend=_anew(self._kind))
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
    except (OSError, *BROKEN):
        return False


def _fields(line: bytes) -> dict[str, Any]:
    """A line's fields; none where it is not of a plan."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return found


def _head_of(fields: Mapping[str, Any]) -> PlanHead:
    kind = PlanKind(fields["plan"])
    head = PlanHead(
        kind=kind,
        keyspace=text(fields, "keyspace"),
        tables=text(fields, "tables"),
        options=text(fields, "options"),
        policy=_policy_of(fields["policy"]),
        without=tuple(texts(fields, "without")),
        margin_seconds=seconds(fields, "margin_seconds"),
        declared=_declared_of(fields.get("declared", {})),
    )
    need((DECLARATION in head.declared) is (kind is PlanKind.TABLES), "declared", "of its kind")
    need((MAILBOXES in head.declared) is (kind is PlanKind.MAILBOXES), "declared", "of its kind")
    if head.is_of_rows:
        _of_messages(head.repair_policy)
    else:
        need(set(head.policy) >= _NEEDED[kind], "its policy", f"with {', '.join(sorted(_NEEDED[kind]))}")
    return head


def _declared_of(kept: Any) -> Mapping[str, Any]:
    need(isinstance(kept, dict), "declared", "an object")
    fields = dict(kept)
    for name in ("projections", "named", DECLARATION):
        if name in fields:
            text(fields, name)
    for form in fields.get(TABLES, {}).values():
        texts(form, "key")
        for column in form["columns"]:
            text(form["columns"], column)
    return fields


_NEEDED: Final = {
    PlanKind.QUEUES: {"as_of", "level", "rows_per_second", "broker", "blobs", "marks", "no_blobs"},
    PlanKind.BLOBS: {
        *("as_of", "level", "rows_per_second", "broker", "blobs"),
        *("family", "no_broker", "references", "references_file", "queues"),
    },
}
_FLAGS: Final = frozenset(
    {
        *("beat_ahead", "accept_torn", "fill_torn", "touch_base", "serial", "all_truths"),
        *("no_blobs", "no_broker", "only_broker"),
    }
)
_LISTS: Final = frozenset({"only", "references", "references_file", "queues"})
_AS_OF_MAX: Final = 253_402_300_799 * MICROS
_RATE_MAX: Final = 2**31
_LEVELS: Final = frozenset(level.value for level in Level)


def _policy_of(policy: Mapping[str, Any]) -> Mapping[str, Any]:
    """A policy each of whose fields has its type, by its name."""
    for name, value in policy.items():
        if name == "as_of":
            need(is_number(value, int) and 0 <= value < _AS_OF_MAX, name, "an instant in microseconds")
        elif name == "rows_per_second":
            need(value is None or (is_number(value, int) and 0 < value < _RATE_MAX), name, "a rate, or null")
        elif name.endswith("_seconds"):
            need(value is None or seconds(policy, name) >= 0, name, "a duration, or null")
        elif name == "family":
            need(is_number(value, int) and 0 <= value < _RATE_MAX, name, "a number of a family")
        elif name == "level":
            need(value in _LEVELS, name, "a read level")
        elif name in _FLAGS:
            need(isinstance(value, bool), name, "true or false")
        elif name in _LISTS:
            texts(policy, name)
        elif value is not None:
            text(policy, name)
    return policy


def _of_messages(policy: RepairPolicy) -> None:
    need(policy.run is None, "run", "null")
    need(policy.only <= MENDABLE, "only", "verdicts that can be mended")
    need(policy.orphans in {"report", "quarantine"}, "orphans", "report or quarantine")
    need(policy.dangling in {"withdraw", "restore", "report"}, "dangling", "withdraw, restore or report")
    need(policy.leaks in {"report", "collect"}, "leaks", "report or collect")
    need(None not in {policy.skew_seconds, policy.margin_seconds}, "skew_seconds", "a duration")


def _counts_of(sums: Mapping[str, Any]) -> Mapping[str, Mapping[str, int]]:
    counts: Mapping[str, Mapping[str, int]] = sums["counts"]
    for of_verdicts in counts.values():
        for verdict, count in of_verdicts.items():
            need(is_number(count, int) and 0 <= count < _AS_OF_MAX, verdict, "a number of findings")
    return counts

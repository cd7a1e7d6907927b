"""A repair's plan as a file: what was seen and would be mended, so that what a person agreed to is what is done.

Lines of JSON, streamed both ways, so any number of findings needs the same memory: the head, a line for each finding,
their counts, and the seal, a digest of every byte before it. The seal tells the slip of an editor and a copy cut short;
it is no signature, for whoever may write the file may as well run a repair. The file names keys and holds no mail.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, Final

from admin.settings import format_duration
from admin.whole_files import named_when_refused, whole_file
from model.errors import PlanRefused
from model.instants import MICROS, instant_of
from model.projections.findings import Finding, RepairPolicy, Suspect
from model.projections.reasons import Why
from model.projections.verdicts import Verdict
from repair.ledger.before_images import image_digest, suspect_json, suspect_of_json
from repair.mending.engine import RepairSettings

FORMAT: Final = 1
"""Raised when a plan says something that an older version would not do, or would do otherwise."""

_KIND: Final = "repair messages"
_OWNER_ALONE: Final = 0o600
_HEAD_BYTES_MAX: Final = 1_000_000
_ANEW: Final = "Make it anew, and let it be approved again: mailmend repair messages --plan FILE"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanHead:
    """What decides, beside the findings.

    Attributes:
        tables: tells the tables from those of any other cluster, and from themselves once they are altered.
        options: what was typed, as a command line.
        policy: with T; without a run.
    """

    keyspace: str
    tables: str
    options: str
    without: tuple[str, ...]
    margin_seconds: float
    policy: RepairPolicy

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
                mend=f"See that --host names the cluster that is meant. {_ANEW}",
            )

    def refuse_old(self, now: int, max_age: timedelta) -> None:
        """Refuse a plan by the age of what it saw.

        Args:
            now: in microseconds.
            max_age: the greatest age that is allowed.
        """
        seconds = (now - self.policy.as_of) / MICROS
        if seconds < 0:
            raise PlanRefused(f"the plan says that it was made in the future ({self.made_at})", mend="Mend the clocks.")
        if seconds > max_age.total_seconds():
            raise PlanRefused(
                f"the plan is old: it tells how rows were at {self.made_at}, more than {format_duration(max_age)} ago",
                mend=f"{_ANEW}. What is older may be allowed with --max-age.",
            )

    @property
    def made_at(self) -> str:
        return f"{instant_of(self.policy.as_of):%Y-%m-%d %H:%M:%S} UTC"

    @property
    def json(self) -> dict[str, Any]:
        fields = {
            **asdict(self),
            "policy": {**asdict(self.policy), "only": sorted(one.value for one in self.policy.only)},
        }
        return {"plan": _KIND, "format": FORMAT, "made_at": self.made_at, **fields}


def head_of(settings: RepairSettings, tables: str, options: str, without: tuple[str, ...]) -> PlanHead:
    assert settings.as_of is not None, "a plan says its T"
    policy, margin = settings.policy_of(settings.as_of, None), settings.timing.margin_seconds
    return PlanHead(
        keyspace=settings.keyspace,
        tables=tables,
        options=options,
        without=without,
        margin_seconds=margin,
        policy=policy,
    )


@contextmanager
def plan_into(file: Path, head: PlanHead) -> Iterator[Callable[[Finding], None]]:
    """A function that adds a finding that would be mended, at once or once rows agree; others are not part of a plan.

    The file is there when the block ends well, for its owner alone.
    """
    with whole_file(file, mode=_OWNER_ALONE) as stream:
        digest, counts = sha256(), dict[str, Counter[str]]()

        def write(fields: Mapping[str, Any]) -> None:
            line = json.dumps(fields, separators=(",", ":")) + "\n"
            digest.update(line.encode())
            with named_when_refused(file):
                stream.write(line)

        def add(finding: Finding) -> None:
            if finding.due or (finding.reason and finding.reason.why is Why.ROWS_DIFFER):
                counts.setdefault(finding.suspect.projection, Counter())[finding.verdict.value] += 1
                seen = {"verdict": finding.verdict.value, "before": image_digest(finding)}
                write({**seen, "suspect": suspect_json(finding.suspect)})

        write(head.json)
        yield add
        write({"counts": counts})
        write({"seal": digest.hexdigest()})


class PlanFile:
    """A plan that is whole and as it was written.

    Attributes:
        counts: the findings by projection and verdict.
        seal: names exactly this plan.
    """

    def __init__(self, file: Path, stream: IO[bytes]) -> None:
        self._stream = stream
        first = _fields(stream.readline(_HEAD_BYTES_MAX))
        if first.get("plan") != _KIND:
            raise PlanRefused(f"{file} is not a plan of a repair", mend=_ANEW)
        if first.get("format") != FORMAT:
            raise PlanRefused(
                f"{file} is a plan of format {first.get('format')}; this version of mailmend knows format {FORMAT}",
                mend=f"Apply it with the version that made it. Or: {_ANEW}",
            )
        sums, self.seal = self._read_whole(file)
        self.head = _head_of(first)
        self.counts = {name: Counter({Verdict(one): n for one, n in of.items()}) for name, of in sums["counts"].items()}

    def suspects(self) -> Iterator[Suspect]:
        """The findings, to be looked at again; one such iterator at a time."""
        self._stream.seek(0)
        for line in self._stream:
            fields = json.loads(line)
            if "suspect" in fields:
                yield replace(suspect_of_json(fields["suspect"]), planned=fields["before"])

    def _read_whole(self, file: Path) -> tuple[dict[str, Any], str]:
        """The counts and the seal: the last two lines."""
        self._stream.seek(0)
        digest, before, last = sha256(), b"", b""
        for line in self._stream:
            digest.update(last)
            before, last = last, line
        seal = digest.hexdigest()
        if _fields(last) != {"seal": seal}:
            raise PlanRefused(f"{file} is not as it was written: it was edited, or is not whole", mend=_ANEW)
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


def _fields(line: bytes) -> dict[str, Any]:
    """A line's fields; none where it is not of a plan."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _head_of(fields: Mapping[str, Any]) -> PlanHead:
    policy = {**fields["policy"], "only": frozenset(map(Verdict, fields["policy"]["only"]))}
    return PlanHead(
        keyspace=fields["keyspace"],
        tables=fields["tables"],
        options=fields["options"],
        without=tuple(fields["without"]),
        margin_seconds=fields["margin_seconds"],
        policy=RepairPolicy(**policy),
    )

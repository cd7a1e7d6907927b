"""A few examples of each finding, gathered while outcomes stream by: a person sees keys and not only counts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from model.schema.table import Key
from repair.decisions.findings import Outcome
from repair.decisions.verdicts import Verdict

SAMPLES_MAX = 5
"""Examples kept per projection and verdict; a report stays small whatever was found."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One example: where, what, and what became of it."""

    projection: str
    verdict: Verdict
    key: str
    ended: str


@dataclass(slots=True)
class Samples:
    """The first few outcomes of each kind."""

    kept: dict[tuple[str, Verdict], list[Sample]] = field(default_factory=dict)

    def add(self, outcome: Outcome) -> None:
        """Keep the outcome if it is among the first of its kind."""
        if outcome.verdict is Verdict.AGREE and outcome.error is None:
            return
        name = outcome.suspect.projection
        seen = self.kept.setdefault((name, outcome.verdict), [])
        if len(seen) < SAMPLES_MAX:
            seen.append(Sample(name, outcome.verdict, key_text(outcome.suspect.key), ending_text(outcome)))

    def __iter__(self) -> Iterator[Sample]:
        for found in sorted(self.kept, key=lambda kind: (kind[0], kind[1].value)):
            yield from self.kept[found]

    def by_kind(self) -> Mapping[tuple[str, Verdict], list[Sample]]:
        """The examples per projection and verdict."""
        return self.kept


def key_text(key: Key) -> str:
    """A primary key as one may search for it."""
    return " ".join(str(value) for value in key)


def ending_text(outcome: Outcome) -> str:
    """What became of a suspect, in a few words."""
    if outcome.error:
        return outcome.error.splitlines()[0]
    words = outcome.result.value if outcome.result else "as found"
    return f"{words}; its content still exists" if outcome.last_trace else words

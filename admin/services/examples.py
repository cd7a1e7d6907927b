"""A few examples of each finding, kept while findings are streamed: a person sees keys and not only counts."""

from bisect import insort
from dataclasses import dataclass, field

from model.projections.findings import Finding
from model.projections.reasons import Why
from model.projections.verdicts import Verdict
from model.schema.table import Key

EXAMPLES_MAX = 5
"""Examples kept per projection and verdict; a report stays small whatever was found."""


@dataclass(frozen=True, slots=True)
class Example:
    """One example: its projection, key, verdict and result."""

    projection: str
    verdict: Verdict
    key: str
    result: str


@dataclass(slots=True)
class Examples:
    """A few outcomes of each kind: the first by their keys, in whatever order an engine finds them."""

    kept: dict[tuple[str, str], list[Example]] = field(default_factory=dict)

    def add(self, outcome: Finding) -> None:
        if outcome.verdict is Verdict.AGREE and outcome.error is None:
            return
        name, verdict = outcome.suspect.projection, outcome.verdict
        seen = self.kept.setdefault((name, verdict.value), [])
        insort(
            seen, Example(name, verdict, key_text(outcome.suspect.key), result_text(outcome)), key=lambda one: one.key
        )
        del seen[EXAMPLES_MAX:]

    def sorted(self) -> tuple[Example, ...]:
        return tuple(one for kind in sorted(self.kept) for one in self.kept[kind])


def key_text(key: Key) -> str:
    return " ".join(str(value) for value in key)


def result_text(outcome: Finding) -> str:
    if outcome.error:
        return outcome.error.splitlines()[0]
    words = outcome.result.value if outcome.result else "as found"
    if outcome.reason and outcome.reason.why not in {Why.DUE, Why.RAW}:
        words = f"{words}: {outcome.reason.text}"
    return f"{words}; its content still exists" if outcome.last_trace else words

"""Progress that nobody looks at, but that a test may ask for afterwards."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class SilentProgress:
    """Keeps the stages with their totals, and the steps and suspects of all of them."""

    stages: dict[str, int | None] = field(default_factory=dict)
    steps: int = 0
    suspects: int = 0

    def stage(self, name: str, total: int | None = None) -> None:
        self.stages[name] = total

    def advance(self, steps: int, suspects: int = 0) -> None:
        self.steps += steps
        self.suspects += suspects

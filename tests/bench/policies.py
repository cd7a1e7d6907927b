"""What a policy file of many conditions costs to read and to lint, beside reading its YAML alone."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time

import yaml

from mailmend.delivery.policy.file.reading import read_policies
from mailmend.delivery.policy.lint import lint_policies

CONDITIONS = (1_000, 10_000)
ROUNDS = 3


@dataclass(frozen=True, slots=True)
class PolicyCost:
    """Processor seconds, medians; `bare`: of PyYAML's C loader alone."""

    conditions: int
    megabytes: float
    bare: float
    read: float
    linted: float

    def __str__(self) -> str:
        return (
            f"{self.conditions:,} conditions ({self.megabytes:.2f} MB): YAML alone {self.bare:.2f} s, "
            f"read {self.read:.2f} s = {self.read / self.bare:.1f} x, lint besides {self.linted:.2f} s"
        )


def measure(conditions: int) -> PolicyCost:
    """One policy by domain and address, with so many conditions, each for a domain of its own."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "policies.yaml"
        lines = "".join(
            f"      - if: {{recipientdomain: [d{number}.com, '*.d{number}.com'], localip: 192.0.2.{number % 250}}}\n"
            f"        then: {{concurrency: {number % 50 + 1}, rate: {number + 1}/60}}\n"
            for number in range(conditions)
        )
        head = "policies:\n  - fields: [recipientdomain, localip]\n    default: {concurrency: 5}\n    conditions:\n"
        file.write_text(head + lines)
        found = read_policies(file)
        return PolicyCost(
            conditions,
            file.stat().st_size / 1e6,
            _seconds(lambda: yaml.load(file.read_text(), Loader=yaml.CSafeLoader)),
            _seconds(lambda: read_policies(file)),
            _seconds(lambda: list(lint_policies(found.said))),
        )


def _seconds(work: Callable[[], object]) -> float:
    spent = []
    for _ in range(ROUNDS):
        began = process_time()
        work()
        spent.append(process_time() - began)
    return median(spent)

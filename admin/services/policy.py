"""Policy files of `mailmend delivery serve`, looked at without a server, by the code that the server uses."""

from dataclasses import dataclass
from pathlib import Path

from admin.wiring.delivery import policy_file
from model.errors import ExitCode
from model.pickup.lint import PolicyRule, lint_policies
from model.texts import Place


@dataclass(frozen=True, slots=True)
class PlacedFinding:
    """Something in a policy file that is legal, and surely not meant.

    Attributes:
        because: the places of what makes it so.
    """

    rule: PolicyRule
    text: str
    place: Place
    because: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicyLintResult:
    """What was found, in the order of the file."""

    file: Path
    findings: tuple[PlacedFinding, ...]

    @property
    def exit(self) -> ExitCode:
        return ExitCode.DRIFT if self.findings else ExitCode.FINE


def lint(file: Path) -> PolicyLintResult:
    """What of a policy file the server would take, although it is surely not meant.

    Raises:
        WrongUse: it cannot be read.
        BadPolicyFile: the server would not take it; the message says where.
    """
    read = policy_file(file)
    found = [
        PlacedFinding(one.rule, one.hit.text, read.place_of(one.hit.path), tuple(map(read.place_of, one.hit.because)))
        for one in lint_policies(read.said)
    ]
    return PolicyLintResult(file, tuple(sorted(found, key=lambda one: (one.place.line, one.place.column))))

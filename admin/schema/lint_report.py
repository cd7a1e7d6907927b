"""What lint found."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mailmend.cql.schema.lint.rule import LintFinding, LintRule, Severity
from mailmend.cql.schema.lint.rules import RULES
from mailmend.model.errors import ExitCode


@dataclass(frozen=True, slots=True)
class LintReport:
    """What was found.

    Attributes:
        looked_at: the keyspaces, in the order of their first mention.
        findings: all of them, those that are ignored with their reason.
        texts: the files by name, to show places in.
        unused: ignores of settings and files that match nothing, in words.
    """

    looked_at: tuple[str, ...]
    findings: tuple[LintFinding, ...]
    level: Severity
    rules: tuple[LintRule, ...] = RULES
    texts: Mapping[str, str] = field(default_factory=dict)
    unused: tuple[str, ...] = ()

    @property
    def open(self) -> tuple[LintFinding, ...]:
        return tuple(finding for finding in self.findings if finding.ignored is None)

    @property
    def ignored(self) -> tuple[LintFinding, ...]:
        return tuple(finding for finding in self.findings if finding.ignored is not None)

    @property
    def exit(self) -> ExitCode:
        return ExitCode.DRIFT if any(finding.severity >= self.level for finding in self.open) else ExitCode.FINE

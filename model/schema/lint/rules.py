"""Every rule, and what looking with them finds."""

from collections.abc import Iterable, Sequence
from typing import Final

from model.errors import WrongUse
from model.schema.lint.changes import CHANGES
from model.schema.lint.finding import Finding, Hit, Rule
from model.schema.lint.keyspaces import KEYSPACES
from model.schema.lint.options import OPTIONS
from model.schema.lint.placing import Defining, defining, spot_of
from model.schema.lint.subject import Subject
from model.schema.lint.tables import TABLES
from model.schema.lint.windows import TIME_WINDOWS

RULES: Final[tuple[Rule, ...]] = tuple(
    sorted(
        (*TIME_WINDOWS, *CHANGES, *TABLES, *KEYSPACES, *OPTIONS), key=lambda rule: (rule.id[0] == "K", int(rule.id[1:]))
    )
)
"""T1 to T24, then K1 and K2."""


def rules_named(wanted: Iterable[str] = (), excluded: Iterable[str] = ()) -> tuple[Rule, ...]:
    """The rules that are wanted (all where nothing is), without those excluded.

    Raises:
        WrongUse: one that there is not.
    """
    ids = {rule.id for rule in RULES}
    names, without = ({name.strip().upper() for name in those} for those in (wanted, excluded))
    for name in sorted(names | without):
        if name not in ids:
            raise WrongUse(f"there is no rule {name!r}", mend="List the rules: mailmend schema lint --rules")
    return tuple(rule for rule in RULES if (not names or rule.id in names) and rule.id not in without)


def lint(subject: Subject, rules: Sequence[Rule] = RULES) -> tuple[Finding, ...]:
    """What the rules find, in the order of the text (what no text says comes last)."""
    told = defining(subject)
    found = [_finding(subject, rule, hit, told) for rule in rules for hit in rule.check(subject)]
    return tuple(sorted(found, key=_place))


def _finding(subject: Subject, rule: Rule, hit: Hit, told: Defining) -> Finding:
    number, span = spot_of(subject, hit, told)
    return Finding(
        rule,
        subject.keyspace,
        hit.table,
        hit.subject,
        rule.severity if hit.severity is None else hit.severity,
        hit.text,
        hit.fix or rule.fix,
        file=None if number is None else subject.statements[number].file or None,
        span=span,
        statement=number,
    )


def _place(finding: Finding) -> tuple[bool, int, int, str, str, str]:
    number, start = finding.statement, finding.span.start if finding.span else 0
    table = finding.table.lower()
    return (number is None, number or 0, start, table, f"{finding.rule.id:0>3}", finding.text)

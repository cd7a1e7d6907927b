"""All rules, and the search for findings, each with its place in the texts that the schema was read from."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import Final

from mailmend.cql.schema.lint import changes, options, tables
from mailmend.cql.schema.lint.rule import Hit, LintFinding, LintRule
from mailmend.cql.schema.lint.subject import Subject
from mailmend.cql.statements import Span
from mailmend.model.errors import WrongUse
from mailmend.model.names import name_of


def _rules_in(*modules: ModuleType) -> list[LintRule]:
    rules: list[LintRule] = []
    for module in modules:
        rules += [var for var in vars(module).values() if isinstance(var, LintRule)]
    return rules


def _order(rule: LintRule) -> tuple[bool, int]:
    return rule.id[0] == "K", int(rule.id[1:])


_FOUND = _rules_in(changes, tables, options)
RULES: Final[tuple[LintRule, ...]] = tuple(sorted(_FOUND, key=_order))
"""All rules: T1 to T25, then K1 and K2."""

Defining = Mapping[str, Sequence[int]]
"""For each table the numbers of the statements that define it, the one that creates it first."""


def rules_named(wanted: Iterable[str] = (), excluded: Iterable[str] = ()) -> tuple[LintRule, ...]:
    """The wanted rules (all where none are named), without the excluded ones."""
    ids = {rule.id for rule in RULES}
    names = {name.strip().upper() for name in wanted}
    without = {name.strip().upper() for name in excluded}
    for name in sorted(names | without):
        if name not in ids:
            raise WrongUse(f"there is no rule {name!r}", mend="List the rules: mailmend schema lint --rules")
    return tuple(rule for rule in RULES if (not names or rule.id in names) and rule.id not in without)


def lint(subject: Subject, rules: Sequence[LintRule] = RULES) -> tuple[LintFinding, ...]:
    """All findings of the rules, in the order of the text; findings without a place come last."""
    defining = _defining(subject)
    found = []
    for rule in rules:
        for hit in rule.check(subject):
            found.append(_finding(subject, rule, hit, defining))
    return tuple(sorted(found, key=_place))


def _finding(subject: Subject, rule: LintRule, hit: Hit, defining: Defining) -> LintFinding:
    number, span = _spot(subject, hit, defining)
    severity = hit.severity
    if severity is None:
        severity = rule.severity
    file = None
    if number is not None:
        file = subject.statements[number].file or None
    return LintFinding(
        rule,
        subject.keyspace,
        hit.table,
        hit.subject,
        severity,
        hit.text,
        hit.fix or rule.fix,
        file=file,
        span=span,
        statement=number,
    )


def _place(finding: LintFinding) -> tuple[bool, int, int, str, str, str]:
    number = finding.statement
    start = 0
    if finding.span:
        start = finding.span.start
    table = finding.table.lower()
    return (number is None, number or 0, start, table, f"{finding.rule.id:0>3}", finding.text)


def _defining(subject: Subject) -> Defining:
    found = defaultdict(list)
    for number, parsed in enumerate(subject.statements):
        if parsed.statement.defines_table:
            found[name_of(parsed.statement.about)].append(number)
    return found


def _spot(subject: Subject, hit: Hit, defining: Defining) -> tuple[int | None, Span | None]:
    """The number of a statement and a piece of its file; (None, None) where no text says it."""
    if hit.statement is not None:
        numbers: Sequence[int] = (hit.statement,)
    else:
        numbers = defining.get(name_of(hit.table), ())
    for wanted in hit.places:
        for number in reversed(numbers):
            if (found := subject.statements[number].places.get(wanted)) is not None:
                return number, found
    if not numbers:
        return None, None
    parsed = subject.statements[numbers[0]]
    return numbers[0], parsed.name_at or parsed.span

"""What `mailmend schema lint` looks at and finds: files read, rules asked, reasons set beside their findings."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

from admin.settings import reason_of
from cql.introspect import SchemaServer
from cql.lint_sources import live_subject, statements_of
from model.catalog.lint_ignores import ignores_for
from model.errors import ExitCode, WrongUse
from model.schema.lint.ignores import Ignore, notes_among, unused_among, with_reasons
from model.schema.lint.knowledge import HINT_WINDOW_DEFAULT, Knowledge
from model.schema.lint.rule import LintFinding, LintRule, Severity
from model.schema.lint.rules import RULES, lint
from model.schema.lint.servers import ServerRelease
from model.schema.lint.subject import Subject, subjects_of

ENDING = ".cql"

STDIN = Path("-")
"""What is typed for the standard input."""


@dataclass(frozen=True, slots=True)
class LintOrder:
    """What is asked for.

    Attributes:
        keyspace: the live one; for files, what statements without a keyspace are run against.
        release: the server that the schema is for; None: the live one's own, or the newest.
        hint_window: None: the live server's own, or its default.
        ignores: those of the settings.
    """

    keyspace: str
    rules: tuple[LintRule, ...] = RULES
    level: Severity = Severity.WARNING
    release: ServerRelease | None = None
    hint_window: timedelta | None = None
    knowledge: Knowledge = field(default_factory=Knowledge)
    ignores: tuple[Ignore, ...] = ()


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
        """Findings that nobody has given a reason for."""
        return tuple(finding for finding in self.findings if finding.ignored is None)

    @property
    def ignored(self) -> tuple[LintFinding, ...]:
        """Findings that stand, with a reason."""
        return tuple(finding for finding in self.findings if finding.ignored is not None)

    @property
    def exit(self) -> ExitCode:
        """Whether anything is at the level that counts, or above it."""
        return ExitCode.DRIFT if any(one.severity >= self.level for one in self.open) else ExitCode.FINE


def lint_files(paths: Sequence[Path], order: LintOrder) -> LintReport:
    """Look at files, and at every file of folders, as one history in that order.

    Raises:
        WrongUse: a path that is not there or cannot be read, a folder without CQL, a note without a reason.
        CqlSyntaxError: a file is not CQL.
    """
    texts = dict(_texts(paths))
    knowledge = replace(order.knowledge, hint_window=order.hint_window or HINT_WINDOW_DEFAULT)
    release = order.release or ServerRelease.CASSANDRA_5_0
    subjects = subjects_of(statements_of(texts), order.keyspace, release, knowledge)
    return _report(subjects, order, texts)


def lint_live(server: SchemaServer, order: LintOrder) -> LintReport:
    """Look at a live keyspace.

    Raises:
        UnknownKeyspace: there is none of that name.
    """
    subject = live_subject(server, order.keyspace, order.knowledge, order.release, order.hint_window)
    return lint_schema(subject, order)


def lint_schema(subject: Subject, order: LintOrder) -> LintReport:
    """Look at a schema that is there as a value."""
    return _report((subject,), order, {})


def _report(subjects: Sequence[Subject], order: LintOrder, texts: Mapping[str, str]) -> LintReport:
    ids = {rule.id for rule in order.rules}
    findings: list[LintFinding] = []
    unused: list[str] = []
    for subject in subjects:
        notes = notes_among(subject.statements)
        found = with_reasons(lint(subject, order.rules), (*notes, *order.ignores, *ignores_for(subject.schema)))
        findings += found
        unused += [str(note) for note in unused_among(notes, found) if note.rule in ids]
    idle = unused_among(order.ignores, findings)
    unused += [f"the settings: {ignore}" for ignore in idle if ignore.rule in ids]
    return LintReport(
        tuple(subject.keyspace for subject in subjects),
        tuple(findings),
        order.level,
        order.rules,
        texts,
        tuple(unused),
    )


def _texts(paths: Iterable[Path]) -> Iterator[tuple[str, str]]:
    for path in paths:
        if path == STDIN:
            yield "stdin", _standard_input()
        elif path.is_dir():
            files = sorted(file for file in path.rglob(f"*{ENDING}") if file.is_file())
            if not files:
                raise WrongUse(f"{path} holds no {ENDING} file", mend="Name a file, or a folder of migrations.")
            yield from ((str(file), _text(file)) for file in files)
        else:
            yield str(path), _text(path)


def _standard_input() -> str:
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise WrongUse(f"the standard input cannot be read: {reason_of(error)}") from error


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise WrongUse(f"{file} cannot be read: {reason_of(error)}") from error

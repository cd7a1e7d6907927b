"""`mailmend schema lint`: reads files or a keyspace, runs the rules, and matches ignores with their findings."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import open_cluster
from mailmend.admin.frame.settings import ConnectionSettings, reason_of
from mailmend.admin.frame.whole_files import refuse_unwritable
from mailmend.cql.lint_sources import live_subject, statements_of
from mailmend.cql.ports import SchemaServer
from mailmend.cql.schema.lint.catalog_ignores import ignores_for
from mailmend.cql.schema.lint.ignores import Ignore, notes_among, unused_among, with_reasons
from mailmend.cql.schema.lint.knowledge import HINT_WINDOW_DEFAULT, Knowledge
from mailmend.cql.schema.lint.rule import LintFinding, LintRule, Severity
from mailmend.cql.schema.lint.rules import RULES, rules_named
from mailmend.cql.schema.lint.rules import lint as findings_of
from mailmend.cql.schema.lint.servers import ServerRelease
from mailmend.cql.schema.lint.subject import Subject, subjects_of
from mailmend.model.errors import ExitCode, WrongUse

ENDING = ".cql"

STDIN = STDOUT = Path("-")
"""What is typed for standard input and output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LintRequest:
    """What is linted, by which rules, and what is shown."""

    connection: ConnectionSettings
    paths: tuple[Path, ...] = ()
    live: bool = False
    rule: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    fail_on: str = "warning"
    server_version: ServerRelease | None = None
    repair_interval: timedelta | None = None
    hint_window: timedelta | None = None
    slack: timedelta = timedelta(days=1)
    sstables_max: int = 100
    rows_max: int = 100_000
    partition_rows: tuple[tuple[str, int], ...] = ()
    projection: tuple[tuple[str, str], ...] = ()
    marks_table: tuple[tuple[str, str], ...] = ()
    ignore: tuple[Ignore, ...] = ()
    ignored: bool = False
    list_rules: bool = False
    form: str = "human"
    sarif_file: Path | None = None

    def settings(self) -> "LintSettings":
        """The rules and their parameters.

        Raises:
            WrongUse: an unknown rule.
        """
        rules_named(ignore.rule for ignore in self.ignore)
        return LintSettings(
            keyspace=self.connection.keyspace,
            rules=rules_named(_listed(self.rule), _listed(self.exclude)),
            level=Severity[self.fail_on.upper()],
            release=self.server_version,
            hint_window=self.hint_window,
            knowledge=Knowledge(
                repair_interval=self.repair_interval,
                slack=self.slack,
                sstables_max=self.sstables_max,
                rows_max=self.rows_max,
                rows_per_partition=dict(self.partition_rows),
                projections=self.projection,
                marks=self.marks_table,
            ),
            ignores=self.ignore,
        )


@dataclass(frozen=True, slots=True)
class LintSettings:
    """The rules and their parameters.

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
        return tuple(finding for finding in self.findings if finding.ignored is None)

    @property
    def ignored(self) -> tuple[LintFinding, ...]:
        return tuple(finding for finding in self.findings if finding.ignored is not None)

    @property
    def exit(self) -> ExitCode:
        return ExitCode.DRIFT if any(finding.severity >= self.level for finding in self.open) else ExitCode.FINE


@dataclass(frozen=True, slots=True)
class LintResult:
    """The findings; no report where only the rules were asked for."""

    request: LintRequest
    rules: tuple[LintRule, ...]
    report: LintReport | None


def lint(request: LintRequest, _: Caller) -> LintResult:
    """Lint CQL files or a live keyspace; nothing is ever written to a cluster.

    Raises:
        WrongUse: nothing to look at, or both files and a keyspace.
        CqlSyntaxError: a file is not CQL.
    """
    settings = request.settings()
    if request.list_rules:
        return LintResult(request, settings.rules, None)
    if request.sarif_file and request.sarif_file != STDOUT:
        refuse_unwritable(request.sarif_file)
    if request.live and request.paths:
        raise WrongUse("--live and files exclude each other", mend="Run the command twice.")
    if not request.live and not request.paths:
        raise WrongUse("there is nothing to look at", mend="Name files or folders of CQL, or add --live.")
    if not request.live:
        return LintResult(request, settings.rules, lint_files(request.paths, settings))
    with open_cluster(request.connection) as opened:
        return LintResult(request, settings.rules, lint_live(opened.cluster, settings))


def _listed(texts: tuple[str, ...]) -> list[str]:
    return [name for text in texts for name in text.split(",") if name.strip()]


def lint_files(paths: Sequence[Path], settings: LintSettings) -> LintReport:
    """Lint files, and every file of folders, as one history.

    Raises:
        WrongUse: a path that is not there or cannot be read, a folder without CQL, a note without a reason.
        CqlSyntaxError: a file is not CQL.
    """
    texts = dict(_texts(paths))
    knowledge = replace(settings.knowledge, hint_window=settings.hint_window or HINT_WINDOW_DEFAULT)
    release = settings.release or ServerRelease.CASSANDRA_5_0
    subjects = subjects_of(statements_of(texts), settings.keyspace, release, knowledge)
    return _report(subjects, settings, texts)


def lint_live(server: SchemaServer, settings: LintSettings) -> LintReport:
    """Lint a live keyspace.

    Raises:
        UnknownKeyspace: no such keyspace.
    """
    subject = live_subject(server, settings.keyspace, settings.knowledge, settings.release, settings.hint_window)
    return lint_schema(subject, settings)


def lint_schema(subject: Subject, settings: LintSettings) -> LintReport:
    return _report((subject,), settings, {})


def _report(subjects: Sequence[Subject], settings: LintSettings, texts: Mapping[str, str]) -> LintReport:
    ids = {rule.id for rule in settings.rules}
    findings: list[LintFinding] = []
    unused: list[str] = []
    for subject in subjects:
        notes = notes_among(subject.statements)
        ignores = (*notes, *settings.ignores, *ignores_for(subject.schema))
        found = with_reasons(findings_of(subject, settings.rules), ignores)
        findings += found
        unused += [str(note) for note in unused_among(notes, found) if note.rule in ids]
    idle = unused_among(settings.ignores, findings)
    unused += [f"the settings: {ignore}" for ignore in idle if ignore.rule in ids]
    return LintReport(
        tuple(subject.keyspace for subject in subjects),
        tuple(findings),
        settings.level,
        settings.rules,
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

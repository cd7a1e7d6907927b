"""`mailmend schema lint`: reads files or a keyspace, runs the rules, and matches ignores with their findings."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import groupby
from json import dumps
from pathlib import Path
from typing import Any, Final

import click

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import open_cluster
from mailmend.admin.frame.command import Command
from mailmend.admin.frame.document import Document, Line, Part, Styled, Verbatim, Wrapped
from mailmend.admin.frame.kinds import KEEP, ParsedValue
from mailmend.admin.frame.options import FILE, connection_where, flag, option
from mailmend.admin.frame.settings import ConnectionSettings, reason_of
from mailmend.admin.frame.values import fields_json, printable
from mailmend.admin.frame.whole_files import refuse_unwritable
from mailmend.admin.schema.lint_page import LintReport, sarif
from mailmend.cql.introspect import SchemaServer
from mailmend.cql.lint_sources import live_subject, statements_of
from mailmend.cql.schema.lint import rules as lint_rules
from mailmend.cql.schema.lint.rule import LintFinding, LintRule, Severity
from mailmend.cql.schema.lint.servers import ServerRelease, parse_release
from mailmend.cql.schema.lint.subject import HINT_WINDOW_DEFAULT, Knowledge, Subject, subjects_of
from mailmend.cql.statements import Span
from mailmend.model.errors import ExitCode, WrongUse
from mailmend.model.names import checked_spelling, name_of
from mailmend.model.texts import Place, place_of

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
    ignore: tuple[lint_rules.Ignore, ...] = ()
    ignored: bool = False
    list_rules: bool = False
    form: str = "human"
    sarif_file: Path | None = None

    def settings(self) -> "LintSettings":
        """The rules and their parameters.

        Raises:
            WrongUse: an unknown rule.
        """
        lint_rules.rules_named(ignore.rule for ignore in self.ignore)
        return LintSettings(
            keyspace=self.connection.keyspace,
            rules=lint_rules.rules_named(_listed(self.rule), _listed(self.exclude)),
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
        ignores: the settings' own.
    """

    keyspace: str
    rules: tuple[LintRule, ...] = lint_rules.RULES
    level: Severity = Severity.WARNING
    release: ServerRelease | None = None
    hint_window: timedelta | None = None
    knowledge: Knowledge = field(default_factory=Knowledge)
    ignores: tuple[lint_rules.Ignore, ...] = ()


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
    names = []
    for text in texts:
        for name in text.split(","):
            if name.strip():
                names.append(name)
    return names


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
        notes = lint_rules.notes_among(subject.statements)
        ignores = (*notes, *settings.ignores, *lint_rules.ignores_for(subject.schema))
        found = lint_rules.with_reasons(lint_rules.lint(subject, settings.rules), ignores)
        findings += found
        for note in lint_rules.unused_among(notes, found):
            if note.rule in ids:
                unused.append(str(note))
    for ignore in lint_rules.unused_among(settings.ignores, findings):
        if ignore.rule in ids:
            unused.append(f"the settings: {ignore}")
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
            files = sorted(filter(Path.is_file, path.rglob(f"*{ENDING}")))
            if not files:
                raise WrongUse(f"{path} holds no {ENDING} file", mend="Name a file, or a folder of migrations.")
            for file in files:
                yield str(file), _text(file)
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


_STYLES: Final = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}
_INDENT: Final = " " * 4
_SHOWN: Final = 100
"""At most this many characters of a line are underlined."""


def document_of(result: LintResult) -> Document:
    request = result.request
    report = result.report
    if report is None:
        json: dict[str, Any] = {"rules": [rule_json(rule) for rule in result.rules], "exit": int(ExitCode.FINE)}
        body: tuple[Part, ...] = tuple(rule_parts(result.rules))
        if request.form != "human":
            body = (_json_text(json),)
        return Document(json, body)
    json = report_json(report)
    sarif_text = dumps(sarif(report), indent=2, ensure_ascii=False) + "\n"
    if request.form == "sarif" or request.sarif_file == STDOUT:
        body = (Verbatim(sarif_text),)
    elif request.form != "human":
        body = (_json_text(json),)
    else:
        body = tuple(report_parts(report, ignored=request.ignored))
    files = {}
    if request.sarif_file and request.sarif_file != STDOUT:
        files[request.sarif_file] = sarif_text
    unused = [f"An ignore that matches nothing can go: {ignore}." for ignore in report.unused]
    return Document(json, body, report.exit, remarks=unused, files=files)


def _json_text(json: dict[str, Any]) -> Verbatim:
    return Verbatim(dumps(json, ensure_ascii=False) + "\n")


def report_parts(report: LintReport, *, ignored: bool = False) -> Iterator[Part]:
    explained: set[str] = set()
    for heading, findings in groupby(report.open, key=_heading):
        yield Styled(heading, "bold")
        for finding in findings:
            yield from _finding_parts(finding, report.texts, first=finding.rule.id not in explained)
            explained.add(finding.rule.id)
        yield ""
    if ignored and report.ignored:
        yield Styled("Ignored", "bold")
        for finding in report.ignored:
            yield f"  {finding.rule.id} {subject_of(finding)}: {finding.text}"
            yield Wrapped(f"{_INDENT}because ", finding.ignored or "")
        yield ""
    yield from closing_lines(report, ignored=ignored)


def _heading(finding: LintFinding) -> str:
    return finding.file or f"keyspace {finding.keyspace}"


def _finding_parts(finding: LintFinding, texts: Mapping[str, str], *, first: bool) -> Iterator[Part]:
    place = place_in(finding, texts)
    where = f"{place.line}:{place.column}".ljust(8) if place else ""
    level = Styled(finding.severity.word.ljust(8), _STYLES[finding.severity])
    rule = Styled(finding.rule.id.ljust(4), "bold")
    yield Line(("  ", where, level, rule, printable(subject_of(finding), instead=" ")))
    yield _INDENT + printable(finding.text, instead=" ")
    if place and finding.span:
        for line in _pointed(place, finding.span):
            yield Styled(f"{_INDENT}{_INDENT}{line}", "dim")
    if first:
        yield Wrapped(f"{_INDENT}why ", finding.rule.reason)
        yield Wrapped(f"{_INDENT}fix ", finding.fix)
        yield Styled(f"{_INDENT}see {finding.rule.reference}", "dim")
    elif finding.fix == finding.rule.fix:
        yield Wrapped(f"{_INDENT}fix ", "as above")
    else:
        yield Wrapped(f"{_INDENT}fix ", finding.fix)


def _pointed(place: Place, span: Span) -> Iterator[str]:
    """The line with the piece underlined; of a piece of several lines, the part on the first."""
    shown, caret = place.pointed.split("\n")
    at = caret.index("^")
    length = max(1, min(span.end - span.start, len(shown) - at, _SHOWN))
    lead = min(at, len(shown) - len(shown.lstrip()))
    yield printable(shown[lead:], instead=" ")
    yield " " * (at - lead) + "^" * length


def subject_of(finding: LintFinding) -> str:
    table = finding.table or finding.keyspace
    if finding.subject:
        return f"{table}.{finding.subject}"
    return table


def place_in(finding: LintFinding, texts: Mapping[str, str]) -> Place | None:
    """Line and column, where the finding is in one of the texts; None otherwise."""
    if finding.file is None or finding.span is None or finding.file not in texts:
        return None
    return place_of(texts[finding.file], finding.span.start)


def closing_lines(report: LintReport, *, ignored: bool = False) -> Iterator[str]:
    counts = Counter(finding.severity for finding in report.open)
    found = []
    for severity in sorted(counts, reverse=True):
        count = counts[severity]
        plural = "" if count == 1 else "s"
        found.append(f"{count} {severity.word}{plural}")
    yield f"{', '.join(report.looked_at) or 'nothing'}: {', '.join(found) or 'nothing found'}."
    if report.ignored:
        how = "" if ignored else " (--ignored shows them)"
        yield f"{len(report.ignored)} ignored, each with a reason{how}."


def report_json(report: LintReport) -> dict[str, Any]:
    ignored = []
    for finding in report.ignored:
        ignored.append(_finding_json(finding, report.texts) | {"because": finding.ignored})
    return {
        "keyspaces": list(report.looked_at),
        "level": report.level.word,
        "findings": [_finding_json(finding, report.texts) for finding in report.open],
        "ignored": ignored,
        "unused_ignores": list(report.unused),
        "exit": int(report.exit),
    }


def _finding_json(finding: LintFinding, texts: Mapping[str, str]) -> dict[str, Any]:
    place = place_in(finding, texts)
    return {
        "rule": finding.rule.id,
        "level": finding.severity.word,
        **fields_json(finding, "keyspace", "table", "subject", "file", "text", "fix"),
        "line": place and place.line,
        "column": place and place.column,
        **fields_json(finding.rule, "reason", "reference"),
    }


def rule_json(rule: LintRule) -> dict[str, str]:
    fields = fields_json(rule, "title", "reason", "fix", "reference")
    return {"rule": rule.id, "level": rule.severity.word, **fields}


def rule_parts(rules: tuple[LintRule, ...]) -> Iterator[Part]:
    for rule in rules:
        level = Styled(rule.severity.word.ljust(9), _STYLES[rule.severity])
        yield Line((Styled(rule.id.ljust(5), "bold"), level, rule.title))
        yield Wrapped(f"{_INDENT}why ", rule.reason)
        yield Wrapped(f"{_INDENT}fix ", rule.fix)
        yield Styled(f"{_INDENT}see {rule.reference}", "dim")


def _ignore(value: Any) -> lint_rules.Ignore:
    """Parse an ignore: a table of the settings file, or RULE[:TABLE]=REASON."""
    if isinstance(value, lint_rules.Ignore):
        return value
    if isinstance(value, Mapping):
        unknown = sorted(set(value) - {"rule", "table", "reason"})
        if unknown:
            raise WrongUse(
                f"an ignore has no {unknown[0]!r}", mend='Write { rule = "T5", table = "t", reason = "..." }.'
            )
        return lint_rules.parse_ignore(value.get("rule"), value.get("table", ""), value.get("reason"))
    what, _, reason = str(value).partition("=")
    rule, _, table = what.partition(":")
    return lint_rules.parse_ignore(rule, table, reason)


def _pair(value: Any) -> tuple[str, str]:
    one, equals, other = str(value).partition("=")
    if not equals:
        raise WrongUse(f"{value!r} is not TABLE=TABLE")
    return name_of(checked_spelling(one.strip(), "table")), name_of(checked_spelling(other.strip(), "table"))


def _rows(value: Any) -> tuple[str, int]:
    table, _, rows = str(value).partition("=")
    if not (rows.strip().isascii() and rows.strip().isdigit()):
        raise WrongUse(f"{value!r} is not TABLE=ROWS")
    return name_of(checked_spelling(table.strip(), "table")), int(rows)


def _release(value: Any) -> ServerRelease:
    if isinstance(value, ServerRelease):
        return value
    return parse_release(str(value))


_RELEASE: Final = ParsedValue("version", _release)
_PAIR: Final = ParsedValue("pair", _pair)

LINT: Final = Command(
    name="lint",
    summary="Find what will cause trouble later in a schema.",
    about="""Each finding has its place, reason, fix and reference. Nothing is ever written to a cluster.

    \b
    Settings file: [schema.lint], with
      ignore = [{ rule = "T5", table = "mytable", reason = "why it may stay" }]
    In a file, right before the statement: -- lint: ignore T5: why it may stay""",
    service="mailmend.admin.schema.lint:lint",
    present="mailmend.admin.schema.lint:document_of",
    paged=True,
    options=(
        click.Argument(["paths"], nargs=-1, metavar="[PATH]...", type=FILE),
        flag("--live", "Look at the live keyspace: in place of files."),
        option("--rule", "Only these rules, such as T1,T5; may be given again.", multiple=True, metavar="RULES"),
        option("--exclude", "All rules but these; may be given again.", multiple=True, metavar="RULES"),
        option(
            "--fail-on",
            "Exit with 1 where something of this severity is found, or of a higher one.",
            type=click.Choice([severity.word for severity in sorted(Severity)[::-1]]),
            default="warning",
        ),
        option(
            "--server-version",
            "Version of Cassandra: 3.11, 4.0, 4.1, 5.0, or scylla. What 4.1 and 5.0 accept was "
            "tried; the others are judged by their documentation. [default: the live server's; 5.0 for "
            "files]",
            type=_RELEASE,
            metavar="VERSION",
        ),
        option("--repair-interval", "How often everything is repaired; else T18 is silent.", type=KEEP, metavar="TIME"),
        option(
            "--hint-window",
            "The nodes' max_hint_window. [default: the live server's; 3h for files]",
            type=KEEP,
            metavar="TIME",
        ),
        option("--slack", "How much longer marks must live than their rows.", type=KEEP, default="1d"),
        option("--sstables-max", "How many time windows T3 lets pass.", type=click.IntRange(1), default=100),
        option("--rows-max", "How many rows of a partition T15 lets pass.", type=click.IntRange(1), default=100_000),
        option(
            "--partition-rows",
            "Rows expected in one partition of a table; may be given again.",
            multiple=True,
            type=ParsedValue("rows", _rows),
            metavar="TABLE=N",
        ),
        option(
            "--projection",
            "A denormalised table, and the source of truth that it follows from; may be given again.",
            multiple=True,
            type=_PAIR,
            metavar="TRUTH=TABLE",
        ),
        option(
            "--marks-table",
            "A table whose rows mark rows of another table as deleted; may be given again.",
            multiple=True,
            type=_PAIR,
            metavar="MARKS=TABLE",
        ),
        option(
            "--ignore",
            "A finding to ignore, and why; better kept in the settings file.",
            multiple=True,
            type=ParsedValue("ignore", _ignore),
            metavar="RULE[:TABLE]=REASON",
            allow_from_autoenv=False,
        ),
        flag("--ignored", "Show what is ignored as well, with the reasons."),
        flag("--rules", "List the rules, and look at nothing.", "list_rules"),
        option(
            "--format",
            "Before --json and --sarif.",
            "form",
            type=click.Choice(["human", "json", "sarif"]),
            default="human",
            hidden=True,
        ),
        option(
            "--sarif",
            "Write SARIF 2.1.0, which code hosts and editors show; - is stdout, and nothing else goes there.",
            "sarif_file",
            type=FILE,
            metavar="FILE",
        ),
    ),
    alone={"sarif_file=-": ("as_json",)},
    shared=(connection_where(lambda others: bool(others["live"])),),
    examples="""
        mailmend schema lint schema.cql migrations/             files and folders, as one history in that order
        mailmend schema lint -                                  the standard input
        mailmend schema lint --live --keyspace apache_james     a live keyspace; only read
        mailmend schema lint --server-version 5.0 schema.cql    would Cassandra 5.0 take it?
        mailmend schema lint --sarif lint.sarif migrations/     for code hosts and editors
        mailmend schema lint --rules                            what is looked for, and why""",
    exits="0 nothing at --fail-on or above was found, 1 something was, 2 the text is not CQL, or the request makes no "
    "sense, 4 (--live) the cluster cannot be reached.",
)

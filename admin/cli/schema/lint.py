"""`mailmend schema lint`: rules about tables that Cassandra takes without a word and that hurt later."""

import json
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import click

from admin.cli.kinds import KEEP, Named
from admin.cli.options import connection_options_where
from admin.lint.linting import LintOrder, LintReport, lint_files, lint_live
from admin.lint.output import report_json, rule_json, rule_lines, show_report
from admin.lint.sarif import sarif
from admin.present.presenter import stderr_console, stdout_console, write_json
from admin.settings import ConnectionSettings, reason_of
from admin.wiring import open_place
from model.errors import ExitCode, WrongUse
from model.schema.lint.ignores import Ignore, parse_ignore
from model.schema.lint.knowledge import Knowledge
from model.schema.lint.rule import Severity
from model.schema.lint.rules import rules_named
from model.schema.lint.servers import ServerRelease, parse_release
from model.schema.names import checked_spelling, name_of

_LEVELS: Final = [severity.word for severity in sorted(Severity)[::-1]]


def _ignore(value: Any) -> Ignore:
    """An ignore as the settings file has it, or RULE[:TABLE]=REASON."""
    if isinstance(value, Ignore):
        return value
    if isinstance(value, Mapping):
        unknown = sorted(set(value) - {"rule", "table", "reason"})
        if unknown:
            raise WrongUse(
                f"an ignore has no {unknown[0]!r}", mend='Write { rule = "T5", table = "t", reason = "..." }.'
            )
        return parse_ignore(value.get("rule"), value.get("table", ""), value.get("reason"))
    what, _, reason = str(value).partition("=")
    rule, _, table = what.partition(":")
    return parse_ignore(rule, table, reason)


def _pair(value: Any) -> tuple[str, str]:
    """ONE=OTHER, two tables as the server knows them."""
    one, equals, other = str(value).partition("=")
    if not equals:
        raise WrongUse(f"{value!r} is not TABLE=TABLE")
    return name_of(checked_spelling(one.strip(), "table")), name_of(checked_spelling(other.strip(), "table"))


def _rows(value: Any) -> tuple[str, int]:
    """TABLE=ROWS."""
    table, _, rows = str(value).partition("=")
    if not (rows.strip().isascii() and rows.strip().isdigit()):
        raise WrongUse(f"{value!r} is not TABLE=ROWS")
    return name_of(checked_spelling(table.strip(), "table")), int(rows)


_RELEASE: Final = Named(
    "version", lambda value: value if isinstance(value, ServerRelease) else parse_release(str(value))
)
_IGNORE: Final = Named("ignore", _ignore)
_PAIR: Final = Named("pair", _pair)
_ROWS: Final = Named("rows", _rows)
_FILE: Final = click.Path(path_type=Path)


@click.command(
    epilog="""\b
Examples:
  mailmend schema lint schema.cql migrations/             files, and folders of files, as one history in that order
  mailmend schema lint -                                  the standard input
  mailmend schema lint --live --keyspace apache_james     a live keyspace; only read
  mailmend schema lint --server-version 5.0 schema.cql    would Cassandra 5.0 take it?
  mailmend schema lint --sarif lint.sarif migrations/     for code hosts and editors
  mailmend schema lint --rules                            what is looked for, and why

\b
Settings file: [schema.lint], with
  ignore = [{ rule = "T5", table = "mytable", reason = "why it may stand" }]
In a file, right before the statement: -- lint: ignore T5: why it may stand""",
)
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=_FILE)
@click.option("--live", is_flag=True, help="Look at the keyspace of the connection instead of files.")
@click.option("--rule", multiple=True, metavar="RULES", help="Only these, such as T1,T5; may be given again.")
@click.option("--exclude", multiple=True, metavar="RULES", help="All but these; may be given again.")
@click.option(
    "--level", type=click.Choice(_LEVELS), default="warning", show_default=True, help="What exit code 1 begins at."
)
@click.option(
    "--server-version",
    type=_RELEASE,
    metavar="VERSION",
    help="3.11, 4.0, 4.1, 5.0 or scylla. [default: the live server's; 5.0 for files]",
)
@click.option(
    "--repair-interval", type=KEEP, metavar="TIME", help="How often everything is repaired; else T18 is silent."
)
@click.option(
    "--hint-window", type=KEEP, metavar="TIME", help="max_hint_window. [default: the live server's; 3h for files]"
)
@click.option("--slack", type=KEEP, default="1d", show_default=True, help="How much longer marks live than their rows.")
@click.option(
    "--sstables-max", type=click.IntRange(1), default=100, show_default=True, help="Windows that T3 lets pass."
)
@click.option(
    "--rows-max", type=click.IntRange(1), default=100_000, show_default=True, help="Rows of a partition, at most."
)
@click.option("--rows", multiple=True, type=_ROWS, metavar="TABLE=N", help="Rows expected in one partition of a table.")
@click.option(
    "--projection", multiple=True, type=_PAIR, metavar="TRUTH=TABLE", help="A table that follows from another one."
)
@click.option(
    "--marks", multiple=True, type=_PAIR, metavar="MARKS=TABLE", help="A table whose rows hide those of another."
)
@click.option(
    "--ignore",
    multiple=True,
    type=_IGNORE,
    metavar="RULE[:TABLE]=REASON",
    allow_from_autoenv=False,
    help="What may stand, and why; better kept in the settings file.",
)
@click.option("--ignored", is_flag=True, help="Show what is ignored as well, with the reasons.")
@click.option("--rules", "list_rules", is_flag=True, help="List the rules, and look at nothing.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["human", "json", "sarif"]),
    default="human",
    show_default=True,
    help="What goes to stdout: words, one JSON object, or SARIF 2.1.0.",
)
@click.option("--sarif", "sarif_file", type=_FILE, metavar="FILE", help="Write SARIF 2.1.0 there, too.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@connection_options_where(lambda options: options["live"])
def lint(
    connection: ConnectionSettings,
    *,
    paths: tuple[Path, ...],
    live: bool,
    list_rules: bool,
    form: str,
    as_json: bool,
    ignored: bool,
    sarif_file: Path | None,
    **asked: Any,
) -> int:
    """Look at CQL files or a live keyspace for what Cassandra takes without a word and what hurts later.

    Each finding has its place, reason, fix and reference. Nothing is ever written to a cluster.
    Exit code 1: something was found at --level or above; 2: the text is not CQL, or the request makes no sense.
    """
    form = "json" if as_json else form
    order = _order(connection, **asked)
    if list_rules:
        _show_rules(order, form)
        return int(ExitCode.FINE)
    report = _looked(connection, paths, order, live=live)
    if sarif_file is not None:
        _write(sarif_file, sarif(report))
    _show(report, form, ignored=ignored)
    return int(report.exit)


def _order(connection: ConnectionSettings, **asked: Any) -> LintOrder:
    knowledge = Knowledge(
        repair_interval=asked["repair_interval"],
        slack=asked["slack"],
        sstables_max=asked["sstables_max"],
        rows_max=asked["rows_max"],
        rows_per_partition=dict(asked["rows"]),
        projections=asked["projection"],
        marks=asked["marks"],
    )
    hint_window: timedelta | None = asked["hint_window"]
    return LintOrder(
        keyspace=connection.keyspace,
        rules=rules_named(_listed(asked["rule"]), _listed(asked["exclude"])),
        level=Severity[asked["level"].upper()],
        release=asked["server_version"],
        hint_window=hint_window,
        knowledge=knowledge,
        ignores=_known(asked["ignore"]),
    )


def _known(ignores: tuple[Ignore, ...]) -> tuple[Ignore, ...]:
    """The ignores, once each is known to name a rule that there is."""
    rules_named(ignore.rule for ignore in ignores)
    return ignores


def _listed(texts: tuple[str, ...]) -> list[str]:
    return [name for text in texts for name in text.split(",") if name.strip()]


def _looked(connection: ConnectionSettings, paths: tuple[Path, ...], order: LintOrder, *, live: bool) -> LintReport:
    if live and paths:
        raise WrongUse("--live and files exclude each other", mend="Run the command twice.")
    if not live and not paths:
        raise WrongUse("there is nothing to look at", mend="Name files or folders of CQL, or add --live.")
    if not live:
        return lint_files(paths, order)
    with open_place(connection) as place:
        return lint_live(place.cluster, order)


def _show(report: LintReport, form: str, *, ignored: bool) -> None:
    match form:
        case "json":
            write_json(report_json(report))
        case "sarif":
            sys.stdout.write(json.dumps(sarif(report), indent=2, ensure_ascii=False) + "\n")
        case _:
            show_report(report, stdout_console(), ignored=ignored)
            return
    for one in report.unused:
        stderr_console().print(f"An ignore that matches nothing can go: {one}.", soft_wrap=True, markup=False)


def _show_rules(order: LintOrder, form: str) -> None:
    if form == "json":
        write_json({"rules": [rule_json(rule) for rule in order.rules], "exit": int(ExitCode.FINE)})
        return
    for line in rule_lines(order.rules):
        stdout_console().print(line, soft_wrap=True)


def _write(file: Path, document: Mapping[str, Any]) -> None:
    try:
        file.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise WrongUse(f"{file} cannot be written: {reason_of(error)}") from error

"""Declarations of the schema's commands that judge or describe: grants, export, advise, lint."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from mailmend.admin.frame.command import Command
from mailmend.admin.frame.kinds import KEEP, ParsedValue
from mailmend.admin.frame.options import CONNECTION, FILE, TRAFFIC, connection_where, flag, option
from mailmend.admin.frame.settings import PORT_DEFAULT, parse_port
from mailmend.admin.schema.advice_service import ROWS
from mailmend.admin.schema.export_service import FILES, FOLDER
from mailmend.admin.schema.grants_service import PREFIX
from mailmend.admin.schema.trial import READS, WAVES
from mailmend.cql.schema.grants import ROLES
from mailmend.cql.schema.lint.ignores import Ignore, parse_ignore
from mailmend.cql.schema.lint.rule import Severity
from mailmend.cql.schema.lint.servers import ServerRelease, parse_release
from mailmend.model.errors import WrongUse
from mailmend.model.names import checked_spelling, name_of
from mailmend.model.table import identifier

_PREFIX: Final = ParsedValue("prefix", lambda value: identifier(f"{value}x", "prefix")[:-1])

GRANTS: Final = Command(
    name="grants",
    summary="The least that each role needs, as CQL; --check compares.",
    about="""Runs none of it, and never prints a password. Without --role: every role of which a table is there. Only
    on what is there can anything be granted, so tables of the ledger that are missing are created by the same script,
    and mail tables that are missing are named.""",
    service="mailmend.admin.schema.grants_service:grants",
    present="mailmend.admin.schema.grants_document:document_of",
    options=(
        option(
            "--role",
            "Only what this role needs; may be given again.",
            "roles",
            type=click.Choice(tuple(ROLES)),
            multiple=True,
        ),
        option("--name-prefix", "What the roles' names begin with.", type=_PREFIX, default=PREFIX),
        flag("--with-create-role", "Create the roles first, without a login: the password is yours."),
        flag("--revoke", "Take it back: REVOKE instead of GRANT; with --with-create-role DROP ROLE too."),
        flag("--all", "All of them: on tables that are not there too; asks no cluster.", "everything"),
        flag("--check", "Compare only: with what the cluster grants, and print what would mend it."),
    ),
    shared=(connection_where(lambda others: not others["everything"]),),
    examples="""
        mailmend schema grants --with-create-role | cqlsh -u dba         roles without a login, and all that they need
        mailmend schema grants --role reader --role repairer             of two roles
        mailmend schema grants --role repairer --check                   what is missing, what is too much
        mailmend schema grants --check --json                            the same, for a script
        mailmend schema grants --role loader --revoke | cqlsh -u dba     take it back""",
    exits="0 fine, 1 --check found something missing or superfluous, 2 wrong use, 4 the cluster cannot be reached, or "
    "does not let us ask.",
)

EXPORT: Final = Command(
    name="export",
    summary="The schema as CQL, as a page and as a drawing.",
    about="Asks no cluster unless --live is given.",
    service="mailmend.admin.schema.export_service:export",
    present="mailmend.admin.local.tools_document:export_document",
    options=(
        option(
            "--dir",
            "Folder for the files: - is stdout, for one of them.",
            "folder",
            type=FILE,
            default=FOLDER,
            metavar="DIR",
        ),
        option("--only", "Only these: may be given again.", "kinds", type=click.Choice(tuple(FILES)), multiple=True),
        flag("--live", "Look at the live keyspace: in place of the model."),
        flag("--check", "Compare only: write nothing, and say which files are not up to date."),
    ),
    shared=(connection_where(lambda others: bool(others["live"])),),
    examples="""
        mailmend schema export                                    docs/schema/schema.cql, schema.md and schema.svg
        mailmend schema export --live --keyspace apache_james     what is really there, in the model's words
        mailmend schema export --only cql --dir -                 the CQL alone, on stdout
        mailmend schema export --check --dir docs --only page     is the page in the repository up to date?""",
    exits="0 fine, 1 --check found a file that is out of date, 2 wrong use, 4 (--live) the cluster cannot be reached.",
)


def _address(value: Any) -> tuple[str, int]:
    if isinstance(value, tuple):
        return value
    host, _, port = str(value).rpartition(":")
    if host and not port.isdigit():
        raise WrongUse(f"{value!r} is not HOST:PORT")
    return (host, parse_port(int(port))) if host else (str(value), PORT_DEFAULT)


ADVISE: Final = Command(
    name="advise",
    summary="Say what tables should be set to; try compactions.",
    about="""Writes nothing to your cluster. Time windows, time to live, buckets and slices of the queue follow from the
    traffic, measured where it can be. For the message tables the compactions twcs, unified and leveled are tried on a
    copy of your own rows: fewest SSTables per read wins, then the 99th percentile of reading, then bytes on disk; what
    is alike leaves the tables as they are.

    The trial starts a Cassandra on this machine (Java 17; see `mailmend local`), copies whole mailboxes into it, writes
    their history again under each compaction, and reads them. The copy holds keys, flags, sizes and times; texts become
    as many x. It lies in a folder that only you may read (--dir), and is removed at the end, after Ctrl-C too.""",
    service="mailmend.admin.schema.advice_service:advise",
    present="mailmend.admin.schema.advice_document:document_of",
    options=(
        option("--trial/--no-trial", "Try the compactions on a copy of your rows.", default=True),
        option(
            "--sample",
            "Copy at most so many messages for the trial.",
            before="--rows",
            type=click.IntRange(1, 500_000),
            default=ROWS,
        ),
        option("--waves", "In how many flushes the copy is written.", type=click.IntRange(1, 1000), default=WAVES),
        option("--reads", "How many reads of each kind are measured.", type=click.IntRange(1, 10_000), default=READS),
        option(
            "--dir",
            "Folder for the files: those of the copy. [default: the system's folder for temporary files]",
            "folder",
            type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path),
            metavar="DIR",
        ),
        option(
            "--trial-at",
            "A Cassandra for the trial that runs already and may be written to; never one in production.",
            type=ParsedValue("address", _address),
            metavar="HOST:PORT",
        ),
    ),
    shared=(TRAFFIC, CONNECTION),
    examples="""
        mailmend schema advise --no-trial                       reckoned only; seconds
        mailmend schema advise                                  and tried: a few minutes
        mailmend schema advise --mails-per-second 40 --longest-stay 7d
        mailmend schema advise --sample 100000 --json""",
    exits="0 the advice was given, 2 wrong use, 4 the cluster cannot be reached.",
)


def _ignore(value: Any) -> Ignore:
    """Parse an ignore: a table of the settings file, or RULE[:TABLE]=REASON."""
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
    one, equals, other = str(value).partition("=")
    if not equals:
        raise WrongUse(f"{value!r} is not TABLE=TABLE")
    return name_of(checked_spelling(one.strip(), "table")), name_of(checked_spelling(other.strip(), "table"))


def _rows(value: Any) -> tuple[str, int]:
    table, _, rows = str(value).partition("=")
    if not (rows.strip().isascii() and rows.strip().isdigit()):
        raise WrongUse(f"{value!r} is not TABLE=ROWS")
    return name_of(checked_spelling(table.strip(), "table")), int(rows)


_RELEASE: Final = ParsedValue(
    "version", lambda value: value if isinstance(value, ServerRelease) else parse_release(str(value))
)
_PAIR: Final = ParsedValue("pair", _pair)

LINT: Final = Command(
    name="lint",
    summary="Say what of a schema will hurt later.",
    about="""Each finding has its place, reason, fix and reference. Nothing is ever written to a cluster.

    \b
    Settings file: [schema.lint], with
      ignore = [{ rule = "T5", table = "mytable", reason = "why it may stand" }]
    In a file, right before the statement: -- lint: ignore T5: why it may stand""",
    service="mailmend.admin.schema.lint_service:lint",
    present="mailmend.admin.schema.lint_document:document_of",
    options=(
        click.Argument(["paths"], nargs=-1, metavar="[PATH]...", type=FILE),
        flag("--live", "Look at the live keyspace: in place of files."),
        option("--rule", "Only these rules, such as T1,T5; may be given again.", multiple=True, metavar="RULES"),
        option("--exclude", "All rules but these; may be given again.", multiple=True, metavar="RULES"),
        option(
            "--fail-on",
            "Exit with 1 where something of this severity is found, or of a higher one.",
            before="--level",
            type=click.Choice([severity.word for severity in sorted(Severity)[::-1]]),
            default="warning",
        ),
        option(
            "--server-version",
            "Version of Cassandra: 3.11, 4.0, 4.1, 5.0, or scylla. [default: the live server's; 5.0 for files]",
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
            before="--rows",
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
            "A table whose rows mark those of another as deleted; may be given again.",
            before="--marks",
            multiple=True,
            type=_PAIR,
            metavar="MARKS=TABLE",
        ),
        option(
            "--ignore",
            "A finding that may stand, and why; better kept in the settings file.",
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

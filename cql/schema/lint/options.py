"""Rules about what a server would refuse: options and values, statements, a newer version's CQL."""

from collections.abc import Iterator
from typing import Final

from mailmend.cql.schema.lint.refused_options import (
    OptionTexts,
    speculation_is_known,
    unknown_options,
)
from mailmend.cql.schema.lint.requirements import lacking, version_problem
from mailmend.cql.schema.lint.rule import Hit, Severity, rule
from mailmend.cql.schema.lint.servers import ServerRelease
from mailmend.cql.schema.lint.subject import Subject
from mailmend.cql.statements.literals import LiteralForm, native_values
from mailmend.model.names import name_of, text_of


@rule(
    "T11",
    "A class, an option or a value that the server does not know",
    Severity.ERROR,
    "The server refuses the statement, often in the middle of an upgrade: names come and go with versions "
    "(DateTieredCompactionStrategy and chunk_length_kb went with 5.0, read_repair_chance with 4.0).",
    "Take the name from the documentation of that version.",
    docs="developing/cql/ddl.html",
)
def _unknown(subject: Subject) -> Iterator[Hit]:
    """Every statement that sets options; without any, what the tables have."""
    for table, number, options in _declared(subject):
        for option, text, fix in unknown_options(options, subject.release, named=number is not None):
            yield Hit(text, option, statement=number, fix=fix, table=table)


def _declared(subject: Subject) -> Iterator[tuple[str, int | None, OptionTexts]]:
    """Each table's options as written: (table, number of the statement or None, options)."""
    stated = set()
    for number, parsed in enumerate(subject.statements):
        table = parsed.statement.about
        options = parsed.statement.options_set
        if options is not None:
            stated.add(name_of(table))
            yield table, number, options
    for live in subject.schema.tables:
        if live.name not in stated:
            yield live.spelling, None, live.literals()


@rule(
    "T24",
    "Speculation or Paxos in a variant that costs",
    Severity.WARNING,
    "ALWAYS asks one replica more than needed every time, which is load without end; a value that the version does "
    "not understand is refused; the first variant of Paxos takes twice the round trips of the second.",
    "Leave speculative_retry at its default, '99p'.",
    docs="developing/cql/ddl.html",
)
def _speculation(subject: Subject) -> Iterator[Hit]:
    """What the options say, then the variant of Paxos where it is known."""
    yield from _odd_speculation(subject)
    if subject.knowledge.paxos_variant != "v1" or not subject.release.at_least(ServerRelease.CASSANDRA_4_1):
        return
    with_if = set(subject.knowledge.conditional)
    for written in subject.writes():
        if written.write.conditional:
            with_if.add(name_of(written.write.name.spelling))
    tables = ", ".join(table.spelling for table in subject.schema.tables if table.name in with_if)
    if tables:
        text = f"the server uses the first variant of Paxos, and these are written with IF: {tables}"
        yield Hit(text, "paxos_variant", Severity.NOTE, fix=_PAXOS_FIX)


_PAXOS_FIX: Final = (
    "Read the upgrade notes of Cassandra 4.1, then set paxos_variant: v2 on every node: half the round trips."
)


def _odd_speculation(subject: Subject) -> Iterator[Hit]:
    for table, number, options in _declared(subject):
        for option in ("speculative_retry", "additional_write_policy"):
            value = text_of(options.get(option, "")).strip()
            if value.upper() == "ALWAYS":
                text = f"{option} = 'ALWAYS' sends every request once more"
                yield Hit(text, option, statement=number, table=table)
            elif value and not speculation_is_known(value, subject.release):
                text = f"{subject.release.title} does not understand {option} = '{value}'"
                yield Hit(text, option, Severity.ERROR, statement=number, fix=_SPECULATION_FIX, table=table)


_SPECULATION_FIX: Final = "Write '99p' ('99PERCENTILE' before 4.0), '50ms', 'NONE', or from 4.0 on 'MIN(99p,50ms)'."


@rule(
    "K2",
    "A statement that cannot be carried out",
    Severity.ERROR,
    "With everything before it carried out, the server would refuse this statement.",
    "Mend the statement; in a folder of migrations, look at what an earlier one has done.",
    docs="developing/cql/ddl.html",
)
def _refused(subject: Subject) -> Iterator[Hit]:
    for number, reason in subject.refused.items():
        yield Hit(reason, statement=number, table=subject.statements[number].statement.about)


@rule(
    "T25",
    "What a later version brought",
    Severity.ERROR,
    "The server refuses the statement: vectors, masks and storage-attached indexes came with Cassandra 5.0, IF EXISTS "
    "in ALTER with 4.1.",
    "Upgrade the servers first, or write it as the older version has it.",
    docs="developing/cql/changes.html",
)
def _too_new(subject: Subject) -> Iterator[Hit]:
    for number, parsed in enumerate(subject.statements):
        for what, since, place in lacking(parsed.statement, subject.release):
            text = version_problem(what, since, subject.release)
            yield Hit(text, place[1], points=(place,), statement=number, table=parsed.statement.about)
    if not subject.release.at_least(ServerRelease.CASSANDRA_5_0) and subject.release.is_cassandra:
        yield from _blobs_as_numbers(subject)


def _blobs_as_numbers(subject: Subject) -> Iterator[Hit]:
    """A blob in place of a tinyint."""
    for number, write, points in subject.writes():
        table = subject.table_of(write)
        if table is None:
            continue
        texts = list(write.values.items())
        for compared in write.only_if:
            if compared.compares_column:
                texts.append((compared.columns[0], compared.value))
        for name, text in texts:
            if name not in table:
                continue
            natives = native_values(subject.schema, table.column(name).type, text)
            if any(kind == "tinyint" and value.form is LiteralForm.BLOB for kind, value in natives):
                what = version_problem("blobs in place of a tinyint", ServerRelease.CASSANDRA_5_0, subject.release)
                yield Hit(what, name, points=points, statement=number, table=write.name.spelling)

"""The rule about what came to CQL with a version."""

from collections.abc import Iterator

from mailmend.cql.schema.lint.requirements import lacking, version_problem
from mailmend.cql.schema.lint.rule import Hit, Severity, rule
from mailmend.cql.schema.lint.servers import ServerRelease
from mailmend.cql.schema.lint.subject import Subject
from mailmend.cql.statements.literals import LiteralForm, native_values


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
        texts = [
            *write.values.items(),
            *((compared.columns[0], compared.value) for compared in write.only_if if compared.compares_column),
        ]
        for name, text in texts if table else ():
            natives = native_values(subject.schema, table.column(name).type, text) if table and name in table else ()
            if any(kind == "tinyint" and value.form is LiteralForm.BLOB for kind, value in natives):
                what = version_problem("blobs in place of a tinyint", ServerRelease.CASSANDRA_5_0, subject.release)
                yield Hit(what, name, points=points, statement=number, table=write.name.spelling)

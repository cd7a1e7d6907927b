"""`mailmend schema`: what owns the tables. Each command in a module of its own, imported when it is called."""

from typing import Final

import click

from admin.cli.command import Later, LazyGroup

_COMMANDS: Final = {
    "plan": Later("admin.cli.schema.plan", "plan", "Show what an apply would run, and what it risks."),
    "apply": Later("admin.cli.schema.apply", "apply", "Run the pending migrations."),
    "history": Later("admin.cli.schema.history", "history", "What was applied, when, by whom; who is at work."),
    "force-unlock": Later("admin.cli.schema.force_unlock", "force_unlock", "End the lease of an apply that is gone."),
    "grants": Later("admin.cli.schema.grants", "grants", "The least that each role needs, as CQL; --check compares."),
    "export": Later("admin.cli.schema.export", "export", "The schema as CQL, as a page and as a drawing."),
    "verify": Later("admin.cli.schema.verify", "verify", "Say what is wrong with a live keyspace."),
    "adopt": Later("admin.cli.schema.adopt", "adopt", "Take over a keyspace of James, altering nothing in it."),
    "advise": Later("admin.cli.schema.advise", "advise", "Say what tables should be set to; try compactions."),
    "lint": Later("admin.cli.schema.lint", "lint", "Say what of a schema will hurt later."),
}


@click.group(
    cls=LazyGroup,
    later=_COMMANDS,
    epilog="""\b
Examples:
  mailmend schema verify --keyspace apache_james     which generation is it; what is wrong; writes nothing
  mailmend schema plan                               what is pending, and what each statement risks
  mailmend schema apply --replication dc1=3,dc2=3    run it; here on a new keyspace
  mailmend schema history                            what was applied, when, by whom
  mailmend schema adopt --dry-run                    take over a keyspace of James, altering nothing in it
  mailmend schema grants --with-create-role          the least that each role needs, for cqlsh
  mailmend schema grants --check                     what is missing of it, and what is too much
  mailmend schema export                             the schema as CQL, as a page and as a drawing""",
)
def schema() -> None:
    """Own the tables: migrations planned, applied and kept in a history; a live keyspace verified.

    A keyspace that James made is recognised, and never altered before `mailmend schema adopt`.
    """

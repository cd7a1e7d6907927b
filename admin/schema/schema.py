"""Declarations of `mailmend schema`: what owns the tables."""

from datetime import timedelta
from pathlib import Path
from typing import Final

import click

from mailmend.admin.frame.command import Command, CommandGroup
from mailmend.admin.frame.kinds import RISK_NAMES, RISKS, Duration, ParsedValue, duration_text
from mailmend.admin.frame.options import CONNECTION, flag, option
from mailmend.admin.schema.advise import ADVISE
from mailmend.admin.schema.export import EXPORT
from mailmend.admin.schema.grants import GRANTS
from mailmend.admin.schema.lint import LINT
from mailmend.admin.schema.migrating import Patience
from mailmend.cql.replication import COPIES_MAX, parse_replication
from mailmend.cql.schema.migrations.migration import NUMBER_MAX, Phase
from mailmend.model.catalog.mail import CompactionChoice

_DEFAULT: Final = Patience()
_REPLICATION: Final = ParsedValue("replication", lambda text: parse_replication(str(text)))
_SECONDS: Final = Duration(timedelta(hours=1), zero=False)

_FOLDER: Final = option(
    "--migrations",
    "Folder of your own migrations: for any keyspace, any tables. [default: mailmend's own]",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
)
_SPOKEN_OF: Final = option(
    "--migrations",
    "Folder of your own migrations: the commands that come next are shown with it.",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
)
_MIGRATIONS: Final = (
    _FOLDER,
    option("--to", "The last migration to run.", type=click.IntRange(1, NUMBER_MAX), metavar="NNNN"),
    option(
        "--phase",
        "Only migrations of this phase: pre, before the new software is rolled out; post, after. Stops where the other "
        "comes first.",
        type=click.Choice(Phase, case_sensitive=False),
    ),
    option(
        "--replication-factor",
        "Copies in each data centre, when the keyspace is created. [default: 1 on a cluster of one node]",
        type=click.IntRange(1, COPIES_MAX),
        metavar="N",
    ),
    option(
        "--replication",
        "Copies in each of the data centres, when the keyspace is created; or SimpleStrategy=N.",
        type=_REPLICATION,
        metavar="DC=N,...",
    ),
    option(
        "--compaction",
        "Compaction of the big message tables, when they are created; unified needs Cassandra 5. [default: twcs]",
        type=click.Choice(CompactionChoice, case_sensitive=False),
    ),
    flag("--complete", "Also create what a keyspace of James lacks."),
    flag("--new-keyspace", "Create a keyspace although its name is almost that of another."),
    flag("--into-existing", "Create tables in a keyspace that holds tables of another application."),
)
_PATIENCE: Final = (
    option(
        "--statement-timeout",
        "How long one statement may take.",
        type=_SECONDS,
        default=duration_text(_DEFAULT.statement),
    ),
    option(
        "--agreement-timeout",
        "How long the nodes may take to agree on the schema, before and after each statement.",
        type=_SECONDS,
        default=duration_text(_DEFAULT.agreement),
    ),
    option(
        "--lease",
        "How long the lease outlives an apply that was killed.",
        type=_SECONDS,
        default=duration_text(_DEFAULT.lease),
    ),
    flag("--require-all-nodes", "Stop while a node is down. Without it such a node takes the schema when it returns."),
)

PLAN: Final = Command(
    name="plan",
    summary="Show what an apply would run, and what it risks.",
    about="""Writes nothing. With --from-model: what takes the live tables to the model (or to what the applied
    --migrations say), whatever the history holds.""",
    service="mailmend.admin.schema.schema_service:plan",
    present="mailmend.admin.schema.schema_document:document_of",
    options=(
        *_MIGRATIONS,
        flag("--from-model", "Show what takes the live tables to the model; it is never run."),
        flag("--include-options", "With --from-model: options too; most rewrite their table."),
        flag("--include-drops", "With --from-model: also remove what the model does not know."),
        flag("--newest", "With --from-model: to the newest generation, not to its own."),
    ),
    alone={"from_model": ("to", "phase", "complete", "new_keyspace")},
    shared=(CONNECTION,),
    examples="""
        mailmend schema plan                                  what is pending; CQL that cqlsh takes, risks as comments
        mailmend schema plan --phase pre                      what is due before the new software is rolled out
        mailmend schema plan --migrations db --keyspace shop  your own tables
        mailmend schema plan --from-model | cqlsh             takes the live tables to the model; mailmend never runs it
        mailmend schema plan --from-model --include-options   options too: most of them rewrite their table""",
    exits="0 there is nothing to do, 1 there is something to do, 2 wrong use (a file that cannot be run, or that was "
    "changed after it was applied), 4 the cluster cannot be reached.",
)

APPLY: Final = Command(
    name="apply",
    summary="Run the pending migrations.",
    about="""Statement by statement; then the tables are read back and compared. One apply at a time works on a
    keyspace (a lease in the ledger keyspace). Every statement waits for the nodes to agree on the schema, and is
    written down before and after: type the same command again after any interruption. A keyspace that James made is
    left alone until `mailmend schema adopt`. Applying again changes nothing.

    What the plan marks as a risk is run after a yes on a terminal, or where --allow names it; else nothing is, and the
    exit code is 5.""",
    service="mailmend.admin.schema.schema_service:apply",
    present="mailmend.admin.schema.schema_document:document_of",
    options=(
        *_MIGRATIONS,
        *_PATIENCE,
        option("--optional", "Run nothing but this upgrade note of James, or mail-queue.", metavar="NAME"),
        option(
            "--allow",
            f"Risks that are agreed to, separated by commas, of those that the plan names: {RISK_NAMES}.",
            type=RISKS,
            metavar="RISK,...",
        ),
        flag("--dry-run", "Write nothing: print the CQL."),
    ),
    alone={"optional": ("migrations", "to", "phase", "complete", "new_keyspace")},
    shared=(CONNECTION,),
    examples="""
        mailmend schema apply --dry-run                     print the CQL, run nothing
        mailmend schema apply --replication dc1=3,dc2=3     a new keyspace
        mailmend schema apply --phase pre                   before the new software is rolled out
        mailmend schema apply --to 0003                     no further than that
        mailmend schema apply --migrations db --keyspace shop --require-all-nodes
        mailmend schema apply --phase post --allow data-loss,breaking    agreed to, by name
        mailmend schema apply --optional save-date          an upgrade note; schema adopt --dry-run lists them""",
    exits="0 done, and read back as expected; 1 read back, and not as expected; 2 wrong use (a file that cannot be "
    "run, or that was changed after it was applied); 3 a statement failed, the nodes do not agree, or another apply is "
    "at work; 4 the cluster cannot be reached; 5 a risk that nobody agreed to, nothing was done. After 3 and 4 the "
    "same command goes on where it stopped.",
)

HISTORY: Final = Command(
    name="history",
    summary="What was applied, when, by whom; who is at work.",
    about="""Writes nothing. `running` is a migration that an apply works on, or was interrupted in: its statements are
    listed. `baseline` is one that was never run here, for what it makes was there already.""",
    service="mailmend.admin.schema.history_service:history",
    present="mailmend.admin.schema.state_document:history_document",
    options=(_SPOKEN_OF,),
    shared=(CONNECTION,),
    examples="""
        mailmend schema history                       every migration, and who is at work
        mailmend schema history --migrations db --keyspace shop
        mailmend schema history --json | jq '.migrations[] | select(.state == "running")'""",
    exits="0 it was shown, also where there is none; 2 wrong use; 4 the cluster cannot be reached.",
)

FORCE_UNLOCK: Final = Command(
    name="force-unlock",
    summary="End the lease of an apply that is gone.",
    about="""If it still works, it stops before its next statement. Who held it, who ended it and why is kept: `mailmend
    schema history` shows it. A lease that is not renewed ends by itself within a minute: waiting is safer.""",
    service="mailmend.admin.schema.history_service:force_unlock",
    present="mailmend.admin.schema.state_document:unlock_document",
    options=(
        option("--reason", "Why: kept in the history, with your name.", required=True, metavar="TEXT"),
        _SPOKEN_OF,
        flag("--yes", "Do not ask."),
    ),
    shared=(CONNECTION,),
    examples="""
        mailmend schema history                                          who holds the lease, since when, until when
        mailmend schema force-unlock --reason 'pod apply-7 was evicted'  asks, then ends it
        mailmend schema force-unlock --reason '...' --yes                without asking""",
    exits="0 it is ended, or nobody held it; 2 wrong use, or the answer was no; 4 the cluster cannot be reached.",
)

VERIFY: Final = Command(
    name="verify",
    summary="Say what is wrong with a live keyspace.",
    about="""Its tables, types, indexes and views, its history. Writes nothing. A mail keyspace is compared with the
    generation of James that it is nearest to. Options, tables of other modules and columns of older generations are
    noted; they are not drift. An option that can lose data or bring deleted data back is (data that expires sooner, or
    gc_grace_seconds that is shorter, than expected). With --migrations any keyspace is compared with what was applied
    to it from there. A migration that was edited, went missing, was put in between or has not ended is drift; each
    line says what mends it.""",
    service="mailmend.admin.schema.history_service:verify",
    present="mailmend.admin.schema.state_document:verify_document",
    options=(_FOLDER,),
    shared=(CONNECTION,),
    examples="""
        mailmend schema verify --keyspace apache_james          a mail keyspace: which generation is it, what is wrong
        mailmend schema verify --migrations db --keyspace shop  your own tables against the applied migrations""",
    exits="0 nothing is wrong, 1 drift was found, 2 wrong use (there is no such keyspace), 4 the cluster cannot be "
    "reached.",
)

ADOPT: Final = Command(
    name="adopt",
    summary="Take over a keyspace of James, altering nothing in it.",
    about="""A keyspace of any generation is recognised and remembered. Nothing in the mail keyspace is altered. Its
    generation, a fingerprint of its schema and our migrations, which count as done, are written to the ledger keyspace.
    What James's upgrade notes left to the operator is listed as optional migrations.""",
    service="mailmend.admin.schema.history_service:adopt",
    present="mailmend.admin.schema.state_document:adopt_document",
    options=(
        flag("--dry-run", "Write nothing: say what would be written."),
        flag("--forget", "Undo an adoption: forget the baseline. Nothing in the mail keyspace changes."),
        option(
            "--write-schema-version",
            "Also write James's own schema version into its table. Never done unless asked for.",
            type=int,
            metavar="N",
        ),
    ),
    shared=(CONNECTION,),
    examples="""
        mailmend schema adopt --dry-run                     what would be written, what is optional
        mailmend schema adopt                               take it over: one row and the history, in the ledger
        mailmend schema adopt --forget                      give it back: those rows are removed
        mailmend schema adopt --write-schema-version 15     also write James's own schema version""",
    exits="0 it is adopted, was before, or needs no adoption; 2 it is not a keyspace of James, or not whole; 3 its "
    "schema is being changed by another; 4 the cluster cannot be reached.",
)

SCHEMA: Final = CommandGroup(
    name="schema",
    summary="Own the tables: plan, apply, verify, adopt, lint, advise.",
    about="A keyspace that James made is recognised, and never altered before `mailmend schema adopt`.",
    commands=(PLAN, APPLY, HISTORY, FORCE_UNLOCK, GRANTS, EXPORT, VERIFY, ADOPT, ADVISE, LINT),
    examples="""
        mailmend schema verify --keyspace apache_james     which generation is it; what is wrong; writes nothing
        mailmend schema plan                               what is pending, and what each statement risks
        mailmend schema apply --replication dc1=3,dc2=3    run it; here on a new keyspace
        mailmend schema history                            what was applied, when, by whom
        mailmend schema adopt --dry-run                    take over a keyspace of James, altering nothing in it
        mailmend schema grants --with-create-role          the least that each role needs, for cqlsh
        mailmend schema grants --check                     what is missing of it, and what is too much
        mailmend schema export                             the schema as CQL, as a page and as a drawing""",
)

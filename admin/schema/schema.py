"""`mailmend schema`: the group of the commands that own the tables."""

from typing import Final

from mailmend.admin.frame.command import CommandGroup
from mailmend.admin.schema.adopt import ADOPT
from mailmend.admin.schema.advise import ADVISE
from mailmend.admin.schema.apply import APPLY
from mailmend.admin.schema.export import EXPORT
from mailmend.admin.schema.grants import GRANTS
from mailmend.admin.schema.lint import LINT
from mailmend.admin.schema.migrating import FORCE_UNLOCK, HISTORY
from mailmend.admin.schema.plan import PLAN
from mailmend.admin.schema.verify import VERIFY

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

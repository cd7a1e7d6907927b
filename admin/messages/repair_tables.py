"""`mailmend repair tables`, or `mailmend repair --projections FILE`: drift of declared tables."""

from typing import Final

import click

from mailmend.admin.frame.command import Command
from mailmend.admin.frame.options import CONNECTION, MAX_FIXES, STAGING, flag, option
from mailmend.admin.messages.options import (
    BEAT_AHEAD,
    LEAKS,
    LOOKING_TWICE,
    MEASURED_TABLES,
    ONLY,
    ORPHANS,
    PLAN,
    PROJECTIONS_NEEDED,
    REPAIR_EXITS,
    SCANNING_ALL,
    TIMING,
    TORN_TABLES,
    WRITING,
)

REPAIR_TABLES: Final = Command(
    name="tables",
    summary="Mend the tables of a file of projections.",
    about="""The file declares a source of truth, and what follows from it. The repair reads every
    table once, waits, looks at every suspect again, keeps what it overwrites (see `mailmend
    undo`), and writes with a timestamp from before its scan, so that changes in the meantime win.
    Only the tables that follow are written, but with --torn fill or --touch-base. A fix expires
    with its row of truth.

    Contents are only reported, unless an option asks for more. With --leaks collect, content that
    no row of truth names is removed. With --orphans quarantine, rows of truth without content are
    removed, each by a conditional delete of exactly what was seen, with the rows that follow from
    it. Both kinds of rows stay for a day after their last write; a row whose age cannot be told
    stays, and is counted with this reason.

    NAME is one projection of the file, or a source of truth with all that follows from it. The
    ledger keeps the declaration with the run: undo goes by that copy, whatever becomes of the
    file. A plan holds the declaration too.

    With --key a few reads look at single rows, at once: a row of truth with all rows that it
    demands, or a row that follows with the truth that it names. Counters are left out, and so are
    rows that name the same truth under a key which it does not demand. A key under which neither
    table has a row is refused, with what was looked up.

    Rows of materialised views are written by the server alone. With --touch-base the row of the
    base is written once more as it is, with the time to live that it has left, and the server
    derives the row of the view again. A row of a view without a row of the base stays: only a
    view that is built anew loses it. An undo has nothing to put back.""",
    service="mailmend.admin.messages.repair:repair",
    present="mailmend.admin.messages.shared_document:document_of",
    options=(
        click.Argument(["named"], required=False, metavar="[NAME]"),
        PROJECTIONS_NEEDED,
        *TIMING,
        LOOKING_TWICE,
        PLAN,
        ONLY,
        MAX_FIXES,
        ORPHANS,
        option(
            "--dangling",
            "What becomes of denormalised rows without truth.",
            type=click.Choice(["withdraw", "report"]),
            default="withdraw",
        ),
        LEAKS,
        TORN_TABLES,
        flag(
            "--touch-base",
            "Mend rows of materialised views: write their rows of the base once more as they are, "
            "each cell a microsecond later than it was.",
        ),
        BEAT_AHEAD,
        *WRITING,
        option(
            "--key",
            "Only these rows, of a truth or of a table that follows, and what they lead to. "
            "No table is scanned. The partition key will do. May be given again.",
            multiple=True,
            metavar="TABLE:COLUMN=VALUE,...",
        ),
        *SCANNING_ALL,
        STAGING,
    ),
    shared=(CONNECTION,),
    output=MEASURED_TABLES,
    alone={"plan": ("max_fixes", "keep"), "key": ("staging", "engine")},
    examples="""
        mailmend repair --projections shop.toml -k shop --dry-run            what would be mended
        mailmend repair --projections shop.toml -k shop                      mend it
        mailmend repair users_by_email --projections shop.toml -k shop       one table of the file
        mailmend repair --projections shop.toml -k shop --plan plan.jsonl    then mailmend apply
        mailmend repair --projections shop.toml -k shop --key users_by_email:email=ann@example.org
        mailmend repair users_by_phone --projections shop.toml -k shop --touch-base   a view
        mailmend repair profiles --projections shop.toml -k shop --leaks collect    contents
        mailmend repair --projections shop.toml -k shop --orphans quarantine    rows without content
        mailmend undo RUN -k shop                                            put it back""",
    exits=REPAIR_EXITS,
)

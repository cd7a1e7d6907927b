"""`mailmend repair`: mend drift, after a second look, as of a moment before the scan; or mend what was journalled."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import click

from admin.asking import go_on_by, somebody_types
from admin.cli.kinds import KEEP, VERDICTS, duration_text
from admin.cli.mending_options import scanning_options, timing_options, writing_options
from admin.cli.options import connection_options
from admin.cli.results import Wanted, gathering, present, result_options
from admin.output import stderr_console
from admin.progress import progress_on
from admin.settings import ConnectionSettings
from admin.wiring import (
    EngineWanted,
    families_named,
    means_for_lags,
    means_to_look,
    means_to_mend,
    open_place,
    owner_name,
    target_of,
)
from model.catalog.ledger import KEEP as KEEP_DEFAULT
from model.errors import UnsafeRequest
from model.operations import Level
from repair.clock import Timing
from repair.decisions.verdicts import MENDABLE, Verdict
from repair.mending.lag_repair import mend_lags
from repair.mending.request import Order
from repair.mending.runner import repair as repair_keyspace

_EXIT_CODES = """\b
Exit codes: 0 nothing is left to mend, 1 drift is left (after --dry-run: there is drift), 2 wrong use,
3 some fixes failed (the rest stands), 4 the cluster cannot be reached, 130 interrupted: run it again."""

_EPILOG = f"""\b
Examples:
  mailmend repair messages --dry-run                      what would be mended
  mailmend repair messages                                mend it
  mailmend repair messages --only PROJECT --max-fixes 1000
  mailmend repair messages --message 6e0ab5e0-8d1c-...    one message, at once, without Spark
  mailmend repair messages --message 6e0ab5e0-8d1c-... --user bob    and what bob's mailboxes tell of it
  mailmend repair messages --mailbox 6e0ab5e0-8d1c-...    what the mailbox's own rows show
  mailmend repair messages --orphans quarantine           take rows without content out of mailboxes

{_EXIT_CODES}"""


@click.group()
def repair() -> None:
    """Mend drift: `messages`, or the `lags` that writers journalled."""


@repair.command(epilog=_EPILOG)
@timing_options
@click.option("--dry-run", is_flag=True, help="Look twice, say what would be mended, write nothing.")
@click.option(
    "--only", type=VERDICTS, multiple=True, metavar="VERDICT", help="Mend these only: PROJECT,AMEND,WITHDRAW."
)
@click.option(
    "--max-fixes",
    type=click.IntRange(min=0),
    metavar="N",
    help="If more are due, ask on a terminal, else stop, before the first write.",
)
@click.option(
    "--orphans",
    type=click.Choice(["report", "quarantine"]),
    default="report",
    show_default=True,
    help="Truth rows whose content is lost; quarantine removes them, never younger than a day.",
)
@click.option(
    "--dangling",
    type=click.Choice(["withdraw", "restore", "report"]),
    default="withdraw",
    show_default=True,
    help="Projections without truth; restore may bring back what was deleted, and asks.",
)
@click.option(
    "--leaks",
    type=click.Choice(["report", "collect"]),
    default="report",
    show_default=True,
    help="Content that no truth names; collect removes it, never younger than a day.",
)
@click.option(
    "--beat-ahead", is_flag=True, help="Write just above cells from the future, at once; a late writer loses."
)
@click.option("--yes", is_flag=True, help="Do what --dangling restore would ask about; --max-fixes still stops.")
@writing_options
@click.option(
    "--keep", type=KEEP, default=duration_text(KEEP_DEFAULT), show_default=True, help="How long before-images stay."
)
@click.option(
    "--message",
    "messages_named",
    type=click.UUID,
    multiple=True,
    metavar="ID",
    help="Exactly what this message's truth and content lead to; with --mailbox, --user or --scan also rows of "
    "messageIdTable that name it there without any truth.",
)
@click.option(
    "--mailbox", "mailboxes_named", type=click.UUID, multiple=True, metavar="ID", help="What this mailbox's rows show."
)
@click.option(
    "--user", "users_named", multiple=True, metavar="NAME", help="What the rows of this user's mailboxes show."
)
@click.option(
    "--scan",
    is_flag=True,
    help="With --mailbox or --user: also page the truth for missing projections; with --message: the mirror.",
)
@scanning_options
@result_options
@connection_options
def messages(  # noqa: PLR0917 - click passes by name
    connection: ConnectionSettings,
    engine: str,
    master: str | None,
    spark_conf: tuple[tuple[str, str], ...],
    keep: timedelta,
    report: Path | None,
    findings: Path | None,
    messages_named: tuple[UUID, ...],
    mailboxes_named: tuple[UUID, ...],
    users_named: tuple[str, ...],
    **options: Any,
) -> int:
    """Mend what follows from imapUidTable.

    Reads every table once, waits, looks at every suspect again, keeps what it overwrites (see `mailmend undo`), and
    writes as of a moment before its scan, so that whatever users change meanwhile wins. Running it again converges.

    With --message, --mailbox or --user no Spark is needed, and nothing is scanned unless --scan is given; what such a
    look cannot see is said, and is `unseen` in the JSON.
    """
    refuse_unasked_restore(options["dangling"], yes=options["yes"], dry_run=options["dry_run"])
    wanted = Wanted(options["as_json"], report, findings)
    with ExitStack() as stack:
        gatherer = stack.enter_context(gathering(wanted))
        place = stack.enter_context(open_place(connection))
        families = place.families(families_named("messages"))
        named_too = {"message": messages_named, "mailbox": mailboxes_named, "user": users_named, "engine": engine}
        order = order_of(place.mail.name, families, options | named_too, keep)
        progress = stack.enter_context(progress_on(stderr_console(), place.clock))
        target = target_of(place, messages_named, mailboxes_named, users_named, scan=options["scan"])
        named = EngineWanted(engine, master, dict(spark_conf), target)
        if order.dry_run:
            means = stack.enter_context(means_to_look(place, named, order, progress))
        else:
            means = stack.enter_context(means_to_mend(place, named, order, progress, keep))
            means = replace(means, go_on=go_on_by(progress))
        summary = repair_keyspace(order, means, gatherer)
    summary.unseen = target.unseen if target else None
    if summary.unseen:
        click.echo(summary.unseen, err=True)
    return present(summary, gatherer.samples, wanted, place.clock)


_LAGS_EPILOG = f"""\b
Examples:
  mailmend repair lags --dry-run      how many there are, and which
  mailmend repair lags                mend exactly them; safe to schedule every few minutes

{_EXIT_CODES}"""


@repair.command(epilog=_LAGS_EPILOG)
@timing_options
@click.option("--dry-run", is_flag=True, help="Look at them, say what would be mended, write nothing.")
@writing_options
@click.option(
    "--keep", type=KEEP, default=duration_text(KEEP_DEFAULT), show_default=True, help="How long before-images stay."
)
@click.option("--rows-per-second", type=click.IntRange(min=1), metavar="N", help="Look and write no faster.")
@result_options
@connection_options
def lags(  # noqa: PLR0917 - click passes by name
    connection: ConnectionSettings,
    delay: timedelta,
    clock_skew: timedelta,
    margin: timedelta,
    keep: timedelta,
    rows_per_second: int | None,
    report: Path | None,
    findings: Path | None,
    **switches: Any,
) -> int:
    """Mend the projections whose writes outlived their retries, without any scan.

    Writers journal such lags themselves. What agrees by now is forgotten; what cannot be mended yet stays for the next
    run.
    """
    wanted = Wanted(switches["as_json"], report, findings)
    timing = Timing(margin.total_seconds(), clock_skew.total_seconds(), no_writers=switches["no_writers"])
    with ExitStack() as stack:
        gatherer = stack.enter_context(gathering(wanted))
        place = stack.enter_context(open_place(connection))
        order = Order(
            keyspace=place.mail.name,
            families=place.families(families_named("messages")),
            delay_seconds=delay.total_seconds(),
            timing=timing,
            dry_run=switches["dry_run"],
            rows_per_second=rows_per_second,
            owner=owner_name(),
            options={"lags": True, "delay": duration_text(delay), "margin": duration_text(margin)},
        )
        progress = stack.enter_context(progress_on(stderr_console(), place.clock))
        journal, means = means_for_lags(place, order, progress, keep)
        summary = mend_lags(journal, place.mail, order, means, gatherer)
    return present(summary, gatherer.samples, wanted, place.clock)


def order_of(keyspace: str, families: Any, options: dict[str, Any], keep: timedelta) -> Order:
    """The options as one value."""
    timing = Timing(
        margin_seconds=options["margin"].total_seconds(),
        skew_seconds=options["clock_skew"].total_seconds(),
        no_writers=options["no_writers"],
    )
    return Order(
        keyspace=keyspace,
        families=families,
        level=Level(options["level"]),
        delay_seconds=options["delay"].total_seconds(),
        timing=timing,
        dry_run=options["dry_run"],
        only=verdicts_wanted(options["only"]),
        orphans=options["orphans"],
        dangling=options["dangling"],
        leaks=options["leaks"],
        beat_ahead=options["beat_ahead"],
        accept_torn=options["torn"] == "accept",
        max_fixes=options["max_fixes"],
        rows_per_second=options["rows_per_second"],
        owner=owner_name(),
        options=_kept(options, keep),
    )


def verdicts_wanted(given: Sequence[frozenset[Verdict]]) -> frozenset[Verdict]:
    """The verdicts to mend; all that can be mended when none is named."""
    return frozenset[Verdict]().union(*given) or MENDABLE


def refuse_unasked_restore(dangling: str, *, yes: bool, dry_run: bool) -> None:
    """Restoring may bring back a message whose delete was half carried out: a person has to want it.

    Raises:
        UnsafeRequest: nobody can be asked, or the answer was no.
    """
    if dangling != "restore" or yes or dry_run:
        return
    risk = "--dangling restore may bring back messages that users deleted"
    if not somebody_types():
        raise UnsafeRequest(risk, mend="Look first with --dry-run; then say --yes. Never schedule it.")
    if not click.confirm(f"{risk}. Restore them?", err=True):
        raise UnsafeRequest("nothing was restored", mend="Without --dangling restore they are withdrawn or reported.")


def _kept(options: dict[str, Any], keep: timedelta) -> dict[str, Any]:
    """What the ledger keeps of the command line: what was asked for, in the words that were typed."""
    kept = {name: value for name, value in options.items() if value not in (None, False, ()) and name != "as_json"}
    if "only" in kept:
        kept["only"] = sorted(verdict.value for verdict in verdicts_wanted(kept["only"]))
    durations = {name: duration_text(value) for name, value in kept.items() if isinstance(value, timedelta)}
    named = {name: [str(one) for one in value] for name, value in kept.items() if isinstance(value, tuple)}
    return kept | durations | named | {"keep": duration_text(keep)}

"""`mailmend schema adopt`: take over a keyspace that James made, without altering anything in it; or give it back."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click

from admin.cli.options import connection_options
from admin.cli.schema.optional import optional_json, show_optional
from admin.cli.schema.recognised import difference_json, differences_grid, mend_of
from admin.migrating import Patience, history_of, migrations_in, migrator_of
from admin.present.presenter import stdout_console, write_json
from admin.settings import ConnectionSettings
from admin.wiring import Place, open_place
from cql.introspect import live_schema
from cql.migrate.adoption import VersionWritten, look_at, version_step, write_version
from cql.migrate.adoption import adopt as take_over
from cql.migrate.adoption import forget as give_back
from cql.render import parse_version
from model.errors import ExitCode, WrongUse
from model.migrations.adoption import Adoption, Standing
from model.migrations.history import Baseline
from model.schema.keyspace import Schema

_EPILOG = """\b
Examples:
  mailmend schema adopt --dry-run                     which generation is it, what would be written, what is optional
  mailmend schema adopt                               take it over: one row and the history, in the ledger keyspace
  mailmend schema adopt --forget                      give it back: those rows are removed
  mailmend schema adopt --write-schema-version 15     also write James's own schema version, after a look at it

\b
Exit codes: 0 it is adopted, was before, or needs no adoption; 2 it is not a keyspace of James, or not whole;
3 its schema is being changed by another; 4 the cluster cannot be reached."""

_ADOPTED = (Standing.ADOPTABLE, Standing.ADOPTED, Standing.OURS)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was found and done.

    Attributes:
        wrote: whether the baseline was written by this command.
    """

    keyspace: str
    live: Schema
    adoption: Adoption
    baseline: Baseline | None
    wrote: bool
    dry_run: bool
    version: VersionWritten | None

    @property
    def exit(self) -> int:
        """Refused, or fine."""
        return int(ExitCode.FINE if self.adoption.standing in _ADOPTED else ExitCode.WRONG_USE)


@click.command(epilog=_EPILOG)
@click.option("--dry-run", is_flag=True, help="Say what would be written; write nothing.")
@click.option("--forget", is_flag=True, help="Undo: forget the baseline. Nothing in the mail keyspace changes.")
@click.option(
    "--write-schema-version",
    type=int,
    metavar="N",
    help="Also write James's own schema version into its table. Never done unless asked for.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@connection_options
def adopt(
    connection: ConnectionSettings, *, dry_run: bool, forget: bool, write_schema_version: int | None, as_json: bool
) -> int:
    """Take over a keyspace of James, of any generation: recognise it and remember what it is.

    Nothing in the mail keyspace is altered. Its generation, a fingerprint of its schema and our migrations, which count
    as done, are written to the ledger keyspace. What James's upgrade notes left to the operator is listed as optional
    migrations.
    """
    if forget and write_schema_version is not None:
        raise WrongUse("--forget and --write-schema-version exclude each other", mend="Give one of them.")
    with open_place(connection) as place:
        if forget:
            return _forget(place, dry_run=dry_run, as_json=as_json)
        outcome = _adopt(place, write_schema_version, dry_run=dry_run)
        shown = place.cluster.release_version
    if as_json:
        write_json(outcome_json(outcome, shown))
    else:
        _show(outcome, shown)
    return outcome.exit


def _adopt(place: Place, wanted_version: int | None, *, dry_run: bool) -> Outcome:
    keyspace = place.connection.keyspace
    adoption, baseline = look_at(place.cluster, keyspace, history_of(place))
    live = live_schema(place.cluster, keyspace)
    step = None
    if wanted_version is not None and adoption.standing in _ADOPTED:
        step = version_step(live, keyspace, place.mail, adoption.recognition.generation, wanted_version)
    writes = adoption.standing is Standing.ADOPTABLE and not dry_run
    if writes:
        with migrator_of(place, Patience()) as migrator:
            baseline = take_over(place.cluster, migrator.open_history(None), migrator.leases(), migrations_in(None))
    written = None
    if step is not None:
        written = VersionWritten(step) if dry_run else write_version(place.mail, place.clock, step)
    return Outcome(keyspace, live, adoption, baseline, writes, dry_run, written)


def _forget(place: Place, *, dry_run: bool, as_json: bool) -> int:
    keyspace, history = place.connection.keyspace, history_of(place)
    _, baseline = look_at(place.cluster, keyspace, history)
    if history is not None and not dry_run:
        with migrator_of(place, Patience()) as migrator:
            baseline = give_back(history, migrator.leases())
    if as_json:
        forgotten = _baseline_json(baseline) if baseline else None
        write_json({"keyspace": keyspace, "forgotten": forgotten, "dry_run": dry_run, "exit": int(ExitCode.FINE)})
        return int(ExitCode.FINE)
    console = stdout_console()
    if baseline is None:
        console.print(f"{keyspace} was not adopted: there is nothing to forget.", soft_wrap=True)
    else:
        would = "would be forgotten" if dry_run else "is forgotten; mailmend schema adopt takes it over again"
        console.print(f"{keyspace}: the adoption as {baseline.generation} {would}.", soft_wrap=True)
    return int(ExitCode.FINE)


def outcome_json(outcome: Outcome, release: str) -> dict[str, Any]:
    """What was found and done, under the names that scripts rely on."""
    recognition = outcome.adoption.recognition
    return {
        "keyspace": outcome.keyspace,
        "standing": outcome.adoption.standing.value,
        "generation": recognition.generation.name,
        "made_here": recognition.made_here,
        "adopted": outcome.wrote,
        "against": [difference_json(one) for one in outcome.adoption.against],
        "drift": [
            difference_json(one) | {"mend": mend_of(one, outcome.keyspace, made_here=recognition.made_here)}
            for one in recognition.drift
        ],
        "notes": [difference_json(one) for one in recognition.notes],
        "baseline": _baseline_json(outcome.baseline) if outcome.baseline else None,
        "optional": [
            optional_json(one, outcome.live, outcome.keyspace, parse_version(release))
            for one in outcome.adoption.optional
        ],
        "schema_version": _version_json(outcome),
        "dry_run": outcome.dry_run,
        "exit": outcome.exit,
    }


def _baseline_json(baseline: Baseline) -> dict[str, Any]:
    return {
        "generation": baseline.generation,
        "fingerprint": baseline.fingerprint,
        "migrations": list(baseline.migrations),
        "adopted_at": baseline.adopted_at,
        "owner": baseline.owner,
        "version": baseline.version,
    }


def _version_json(outcome: Outcome) -> dict[str, Any] | None:
    written = outcome.version
    if written is None:
        return None
    return {
        "before": written.step.before,
        "assumed": written.step.assumed,
        "after": written.step.after,
        "written": written.key is not None,
        "caution": written.step.caution or None,
        "undo": written.undo(outcome.keyspace) or None,
    }


def _show(outcome: Outcome, release: str) -> None:
    console = stdout_console()
    for line in _lines(outcome):
        console.print(line, soft_wrap=True, markup=False)
    against = outcome.adoption.against
    if against:
        console.print(differences_grid("Against it", against))
    if outcome.adoption.standing in _ADOPTED and not outcome.adoption.optional:
        console.print("Of what James's upgrade notes leave to the operator nothing is left to do.", soft_wrap=True)
    elif outcome.adoption.standing in _ADOPTED:
        show_optional(outcome.adoption.optional, outcome.live, outcome.keyspace, parse_version(release))


def _lines(outcome: Outcome) -> Iterator[str]:
    name, recognition = outcome.keyspace, outcome.adoption.recognition
    yield _SAID[outcome.adoption.standing].format(
        name=name,
        generation=recognition.generation.name,
        done="would be adopted" if outcome.dry_run else "is adopted",
        when=f"{outcome.baseline.adopted_at:%Y-%m-%d %H:%M} UTC by {outcome.baseline.owner}"
        if outcome.baseline
        else "",
    )
    if outcome.baseline:
        count = len(outcome.baseline.migrations)
        yield f"Fingerprint {outcome.baseline.fingerprint}; {count} migrations count as done."
    for one in recognition.drift if outcome.adoption.standing in _ADOPTED else ():
        yield f"drift: {one}; {mend_of(one, name, made_here=recognition.made_here)}"
    yield from _version_lines(outcome)


def _version_lines(outcome: Outcome) -> Iterator[str]:
    written = outcome.version
    if written is None:
        return
    step = written.step
    before = str(step.before) if step.before is not None else f"none, so James assumes {step.assumed}"
    wrote = "was written" if written.key else ("would be written" if step.changes else "stands there already")
    yield f"James's schema version: before {before}; {step.after} {wrote}."
    if step.caution:
        yield step.caution
    if written.key:
        yield f'Undo: cqlsh -e "{written.undo(outcome.keyspace)}"'


_SAID = {
    Standing.ADOPTABLE: "{name}: {done} as generation {generation}. Nothing in it was altered.",
    Standing.ADOPTED: "{name} was adopted before, on {when}: nothing was changed. Give it back with: mailmend schema "
    "adopt --forget --keyspace {name}",
    Standing.OURS: "{name} was made by mailmend: it needs no adoption. See: mailmend schema history --keyspace {name}",
    Standing.EMPTY: "{name} holds none of James's tables of messages: there is nothing to adopt. Create them with: "
    "mailmend schema apply --keyspace {name}",
    Standing.HALF_MADE: "{name} lacks tables that every James creates when it starts: it is not adopted. Start James "
    "once, or create them with: mailmend schema apply --complete --keyspace {name}",
    Standing.UNKNOWN: "{name} has tables of James's names in another shape: it is not adopted. The nearest generation "
    "is {generation}.",
}

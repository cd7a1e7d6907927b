"""`mailmend schema adopt`: takes over a keyspace of James, and alters nothing in it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import OpenCluster, open_cluster
from mailmend.admin.frame.command import Command
from mailmend.admin.frame.document import Document, Part
from mailmend.admin.frame.options import CONNECTION, flag, option
from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.admin.frame.values import fields_json
from mailmend.admin.schema.apply import optional_json, optional_text
from mailmend.admin.schema.migrating import Patience, history_of, migrations_in, migrator_of
from mailmend.admin.schema.verify import (
    differences_json,
    differences_table,
    mend_of,
    recognition_json,
)
from mailmend.cql.introspect import live_schema
from mailmend.cql.migrate import history as adopting
from mailmend.cql.migrate.history import VersionWritten
from mailmend.cql.render import ServerVersion, parse_version
from mailmend.cql.schema.migrations import Baseline
from mailmend.cql.schema.upgrades import Adoption, Standing
from mailmend.model.errors import ExitCode, WrongUse
from mailmend.model.keyspace import Schema
from mailmend.model.texts import keyspace_option

ADOPTED = (Standing.ADOPTABLE, Standing.ADOPTED, Standing.OURS)
"""What an adoption leaves adopted, or finds so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptRequest:
    """Which keyspace is taken over, or with `forget` given back."""

    connection: ConnectionSettings
    dry_run: bool = False
    forget: bool = False
    write_schema_version: int | None = None


@dataclass(frozen=True, slots=True)
class AdoptResult:
    """What was found and done.

    Attributes:
        wrote: whether the baseline was written now.
    """

    keyspace: str
    live: Schema
    server: ServerVersion
    adoption: Adoption
    baseline: Baseline | None
    wrote: bool
    dry_run: bool
    version: VersionWritten | None

    @property
    def exit(self) -> ExitCode:
        if self.adoption.standing in ADOPTED:
            return ExitCode.FINE
        return ExitCode.WRONG_USE


@dataclass(frozen=True, slots=True)
class ForgetResult:
    """Which adoption was removed; None where there was none."""

    keyspace: str
    baseline: Baseline | None
    dry_run: bool


def adopt(request: AdoptRequest, caller: Caller) -> AdoptResult | ForgetResult:
    """Take over a keyspace of James without altering anything in it, or give it back.

    Raises:
        WrongUse: it is to be given back, and James's schema version is to be written.
        LeaseHeld: its schema is being changed by another.
    """
    if request.forget and request.write_schema_version is not None:
        raise WrongUse("--forget and --write-schema-version exclude each other", mend="Give one of them.")
    with open_cluster(request.connection) as opened:
        if request.forget:
            return _forget(opened, request, caller)
        return _adopt(opened, request, caller)


def _adopt(opened: OpenCluster, request: AdoptRequest, caller: Caller) -> AdoptResult:
    keyspace = opened.connection.keyspace
    cluster = opened.cluster
    adoption, baseline = adopting.look_at(cluster, keyspace, history_of(opened))
    live = live_schema(cluster, keyspace)
    version = request.write_schema_version
    step = None
    if version is not None and adoption.standing in ADOPTED:
        step = adopting.version_step(live, keyspace, opened.mail, adoption.recognition.generation, version)
    writes = adoption.standing is Standing.ADOPTABLE and not request.dry_run
    if writes:
        with migrator_of(opened, Patience(), caller.progress) as migrator:
            baseline = adopting.adopt(cluster, migrator.open_history(None), migrator.leases(), migrations_in(None))
    if step is None:
        written = None
    elif request.dry_run:
        written = VersionWritten(step)
    else:
        written = adopting.write_version(opened.mail, opened.clock, step)
    server = parse_version(cluster.release_version)
    return AdoptResult(keyspace, live, server, adoption, baseline, writes, request.dry_run, written)


def _forget(opened: OpenCluster, request: AdoptRequest, caller: Caller) -> ForgetResult:
    keyspace = opened.connection.keyspace
    found = history_of(opened)
    _, baseline = adopting.look_at(opened.cluster, keyspace, found)
    if found is not None and not request.dry_run:
        with migrator_of(opened, Patience(), caller.progress) as migrator:
            baseline = adopting.forget(found, migrator.leases())
    return ForgetResult(keyspace, baseline, request.dry_run)


def adopt_document(result: AdoptResult | ForgetResult) -> Document:
    if isinstance(result, ForgetResult):
        return _forget_document(result)
    return Document(adopt_json(result), tuple(_adopt_parts(result)), result.exit)


def _forget_document(result: ForgetResult) -> Document:
    baseline = result.baseline
    keyspace = result.keyspace
    if baseline is None:
        line = f"{keyspace} was not adopted: there is nothing to forget."
    elif result.dry_run:
        line = f"{keyspace}: the adoption as {baseline.generation} would be forgotten."
    else:
        again = "mailmend schema adopt takes it over again"
        line = f"{keyspace}: the adoption as {baseline.generation} is forgotten; {again}."
    json = {
        "keyspace": keyspace,
        "forgotten": _baseline_json(baseline),
        "dry_run": result.dry_run,
        "exit": int(ExitCode.FINE),
    }
    return Document(json, (line,))


def adopt_json(outcome: AdoptResult) -> dict[str, Any]:
    adoption = outcome.adoption
    optional = []
    for migration in adoption.optional:
        optional.append(optional_json(migration, outcome.live, outcome.keyspace, outcome.server))
    return {
        **recognition_json(outcome.keyspace, adoption.recognition),
        "standing": adoption.standing.value,
        "adopted": outcome.wrote,
        "against": differences_json(adoption.against),
        "baseline": _baseline_json(outcome.baseline),
        "optional": optional,
        "schema_version": _version_json(outcome),
        "dry_run": outcome.dry_run,
        "exit": int(outcome.exit),
    }


def _baseline_json(baseline: Baseline | None) -> dict[str, Any] | None:
    if baseline is None:
        return None
    fields = fields_json(baseline, "generation", "fingerprint", "migrations", "owner", "version")
    return {**fields, "adopted_at": baseline.adopted_at}


def _version_json(outcome: AdoptResult) -> dict[str, Any] | None:
    written = outcome.version
    if written is None:
        return None
    return {
        **fields_json(written.step, "before", "assumed", "after"),
        "written": written.key is not None,
        "caution": written.step.caution or None,
        "undo": written.undo(outcome.keyspace) or None,
    }


def _adopt_parts(outcome: AdoptResult) -> Iterator[Part]:
    yield from _adopt_lines(outcome)
    if outcome.adoption.against:
        yield differences_table("Against it", outcome.adoption.against)
    if outcome.adoption.standing not in ADOPTED:
        return
    if outcome.adoption.optional:
        yield optional_text(outcome.adoption.optional, outcome.live, outcome.keyspace, outcome.server)
    else:
        yield "Of what James's upgrade notes leave to the operator nothing is left to do."


def _adopt_lines(outcome: AdoptResult) -> Iterator[str]:
    name = outcome.keyspace
    standing = outcome.adoption.standing
    recognition = outcome.adoption.recognition
    baseline = outcome.baseline
    done = "would be adopted" if outcome.dry_run else "is adopted"
    when = ""
    if baseline:
        when = f"{baseline.adopted_at:%Y-%m-%d %H:%M} UTC by {baseline.owner}"
    yield _SAID[standing].format(
        name=name,
        generation=recognition.generation.name,
        done=done,
        option=keyspace_option(name),
        when=when,
    )
    if baseline:
        yield f"Fingerprint {baseline.fingerprint}; {len(baseline.migrations)} migrations count as done."
    if standing in ADOPTED:
        for difference in recognition.drift:
            yield f"drift: {difference}; {mend_of(difference, name, made_here=recognition.made_here)}"
    yield from _version_lines(outcome)


def _version_lines(outcome: AdoptResult) -> Iterator[str]:
    written = outcome.version
    if written is None:
        return
    step = written.step
    if step.before is None:
        before = f"none, so James assumes {step.assumed}"
    else:
        before = str(step.before)
    if written.key:
        wrote = "was written"
    elif step.changes:
        wrote = "would be written"
    else:
        wrote = "is there already"
    yield f"James's schema version: before {before}; {step.after} {wrote}."
    if step.caution:
        yield step.caution
    if written.key:
        undo = written.undo(outcome.keyspace).replace('"', r"\"")
        yield f'Undo: cqlsh -e "{undo}"'


_SAID = {
    Standing.ADOPTABLE: "{name}: {done} as generation {generation}. Nothing in it was altered.",
    Standing.ADOPTED: "{name} was adopted before, on {when}: nothing was changed. Give it back with: mailmend schema "
    "adopt --forget {option}",
    Standing.OURS: "{name} was made by mailmend: it needs no adoption. See: mailmend schema history {option}",
    Standing.EMPTY: "{name} holds none of James's tables of messages: there is nothing to adopt. Create them with: "
    "mailmend schema apply {option}",
    Standing.HALF_MADE: "{name} lacks tables that every James creates when it starts: it is not adopted. Start James "
    "once, or create them with: mailmend schema apply --complete {option}",
    Standing.UNKNOWN: "{name} has tables of James's names in another shape: it is not adopted. The nearest generation "
    "is {generation}.",
}


ADOPT: Final = Command(
    name="adopt",
    summary="Take over a keyspace of James, altering nothing in it.",
    about="""A keyspace of any generation is recognised and remembered. Nothing in the mail keyspace is altered. Its
    generation, a fingerprint of its schema and our migrations, which count as done, are written to the ledger keyspace.
    What James's upgrade notes left to the operator is listed as optional migrations.""",
    service="mailmend.admin.schema.adopt:adopt",
    present="mailmend.admin.schema.adopt:adopt_document",
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

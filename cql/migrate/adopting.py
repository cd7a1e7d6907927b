"""Taking over a keyspace that mailmend did not make, and giving it back: rows of the ledger, nothing else.

Nothing is written to the mail keyspace. Whoever is killed on the way leaves a ledger in which the same command goes on:
the baseline is written last and taken away first, so a keyspace counts as adopted only when all of it is written.
"""

from collections.abc import Sequence

from cql.introspect import SchemaServer, live_schema
from cql.migrate.baselines import Baselines
from cql.migrate.history import History
from cql.migrate.rollout import lease_name
from model.catalog.schema_history import SCHEMA_MIGRATION
from model.errors import UnsafeRequest
from model.instants import instant_of
from model.migrations.adoption import Adoption, Standing, decide_adoption
from model.migrations.baselines import Baseline, digests
from model.migrations.history import State
from model.migrations.migration import Migration
from model.operations import RemoveIf
from model.ports import LeaseSource

_ADOPTED = "adopted as "
"""How the note begins by which the entries of an adoption are told from those of a keyspace that we made ourselves."""


def baselines_of(history: History) -> Baselines:
    """The baseline of the keyspace that the history is of."""
    return Baselines(history.rows, history.keyspace)


def look_at(server: SchemaServer, keyspace: str, history: History | None) -> tuple[Adoption, Baseline | None]:
    """What adopting would do, and the baseline that stands; reads only.

    Args:
        server: the cluster.
        keyspace: the mail keyspace.
        history: of the keyspace; None where there is no ledger.

    Raises:
        UnknownKeyspace: there is none of that name.
    """
    server.replication_of(keyspace)
    baseline = baselines_of(history).get() if history else None
    entries = history.entries() if history else ()
    return decide_adoption(live_schema(server, keyspace), baseline, entries), baseline


def adopt(server: SchemaServer, history: History, leasing: LeaseSource, migrations: Sequence[Migration]) -> Baseline:
    """Take the keyspace over: its migrations count as done, and its schema is remembered by its fingerprint.

    Args:
        server: the cluster.
        history: of a keyspace that `look_at` found adoptable.
        leasing: where the lease of schema changes is taken.
        migrations: our own, all of which count as done.

    Raises:
        LeaseHeld: the schema of the keyspace is being changed.
        UnsafeRequest: it is no longer adoptable.
    """
    keyspace = history.keyspace
    with leasing.held(lease_name(keyspace), "schema adopt") as held:
        adoption, standing = look_at(server, keyspace, history)
        if standing is not None:
            return standing
        if adoption.standing is not Standing.ADOPTABLE:
            raise UnsafeRequest(
                f"{keyspace} has become {adoption.standing.value} meanwhile", mend="Type the same command again."
            )
        held.check()
        known = {entry.number for entry in history.entries()}
        left = [one for one in migrations if one.number not in known]
        generation = adoption.recognition.generation.name
        history.baseline(left, history.clock.new_uuid(), f"{_ADOPTED}{generation}")
        baseline = Baseline(
            generation,
            digests(live_schema(server, keyspace)),
            tuple(str(one.file) for one in migrations),
            instant_of(history.clock.micros()),
            history.owner,
            history.version,
        )
        baselines_of(history).put(baseline)
        return baseline


def forget(history: History, leasing: LeaseSource) -> Baseline | None:
    """Undo an adoption; what it was, or None when there was none.

    Raises:
        LeaseHeld: the schema of the keyspace is being changed.
        UnsafeRequest: migrations were applied to it since, whose history would be lost.
    """
    keyspace, baselines = history.keyspace, baselines_of(history)
    with leasing.held(lease_name(keyspace), "schema adopt --forget") as held:
        entries, baseline = history.entries(), baselines.get()
        applied = [str(one.file) for one in entries if one.state is not State.BASELINE]
        if baseline is not None and applied:
            raise UnsafeRequest(
                f"{keyspace} was adopted, and then migrated: {', '.join(applied)}; forgetting would lose that history",
                mend=f"See it with: mailmend schema history --keyspace {keyspace}",
            )
        held.check()
        if baseline is not None:
            baselines.remove(baseline)
        for one in () if applied else (one for one in entries if one.note.startswith(_ADOPTED)):
            history.rows.attempt(RemoveIf(SCHEMA_MIGRATION, (keyspace, one.number), {"claim": one.claim}))
        return baseline

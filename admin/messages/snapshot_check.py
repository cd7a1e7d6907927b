"""`mailmend check messages --snapshot`: the tables are read from a node's snapshot files."""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import OpenCluster, open_cluster, repair_tools, this_clock
from mailmend.admin.frame.environments import environment_of_others
from mailmend.admin.frame.examples import Examples
from mailmend.admin.frame.options import option
from mailmend.admin.local.sstable_reader import reader_command
from mailmend.admin.messages.bound_tables import BoundTables, mail_tables
from mailmend.admin.messages.check_record import is_recorded
from mailmend.admin.messages.check_settings import check_settings, timing_of_counters
from mailmend.admin.messages.mending import CheckRequest, CommandResult, given, unseen
from mailmend.admin.messages.runs import affected
from mailmend.cql.memory import MemoryTables
from mailmend.model.catalog.mail import MESSAGES
from mailmend.model.errors import SchemaMismatch, WrongUse
from mailmend.model.instants import MICROS, instant_of
from mailmend.model.projections.family import Family
from mailmend.repair.binding import bound, left_out
from mailmend.repair.decisions.engines import Engine
from mailmend.repair.ledger.runs import Ledger
from mailmend.repair.mending import runner
from mailmend.repair.mending.runner import RepairTools
from mailmend.repair.scanners.local import LocalEngine
from mailmend.repair.snapshots.layout import Snapshot, snapshot_in
from mailmend.repair.snapshots.tables import ReaderProcess, SnapshotTables

SNAPSHOT: Final = option(
    "--snapshot",
    "Read the tables from this folder of a node's snapshot (or a folder above it), not from the "
    "cluster: for `check messages`. May be given again, for other nodes: of each cell the newest "
    "write counts.",
    type=click.Path(path_type=Path, file_okay=False),
    multiple=True,
    metavar="DIR",
)
SNAPSHOT_NAME: Final = option(
    "--snapshot-name",
    "The snapshot to read, where the folders of --snapshot have several.",
    metavar="NAME",
)

_WITHOUT_GENERATORS: Final = "Generators of uids and modseqs were not compared."

ENGINE: Final = Engine("local", "it reads the snapshot")


def check_snapshot(request: CheckRequest, caller: Caller) -> CommandResult:
    """Find drift in snapshot files; the second look reads the cluster, unless there is to be none.

    Raises:
        WrongUse: an option or a table that snapshots do not serve, or a folder without a snapshot.
    """
    _refuse_others(request)
    if is_recorded(request):
        caller.remark("A check of a snapshot is not kept in the ledger, in a job either.")
    snapshot = snapshot_in(request.snapshot, request.connection.keyspace, request.snapshot_name)
    caller.remark(f"Snapshot as of {_taken(snapshot)}: {snapshot.number_of_files:,} SSTables.")
    command = partial(reader_command, caller.progress)
    process = ReaderProcess(command, environment_of_others(os.environ))
    with SnapshotTables(snapshot, process) as tables:
        if request.no_recheck:
            return _alone(request, caller, tables)
        with open_cluster(request.connection) as opened:
            return _with_cluster(request, caller, tables, opened)


def _refuse_others(request: CheckRequest) -> None:
    declared = request.projection is not None or request.projections is not None
    if request.what != "messages" or declared:
        raise WrongUse(
            "--snapshot is for messages only",
            mend="Write `mailmend check messages --snapshot DIR`. Other tables and queues are read "
            "from the cluster: leave --snapshot out.",
        )
    if request.engine == "spark" or request.master or request.spark_conf:
        raise WrongUse(
            "Spark does not read snapshots",
            mend="Write --engine local without --master and --spark-conf, or leave --snapshot out.",
        )
    if request.staging is not None:
        raise WrongUse(
            "--staging has no effect on a snapshot: its files do not change",
            mend="Leave --staging out.",
        )
    if request.record:
        raise WrongUse(
            "--record keeps checks of the cluster, not of a snapshot",
            mend="Leave --record out, and keep the result with --json or --report FILE.",
        )


def _alone(request: CheckRequest, caller: Caller, tables: SnapshotTables) -> CommandResult:
    """What the files say, without a cluster: each suspect is a finding."""
    snapshot = tables.snapshot
    found = bound(snapshot.keyspace, snapshot.schema, (MESSAGES,), left_out(request.without))
    families = tuple(map(_without_generators, found.families))
    clock = this_clock()
    engine = LocalEngine(tables, Ledger(MemoryTables(clock.micros), clock), clock)
    tools = RepairTools(engine, clock, _NoNodes(), caller.progress)
    compared = BoundTables(replace(found, families=families))
    examples = Examples(caller, compared.scope)
    result = _checked(request, tables, tools, compared, examples)
    result.summary.unseen = _joined(result.summary.unseen, _WITHOUT_GENERATORS)
    return result


def _with_cluster(
    request: CheckRequest,
    caller: Caller,
    tables: SnapshotTables,
    opened: OpenCluster,
) -> CommandResult:
    found = mail_tables(opened, (MESSAGES,), request.without)
    settings = check_settings(request, opened.mail.name, found)
    timing = timing_of_counters(request)
    tools = repair_tools(opened, settings, ENGINE, caller.progress, timing=timing)
    engine = tools.engine
    assert isinstance(engine, LocalEngine), "the engine is named"
    reading = replace(tables, live=engine.mail)
    examples = Examples(caller, found.scope)
    tools = replace(tools, engine=replace(engine, mail=reading))
    result = _checked(request, reading, tools, found, examples)
    return replace(result, affected=affected(examples, opened))


def _checked(
    request: CheckRequest,
    tables: SnapshotTables,
    tools: RepairTools,
    compared: BoundTables,
    examples: Examples,
) -> CommandResult:
    _refuse_incomplete(tables.snapshot, compared)
    settings = check_settings(request, tables.snapshot.keyspace, compared)
    summary = runner.check(settings, tools, examples.take)
    summary.engine = ENGINE
    summary.snapshot = _as_json(request, tables)
    summary.exit = summary.exit_code
    summary.unseen = _joined(unseen(request.without, compared.bound), *_unread(tables))
    return CommandResult(summary, examples.sorted(), options=given(request), scope=compared.scope)


def _refuse_incomplete(snapshot: Snapshot, compared: BoundTables) -> None:
    """Refuse a snapshot without a table that is compared: an absent table is not an empty one.

    Raises:
        SchemaMismatch: names the tables.
    """
    lacking: dict[str, None] = {}
    for family in compared.bound.families:
        for name, (table, _columns) in family.columns_read.items():
            if table.name not in snapshot.tables:
                lacking[name] = None
    if lacking:
        raise SchemaMismatch(
            snapshot.keyspace,
            tuple(f"{name} in the snapshot" for name in lacking),
            mend="Take the snapshot of the whole keyspace: nodetool snapshot -t NAME "
            f"{snapshot.keyspace}; or name the folder of that table with another --snapshot.",
        )


def _without_generators(family: Family) -> Family:
    return replace(family, counts=tuple(replace(counts, generators=()) for counts in family.counts))


class _NoNodes:
    """No node is asked for its clock: the files have their own time."""

    def node_micros(self) -> Sequence[int]:
        return ()


def _as_json(request: CheckRequest, tables: SnapshotTables) -> dict[str, Any]:
    snapshot = tables.snapshot
    return {
        "places": list(map(str, request.snapshot)),
        "taken_at": _taken(snapshot),
        "files": snapshot.number_of_files,
        "damaged": [{"file": damage.file, "reason": damage.reason} for damage in tables.damaged],
        "missing": list(map(str, snapshot.missing)),
    }


def _unread(tables: SnapshotTables) -> list[str]:
    """A sentence for each file that is missing or damaged; its rows are taken as absent."""
    sentences = []
    for path in tables.snapshot.missing:
        sentences.append(f"Missing, although the manifest names it: {path}.")
    for damage in tables.damaged:
        sentences.append(f"Not read to its end: {damage.file} ({damage.reason}).")
    return sentences


def _taken(snapshot: Snapshot) -> str:
    return f"{instant_of(snapshot.taken * MICROS):%Y-%m-%dT%H:%M:%SZ}"


def _joined(*sentences: str | None) -> str | None:
    return " ".join(filter(None, sentences)) or None

"""The settings of a check, by its options: of the cluster's tables, and of a snapshot's."""

from mailmend.admin.messages.bound_tables import BoundTables
from mailmend.admin.messages.mending import CheckRequest
from mailmend.model.projections.findings import RepairPolicy
from mailmend.repair.clock import STAMP_AGE_SECONDS, Timing
from mailmend.repair.mending.engine import RepairSettings


def check_settings(request: CheckRequest, keyspace: str, tables: BoundTables) -> RepairSettings:
    bound = tables.bound
    return RepairSettings(
        keyspace=keyspace,
        families=bound.families,
        missing_columns=bound.missing_columns,
        missing_tables=bound.missing_tables,
        level=request.level,
        delay_seconds=request.delay.total_seconds(),
        timing=Timing(0, request.clock_skew.total_seconds(), no_writers=True),
        recheck=not request.no_recheck,
        pressed=request.connection.is_pressed(request.pace),
        policy=RepairPolicy(
            accept_torn=request.torn == "accept",
            fill_torn=request.torn == "fill",
            rows_per_second=request.rows_per_second,
        ),
    )


def timing_of_counters(request: CheckRequest) -> Timing:
    """The timing of the two looks at counters: any margin above the skew will do."""
    skew = request.clock_skew.total_seconds()
    return Timing(skew + STAMP_AGE_SECONDS + 1, skew, no_writers=request.no_writers)

"""`mailmend check --projections james`: the tables of James that have rules of their own.

They are looked at before and after what the declaration says, with the delay in between.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import OpenCluster
from mailmend.admin.messages.mending import CheckRequest, CommandResult
from mailmend.admin.messages.options import WHAT_DEFAULT
from mailmend.cql.introspect import live_schema
from mailmend.model.errors import AccessDenied, ExitCode, WrongUse
from mailmend.model.keyspace import Schema
from mailmend.model.names import name_of
from mailmend.model.waiting import wait_visibly
from mailmend.repair.ledger.runs import RunKind
from mailmend.repair.mending.engine import RepairResult
from mailmend.repair.mending.limits import Pace
from mailmend.repair.scanners.comparisons import TABLE_RULES
from mailmend.repair.scanners.mismatches import (
    Mismatch,
    MismatchLook,
    TableRule,
    confirmed,
    unsettled,
)

Looks = dict[str, MismatchLook]
"""What was seen, by the name of the table."""


@dataclass(frozen=True, slots=True)
class _LookingTwice:
    """Two looks at tables that have a rule of their own."""

    request: CheckRequest
    caller: Caller
    opened: OpenCluster

    def looks(self, wanted: Sequence[TableRule], first: Looks | None = None) -> Looks:
        """A look at each table; a table that the role may not read is remarked and left out."""
        mail = Pace(self.request.rows_per_second, self.opened.clock).over(self.opened.mail)
        found = {}
        for rule in wanted:
            name = rule.table.name
            earlier = None
            if first is not None:
                earlier = first[name]
            try:
                found[name] = rule.look(mail, self.request.level, earlier)
            except AccessDenied as error:
                self.caller.remark(f"{rule.table.spelling} was not looked at: {error.what}.")
        return found

    def confirmed(
        self,
        wanted: Sequence[TableRule],
        before: Looks,
        looked_at: float,
    ) -> list[Mismatch]:
        """What two looks see, the delay in between; without a second look, what the first one saw.

        A number that changed from the first look to the second is looked at once more.

        Args:
            wanted: the tables.
            before: the first look.
            looked_at: when that ended, in seconds of the clock.
        """
        if self.request.no_recheck:
            return _in_both(before, before)
        after = self._again(wanted, before, looked_at)
        mismatches = _in_both(before, after)
        changed = {name: unsettled(before[name], look) for name, look in after.items()}
        last = self._again(wanted, changed, self.opened.clock.monotonic())
        return mismatches + _in_both(changed, last)

    def _again(self, wanted: Sequence[TableRule], before: Looks, looked_at: float) -> Looks:
        """A look at the tables with mismatches, once the delay has passed since `looked_at`."""
        suspect = []
        for rule in wanted:
            look = before.get(rule.table.name)
            if look is not None and look.found:
                suspect.append(rule)
        if not suspect:
            return {}
        passed = self.opened.clock.monotonic() - looked_at
        left = self.request.delay.total_seconds() - passed
        what = "waiting for late writes before the second look"
        wait_visibly(self.opened.clock, self.caller.progress, what, left)
        return self.looks(suspect, before)


def _in_both(before: Looks, after: Looks) -> list[Mismatch]:
    mismatches: list[Mismatch] = []
    for name, look in after.items():
        mismatches += confirmed(before[name], look)
    return mismatches


def check_james(
    request: CheckRequest,
    caller: Caller,
    opened: OpenCluster,
    find: Callable[[], CommandResult],
) -> CommandResult:
    """Compare the tables that have a rule of their own, and what the declaration says.

    Args:
        request: names one of these tables, a declared one, or all.
        caller: gets remarks.
        opened: the cluster.
        find: finds drift in the declared tables; not called where a table with a rule is named.

    Raises:
        WrongUse: the keyspace lacks what the rule of a named table reads.
    """
    live = live_schema(opened.cluster, opened.mail.name)
    named = _named(request.what, live)
    if named is None and request.what != WHAT_DEFAULT:
        return find()
    wanted = _every(live)
    if named is not None:
        wanted = [named]
    looking = _LookingTwice(request, caller, opened)
    began = opened.clock.monotonic()
    before = looking.looks(wanted)
    looked_at = opened.clock.monotonic()
    if named is None:
        found = find()
    else:
        found = CommandResult(RepairResult(opened.mail.name, RunKind.CHECK))
    mismatches = looking.confirmed(wanted, before, looked_at)
    summary = found.summary
    for look in before.values():
        summary.scanned.update(look.scanned)
    if named is not None:
        summary.seconds["mismatches"] = opened.clock.monotonic() - began
    if mismatches:
        summary.exit = max(summary.exit, ExitCode.DRIFT)
    return replace(found, mismatches=tuple(mismatches))


def _every(live: Schema) -> list[TableRule]:
    """The tables that are looked at without their name, as far as the keyspace has them."""
    wanted = []
    for rule in TABLE_RULES:
        if not rule.is_large and not rule.lacking(live):
            wanted.append(rule)
    return wanted


def _named(what: str, live: Schema) -> TableRule | None:
    """The rule of a table that is named; None where another table is, or none."""
    for rule in TABLE_RULES:
        if rule.table.name != name_of(what):
            continue
        lacking = rule.lacking(live)
        if lacking:
            problem = f"the keyspace lacks {', '.join(lacking)}"
            mend = "Name the keyspace of a James that has it: --keyspace NAME."
            raise WrongUse(problem, mend=mend)
        return rule
    return None

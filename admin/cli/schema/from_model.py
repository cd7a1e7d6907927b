"""`mailmend schema plan --from-model`: the CQL that takes a live keyspace to the model, or to what its migrations say.

It is printed, never run: whoever owns the keyspace looks at it first, then pipes it into cqlsh.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from admin.cli.options import with_options
from admin.cli.schema.planned import Sizes
from admin.migrating import history_of
from admin.wiring import Place
from cql.introspect import live_schema
from cql.language.text import ddl_cql
from cql.migrate.history import record_of
from cql.migrate.rollout import RolloutRequest
from cql.render import ServerVersion, parse_version
from model.catalog.mail import CompactionChoice
from model.errors import ExitCode, WrongUse
from model.migrations.plan import refuse_tampering
from model.migrations.verification import expected_after
from model.schema.changes import Gap, Include, SchemaChange, changes
from model.schema.from_model import gap_to_catalog
from model.schema.names import name_of
from model.schema.risk import Risk

C = TypeVar("C", bound=Callable[..., Any])

_OPTIONS: Final = (
    click.option("--from-model", is_flag=True, help="What takes the live tables to the model; printed, never run."),
    click.option("--include-options", is_flag=True, help="With --from-model: options too; most rewrite their table."),
    click.option("--include-drops", is_flag=True, help="With --from-model: also remove what the model does not know."),
    click.option("--newest", is_flag=True, help="With --from-model: to the newest generation, not to its own."),
)
_ONLY_WITH_IT: Final = ("include_options", "include_drops", "newest")


def model_options(command: C) -> C:
    """What `--from-model` proposes."""
    return with_options(command, _OPTIONS)


def refuse_without_model(options: Mapping[str, Any]) -> None:
    """Refuse options that say nothing without `--from-model`.

    Raises:
        WrongUse: one was given.
    """
    for name in _ONLY_WITH_IT:
        if options[name]:
            raise WrongUse(f"--{name.replace('_', '-')} goes with --from-model", mend="Add it.")


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """What takes a keyspace to its model.

    Attributes:
        sizes: of its tables, where they matter.
        server: for which the CQL is spelled.
    """

    keyspace: str
    changes: tuple[SchemaChange, ...]
    sizes: Sizes
    server: ServerVersion

    @property
    def exit(self) -> int:
        """Whether there is something to do."""
        return int(ExitCode.DRIFT if self.changes else ExitCode.FINE)

    def cql(self, change: SchemaChange) -> str:
        """The change as cqlsh takes it; "" where it is for a person."""
        return ddl_cql(change.statement, self.keyspace, self.server) if change.statement else ""

    def estimate(self, change: SchemaChange) -> str:
        """The size of the table, where it matters."""
        size = self.sizes.get(name_of(change.owner))
        return str(size) if size and change.assessment.worst is not Risk.NONE else ""


def plan_from_model(place: Place, request: RolloutRequest, options: Mapping[str, Any]) -> ModelPlan:
    """What would take the keyspace to its model; reads only.

    Args:
        place: the cluster.
        request: which keyspace, and whether its migrations are ours.
        options: of the command line.

    Raises:
        UnknownKeyspace: there is none of that name.
        HistoryMismatch: the migrations are not those that were applied.
    """
    place.cluster.replication_of(request.keyspace)
    live, include = live_schema(place.cluster, request.keyspace), _included(options)
    if request.ours:
        gap = gap_to_catalog(live, include, newest=options["newest"], choice=_choice(request))
    else:
        past = record_of(history_of(place))
        refuse_tampering(request.keyspace, request.migrations, past)
        gap = Gap(expected_after(request.migrations, past), live, include)
    found = changes(gap)
    return ModelPlan(request.keyspace, found, _sizes(place, found), parse_version(place.cluster.release_version))


def _included(options: Mapping[str, Any]) -> frozenset[Include]:
    asked = {Include.OPTIONS: options["include_options"], Include.REMOVALS: options["include_drops"]}
    return frozenset(one for one, wanted in asked.items() if wanted)


def _choice(request: RolloutRequest) -> CompactionChoice | None:
    """The compaction, where the person names it; the option's default says nothing about a table that is there."""
    source = click.get_current_context().get_parameter_source("compaction")
    return None if source is ParameterSource.DEFAULT else request.compaction


def _sizes(place: Place, found: tuple[SchemaChange, ...]) -> Sizes:
    if all(one.assessment.worst is Risk.NONE for one in found):
        return {}
    from cql.estimates import sizes_in  # noqa: PLC0415 - brings the driver

    return sizes_in(place.cluster, place.connection.keyspace)


def model_plan_json(plan: ModelPlan) -> dict[str, Any]:
    """The plan under the names that scripts rely on."""
    return {
        "keyspace": plan.keyspace,
        "from_model": True,
        "plan": [
            {
                "owner": one.owner,
                "cql": plan.cql(one) or None,
                "risk": one.assessment.worst.value,
                "risks": [risk.value for risk in one.assessment.risks],
                "why": one.assessment.why,
                "manual": one.manual or None,
                "estimate": plan.estimate(one) or None,
            }
            for one in plan.changes
        ],
        "statements": [plan.cql(one) for one in plan.changes if one.statement],
        "exit": plan.exit,
    }


def show_model_plan(plan: ModelPlan) -> None:
    """CQL that cqlsh takes; what matters about it, and what is for a person, as comments."""
    sys.stdout.writelines(f"{line}\n" for line in _lines(plan))


def _lines(plan: ModelPlan) -> Iterator[str]:
    for one in plan.changes:
        if one.manual:
            yield from (f"-- by hand, {one.owner}: {one.manual}", "")
            continue
        estimate = plan.estimate(one)
        risks = ", ".join(risk.value for risk in one.assessment.risks)
        yield f"-- risk: {risks}. {one.assessment.why}{f' The table: {estimate}.' if estimate else ''}"
        yield from (plan.cql(one), "")
    if not plan.changes:
        yield f"-- {plan.keyspace} is as the model says; options and what is unexpected were left out unless asked for"

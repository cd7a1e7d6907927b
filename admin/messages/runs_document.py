"""Runs of the ledger as documents: their list, one of them, and how findings change over them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from mailmend.admin.frame.charts import by_time, by_verdict, in_order, over_runs
from mailmend.admin.frame.document import Document, Grid, Part
from mailmend.admin.frame.values import plain, shown
from mailmend.admin.frame.verdict_texts import steps_grid, steps_lines
from mailmend.admin.messages.affected_document import affected_json, findings_parts, mailboxes_part
from mailmend.admin.messages.runs_service import RunResult, RunsResult
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.texts import keyspace_option
from mailmend.repair.decisions.left_sample import LEFT_SAMPLE
from mailmend.repair.ledger.runs import Run
from mailmend.repair.mending.undo import NOT_UNDONE

_NO_RUN: Final = "No run is kept: nothing was repaired yet, or it has expired."

_SUMS: Final = ("findings", "fixed", "left")

EXAMPLES_SHOWN: Final = 20
"""How many findings `runs show` lists; `--findings` gives all."""


def runs_document(result: RunsResult) -> Document:
    json = {"runs": [run_json(run) for run in result.runs]}
    if not result.runs:
        return Document(json, (_NO_RUN,))
    columns = ("run", "started", "command", "state", "fixed", "left")
    table = Grid(f"Runs of {result.keyspace}", columns, [_cells(run) for run in result.runs])
    return Document(json, (table, f"Next: mailmend runs show {result.runs[0].id}"))


def trend_document(result: RunsResult) -> Document:
    names = ("run", "started_at", "command", "state")
    runs = [
        {**{name: run_json(run)[name] for name in names}, **{name: run.summary.get(name) or {} for name in _SUMS}}
        for run in reversed(result.runs)
    ]
    return Document(
        {"keyspace": result.keyspace, "runs": runs},
        tuple(trend_parts(result.runs)) or (_NO_RUN,),
        title=f"Trend of keyspace {result.keyspace}",
    )


def trend_parts(runs: Sequence[Run]) -> Iterator[Part]:
    """What was found, fixed and left by verdict, the oldest run first; given the newest first."""
    summed = [(run, {name: by_name(run, name) for name in _SUMS}) for run in reversed(runs)]
    rows = [
        (shown(run.started_at), str(run.id), run.command, verdict, *(f"{sums[name][verdict]:,}" for name in _SUMS))
        for run, sums in summed
        for verdict in in_order(name for counts in sums.values() for name in counts) or ("",)
    ]
    if rows:
        yield Grid("Run after run", ("started", "run", "command", "verdict", "found", "fixed", "left"), rows)
    repairs = [(f"{shown(run.started_at)}, {run.command}", sums) for run, sums in summed if run.undoes is None]
    yield from over_runs("Found, run after run", [(label, sums["findings"]) for label, sums in repairs])
    yield from over_runs("Left, run after run", [(label, sums["left"]) for label, sums in repairs])


def by_name(run: Run, name: str) -> Counter[str]:
    """One of a run's sums by verdict, over all projections; nothing for a run that was killed."""
    sums = run.summary.get(name)
    found = Counter[str]()
    for verdict, number in sums.items() if isinstance(sums, dict) else ():
        found.update(number if isinstance(number, dict) else {verdict: number})
    return found


def run_document(result: RunResult) -> Document:
    run = result.run
    json = run_json(result.run)
    fields = {name: value for name, value in json.items() if name not in {"options", "summary"}}
    fields |= {f"option {name}": value for name, value in run.options.items()}
    fields |= {name: value for name, value in json["summary"].items() if name not in fields}
    rows = [(name, _text(value)) for name, value in fields.items() if value not in (None, {}, "")]
    body: list[Part] = [Grid(f"Run {run.id}", ("field", "value"), rows, frozenset({"value"}))]
    whose = tuple(mailboxes_part(result.affected, run.keyspace))
    found = {name: _by_verdict(counts) for name, counts in run.summary.get("findings", {}).items()}
    few = result.examples[:EXAMPLES_SHOWN]
    undo = f"mailmend undo {run.id} {keyspace_option(run.keyspace)}"
    back = [] if run.command in NOT_UNDONE else [f"To put it back: {undo}"]
    return Document(
        json | affected_json(result.affected),
        (
            *body,
            *steps_lines(_by_verdict(by_name(run, "left")), run.keyspace),
            *whose,
            *findings_parts(few, result.affected, run.keyspace, whole=False),
            *back,
        ),
        title=f"{run.command} of keyspace {run.keyspace}",
        report=(
            *body,
            *([steps_grid(found, run.keyspace)] if found else []),
            *by_verdict(by_name(run, "findings")),
            *by_time(result.affected.hours),
            *whose,
            *findings_parts(result.examples, result.affected, run.keyspace, whole=True),
            *back,
        ),
    )


def run_json(run: Run) -> dict[str, Any]:
    fields = plain(run)
    fields["summary"].pop(LEFT_SAMPLE, None)
    return {"run": fields.pop("id"), **fields}


def _by_verdict(counts: Any) -> dict[Verdict, int]:
    """Those that this version knows; blobs have names of their own."""
    names = Verdict.__members__
    return {names[name]: number for name, number in counts.items() if name in names} if isinstance(counts, dict) else {}


def _cells(run: Run) -> tuple[str, ...]:
    sums = (f"{by_name(run, name).total():,}" if name in run.summary else "" for name in _SUMS[1:])
    return (str(run.id), shown(run.started_at), run.command, run.state.value, *sums)


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(inner)}" for name, inner in value.items())
    return ", ".join(map(_text, value)) if isinstance(value, list) else str(value)

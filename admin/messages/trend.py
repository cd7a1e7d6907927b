"""What runs found, mended and left, one run after the other: `mailmend runs list` and `trend`.

A repair has what it found, fixed and left; a check what it found; an undo what it put back.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from mailmend.admin.frame.document import Document, Grid, Part, in_order, over_runs
from mailmend.admin.frame.values import plain, shown
from mailmend.mailqueue.rules.blob_ids import BlobVerdict
from mailmend.repair.decisions.left_sample import LEFT_SAMPLE
from mailmend.repair.decisions.shares import HARMLESS_NAMES, shares_of_rows
from mailmend.repair.ledger.runs import Run, RunKind

NO_RUN: Final = "No run is kept: nothing was repaired or recorded yet, or it has expired."

PUT_BACK: Final = "put back"
_SUMS: Final = ("findings", "fixed", "left")
_NUMBERS: Final = ("found", "fixed", PUT_BACK, "left")

_BLOBS_HARMLESS: Final = set(BlobVerdict) - {BlobVerdict.MISSING}
_HARMLESS: Final = HARMLESS_NAMES.union(verdict.value for verdict in _BLOBS_HARMLESS)
"""Verdicts on rows and on blobs that are no drift."""

_SMALL_SHARE: Final = 1e-5


def numbers_of(run: Run) -> dict[str, Counter[str]]:
    """The sums of a run by verdict, under the names of the columns that they belong into."""
    fixed = by_name(run, "fixed")
    left = by_name(run, "left")
    found = by_name(run, "findings")
    if run.undoes is not None:
        return {PUT_BACK: fixed, "left": left}
    if run.command == RunKind.CHECK:
        return {"found": found, "left": left}
    return {"found": found, "fixed": fixed, "left": left}


def by_name(run: Run, name: str) -> Counter[str]:
    """One of a run's sums by verdict, over all projections; nothing for a run that was killed."""
    sums = run.summary.get(name)
    found = Counter[str]()
    if not isinstance(sums, dict):
        return found
    for verdict, number in sums.items():
        if isinstance(number, dict):  # the numbers of one projection
            found.update(number)
        else:
            found.update({verdict: number})
    return found


def by_table(run: Run) -> dict[str, Mapping[str, int]]:
    """What a run found, by table and verdict; nothing for an undo."""
    if run.undoes is not None:
        return {}
    found = run.summary.get("findings")
    if not isinstance(found, dict):
        return {}
    return {table: counts for table, counts in found.items() if isinstance(counts, dict)}


def rows_read(run: Run) -> dict[str, int]:
    """The rows that a run read, by table; nothing for a run that says none."""
    read = run.summary.get("scanned")
    if not isinstance(read, dict):
        return {}
    return read


def shares_in(run: Run) -> dict[str, float]:
    """The share of rows that differ, from 0 to 1, by table; nothing for an undo."""
    if run.undoes is not None:
        return {}
    return shares_of_rows(rows_read(run), by_table(run), _HARMLESS)


def run_json(run: Run) -> dict[str, Any]:
    fields = plain(run)
    fields["summary"].pop(LEFT_SAMPLE, None)
    return {"run": fields.pop("id"), **fields}


def label_of(run: Run) -> str:
    """The command of a run; a check with what it looked at."""
    if run.command != RunKind.CHECK:
        return run.command
    words = [run.command]
    for name in ("what", "projection", "named"):
        if name in run.options:
            words.append(str(run.options[name]))
    if "projections" in run.options:
        words += ("--projections", str(run.options["projections"]))
    return " ".join(words)


def share_text(share: float) -> str:
    """A share of rows in percent, with as many digits as a small one needs."""
    if share and share < _SMALL_SHARE:
        return "< 0.001 %"
    return f"{100 * share:.3g} %"


def trend_json(keyspace: str, runs: Sequence[Run]) -> dict[str, Any]:
    """The sums of runs, the oldest first; given the newest first."""
    rows = []
    for run in reversed(runs):
        fields = run_json(run)
        row = {name: fields[name] for name in ("run", "started_at", "command", "state")}
        for name in _SUMS:
            row[name] = run.summary.get(name) or {}
        row["what"] = label_of(run)
        row["put_back"] = dict(numbers_of(run).get(PUT_BACK, {}))
        row["scanned"] = rows_read(run)
        row["shares"] = shares_in(run)
        rows.append(row)
    return {"keyspace": keyspace, "runs": rows}


def trend(keyspace: str, runs: Sequence[Run]) -> Document:
    return Document(
        trend_json(keyspace, runs),
        tuple(trend_parts(runs)) or (NO_RUN,),
        title=f"Trend of keyspace {keyspace}",
    )


def list_grid(keyspace: str, runs: Sequence[Run]) -> Grid:
    """The runs with their sums over all verdicts; the newest first."""
    numbers = _columns_for(runs)
    rows = []
    for run in runs:
        sums = numbers_of(run)
        texts = [_total_text(run, sums.get(name)) for name in numbers]
        rows.append((str(run.id), shown(run.started_at), label_of(run), run.state.value, *texts))
    columns = ("run", "started", "command", "state", *numbers)
    wrapped = frozenset({"command"})
    return Grid(f"Runs of {keyspace}", columns, rows, wrapped, short_ids=frozenset({"run"}))


def _columns_for(runs: Sequence[Run]) -> tuple[str, ...]:
    """The columns of numbers; what was put back only where a run did so."""
    if any(run.undoes is not None for run in runs):
        return _NUMBERS
    return tuple(name for name in _NUMBERS if name != PUT_BACK)


def _total_text(run: Run, counts: Counter[str] | None) -> str:
    """A sum over all verdicts; "" where the run has no such sum, or was killed."""
    if counts is None or not run.summary:
        return ""
    return f"{counts.total():,}"


def trend_parts(runs: Sequence[Run]) -> Iterator[Part]:
    """What was found, fixed and left by verdict, the oldest run first; given the newest first."""
    numbers = _columns_for(runs)
    rows = []
    found_by_run = []
    left_by_run = []
    for run in reversed(runs):
        sums = numbers_of(run)
        for verdict in in_order(chain.from_iterable(sums.values())) or ("",):
            texts = [_count_text(sums.get(name), verdict) for name in numbers]
            rows.append((shown(run.started_at), str(run.id), label_of(run), verdict, *texts))
        if run.undoes is None:
            label = f"{shown(run.started_at)}, {label_of(run)}"
            found_by_run.append((label, sums["found"]))
            left_by_run.append((label, sums["left"]))
    if rows:
        columns = ("started", "run", "command", "verdict", *numbers)
        wrapped = frozenset({"command"})
        yield Grid("Run after run", columns, rows, wrapped, short_ids=frozenset({"run"}))
    yield from _drift_by_table(runs)
    yield from over_runs("Found, run after run", found_by_run)
    yield from over_runs("Left, run after run", left_by_run)


def _count_text(counts: Counter[str] | None, verdict: str) -> str:
    if counts is None:
        return ""
    return f"{counts[verdict]:,}"


def _drift_by_table(runs: Sequence[Run]) -> Iterator[Part]:
    """Each table over time: findings by verdict, and the share of its rows that differed."""
    rows = []
    over_time: dict[str, list[tuple[str, Mapping[str, int]]]] = {}
    tables = sorted(set(chain.from_iterable(map(by_table, runs))))
    for table in tables:
        for run in reversed(runs):
            if run.undoes is not None or table not in rows_read(run):
                continue
            found = by_table(run).get(table, {})
            over_time.setdefault(table, []).append((shown(run.started_at), found))
            share = shares_in(run).get(table)
            for verdict in in_order(found) or ("",):
                rows.append(
                    (
                        table,
                        shown(run.started_at),
                        verdict,
                        f"{found.get(verdict, 0):,}",
                        f"{rows_read(run)[table]:,}",
                        _share_cell(share),
                    )
                )
    if rows:
        columns = ("table", "started", "verdict", "found", "rows read", "differ")
        yield Grid("Drift by table", columns, rows, frozenset({"table"}))
    for table, found_by_run in over_time.items():
        yield from over_runs(f"Found in {table}, run after run", found_by_run)


def _share_cell(share: float | None) -> str:
    if share is None:
        return ""
    return share_text(share)


def sample_text(kept: int, found: int) -> str:
    """How much of the findings a record has."""
    if not found:
        return "its sums"
    if kept == found:
        return f"its sums and all {found:,} findings"
    return f"its sums and a sample of {kept:,} of {found:,} findings"

"""The document that check, repair, apply and undo share: what became of messages and of queues."""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mailmend.admin.frame.document import Document, Grid, Part, Styled, Verbatim, by_time, by_verdict
from mailmend.admin.frame.examples import EXAMPLES_MAX, Affected, Example
from mailmend.admin.frame.run_scopes import MAIL, RunScope
from mailmend.admin.frame.values import (
    counts_json,
    fields_json,
    first_ids,
    plain,
    shown,
)
from mailmend.admin.frame.verdict_texts import EACH_VERDICT, STYLES, kinds, meaning_of, steps_grid
from mailmend.admin.messages.affected_document import findings_parts, mailboxes_part
from mailmend.admin.messages.gone_document import gone_mailboxes_json, gone_mailboxes_lines
from mailmend.admin.messages.mending import CheckedTopics, CommandResult
from mailmend.admin.messages.mismatch_document import mismatches_json, mismatches_lines
from mailmend.admin.messages.next_steps import (
    NO_DRIFT,
    about_gone_mailboxes,
    after_a_plan,
    found_in,
    next_lines,
)
from mailmend.admin.messages.record_document import record_json
from mailmend.admin.messages.trend import PUT_BACK, trend_parts
from mailmend.model.errors import ExitCode
from mailmend.model.projections.verdicts import Verdict, Why
from mailmend.model.sizes import MIB
from mailmend.model.texts import keyspace_option
from mailmend.repair.decisions.left_sample import LEFT_SAMPLE
from mailmend.repair.ledger.runs import RunKind
from mailmend.repair.mending.check_records import RecordedCheck
from mailmend.repair.mending.engine import RepairResult

if TYPE_CHECKING:
    from mailmend.admin.queue.garbage_collection import CollectedNode, GarbageCollection
    from mailmend.mailqueue.cleanup.writes import CleanedQueue


def queues_json(result: CommandResult) -> dict[str, Any]:
    json: dict[str, Any] = {"queues": None, "topics": None, "garbagecollect": None}
    if result.queues is not None:
        json["queues"] = list(map(_queue_json, result.queues))
    if result.topics:
        json["topics"] = _topics_json(result.topics)
    if result.garbage:
        json["garbagecollect"] = _garbage_json(result.garbage)
    return json


def _topics_json(topics: CheckedTopics) -> dict[str, Any]:
    lost = [{"topic": topic, "place": place, "id": mail} for topic, place, mail in topics.without_blobs]
    return {"namespace": topics.namespace, "mails": topics.mails, "without_blobs": lost}


def _queue_json(one: "CleanedQueue") -> dict[str, Any]:
    scanned = one.judged.scanned
    return {
        "queue": one.queue,
        "findings": counts_json(one.found),
        **fields_json(scanned, "rows", "waiting", "marks", "orphan_marks"),
        "browse_start_before": plain(scanned.starts.browse),
        "browse_start": plain(one.judged.browse_start),
        "content_start_before": plain(scanned.starts.content),
        "partitions_over": len(one.over),
        "removed_rows": one.rows,
        "removed_blobs": one.blobs,
        "removed_marks": one.marks,
        **fields_json(one, "marks_due", "marks_moved", "marks_stay"),
        "failed": [found.error for found in one.findings.values() if found.error],
    }


def _garbage_json(garbage: "GarbageCollection") -> dict[str, Any]:
    return {
        "seconds_about": plain(garbage.seconds_about),
        "nodes": list(map(_node_json, garbage.nodes)),
        "nodes_down": list(garbage.down),
    }


def _node_json(node: "CollectedNode") -> dict[str, Any]:
    return {
        "node": node.node,
        "bytes_before": node.before.bytes,
        "bytes": node.after and node.after.bytes,
        "sstables_before": node.before.sstables,
        "sstables": node.after and node.after.sstables,
        "seconds": round(node.seconds, 3),
        "failed": node.failed,
    }


def queues_grid(queues: "Sequence[CleanedQueue]", *, removed: bool) -> Grid:
    columns = ["queue", "begins at", "waiting", "finished", "marks"]
    if removed:
        columns += ["rows gone", "blobs gone", "marks gone"]
    rows = []
    for queue in queues:
        scanned = queue.judged.scanned
        begins_at = "nowhere"
        if queue.judged.browse_start:
            begins_at = shown(queue.judged.browse_start)
        numbers = [scanned.waiting, scanned.rows - scanned.waiting, scanned.marks]
        if removed:
            numbers += [queue.rows, queue.blobs, queue.marks]
        rows.append((queue.queue, begins_at, *(f"{number:,}" for number in numbers)))
    return Grid("Queues", columns, rows)


def queue_lines(result: CommandResult) -> Iterator[str]:
    for queue in result.queues or ():
        if queue.marks_stay:
            marks = queue.judged.scanned.marks
            yield f"The {marks:,} marks of {queue.queue} never expire, and stay: {queue.marks_stay}."
    if topics := result.topics:
        gone = len(topics.without_blobs)
        yield f"{topics.mails:,} mails are in topics of {topics.namespace}, {gone:,} of them without their bytes."
        named = [f"{mail} ({topic} {place})" for topic, place, mail in topics.without_blobs]
        yield from first_ids("Their bytes are gone:", named, gone, ": --json names all")
    if result.garbage:
        yield from map(_collected, result.garbage.nodes)


def _collected(one: "CollectedNode") -> str:
    before = f"{one.node}: rows and marks take {one.before.bytes / MIB:,.1f} MiB in {one.before.sstables:,} SSTables"
    if one.failed:
        return f"{before}, whose garbage was not collected: {one.failed}"
    if one.after is None:
        return f"{before}."
    return f"{before} before, {one.after.bytes / MIB:,.1f} MiB after garbage collection, in {one.seconds:,.1f} s."


def document_of(result: CommandResult) -> Document:
    summary = result.summary
    sums = summary_json(summary)
    remarks = page_lines(summary)
    if summary.unseen:
        remarks = [summary.unseen, *remarks]
    return Document(
        json={
            **sums,
            **queues_json(result),
            **left_tables_json(result),
            **gone_mailboxes_json(result.gone_mailboxes),
            **mismatches_json(result.mismatches),
            **record_json(result.record, summary.scanned, sums["findings"]),
        },
        body=tuple(_body(result)),
        exit=ExitCode(summary.exit),
        remarks=tuple(remarks),
        title=f"{summary.kind.value} of keyspace {summary.keyspace}",
        report=tuple(_report(result)),
        left_sample=summary.left_sample.keys,
    )


def summary_json(summary: RepairResult) -> dict[str, Any]:
    known = plain(summary)
    del known[LEFT_SAMPLE]
    engine = None
    if summary.engine:
        engine = fields_json(summary.engine, "name", "why")
    return {
        "keyspace": known.pop("keyspace"),
        "command": known.pop("kind"),
        **known,
        "engine": engine,
        "generators": [generator.shown for generator in summary.generators],
        "findings": {name: counts_json(counts) for name, counts in summary.findings.items()},
        "fixed": counts_json(summary.fixed),
        "left": counts_json(summary.left),
        "due": counts_json(summary.due),
        "reasons": summary.named_reasons,
        "too_young": summary.too_young,
        "seconds": {stage: round(seconds, 3) for stage, seconds in summary.seconds.items()},
    }


def left_tables_json(result: CommandResult) -> dict[str, Any]:
    tables = []
    for left in result.left_tables:
        tables.append(fields_json(left, "table", "truth", "task", "check", "why"))
    return {"left_tables": tables}


def _left_tables_lines(result: CommandResult) -> Iterator[str]:
    """The tables that a check did not look at, in one line for each reason."""
    if not result.left_tables:
        return
    yield f"{len(result.left_tables):,} denormalised tables were not looked at:"
    by_reason: dict[str, list[str]] = {}
    for left in result.left_tables:
        by_reason.setdefault(left.why, []).append(left.table)
    for why, names in by_reason.items():
        yield f"    {', '.join(names)}: {why}"


def _left_tables_grids(result: CommandResult) -> Iterator[Grid]:
    if result.left_tables:
        rows = [(left.table, left.truth, left.why) for left in result.left_tables]
        title = "Denormalised tables that were not looked at"
        yield Grid(title, ("table", "follows from", "why"), rows)


def _body(result: CommandResult) -> Iterator[Part]:
    yield from _sums(result, _findings(result.summary, result.scope))
    yield from queue_lines(result)
    yield from example_lines(result.examples)
    yield from _left_tables_lines(result)
    yield from gone_mailboxes_lines(result.gone_mailboxes)
    yield from mismatches_lines(result.mismatches)
    yield from _closing(result)


def _report(result: CommandResult) -> Iterator[Part]:
    """What to do comes first; then whose mail it is, and the rows themselves."""
    summary = result.summary
    affected = result.affected or Affected()
    yield from _closing(result)
    yield from page_lines(summary)
    steps = steps_grid(summary.findings, summary.keyspace, result.options, result.scope)
    yield from _sums(result, steps)
    yield from queue_lines(result)
    yield from by_verdict(counts_json(found_in(summary)))
    yield from by_time(affected.hours)
    yield from mailboxes_part(affected, summary.keyspace)
    examples = result.examples
    yield from findings_parts(examples, affected, summary.keyspace, result.scope, whole=True)
    yield from trend_parts(affected.runs)
    yield from _left_tables_grids(result)
    yield from gone_mailboxes_lines(result.gone_mailboxes)
    yield from mismatches_lines(result.mismatches)
    yield _details(summary, result.record)


def page_lines(summary: RepairResult) -> list[str]:
    """The page of a check that ends with 1; on stderr, for a script that got JSON has to be read by a person too."""
    if summary.kind is not RunKind.CHECK or summary.exit != ExitCode.DRIFT:
        return []
    return [f"More: mailmend runbook show {EACH_VERDICT}"]


def _sums(result: CommandResult, findings: Grid) -> Iterator[Part]:
    summary = result.summary
    if summary.missing_columns or summary.missing_tables:
        rows = [(table, "all of it", _NOT_LOOKED_AT) for table in summary.missing_tables]
        rows += [(column.table, column.column, _NOT_COMPARED) for column in summary.missing_columns]
        yield Grid(f"Missing in {summary.keyspace}", ("table", "column", "meaning"), rows)
    if summary.findings:
        yield findings
    if summary.generators:
        yield from _behind(summary, result.scope)
    if result.queues:
        yield queues_grid(result.queues, removed=summary.run is not None)
    if summary.run and (summary.fixed or summary.left):
        yield _mended(summary)
    if stays := _left_and_why(summary, result.scope):
        yield Grid("Left, and why", ("verdict", "rows", "why"), stays)


def _findings(summary: RepairResult, scope: RunScope) -> Grid:
    rows = []
    for name, verdict, count in kinds(summary.findings):
        styled = Styled(verdict.value, STYLES[verdict])
        rows.append((name, styled, f"{count:,}", meaning_of(verdict, scope)))
    title = f"Findings in {summary.keyspace}"
    if summary.kind is RunKind.UNDO:
        title = f"What the undone run had found in {summary.keyspace}"
    return Grid(title, ("projection", "verdict", "count", "meaning"), rows)


def _behind(summary: RepairResult, scope: RunScope) -> Iterator[Part]:
    """The generators, and below them the statements: a statement within a column is cut into lines."""
    rows = []
    for found in summary.generators:
        state = "behind"
        if found.raised:
            state = "raised"
        group = ", ".join(found.group.values())
        rows.append((found.table, group, f"{found.last:,}", f"{found.in_use:,}", state))
    title = "Generators behind their numbers"
    named = "group"
    if scope.is_mail:
        title = "Generators behind the messages"
        named = "mailbox"
    if summary.kind is RunKind.UNDO:
        title = "Generators that stay raised: numbers are never given twice"
    yield Grid(title, ("generator", named, "last number", "in use", "state"), rows)
    statements = [found.statement for found in summary.generators if not found.raised]
    if statements:
        yield "They are raised by a repair, or by these statements in cqlsh:"
        yield Verbatim("".join(f"    {statement}\n" for statement in statements))


def _mended(summary: RepairResult) -> Grid:
    mended = "fixed"
    if summary.kind is RunKind.UNDO:
        mended = PUT_BACK
    rows = []
    for verdict in Verdict:
        fixed = _number_text(summary.fixed.get(verdict))
        left = _number_text(summary.left.get(verdict))
        if fixed or left:
            rows.append((Styled(verdict.value, STYLES[verdict]), fixed, left))
    return Grid("What became of them", ("verdict", mended, "left"), rows)


def _number_text(number: int | None) -> str:
    """The number for people; "" for none at all."""
    if not number:
        return ""
    return f"{number:,}"


def _left_and_why(summary: RepairResult, scope: RunScope) -> list[tuple[Styled, str, str]]:
    rows = []
    for verdict in Verdict:
        for why, number in summary.reasons.get(verdict, Counter[Why]()).items():
            if why is not Why.DUE:
                styled = Styled(verdict.value, STYLES[verdict])
                rows.append((styled, f"{number:,}", scope.text_of(why)))
    return rows


def example_lines(examples: Sequence[Example]) -> Iterator[Styled]:
    heading = ""
    for example in examples:
        above = f"{example.verdict.value} in {example.projection}, for example:"
        if above != heading:
            yield Styled(above, "dim")
        heading = above
        line = f"    {example.key}"
        if example.result != "as found":
            line += f"  ({example.result})"
        yield Styled(line, "dim")


def _closing(result: CommandResult) -> list[str]:
    summary = result.summary
    plan = result.plan
    if plan is None or result.queues is None:
        lines = closing_lines(summary, result.options, plan, result.scope)
        if result.mismatches:
            lines = [line for line in lines if line != NO_DRIFT]
        return [*lines, *about_gone_mailboxes(result.gone_mailboxes)]
    keyspace = f" {keyspace_option(summary.keyspace)}"
    file = shlex.quote(str(plan))
    again = f"{keyspace} {result.options}".rstrip()
    done_by = f"{keyspace} {result.stores}".rstrip()
    return [*sum_lines(summary), *after_a_plan(summary, again, file, f"mailmend apply {file}{done_by}")]


def closing_lines(
    summary: RepairResult, options: str = "", plan: Path | None = None, scope: RunScope = MAIL
) -> list[str]:
    return [*sum_lines(summary), *next_lines(summary, options, plan, scope)]


def sum_lines(summary: RepairResult) -> list[str]:
    rows = ", ".join(f"{name} {count:,}" for name, count in summary.scanned.items())
    seconds = sum(summary.seconds.values())
    lines = [f"{seconds:.1f} s."]
    if rows:
        lines = [f"Read {rows} in {seconds:.1f} s; {summary.suspects:,} suspects."]
    if summary.run and not (summary.fixed or summary.left or summary.moved or summary.failed or summary.untried):
        lines.append("Nothing had to be mended.")
    lines += [*pace_lines(summary.pace), *staging_lines(summary.staging)]
    if summary.last_traces:
        lines.append(
            f"{summary.last_traces:,} of the WITHDRAW are the last trace of a message whose content still exists."
        )
    if summary.moved > summary.too_young:
        lines.append(f"{summary.moved - summary.too_young:,} were changed meanwhile, and left.")
    if summary.too_young:
        lines.append(f"{summary.too_young:,} differ and are too young to be mended: {_again(summary.again_seconds)}.")
    if summary.failed:
        lines.append(f"{summary.failed:,} failed: see the examples above, or all of them with --findings.")
    if summary.untried:
        lines.append(
            f"{summary.untried:,} were left as they are: the cluster could not be reached any more. "
            "Once it answers, the same command goes on."
        )
    return lines


def pace_lines(pace: Mapping[str, Any] | None) -> list[str]:
    """The rates of a run whose pace adapts automatically, or was changed, in a sentence; else nothing."""
    if not pace or not (pace["auto"] or pace["set"]):
        return []
    lowest = _rate(pace["lowest"])
    last = _rate(pace["last"])
    text = f"Pace: {last}"
    if lowest != last:
        text = f"Pace: at the lowest {lowest}, at the end {last}"
    if pace["limit"]:
        text += f"; limit {_rate(pace['limit'])}"
    if pace["set"]:
        text += f", set by {pace['set'][-1]['by']}"
    text += "."
    if pace["slowed"]:
        why = ", ".join(f"{reason} {number:,} times" for reason, number in pace["slowed"].items())
        text += f" It slowed down for {why}."
    return [text]


def staging_lines(staging: Mapping[str, Any] | None) -> list[str]:
    """What an earlier attempt had read, in a sentence; else nothing."""
    if not staging or staging["attempt"] == 1:
        return []
    kept = f"{staging['kept']:,}"
    number = f"{staging['segments']:,}"
    return [f"{kept} of {number} segments stood from earlier attempts; the scan began at {staging['began_at']}."]


def _rate(rows_per_second: int | None) -> str:
    if rows_per_second is None:
        return "as fast as it can"
    return f"{rows_per_second:,} rows/s"


def _again(seconds: int | None) -> str:
    if not seconds:
        return "come again now"
    return f"come again in {seconds} s"


_NOT_COMPARED: Final = "the live table lacks it: nothing was compared there, and no repair writes to it"
_NOT_LOOKED_AT: Final = "the keyspace lacks it: what follows from the source of truth there was not looked at"


def _details(summary: RepairResult, record: RecordedCheck | None) -> Grid:
    run = str(summary.run or "none: a check writes nothing")
    if record is not None and record.run is not None:
        run = f"none: no mail was written; the check is on record as {record.run}"
    rows = [("run", run)]
    if summary.engine:
        rows.append(("engine", f"{summary.engine.name}: {summary.engine.why}"))
    rows += [
        ("suspects", f"{summary.suspects:,}"),
        ("moved meanwhile", f"{summary.moved:,}"),
        ("failed", f"{summary.failed:,}"),
    ]
    rows += [(f"rows of {name}", f"{number:,}") for name, number in summary.scanned.items()]
    rows += [(f"seconds: {stage}", f"{seconds:.1f}") for stage, seconds in summary.seconds.items()]
    if summary.unseen:
        rows.append(("what was not seen", summary.unseen))
    rows.append(("examples", f"at most {EXAMPLES_MAX} of each kind"))
    return Grid("The run", ("field", "value"), rows)

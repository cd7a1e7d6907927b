"""The local engine finds exactly what a simple, unbounded check of the same rows finds."""

import gc
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mailmend.cql.memory import MemoryTables
from mailmend.model.catalog.mail import FAMILIES, MAILBOX, MAILBOX_PATH, MESSAGES, PATHS
from mailmend.model.errors import NotEnoughReplicas
from mailmend.model.operations import Count, Put
from mailmend.model.projections.family import Counts, Family
from mailmend.model.projections.findings import RepairPolicy, Suspect
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Row, rows_agree
from mailmend.repair.joins.fingerprints import fingerprinting
from mailmend.repair.ledger.runs import Ledger
from mailmend.repair.mending.engine import RepairSettings
from mailmend.repair.mending.limits import Pace
from mailmend.repair.scanners.local import LocalDetection, LocalEngine
from tests.support.clock import START, VirtualClock, uuid_at
from tests.support.james import damages, james_families, put_james
from tests.support.oracle import Rows, expected_suspects
from tests.support.progress import SilentProgress
from tests.support.repairing import World, truth_row
from tests.support.thorough import few_or

MAILBOXES = [uuid_at(START, 50 + number) for number in range(2)]
MESSAGE_IDS = [uuid_at(START, number) for number in range(3)]
PLACES = [(mailbox, uid) for mailbox in MAILBOXES for uid in (1, 2, 3)]


def engine(tables: MemoryTables, clock: VirtualClock, **options: Any) -> LocalEngine:
    return LocalEngine(tables, Ledger(MemoryTables(clock.micros), clock), clock, **options)


def filled(families: Sequence[Family], rows: Rows) -> tuple[MemoryTables, VirtualClock]:
    clock = VirtualClock()
    tables = MemoryTables(clock.micros)
    counted = {one.table.name for family in families for one in family.projections if isinstance(one, Counts)}
    for table in {table.spelling: table for family in families for table in family.tables}.values():
        for row in rows.get(table.spelling, ()):
            if table.name in counted:
                tables.write(Count(table, table.key_of(row), {one.name: row[one.name] for one in table.regular}))
            else:
                tables.write(Put(table, row, at=1))
    return tables, clock


def detected(families: Sequence[Family], rows: Rows, *, accept_torn: bool = False, **options: Any) -> list[Suspect]:
    """What the engine finds in these rows."""
    tables, clock = filled(families, rows)
    survey = RepairSettings("mail", tuple(families), policy=RepairPolicy(accept_torn=accept_torn))
    detection = engine(tables, clock, **options).detect(survey, SilentProgress())
    found = list(detection.suspects())
    counts = {name: dict(sums) for name, sums in detection.counts.items()}
    detection.close()
    assert counts == {name: dict(sums) for name, sums in _summed(found).items()}
    return found


def _summed(found: Sequence[Suspect]) -> dict[str, Counter[Verdict]]:
    sums: dict[str, Counter[Verdict]] = {}
    for suspect in found:
        sums.setdefault(suspect.projection, Counter())[suspect.verdict] += 1
    return sums


def ordered(suspects: Sequence[Suspect]) -> list[Suspect]:
    """In an order of their own, to be compared."""
    return sorted(suspects, key=lambda one: (one.projection, str(one.key)))


user_flags = st.sampled_from([None, frozenset(), frozenset({"a"}), frozenset({"a", "b"}), frozenset({"c"})])
flag = st.sampled_from([None, False, True])
compared = st.fixed_dictionaries(
    {
        "threadid": st.sampled_from([None, *MESSAGE_IDS[:2]]),
        "modseq": st.sampled_from([None, 0, 1, 1]),
        "flagseen": flag,
        "flagdeleted": flag,
        "flagrecent": flag,
        "userflags": user_flags,
        "headercontent": st.sampled_from([None, "1_1_h", "1_1_h", "1_1_h"]),
    }
)
small = st.integers(0, 3)


@st.composite
def keyspaces(draw: st.DrawFn) -> Rows:
    """Rows that agree, all but: each projection is what the truth demands, or else something near it."""
    claims = draw(st.lists(st.tuples(st.sampled_from(PLACES), st.sampled_from(MESSAGE_IDS)), unique=True, max_size=8))
    truths = [
        truth_row(1, messageid=message, mailboxid=mailbox, uid=uid) | draw(compared)
        for (mailbox, uid), message in claims
    ]
    rows: dict[str, list[Row]] = {"imapUidTable": list(truths)}
    by_place = {MESSAGES.mirror.key_of(truth): truth for truth in truths}
    rows["messageIdTable"] = [row for place in PLACES for row in draw(_mirrored(place, by_place.get(place)))]
    for one in MESSAGES.filters:
        wanted = {one.key_of(truth) for truth in truths if one.when.holds(truth)}
        odd = draw(st.frozensets(st.sampled_from(PLACES), max_size=1))
        rows[one.name] = [one.table.key_row(place) for place in sorted(wanted ^ odd)]
    rows["messageV3"] = [{"messageid": one} for one in draw(st.frozensets(st.sampled_from(MESSAGE_IDS)))]
    groups = st.dictionaries(st.sampled_from(MAILBOXES), user_flags)
    rows["applicableFlag"] = [{"mailboxid": box, "userflags": flags} for box, flags in draw(groups).items() if flags]
    counters = st.dictionaries(st.sampled_from(MAILBOXES), st.tuples(small, small))
    rows["mailboxCounters"] = [
        {"mailboxid": box, "count": count, "unseen": unseen} for box, (count, unseen) in draw(counters).items()
    ]
    return rows


@st.composite
def _mirrored(draw: st.DrawFn, place: tuple[Any, int], truth: Row | None) -> list[Row]:
    """What stands in the mirror at a place: what the truth demands, something else, or nothing."""
    shape = draw(st.sampled_from(["right", "right", "altered", "absent", "half"]))
    if shape == "absent" or (truth is None and shape == "right"):
        return []
    near = truth_row(1, mailboxid=place[0], uid=place[1], messageid=MESSAGE_IDS[0]) if truth is None else truth
    demanded = MESSAGES.mirror.row_of(near)
    match shape:
        case "altered":
            return [demanded | draw(compared)]
        case "half":
            return [{"mailboxid": place[0], "uid": place[1], "flagseen": True}]
        case _:
            return [demanded]


@settings(max_examples=few_or(100), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(keyspaces(), st.booleans(), st.sampled_from([(1, 1, 2), (1, 100, 0), (1 << 20, 0, 100), (1 << 20, 100, 3)]))
def test_the_suspects_are_those_of_the_oracle(rows: Rows, accept_torn: bool, room: tuple[int, int, int]) -> None:
    """However little room there is: for one part, for the keys of content, for places."""
    part, contents, places = room
    found = detected(
        [MESSAGES], rows, accept_torn=accept_torn, part_bytes_max=part, contents_max=contents, places_max=places
    )
    assert ordered(found) == ordered(list(expected_suspects(MESSAGES, rows, accept_torn=accept_torn)))


names = st.sampled_from(["INBOX", "Sent"])
paths = st.lists(
    st.fixed_dictionaries(
        {
            "namespace": st.just("#private"),
            "user": st.sampled_from(["bob", "eve"]),
            "mailboxname": names,
            "mailboxid": st.sampled_from(MAILBOXES),
            "uidvalidity": small,
        }
    ),
    max_size=4,
    unique_by=lambda row: (row["user"], row["mailboxname"]),
)
mailboxes = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.sampled_from(MAILBOXES),
            "mailboxbase.namespace": st.just("#private"),
            "mailboxbase.user": st.sampled_from(["bob", "eve"]),
            "name": names,
            "uidvalidity": small,
        }
    ),
    max_size=2,
    unique_by=lambda row: row["id"],
)


@settings(max_examples=few_or(100))
@given(paths, mailboxes)
def test_paths_are_checked_by_the_same_code(registry: list[Row], boxes: list[Row]) -> None:
    stored = [
        {
            "id": row["id"],
            "mailboxbase": {"namespace": row["mailboxbase.namespace"], "user": row["mailboxbase.user"]},
            "name": row["name"],
            "uidvalidity": row["uidvalidity"],
        }
        for row in boxes
    ]
    clock = VirtualClock()
    tables = MemoryTables(clock.micros)
    for row in registry:
        tables.write(Put(MAILBOX_PATH, row, at=1))
    for row in stored:
        tables.write(Put(MAILBOX, row, at=1))
    with_rows = {"mailboxPathV3": registry, "mailbox": boxes}
    detection = engine(tables, clock).detect(RepairSettings("mail", (PATHS,)), SilentProgress())
    assert ordered(list(detection.suspects())) == ordered(list(expected_suspects(PATHS, with_rows)))
    detection.close()


@given(compared, compared)
def test_fingerprints_are_equal_exactly_where_rows_agree(one: Row, other: Row) -> None:
    """The canonical form of `model.table`, kept in sixteen bytes."""
    columns = MESSAGES.mirror.compared
    left, right = (MESSAGES.mirror.row_of({**truth_row(1), **row}) for row in (one, other))
    mark = fingerprinting(columns, {})
    assert (mark(left) == mark(right)) == rows_agree(columns, left, right)


def test_a_truths_fingerprint_is_that_of_the_mirror_row_which_it_demands() -> None:
    truth = {
        "namespace": "#private",
        "user": "bob",
        "mailboxname": "INBOX",
        "mailboxid": MAILBOXES[0],
        "uidvalidity": 7,
    }
    mirror = PATHS.mirror
    theirs = fingerprinting(mirror.compared, dict(mirror.renamed) | dict(mirror.key))
    assert theirs(truth) == fingerprinting(mirror.compared, {})(mirror.row_of(truth))


def test_what_james_wrote_shows_no_drift() -> None:
    """Every projection agrees; 83 contents without truth are told apart as leaks."""
    detection, _ = james(damaged=False)
    assert {name: dict(sums) for name, sums in detection.counts.items()} == {"messageV3": {Verdict.LEAK: 83}}
    assert detection.scanned["imapUidTable"] == detection.scanned["messageIdTable"] == 1503
    detection.close()


def test_the_recorded_damages_are_found_exactly() -> None:
    """200 places, each with the verdict that its damage deserves: 182 to mend, 18 without content."""
    detection, _ = james(damaged=True)
    found = {one.key: one.verdict for one in detection.suspects() if one.projection == "messageIdTable"}
    places = {(one.mailbox_id, one.uid): one for one in damages()}
    assert found.keys() == places.keys()
    for key, verdict in found.items():
        assert verdict is deserved(places[key].kind)
    others = {name: dict(sums) for name, sums in detection.counts.items() if name != "messageIdTable"}
    assert others == {"messageV3": {Verdict.LEAK: 83}}
    detection.close()


def deserved(kind: str) -> Verdict:
    """The verdict on a recorded class of damage."""
    match kind.partition("/")[0], kind.partition("/")[2]:
        case "missing_projection", _:
            return Verdict.PROJECT
        case ("dangling_projection", _) | ("partial_row", "no_truth"):
            return Verdict.WITHDRAW
        case "orphan_truth", _:
            return Verdict.LOST_CONTENT
        case _:
            return Verdict.AMEND


def james(*, damaged: bool) -> tuple[LocalDetection, SilentProgress]:
    """A check of the keyspace that James wrote."""
    clock, progress = VirtualClock(), SilentProgress()
    tables = MemoryTables(clock.micros)
    put_james(tables, at=START - 10**12, damaged=damaged)
    return engine(tables, clock).detect(RepairSettings("mail", james_families()), progress), progress


def test_progress_tells_every_row_and_every_suspect() -> None:
    detection, progress = james(damaged=True)
    assert progress.steps >= sum(detection.scanned.values())
    assert progress.suspects == 283
    assert "read imapUidTable" in progress.stages
    detection.close()


def test_the_scan_keeps_its_pace() -> None:
    """100 rows a second over all tables."""
    world = World()
    for number in range(1, 101):
        world.message(truth_row(number))
    local = LocalEngine(Pace(100, world.clock).over(world.mail), world.ledger, world.clock)
    detection = local.detect(RepairSettings("mail", (MESSAGES,)), SilentProgress())
    rows = sum(detection.scanned.values())
    assert rows == 400
    assert sum(world.clock.slept) == pytest.approx(rows / 100, abs=0.3)
    detection.close()


def test_the_second_look_mends_what_the_first_one_found() -> None:
    world = World()
    for number in range(1, 21):
        world.message(truth_row(number), projected=number % 4 != 0)
    local = LocalEngine(world.mail, world.ledger, world.clock)
    progress = SilentProgress()
    detection = local.detect(RepairSettings("mail", (MESSAGES,)), progress)
    outcomes = list(detection.revisit(world.policy(), progress))
    detection.close()
    assert Counter(one.result for one in outcomes) == {Verdict.FIXED: 10}
    again = local.detect(RepairSettings("mail", (MESSAGES,)), SilentProgress())
    assert [one.projection for one in again.suspects()] == ["mailboxCounters"]
    again.close()


def test_a_scan_that_breaks_off_leaves_nothing_on_disk(tmp_path: Path) -> None:
    tables, clock = filled([MESSAGES], {"imapUidTable": [truth_row(1)]})

    def broken(operation: Any, carry_out: Any) -> Any:
        if operation.table.name == "imapuidtable":
            raise NotEnoughReplicas("two of three replicas are down")
        return carry_out()

    tables.surround = broken
    with pytest.raises(NotEnoughReplicas):
        engine(tables, clock, folder=tmp_path).detect(RepairSettings("mail", FAMILIES), SilentProgress())
    assert list(tmp_path.iterdir()) == []


def test_cycles_are_looked_for_less_often_only_while_it_scans() -> None:
    before, during = gc.get_threshold(), list[int]()
    tables, clock = filled([MESSAGES], {"imapUidTable": [truth_row(1)]})

    def broken(_: Any, __: Any) -> Any:
        during.append(gc.get_threshold()[0])
        raise NotEnoughReplicas("two of three replicas are down")

    tables.surround = broken
    with pytest.raises(NotEnoughReplicas):
        engine(tables, clock).detect(RepairSettings("mail", FAMILIES), SilentProgress())
    assert during[0] >= 100 * before[0]  # which Python has raised: 700, from 3.13 on 2,000
    assert gc.get_threshold() == before


def test_an_empty_keyspace_has_no_suspects() -> None:
    assert detected(FAMILIES, {}) == []


def test_memory_does_not_grow_with_the_messages() -> None:
    one, three = checked(10_000), checked(30_000)
    assert three["counts"]["messageIdTable"] == {"PROJECT": 3, "AMEND": 3, "LOST_CONTENT": 3}
    assert three["mib"] < one["mib"] + 20


@pytest.mark.thorough
def test_a_million_messages_are_checked_in_bounded_memory() -> None:
    """At most 400 MiB above what the process needs anyway, and every damage found."""
    found = checked(1_000_000)
    assert found["counts"] == {"messageIdTable": {"PROJECT": 100, "AMEND": 100, "LOST_CONTENT": 100}}
    assert found["mib"] <= 400


def checked(messages: int) -> dict[str, Any]:
    """What a process of its own says of that many messages, and of its memory."""
    command = [sys.executable, "-m", "tests.support.million", str(messages)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True, timeout=900)
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def test_dates_of_two_zones_are_the_same_instant() -> None:
    """Adapters hand out UTC; a fingerprint relies on it, and on nothing else."""
    columns = [column for column in MESSAGES.mirror.compared if column.name == "internaldate"]
    instant = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    mark = fingerprinting(columns, {})
    assert mark({"internaldate": instant}) == mark({"internaldate": instant.replace()})
    assert mark({"internaldate": instant}) != mark({"internaldate": None})

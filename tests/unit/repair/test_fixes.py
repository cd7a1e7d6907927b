"""What a second look leads to, as laws: fixes are idempotent, converge in any order, and never beat a newer change."""

import pickle
from itertools import chain

from hypothesis import given, settings
from hypothesis import strategies as st

from mailmend.cql.memory import MemoryTables
from mailmend.model.catalog.mail import MESSAGE_ID, MESSAGES
from mailmend.model.operations import Change, Put, PutIfAbsent, Read, Remove, RemoveIf, Seen, Write
from mailmend.model.projections.findings import Finding, RepairPolicy
from mailmend.model.projections.look import Look
from mailmend.model.projections.verdicts import MENDABLE, Verdict
from mailmend.model.table import Row
from mailmend.repair.decisions.recheck import rule
from mailmend.repair.mending.reading_back import shows
from tests.support.clock import START
from tests.support.repairing import LONG_AGO, MAILBOX, T, World, mirror_row, mirror_suspect, place, truth_row

RUN = World().run
POLICY = RepairPolicy(RUN, T, 5.0, MENDABLE)

flags = st.fixed_dictionaries(
    {
        "flagseen": st.booleans(),
        "flagdeleted": st.booleans(),
        "modseq": st.integers(1, 9),
        "userflags": st.frozensets(st.sampled_from("abc")),
        "save_date": st.sampled_from([None, truth_row()["internaldate"]]),
    }
)
truths = flags.map(lambda columns: truth_row(1, **columns))
projections = st.one_of(st.none(), flags.map(lambda columns: mirror_row(truth_row(1), **columns)))


def seen(row: Row, at: int = LONG_AGO) -> Seen:
    """A row whose cells were all written then."""
    return Seen(row, {name: at for name, cell in row.items() if cell is not None and name not in {"mailboxid", "uid"}})


def look_at(truth: Row | None, projected: Row | None, *, at: int = LONG_AGO) -> Look:
    """A mirror suspect as it was looked at again."""
    return Look(
        mirror_suspect(truth or truth_row(1), Verdict.AMEND),
        MESSAGES.mirror,
        MESSAGES.content,
        MESSAGES.mirror,
        projected=seen(projected, at) if projected else None,
        truths=(seen(truth, at),) if truth else (),
    )


def fix_of(truth: Row | None, projected: Row | None) -> Finding | None:
    """The fix that a look leads to, if any."""
    ruled = rule(look_at(truth, projected), POLICY, START)
    return ruled if ruled.is_pending else None


def applied(*writes: Write) -> Seen | None:
    """The mirror's row after those writes, in that order."""
    mail = MemoryTables(lambda: START)
    for write in writes:
        mail.write(write)
    rows = mail.read(Read(MESSAGE_ID, (MAILBOX, 1), times=True))
    return rows[0] if rows else None


class TestConvergence:
    """Whatever was there, and in whatever order it arrives."""

    @given(truths, projections, st.integers(1, 3))
    def test_a_fix_makes_the_pair_agree_however_often_it_is_applied(
        self, truth: Row, projected: Row | None, times: int
    ) -> None:
        """Running it twice is like running it once."""
        fix = fix_of(truth, projected)
        old = [Put(MESSAGE_ID, projected, at=LONG_AGO)] if projected else []

        row = applied(*old, *(fix.writes * times if fix else ()))

        assert row is not None
        assert MESSAGES.mirror.agree(truth, row.row)
        assert all(shows(write, row) for write in (fix.writes if fix else ()))

    @given(truths, st.lists(projections, min_size=1, max_size=4), st.randoms())
    def test_late_older_writes_never_show_through_a_fix(
        self, truth: Row, late: list[Row | None], random: object
    ) -> None:
        """Retries that arrive out of order, before or after the fix."""
        fix = fix_of(truth, None)
        assert fix is not None
        older: list[Write] = [
            Put(MESSAGE_ID, row, at=LONG_AGO + number) for number, row in enumerate(late) if row is not None
        ]
        writes = [*older, *fix.writes]
        random.shuffle(writes)  # type: ignore[attr-defined]

        row = applied(*writes)

        assert row is not None
        assert MESSAGES.mirror.agree(truth, row.row)

    @given(truths, truths, projections, st.permutations([0, 1, 2]))
    def test_a_newer_change_wins_in_any_order(
        self, truth: Row, newer: Row, projected: Row | None, order: list[int]
    ) -> None:
        """The fix is stamped T, the user's write later."""
        fix = fix_of(truth, projected)
        users = Put(MESSAGE_ID, mirror_row(newer), at=T + 1, clear=True)
        old = Put(MESSAGE_ID, projected or mirror_row(truth), at=LONG_AGO)
        writes: list[list[Write]] = [[old], [users], list(fix.writes) if fix else []]

        row = applied(*chain.from_iterable(writes[number] for number in order))

        assert row is not None
        assert MESSAGES.mirror.agree(newer, row.row)

    @given(projections)
    def test_a_withdrawn_row_is_gone_in_any_order(self, projected: Row | None) -> None:
        """Older writes that arrive after the delete stay hidden."""
        fix = fix_of(None, projected)
        if projected is None:
            assert fix is None
            return
        assert fix is not None

        assert applied(*fix.writes, Put(MESSAGE_ID, projected, at=LONG_AGO)) is None

    @settings(max_examples=30)
    @given(st.lists(st.tuples(truths, projections), min_size=1, max_size=5))
    def test_the_fixer_converges_whatever_the_state(self, pairs: list[tuple[Row, Row | None]]) -> None:
        """A second visit finds that everything agrees."""
        world = World()
        rows = [{**truth, **_identity(number)} for number, (truth, _) in enumerate(pairs, start=1)]
        for row, (_, projected) in zip(rows, pairs, strict=True):
            world.message(row, projected=False)
            if projected is not None:
                world.put(MESSAGE_ID, {**projected, **_mirror_identity(row)})
        suspects = [mirror_suspect(row, Verdict.AMEND) for row in rows]

        world.revisit(suspects)
        again = world.revisit(suspects, run=None)

        assert {one.verdict for one in again} == {Verdict.AGREE}


def _identity(number: int) -> Row:
    row = truth_row(number)
    return {name: row[name] for name in ("messageid", "uid")}


def _mirror_identity(row: Row) -> Row:
    return {name: row[name] for name in ("messageid", "uid", "mailboxid")}


class TestRestraint:
    """What no look may lead to."""

    @given(truths, projections, st.integers(T + 1, START + 10_000_000))
    def test_nothing_is_written_over_a_change_after_t(self, truth: Row, projected: Row | None, at: int) -> None:
        """MOVED or AHEAD, unless nothing is wrong."""
        ruled = rule(look_at(truth, projected, at=at), POLICY, START)

        assert not ruled.changes
        assert ruled.result in {None, Verdict.MOVED, Verdict.AHEAD}
        assert (ruled.result is None) == (ruled.verdict is Verdict.AGREE)


class TestPieces:
    """The small rules that fixes are made of."""

    def test_what_shows_and_what_does_not(self) -> None:
        """Each kind of change, read back."""
        row = mirror_row(truth_row())
        elements = frozenset({"a"})

        assert shows(Remove(MESSAGE_ID, place(row)), None)
        assert not shows(Remove(MESSAGE_ID, place(row)), Seen(row))
        assert shows(RemoveIf(MESSAGE_ID, place(row), {}), None)
        assert shows(Put(MESSAGE_ID, row), Seen(row))
        assert not shows(Put(MESSAGE_ID, row), Seen({**row, "flagseen": True}))
        assert not shows(PutIfAbsent(MESSAGE_ID, row), None)
        assert shows(Change(MESSAGE_ID, place(row), add={"userflags": elements}), Seen({"userflags": frozenset("ab")}))
        assert not shows(Change(MESSAGE_ID, place(row), add={"userflags": elements}), None)
        assert not shows(Change(MESSAGE_ID, place(row), take={"userflags": elements}), Seen({"userflags": elements}))

    def test_an_policy_and_a_suspect_travel_to_executors(self) -> None:
        """Plain values, whole again on the other side."""
        suspect = mirror_suspect(truth_row(), Verdict.PROJECT)

        assert pickle.loads(pickle.dumps((POLICY, suspect, MESSAGES))) == (POLICY, suspect, MESSAGES)

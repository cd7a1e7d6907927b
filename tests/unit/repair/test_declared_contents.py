"""Contents of declared tables: which are collected, which rows of truth are quarantined, and how both come back."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

from hypothesis import example, given

from mailmend.cql.row_statements import Operation
from mailmend.model.operations import Change, RemoveIf
from mailmend.model.projections.verdicts import Verdict, Why
from mailmend.model.table import Row, Table
from tests.support.clock import START
from tests.support.declared_contents import (
    BY_EMAIL,
    FOLLOWERS,
    PROFILES,
    USERS,
    Age,
    Meanwhile,
    Register,
    UserStory,
    put_meanwhile,
    user_stories,
    without,
)

LOST = UserStory(1, Age.NONE, Age.OLD, Age.NONE, lead=True, meanwhile=Meanwhile.NOTHING)
LEAKED = UserStory(2, Age.NONE, Age.NONE, Age.OLD, lead=False, meanwhile=Meanwhile.NOTHING)
SOUND = UserStory(3, Age.NONE, Age.OLD, Age.OLD, lead=True, meanwhile=Meanwhile.NOTHING)


def removed_by(story: UserStory) -> list[tuple[Table, Row]]:
    """What a repair removes that may do everything."""
    if not story.is_mended:
        return []
    if story.verdict is Verdict.LEAK:
        return [(PROFILES, story.profile)]
    return [(USERS, story.row), *story.followers]


@given(user_stories())
@example([LOST, LEAKED, SOUND])
def test_only_what_is_alone_for_a_day_goes_and_all_of_it_comes_back(stories: list[UserStory]) -> None:
    """No program writes: an undo gives back every row, and an undo of the undo takes each of them again."""
    register = Register(replace(story, meanwhile=Meanwhile.NOTHING) for story in stories)
    before = register.rows()
    gone = [removed for story in register.stories for removed in removed_by(story)]

    result, _ = register.repaired()

    assert result.failed == 0
    assert register.rows() == without(before, gone)
    undone = register.undo(result.run)
    assert (undone.failed, undone.moved) == (0, 0)
    assert register.rows() == before
    register.undo(undone.run)
    assert register.rows() == without(before, gone)


@given(user_stories())
def test_what_a_program_writes_meanwhile_is_left(drawn: list[UserStory]) -> None:
    """A row of truth that names its content again, content that is written again, or a newer row of truth."""
    stories = [*drawn, replace(LEAKED, number=9)]  # a run without any suspect does not wait
    register = Register(stories)
    before = register.rows()
    gone = [removed for story in stories for removed in removed_by(story)]

    result, findings = register.repaired(meanwhile=True, only=frozenset())

    removed = sum(story.is_mended for story in stories)
    assert result.fixed.total() == removed
    assert register.rows() == put_meanwhile(without(before, gone), stories)
    assert all(finding.error is None for finding in findings)


@given(user_stories())
def test_a_dry_run_counts_what_a_repair_removes_and_writes_nothing(stories: list[UserStory]) -> None:
    quiet = [replace(story, meanwhile=Meanwhile.NOTHING) for story in stories]
    register = Register(quiet)
    before = register.rows()

    result, _ = register.repaired(dry_run=True)

    assert register.rows() == before
    assert result.due.total() == sum(story.is_mended for story in quiet)


@given(user_stories())
def test_without_the_options_contents_are_only_reported(stories: list[UserStory]) -> None:
    register = Register(replace(story, meanwhile=Meanwhile.NOTHING) for story in stories)
    before = register.rows()

    result, _ = register.repaired(orphans="report", leaks="report")

    assert register.rows() == before
    found = [finding for counts in result.findings.values() for finding in counts.elements()]
    assert sorted(verdict.value for verdict in found) == sorted(
        story.verdict.value for story in stories if story.verdict is not None
    )


def test_a_row_of_truth_goes_by_a_condition_on_every_cell() -> None:
    """Its set of tags is in the condition: no version tells that it was changed."""
    register = Register([LOST])
    written = register.world.watch_writes()

    register.repaired()

    (removal,) = [write for write in written if isinstance(write, RemoveIf) and write.table.name == "users"]
    assert removal.expected == {name: LOST.row[name] for name in ("email", "team", "tags")}


def test_a_tag_that_is_added_just_before_the_removal_saves_the_row() -> None:
    register = Register([LOST])
    added = Change(USERS, (LOST.id,), add={"tags": frozenset({"new"})}, at=START)

    def race(operation: Operation, carry_out: Callable[[], Any]) -> Any:
        if isinstance(operation, RemoveIf):
            register.world.memory.write(added)
        return carry_out()

    register.world.memory.surround = race

    result, _ = register.repaired()

    assert (result.fixed.total(), result.moved) == (0, 1)
    assert register.rows()["users"][LOST.id,]["tags"] == LOST.row["tags"] | {"new"}


def test_collected_content_comes_back_although_a_row_of_truth_names_it_by_now() -> None:
    register = Register([LEAKED])
    result, _ = register.repaired()
    register.world.put(USERS, LEAKED.row, register.world.clock.micros())

    undone = register.undo(result.run)

    assert undone.fixed == {Verdict.LEAK: 1}
    assert register.rows()["profiles"] == {(LEAKED.id,): LEAKED.profile}


def test_content_that_is_named_by_now_is_not_collected_again_by_an_undo_of_the_undo() -> None:
    register = Register([LEAKED])
    result, _ = register.repaired()
    undone = register.undo(result.run)
    register.world.put(USERS, LEAKED.row, register.world.clock.micros())

    redone = register.undo(undone.run)

    assert redone.moved == 1
    assert register.rows()["profiles"] == {(LEAKED.id,): LEAKED.profile}


def test_content_that_was_written_again_is_left_by_an_undo() -> None:
    register = Register([LEAKED])
    result, _ = register.repaired()
    newer = {**LEAKED.profile, "body": "newer"}
    register.world.put(PROFILES, newer, register.world.clock.micros())

    undone = register.undo(result.run)

    assert undone.moved == 1
    assert register.rows()["profiles"] == {(LEAKED.id,): newer}


def test_a_copy_that_names_another_row_of_truth_stays_where_a_row_is_quarantined() -> None:
    """The copy at its place is another user's: an undo could not tell whose it was."""
    register = Register([LOST])
    stray = UUID(int=77, version=4)
    register.world.put(BY_EMAIL, {"email": LOST.row["email"], "user_id": stray, "team": "red"})

    register.repaired(only=frozenset())

    left = {table.name: register.rows()[table.name] for table in FOLLOWERS}
    assert left.pop("users_by_email") == {
        (LOST.row["email"], stray): {"email": LOST.row["email"], "user_id": stray, "team": "red"}
    }
    assert all(not rows for rows in left.values())


def test_content_of_a_key_alone_is_left_with_the_reason() -> None:
    """No cell tells when it was written."""
    register = Register([])
    register.world.put(PROFILES, {"user_id": LEAKED.id}, Age.OLD.at)

    result, (finding,) = register.repaired()

    assert result.fixed == {}
    assert finding.reason is not None
    assert finding.reason.why is Why.AGE_UNKNOWN


def test_a_young_row_says_when_it_may_be_tried_again() -> None:
    young = replace(LOST, truth=Age.YOUNG)
    register = Register([young])

    _, findings = register.repaired()

    (reason,) = {finding.reason for finding in findings}
    assert reason is not None
    assert (reason.why, reason.again_at) == (Why.YOUNGER_THAN_A_DAY, START + 23 * 3600 * 1_000_000)

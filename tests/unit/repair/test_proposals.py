"""What the tables of a keyspace tell of projections, and what is asked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.model.keyspace import Schema
from mailmend.model.projections.declaration_file import read_declaration
from mailmend.model.table import Column, Table, columns
from mailmend.repair.declared import declared_families
from mailmend.repair.proposals import Proposal, proposed

USERS = Table("users", columns("user_id uuid", regular="email text, name text"))
BY_EMAIL = Table("users_by_email", columns("email text", regular="name text, user_id uuid"))
VIDEOS = Table("videos", columns("video_id uuid", regular="user_id uuid, added timestamp, name text"))
OF_USER = Table("user_videos", columns("user_id uuid", "added timestamp, video_id uuid", "name text"))


def proposal_of(*tables: Table) -> Proposal:
    return proposed("shop", Schema((), tables))


def text_of(*tables: Table) -> str:
    declared = proposal_of(*tables).declaration
    if declared is None:
        return ""
    return declared.text


@pytest.mark.parametrize("tables", [(USERS, BY_EMAIL), (BY_EMAIL, USERS)])
def test_the_table_whose_name_begins_the_other_is_the_truth(tables: tuple[Table, ...]) -> None:
    assert text_of(*tables) == "[truth.users.mirror.users_by_email]\n"


def test_the_table_with_more_columns_is_the_truth() -> None:
    wide = VIDEOS.with_columns((*VIDEOS.columns, Column("place", "text")))
    assert text_of(OF_USER, wide) == "[truth.videos.mirror.user_videos]\n"


def test_two_tables_of_equal_right_are_asked_about() -> None:
    proposal = proposal_of(VIDEOS, OF_USER)
    assert "Is videos the truth, or user_videos?" in proposal.text


def test_a_column_without_source_is_left_out_and_asked_about() -> None:
    wider = BY_EMAIL.with_columns((*BY_EMAIL.columns, Column("note", "text")))
    text = proposal_of(USERS, wider).text
    assert 'left_out = ["note"]' in text
    assert "# ? users_by_email.note is left out: users has no such column." in text


def test_a_key_of_another_name_is_asked_about() -> None:
    other = Table("users_by_mail", columns("mail text", regular="user_id uuid"))
    text = proposal_of(USERS, other).text
    assert "which columns of users are its mail?" in text
    assert '# renamed = { mail = "COLUMN" }' in text


def test_a_table_with_a_row_for_each_element_is_asked_about() -> None:
    films = VIDEOS.with_columns(
        (*VIDEOS.columns, Column("tags", "set<text>"), Column("old_tags", "list<text>"), Column("cast", "list<text>"))
    )
    by_tag = Table("tag_views", columns("tag text", "video_id uuid", "name text"))

    text = proposal_of(films, by_tag).text

    assert "# ? Has tag_views a row for each element of videos.tags?" in text
    assert "Other collections of its type: old_tags." in text
    lines = text[text.index("# [truth.videos.explode.tag_views]") :].splitlines()[:3]
    answered = "\n".join(line.removeprefix("# ") for line in lines)
    (family,) = declared_families("shop", read_declaration(answered), Schema((), (films, by_tag)))
    assert family.mirror.name == "tag_views"


def test_a_table_with_mostly_columns_of_its_own_is_no_copy() -> None:
    comments = Table("comments", columns("user_id uuid", "comment_id timeuuid", "video_id uuid, comment text"))
    wide = VIDEOS.with_columns((*VIDEOS.columns, Column("place", "text")))

    assert proposal_of(comments, wide).declaration is None


def test_a_copy_of_another_name_with_a_key_of_its_own_is_asked_about() -> None:
    latest = Table("latest", columns("day text", "video_id uuid", "name text, added timestamp"))

    assert '# renamed = { day = "COLUMN" }' in proposal_of(VIDEOS, latest).text


def test_a_table_of_keys_alone_is_asked_about() -> None:
    keys = Table("users_active", columns("email text", "user_id uuid"))
    proposal = proposal_of(USERS, keys)
    assert proposal.declaration is None
    assert "has every row of it one?" in proposal.text


def test_a_table_of_counters_is_asked_about() -> None:
    counters = Table("users_count", columns("email text", regular="seen counter"))
    assert "users_count has counters" in proposal_of(USERS, counters).text


def test_a_table_that_shares_no_key_is_named() -> None:
    assert "# Tables that share no key with another one: users." in proposal_of(USERS).text


def test_tables_of_the_same_key_are_no_copies() -> None:
    assert text_of(USERS, Table("passwords", USERS.columns)) == ""


TYPES = st.sampled_from(["int", "text", "set<int>", "counter", "frozen<list<int>>"])
NAMES = st.sampled_from(["a", "b", "c", '"D e\n"', "ab"])


@st.composite
def tables(draw: st.DrawFn) -> tuple[Table, ...]:
    found = []
    for spelling in draw(st.lists(NAMES, min_size=1, max_size=4, unique=True)):
        names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
        count = draw(st.integers(1, len(names)))
        keys = ", ".join(f"{name} int" for name in names[:count] if '"' not in name) or "k int"
        listed = list(columns(keys))
        for name in names[count:]:
            listed.append(Column(name, draw(TYPES)))
        found.append(Table(spelling, tuple(listed)))
    return tuple(found)


@given(tables())
def test_whatever_is_proposed_binds(found: tuple[Table, ...]) -> None:
    # Given
    live = Schema((), found)

    # When
    proposal = proposed("shop", live)

    # Then
    if proposal.declaration is not None:
        declaration = read_declaration(proposal.text, "proposal")
        assert declaration == proposal.declaration
        declared_families("shop", declaration, live)

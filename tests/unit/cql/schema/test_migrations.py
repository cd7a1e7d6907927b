"""A migration's name, head, checksum and chain."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.cql.schema.migrations import Phase, checksum_of, file_name, head_of, in_order, next_link, normalised
from mailmend.model.errors import BadMigration
from tests.support.migrating import HEAD, SHOP, folder, migration

WORDS = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=8)
NAMES = st.builds(
    lambda number, phase, words: f"{number:04}_{phase.value}_{'_'.join(words)}.cql",
    st.integers(1, 9999),
    st.sampled_from(Phase),
    st.lists(WORDS, min_size=1, max_size=4),
)
TEXTS = st.lists(st.text("abc ;\n", max_size=20), min_size=1, max_size=8)


@given(NAMES)
def test_a_file_name_reads_back_as_it_was_written(name: str) -> None:
    assert str(file_name(name)) == name


@pytest.mark.parametrize(
    "name",
    [
        "1_pre_a.cql",
        "00001_pre_a.cql",
        "0001_during_a.cql",
        "0001_pre_.cql",
        "0001_pre_A.cql",
        "0001_pre_a.CQL",
        "0001-pre-a.cql",
        "0001_pre_a__b.cql",
        "0000_pre_a.cql",
        "schema.cql",
    ],
)
def test_any_other_name_is_refused(name: str) -> None:
    with pytest.raises(BadMigration, match=r"0007_pre_add_labels\.cql|from 0001"):
        file_name(name)


def test_the_head_may_go_over_several_lines_and_stand_in_any_order() -> None:
    head = head_of(
        "a.cql", "\n\n-- undo: drop it.\n-- Why: somebody\n--   asked.\n-- Effect: makes it.\nCREATE TABLE t;"
    )
    assert (head.why, head.effect, head.undo) == ("somebody asked.", "makes it.", "drop it.")


@pytest.mark.parametrize("part", ["Why", "Effect", "Undo"])
@pytest.mark.parametrize("instead", ["", "-- {part}:", "-- {part}"])
def test_a_part_that_is_missing_or_empty_is_named(part: str, instead: str) -> None:
    lines = [instead.format(part=part) if line.startswith(f"-- {part}") else line for line in HEAD.splitlines()]
    with pytest.raises(BadMigration, match=f"0001_pre_a.cql does not say at its top: .*{part}") as refused:
        head_of("0001_pre_a.cql", "\n".join(line for line in lines if line))
    assert "'-- Why: ...'" in str(refused.value)


def test_a_comment_below_the_first_statement_is_no_head() -> None:
    with pytest.raises(BadMigration, match="Why, Effect, Undo"):
        head_of("a.cql", f"CREATE TABLE t (a int PRIMARY KEY);\n{HEAD}")


def test_line_ends_do_not_matter() -> None:
    assert checksum_of(normalised("a\r\nb\rc\n")) == checksum_of("a\nb\nc\n")


def test_migrations_are_ordered_by_number_whatever_order_they_are_found_in() -> None:
    there, back = folder(SHOP), folder(dict(reversed(list(SHOP.items()))))
    assert [one.chain for one in there] == [one.chain for one in back]
    assert [one.number for one in back] == [1, 2, 3, 4]


def test_a_number_that_is_there_twice_is_refused() -> None:
    with pytest.raises(BadMigration, match=r"0001 is there twice: 0001_post_b\.cql and 0001_pre_a\.cql"):
        in_order([migration("0001_pre_a.cql", "DROP TABLE a"), migration("0001_post_b.cql", "DROP TABLE b")])


@pytest.mark.parametrize("gone", range(1, len(SHOP)))
def test_a_number_that_is_missing_is_named(gone: int) -> None:
    files = dict(pair for place, pair in enumerate(SHOP.items(), start=1) if place != gone)
    with pytest.raises(BadMigration, match=rf"number {gone:04} is missing: {gone + 1:04}_"):
        folder(files)


def test_a_statement_knows_its_text_and_its_line() -> None:
    one = migration("0001_pre_a.cql", "DROP TABLE a;\n\n  ALTER TABLE b\n    DROP c;")
    assert [one.cql(0), one.cql(1)] == ["DROP TABLE a", "ALTER TABLE b\n    DROP c"]
    assert [one.line(0), one.line(1)] == [5, 7]


def chain_of(files: list[tuple[str, str]]) -> list[str]:
    values = [""]
    for name, text in files:
        values.append(next_link(values[-1], name, checksum_of(text)))
    return values[1:]


@given(TEXTS, st.data())
def test_an_edited_file_changes_its_link_and_every_later_one(texts: list[str], data: st.DataObject) -> None:
    files = [(f"{place}", text) for place, text in enumerate(texts)]
    at = data.draw(st.integers(0, len(files) - 1))
    edited = [(name, f"{text}!") if place == at else (name, text) for place, (name, text) in enumerate(files)]
    before, after = chain_of(files), chain_of(edited)
    assert before[:at] == after[:at]
    assert not set(before[at:]) & set(after[at:])


@given(TEXTS, st.data())
def test_a_removed_or_inserted_file_changes_every_later_link(texts: list[str], data: st.DataObject) -> None:
    files = [(f"{place}", text) for place, text in enumerate(texts)]
    at = data.draw(st.integers(0, len(files) - 1))
    before, after = chain_of(files), chain_of([*files[:at], *files[at + 1 :]])
    assert before[:at] == after[:at]
    assert not set(before[at:]) & set(after[at:])


def test_each_migration_of_a_folder_carries_its_link() -> None:
    value = ""
    for one in folder():
        value = next_link(value, str(one.file), one.checksum)
        assert one.chain == value
    assert migration("0001_pre_a.cql", "DROP TABLE a").chain == ""


def test_a_link_stands_for_the_name_as_well() -> None:
    text = "DROP TABLE a;"
    (named,) = folder({"0001_pre_a.cql": text})
    (otherwise,) = folder({"0001_post_a.cql": text})
    assert named.checksum == otherwise.checksum
    assert named.chain != otherwise.chain


def test_checksums_and_links_are_what_any_tool_computes() -> None:
    assert checksum_of("a\n") == "87428fc522803d31065e7bce3cf03fe475096631e5e07bbd7a0fde60c4cf25c7"
    assert next_link("", "0001_pre_a.cql", "c") == checksum_of("\n0001_pre_a.cql\nc\n")
    assert next_link("v", "n", "c") == checksum_of("v\nn\nc\n")


@pytest.mark.parametrize(
    ("head", "why"),
    [
        ("-- Why:   spaces around   ", "spaces around"),
        ("--Why:none before", "none before"),
        ("--\tWhy: a tab", "a tab"),
        ("-- WHY: in capitals", "in capitals"),
        ("-- Why:\n--   below\n--\n-- and on", "below  and on"),
        ("-- A title that belongs to nothing\n-- Why: after it", "after it"),
        ("-- Why: why: twice", "why: twice"),
    ],
)
def test_a_part_is_read_however_it_is_set(head: str, why: str) -> None:
    assert head_of("a.cql", f"{head}\n-- Effect: e\n-- Undo: u\n").why == why


@pytest.mark.parametrize(
    ("names", "what", "mend"),
    [
        (
            ["0002_pre_b.cql"],
            "number 0001 is missing: 0002_pre_b.cql comes where it should stand",
            "Numbers follow on each other from 0001. Put the missing file back, or number the new one anew.",
        ),
        (
            ["0001_pre_a.cql", "0002_pre_b.cql", "0002_pre_c.cql"],
            "number 0002 is there twice: 0002_pre_b.cql and 0002_pre_c.cql",
            "Give the one that was applied nowhere yet the next free number.",
        ),
        (
            ["0001_pre_a.cql", "0001_pre_b.cql", "0003_pre_c.cql"],
            "number 0001 is there twice: 0001_pre_a.cql and 0001_pre_b.cql",
            "Give the one that was applied nowhere yet the next free number.",
        ),
    ],
)
def test_a_folder_with_gaps_or_doubles_is_refused_with_the_way_out(names: list[str], what: str, mend: str) -> None:
    with pytest.raises(BadMigration) as refused:
        in_order(migration(name, "DROP TABLE a") for name in names)
    assert (refused.value.what, refused.value.mend) == (what, mend)

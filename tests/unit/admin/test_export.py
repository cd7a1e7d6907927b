"""The schema for people: whole, readable, drawn without overlaps, and never behind the catalog unnoticed."""

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mailmend.admin.schema.export import CHARACTER, Box, declared, drawing_of, families_in, found, svg
from mailmend.admin.schema.export_page import Page, Section, key_text, page_text, relations_of
from mailmend.cql.export import SCHEMA_FILE, schema_file_text
from mailmend.cql.schema.generations import GENERATIONS
from mailmend.model.catalog.james_tables import BLOBS, SIZE_TIERED
from mailmend.model.catalog.ledger import LEDGER_TABLES, REPAIR_RUN
from mailmend.model.catalog.mail import (
    FAMILIES,
    IMAP_UID,
    MAIL_TABLES,
    MAIL_TYPES,
    MESSAGE_ID,
    MESSAGES,
    SCHEMA,
    TWCS_MESSAGES,
)
from mailmend.model.catalog.purposes import purpose_of, why_compacted
from mailmend.model.errors import SchemaMismatch
from mailmend.model.keyspace import Schema
from mailmend.model.projections.family import Family
from mailmend.model.table import Column, Compaction, Kind, Table
from tests.support.checkout import CHECKOUT
from tests.support.commands import command_line

EVERY_TABLE = (*LEDGER_TABLES, *(table for one in GENERATIONS for table in one.schema.tables))
PAGE = declared("apache_james", "Made by a test.", "schema.svg")
EMPTY = Schema((), ())


def test_the_repository_holds_what_the_catalog_says() -> None:
    """`make verify` asks the same; whoever changes the catalog makes the page anew."""
    shell = command_line(CHECKOUT)

    ended = shell("schema", "export", "--check", "--dir", str(CHECKOUT / "docs"), "--only", "page", "--only", "drawing")

    assert ended.code == 0, ended.out


def test_every_column_and_every_compaction_has_a_purpose() -> None:
    columns = [(table.spelling, column.spelling) for table in EVERY_TABLE for column in table.columns]

    assert [where for where in columns if not purpose_of(*where)] == []
    assert [table.spelling for table in EVERY_TABLE if why_compacted(table).startswith("not known")] == []


def test_a_compaction_is_explained_by_what_it_is_for() -> None:
    added = Compaction(TWCS_MESSAGES.strategy, {**TWCS_MESSAGES.options, "max_threshold": "32"})

    assert "old messages still change" in why_compacted(IMAP_UID)
    assert "old messages still change" in why_compacted(replace(IMAP_UID, compaction=added))
    assert "expires together" in why_compacted(REPAIR_RUN)
    assert "cheapest to write" in why_compacted(replace(BLOBS, compaction=SIZE_TIERED))
    assert "server's own default" in why_compacted(BLOBS)
    assert "not known" in why_compacted(replace(BLOBS, compaction=Compaction("com.example.Own")))


def test_the_page_has_a_table_for_each_table_and_a_line_for_each_column() -> None:
    text = page_text(PAGE)

    for table in (*SCHEMA.tables, *LEDGER_TABLES):
        part = text.split(f"### {table.spelling}\n")[1].split("\n### ")[0]
        for column in table.columns:
            assert f"| `{column.spelling}` | `{column.type}` |" in part
        assert f"Key: `{key_text(table)}`" in part
    assert "![Truths and their projections](schema.svg)" in text
    assert "- `" not in page_text(replace(PAGE, types=()))


def test_every_link_leads_somewhere() -> None:
    text = page_text(PAGE)

    headings = {heading.lower() for heading in re.findall(r"^### (\S+)$", text, re.MULTILINE)}
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) == headings


def test_a_row_of_the_page_says_key_form_and_purpose() -> None:
    text = page_text(PAGE)

    assert "| `messageId` | `timeuuid` | partition | as it is | the message |" in text
    assert "| `userFlags` | `set<text>` |  | null is the empty set | flags with names that users chose |" in text
    assert "| `run` | `timeuuid` | clustering ↓ |  | the run; its time is when it began |" in text
    assert "| \\\\Seen |" in text
    odd = Table("odd", (Column("a", "text", Kind.PARTITION),), comment="this | that")
    assert "this \\| that." in page_text(Page("t", "m", (), (), (Section("s", "a", (odd,)),)))


def test_what_follows_from_what_is_said_in_words() -> None:
    reported = {relation.table.spelling: relation for family in FAMILIES for relation in relations_of(family)}

    assert reported["firstUnseen"].says == "keys of the rows where flagSeen is false"
    assert reported["messageIdTable"].says == "every row, by mailboxId, uid"
    assert reported["applicableFlag"].says == "every userFlags per mailboxId; it only grows"
    assert reported["mailboxCounters"].says == "per mailboxId: count, all rows; unseen, rows where flagSeen is false"
    assert reported["mailboxCounters"].notes == ("mended only while messageCounter, modseq stand still",)
    assert reported["messageV3"].kind == "content"
    assert "WITHDRAW is reported, never mended" in reported["mailbox"].notes


def test_the_drawing_names_every_truth_and_projection_once() -> None:
    drawing = drawing_of(FAMILIES)

    names = {one.table.spelling for family in FAMILIES for one in family.projections}
    names |= {family.truth.spelling for family in FAMILIES}
    assert sorted(box.lines[0] for box in drawing.boxes) == sorted(names)
    assert len(drawing.arrows) == sum(len(family.projections) for family in FAMILIES)


def test_the_page_has_one_picture() -> None:
    """The drawing, which each viewer shows; no second one in a language of charts."""
    assert "```" not in page_text(PAGE)
    assert page_text(PAGE).count("![") == 1


@st.composite
def families(draw: st.DrawFn) -> tuple[Family, ...]:
    return tuple(
        replace(
            family,
            filters=tuple(draw(st.lists(st.sampled_from(MESSAGES.filters), max_size=9))),
            counts=MESSAGES.counts if draw(st.booleans()) else (),
            content=MESSAGES.content if draw(st.booleans()) else None,
        )
        for family in draw(st.lists(st.sampled_from(FAMILIES), max_size=4))
    )


@settings(max_examples=25)
@given(families())
def test_no_box_touches_another_and_no_text_leaves_its_box(some: tuple[Family, ...]) -> None:
    drawing = drawing_of(some)

    for number, box in enumerate(drawing.boxes):
        assert max(map(len, box.lines)) * CHARACTER <= box.width
        assert 0 <= box.x <= box.x + box.width <= drawing.width
        assert 0 <= box.y <= box.y + box.height <= drawing.height
        assert not any(overlap(box, other) for other in drawing.boxes[number + 1 :])
    assert all(arrow.source.x + arrow.source.width < arrow.target.x for arrow in drawing.arrows)


def overlap(one: Box, other: Box) -> bool:
    beside = one.x + one.width < other.x or other.x + other.width < one.x
    above = one.y + one.height < other.y or other.y + other.height < one.y
    return not (beside or above)


def test_the_drawing_is_xml_with_every_text_in_it() -> None:
    odd = replace(MESSAGES, mirror=replace(MESSAGES.mirror, table=replace(MESSAGE_ID, spelling='a<b & "c"')))

    texts = {element.text for element in ET.fromstring(svg((odd,))).iter() if element.tag.endswith("text")}

    assert {'a<b & "c"', "imapUidTable", "truth"} <= texts


def test_a_live_keyspace_is_reported_in_the_models_words() -> None:
    columns = (*IMAP_UID.columns, Column("mystery", "text"))
    lived = replace(IMAP_UID, columns=columns, options={"bloom_filter_fp_chance": "0.01", "cdc": "true"})
    theirs = Table("theirs", (Column("k", "int", Kind.PARTITION),))
    live = Schema(MAIL_TYPES, (lived, *MAIL_TABLES[1:], theirs))
    server = Schema(MAIL_TYPES, tuple(lowered(table) for table in live.tables))

    text = page_text(found("mail", server, EMPTY, "Read by a test."))

    assert "### imapUidTable" in text
    assert "| `mystery` | `text` |" in text
    assert text.index("`headerContent`") < text.index("`mystery`")
    assert "## Other tables" in text
    assert "## Ledger" not in text
    assert "Generation: September 2026" in text
    assert "`cdc = true`" in text
    assert "`bloom_filter_fp_chance = 0.01`" not in text


def lowered(table: Table) -> Table:
    columns = tuple(replace(column, spelling=column.name) for column in table.columns)
    return replace(table, spelling=table.name, columns=columns)


def test_a_keyspace_without_mail_has_tables_and_no_truth() -> None:
    theirs = Schema((), (Table("theirs", (Column("k", "int", Kind.PARTITION),)),))
    half = Schema(MAIL_TYPES, (lowered(IMAP_UID),))

    page = found("mail", theirs, EMPTY, "Read by a test.")
    assert "Truths and projections" not in page_text(page)
    assert "No mail was found" in page.made
    assert families_in("mail", theirs) == ()
    with pytest.raises(SchemaMismatch):
        families_in("mail", half)


def test_files_are_written_checked_and_reported(tmp_path: Path) -> None:
    shell, folder = command_line(tmp_path), tmp_path / "out"
    asked = ("schema", "export", "--dir", str(folder), "--json")

    first, again = shell(*asked), shell(*asked)
    assert [Path(name).name for name in first.json["written"]] == ["schema.cql", "schema.md", "schema.svg"]
    assert (again.json["written"], shell(*asked, "--check").code) == ([], 0)
    assert (folder / "schema.cql").read_text() == SCHEMA_FILE.read_text() == schema_file_text()

    (folder / "schema.md").write_text("changed by hand")
    stale = shell("schema", "export", "--dir", str(folder), "--check")
    assert (stale.code, "schema.md is not up to date" in stale.out) == (1, True)
    assert json.loads(shell(*asked, "--check").out)["exit"] == 1
    assert (folder / "schema.md").read_text() == "changed by hand"


def test_one_file_goes_to_stdout_and_names_the_keyspace(tmp_path: Path) -> None:
    shell = command_line(tmp_path)

    ended = shell("schema", "export", "--dir", "-", "--only", "cql", "--keyspace", "other")
    assert (ended.code, "CREATE TABLE IF NOT EXISTS other.imapUidTable" in ended.out) == (0, True)
    for wrong in ((), ("--only", "cql", "--check"), ("--only", "cql", "--json")):
        assert shell("schema", "export", "--dir", "-", *wrong).code == 2


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    ended = command_line(tmp_path)("schema", "export", "--dir", str(tmp_path / "file"))

    assert (ended.code, "--dir" in ended.err) == (2, True), ended.err

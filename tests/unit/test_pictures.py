"""The pictures of docs/pictures: they name what is there, nothing leaves its box, and today's run says the same."""

import re
from itertools import combinations, pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from mailmend.delivery.mail.attempts import AttemptOutcome, AttemptStage
from mailmend.delivery.mail.entries import EntryEnd, EntryState
from mailmend.delivery.policy.replaying import LimitKind
from tests.pictures.architecture import ARCHITECTURE
from tests.pictures.cast import CUES, SECONDS, SHOWN, Cue, screen_lines, shown_of, svg_of_cast
from tests.pictures.decision_run import lanes
from tests.pictures.drawing import (
    PACKAGE_CHARACTER,
    PAD,
    TEXT_CHARACTER,
    TITLE_CHARACTER,
    Box,
    Picture,
    Place,
    layout_of,
    svg_of,
)
from tests.pictures.files import FOLDER, REPORT, draw, drawings, old_in
from tests.pictures.mail_life import MAIL_LIFE
from tests.pictures.report_head import SIGNATURE, digest_in, digest_of, with_digest
from tests.pictures.row_life import NAMES, stamp, when
from tests.pictures.row_run import steps
from tests.pictures.story_run import Story, Typed, story_in_memory
from tests.support.checkout import CHECKOUT

TOPS = ("model", "cql", "repair", "mailqueue", "delivery", "spark_repair", "admin", "mailmend")
BYTES_MAX = 100_000
GRIDS = [ARCHITECTURE, MAIL_LIFE]
REPORT_PAGE = "<style>p{{}}</style><h1>check of mail</h1><p>written {} by mailmend {}</p><table>{}</table><p>below</p>"


@pytest.fixture(scope="module")
def story() -> Story:
    return story_in_memory()


def packages_in(picture: Picture) -> set[str]:
    named: set[str] = set()
    for box in picture.boxes:
        for line in box.packages:
            named.update(line.split())
    return named


def test_the_pictures_say_what_the_program_says_today(story: Story) -> None:
    """`make verify` asks the same; `make pictures` draws them anew."""
    assert old_in(FOLDER, story) == []


def test_an_old_picture_is_named_and_drawn_again(story: Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report needs a browser: without one it is left, and said to be."""
    monkeypatch.setattr("tests.pictures.files.browser", lambda: None)
    texts = drawings(story)
    assert old_in(tmp_path, story) == [*texts, REPORT]

    assert draw(tmp_path, story) == [REPORT]
    assert old_in(tmp_path, story) == [REPORT]
    (tmp_path / "architecture.svg").write_text("by hand")
    assert old_in(tmp_path, story) == ["architecture.svg", REPORT]


def test_the_architecture_has_every_package_and_no_other() -> None:
    there = set(TOPS[-3:])
    for top in TOPS:
        there |= {f"{top}/{place.parent.name}" for place in CHECKOUT.glob(f"{top}/*/__init__.py") if top != "mailmend"}
    there -= {"admin"}

    assert packages_in(ARCHITECTURE) == there


def test_the_life_of_a_mail_names_packages_that_are_there() -> None:
    assert [name for name in packages_in(MAIL_LIFE) if not (CHECKOUT / name / "__init__.py").exists()] == []


@pytest.mark.parametrize(
    "members", [AttemptOutcome, AttemptStage, EntryEnd, EntryState], ids=lambda kind: kind.__name__
)
def test_the_life_of_a_mail_has_each_member_of_the_enums(members: type) -> None:
    words = set(
        re.findall(r"[a-z]+(?: for now)?", svg_of(MAIL_LIFE).replace("refused</text>", "refused for now</text>"))
    )

    values = [str(member.value) for member in members]  # type: ignore[attr-defined]
    assert [value for value in values if value not in words and value != "refused"] == []


@pytest.mark.parametrize("picture", GRIDS, ids=["architecture", "mail"])
def test_no_text_leaves_its_box_and_no_box_touches_another(picture: Picture) -> None:
    layout = layout_of(picture)

    assert [box.name for box in picture.boxes if not fits(box, layout.boxes[box.name])] == []
    touching = [pair for pair in combinations(layout.boxes, 2) if touch(*(layout.boxes[name] for name in pair))]
    assert touching == []
    names = {box.name for box in picture.boxes}
    assert all({arrow.source, arrow.target} <= names for arrow in picture.arrows)


def fits(box: Box, place: Place) -> bool:
    room = place.width - 2 * PAD + 6
    widest = [len(box.title) * TITLE_CHARACTER]
    widest += [len(line) * TEXT_CHARACTER for line in box.lines]
    widest += [len(line) * PACKAGE_CHARACTER for line in box.packages]
    return max(widest) <= room and box.height <= place.height


def touch(one: Place, other: Place) -> bool:
    apart = one.right < other.x or other.right < one.x or one.bottom < other.y or other.bottom < one.y
    return not apart


def test_each_picture_is_light_xml_for_day_and_night_without_script(story: Story) -> None:
    for name, text in drawings(story).items():
        root = ET.fromstring(text)
        tags = {element.tag.rpartition("}")[2] for element in root.iter()}
        assert {"title", "style", "text"} <= tags, name
        assert not tags & {"script", "image", "foreignObject", "a"}, name
        assert "prefers-color-scheme:dark" in text, name
        assert len(text.encode()) < BYTES_MAX, name


def test_the_life_of_a_row_is_what_a_repair_does() -> None:
    """The fix carries T, a margin before the scan, and undo one microsecond more."""
    by_name = dict(zip(NAMES, steps(), strict=True))

    repaired = by_name["repair"]
    assert (repaired.verdict, repaired.result) == ("AMEND", "FIXED")
    assert (repaired.projection.written_at, repaired.at) == (-30, 60)
    assert repaired.projection.modseq == repaired.truth.modseq
    before = by_name["drift"].projection
    after = by_name["undo"].projection
    assert (after.flagged, after.modseq) == (before.flagged, before.modseq)
    assert stamp(after.written_at, repaired.projection.written_at) == "T + 1 µs"
    assert [when(step.at) for step in by_name.values()] == [
        "2 h before",
        "1 h before",
        "9 min before",
        "60 s after",
        "11 min after",
    ]


def test_policy_decisions_show_both_kinds_of_limits_and_keep_them() -> None:
    shown = lanes()

    limits = {refusal.limit for lane in shown for refusal in lane.refusals}
    assert limits == {LimitKind.CONCURRENCY, LimitKind.RATE}
    begins = sorted(lane.began for lane in shown)
    assert all(later - earlier >= 4 for earlier, later in pairwise(begins))
    for one, other in combinations(shown, 2):
        if one.domain == other.domain:
            assert one.ended <= other.began or other.ended <= one.began


def test_the_cast_shows_each_part_within_its_seconds(story: Story) -> None:
    for typed in story.typed:
        shown = [words for kind, words in shown_of(typed) if kind == "output"]
        for begin in SHOWN[typed.command.split()[1]]:
            assert any(line.startswith(begin) for line in shown), begin
    lines = screen_lines(story.typed)
    assert all(0 < line.at < line.until <= SECONDS for line in lines)
    later = list(CUES.values())[1:]
    for cue, line in zip(later, (line for line in lines if line.kind == "command"), strict=False):
        said = [other.at for other in lines if line.at <= other.at < cue.at]
        assert cue.at - max(said) > 3, "a screen is read before the next command comes"


def test_the_cast_counts_what_it_leaves_out() -> None:
    typed = Typed("mailmend undo RUN", ("Findings", "    one", "", "What became of them", "", " AMEND  1", "bye"))

    assert shown_of(typed) == [
        ("cut", "⋯ 3 more lines"),
        ("output", "What became of them"),
        ("output", " AMEND  1"),
        ("cut", "⋯ 1 more lines"),
    ]


def test_without_motion_the_cast_is_its_last_screen(story: Story) -> None:
    text = svg_of_cast(story.typed)

    assert "@media (prefers-reduced-motion:reduce){text{animation:none!important}}" in text
    still = dict(re.findall(r"\.(f[\d-]+)\{opacity:(\d)", text))
    for name, opacity in still.items():
        is_last = name.endswith(f"-{SECONDS:.0f}")
        assert opacity == str(int(is_last))
    assert Cue(0.4, clears=True) == CUES["check"]


def test_the_digest_of_a_report_is_of_its_head() -> None:
    """When it was written, by which version, and what is below the first table does not count."""
    page = REPORT_PAGE.format("today", "1.0", "<td>AMEND</td>")
    digest = digest_of(page)

    assert digest == digest_of(REPORT_PAGE.format("then", "2.0", "<td>AMEND</td>").replace("below", "more"))
    assert digest != digest_of(REPORT_PAGE.format("today", "1.0", "<td>PROJECT</td>"))
    header = b"\x00\x00\x00\x0dIHDR" + bytes(13) + bytes(4)
    assert digest_in(with_digest(SIGNATURE + header + b"rest", digest)) == digest
    assert digest_in(SIGNATURE + header) == ""

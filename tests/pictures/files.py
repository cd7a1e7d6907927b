"""Which pictures there are, by the names of their files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.pictures.architecture import ARCHITECTURE
from tests.pictures.cast import svg_of_cast
from tests.pictures.decision_life import svg_of_lanes
from tests.pictures.decision_run import lanes
from tests.pictures.drawing import svg_of
from tests.pictures.mail_life import MAIL_LIFE
from tests.pictures.report_head import browser, digest_in, digest_of, drawn
from tests.pictures.row_life import svg_of_steps
from tests.pictures.row_run import steps
from tests.pictures.story_run import Story

FOLDER: Final = Path(__file__).resolve().parents[2] / "docs" / "pictures"
REPORT: Final = "report.png"


def drawings(story: Story) -> Mapping[str, str]:
    """The text of each SVG."""
    return {
        "architecture.svg": svg_of(ARCHITECTURE),
        "check-repair-undo.svg": svg_of_cast(story.typed),
        "life-of-a-mail.svg": svg_of(MAIL_LIFE),
        "life-of-a-row.svg": svg_of_steps(steps()),
        "policy-decisions.svg": svg_of_lanes(lanes()),
    }


def old_in(folder: Path, story: Story) -> list[str]:
    """The names of the pictures that are not there, or that say something else than today's program."""
    old: list[str] = []
    for name, text in drawings(story).items():
        file = folder / name
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            old.append(name)
    report = folder / REPORT
    if not report.exists() or digest_in(report.read_bytes()) != digest_of(story.report):
        old.append(REPORT)
    return old


def draw(folder: Path, story: Story) -> list[str]:
    """Draw the pictures that are old; the names of those that could not be drawn: the report needs a Chromium."""
    old = old_in(folder, story)
    texts = drawings(story)
    folder.mkdir(parents=True, exist_ok=True)
    left: list[str] = []
    for name in old:
        if name in texts:
            (folder / name).write_text(texts[name], encoding="utf-8")
            continue
        chromium = browser()
        if chromium is None:
            left.append(name)
            continue
        (folder / name).write_bytes(drawn(story.report, chromium))
    return left

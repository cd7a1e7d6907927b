"""What the check of a release refuses."""

from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.release_check import digests_of, man_pages_in, packages_in, page_in, relative_links, section_of


def test_a_link_that_an_index_cannot_follow_is_named() -> None:
    page = "[a](pages/a.md) ![b](docs/b.png) [c](https://example.org/c) [d](#here) [e](mailto:x@example.org)"

    assert relative_links(page) == ["pages/a.md", "docs/b.png"]


@pytest.mark.parametrize(
    ("changelog", "section"),
    [
        ("# Changelog\n\n## 1.0.0\n\n- a\n\n### b\n- c\n\n## 0.9\n- d\n", "- a\n\n### b\n- c\n"),
        ("## 1.0.0 (2026-12-01)\n- a", "- a\n"),
        ("## 1.0.0\n\n## 0.9\n- d\n", "\n"),
        ("## 1.0.0rc1\n- a\n", ""),
        ("1.0.0\n", ""),
    ],
)
def test_the_section_of_a_version_becomes_the_notes_of_its_release(changelog: str, section: str) -> None:
    assert section_of(changelog, "1.0.0") == section


def test_a_wheel_shows_its_page_and_its_packages(tmp_path: Path) -> None:
    wheel = tmp_path / "x-1-py3-none-any.whl"
    with ZipFile(wheel, "w") as archive:
        archive.writestr("mailmend/__init__.py", "")
        archive.writestr("stranger.py", "")
        archive.writestr("x-1.data/data/share/man/man1/x.1", "")
        archive.writestr("x-1.dist-info/METADATA", "Name: x\nVersion: 1\n\n# A page\n")

    assert page_in(wheel) == "# A page\n"
    assert packages_in(wheel) == {"mailmend", "stranger.py"}
    assert man_pages_in(wheel) == {"x.1"}
    assert list(digests_of(tmp_path)) == [wheel.name]

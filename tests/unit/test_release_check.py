"""What the check of a release refuses."""

from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.release_check import digests_of, has_section, man_pages_in, packages_in, page_in, relative_links


def test_a_link_that_an_index_cannot_follow_is_named() -> None:
    page = "[a](pages/a.md) ![b](docs/b.png) [c](https://example.org/c) [d](#here) [e](mailto:x@example.org)"

    assert relative_links(page) == ["pages/a.md", "docs/b.png"]


@pytest.mark.parametrize(
    ("changelog", "is_there"),
    [
        ("# Changelog\n\n## 1.0.0\n", True),
        ("## 1.0.0 (2026-12-01)\n", True),
        ("## 1.0.0rc1\n", False),
        ("1.0.0\n", False),
    ],
)
def test_a_version_has_a_section_of_its_own(changelog: str, is_there: bool) -> None:
    assert has_section(changelog, "1.0.0") == is_there


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

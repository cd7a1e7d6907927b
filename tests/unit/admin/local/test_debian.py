"""Debian's packages without Debian's root: where they come from, and a world of apt's own."""

from pathlib import Path

import pytest

from mailmend.admin.local.rabbitmq import KEYRING, URI_VARIABLE, apt_conf, debian_uri, first_error, source_line

FIELDS = """# comment
Types: deb
# http://snapshot.debian.org/archive/debian/20250520T000000Z
URIs: {uri}
Suites: bookworm
"""


def _sources(folder: Path, files: dict[str, str]) -> Path:
    (folder / "sources.list.d").mkdir()
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        ("deb http://mirror.example/debian bookworm main\n", "http://mirror.example/debian"),
        ("deb [signed-by=/k.gpg arch=amd64] https://m.example/debian/ sid main\n", "https://m.example/debian"),
        ("# deb http://old.example/debian etch main\ndeb http://m.example/debian sid main", "http://m.example/debian"),
        ("deb-src http://s.example/debian sid main\n", "http://deb.debian.org/debian"),
        ("deb http://archive.ubuntu.com/ubuntu noble main\n", "http://deb.debian.org/debian"),
        ("deb http://security.debian.org/debian-security sid main\n", "http://deb.debian.org/debian"),
        ("", "http://deb.debian.org/debian"),
    ],
    ids=["line", "options", "comment", "sources-only", "another-system", "security-only", "empty"],
)
def test_the_mirror_of_this_machine_is_used(text: str, uri: str, tmp_path: Path) -> None:
    assert debian_uri({}, _sources(tmp_path, {"sources.list": text})) == uri


def test_sources_of_fields_are_read_too(tmp_path: Path) -> None:
    files = {
        "sources.list.d/a.list": "deb https://packages.example/apt cloud main\n",
        "sources.list.d/b.sources": FIELDS.format(uri="https://m.example/debian"),
    }
    folder = _sources(tmp_path, files)
    assert debian_uri({}, folder) == "https://m.example/debian"


def test_the_environment_outweighs_the_machine(tmp_path: Path) -> None:
    folder = _sources(tmp_path, {"sources.list": "deb http://m.example/debian sid main\n"})
    assert debian_uri({URI_VARIABLE: "http://near.example/d"}, folder) == "http://near.example/d"


def test_a_machine_without_apt_has_the_usual_mirror(tmp_path: Path) -> None:
    assert debian_uri({}, tmp_path / "none") == "http://deb.debian.org/debian"


def test_what_is_fetched_is_signed_by_debian() -> None:
    line = source_line("http://m.example/debian")
    assert line == f"deb [signed-by={KEYRING}] http://m.example/debian trixie main\n"
    assert "trusted" not in line + apt_conf(Path("/w")).lower()


def test_apt_stays_in_its_folder() -> None:
    settings = dict(line.rstrip(";").split(" ", 1) for line in apt_conf(Path("/w x")).splitlines() if line[0] != "#")
    places = [name for name in settings if name.startswith("Dir::")]
    assert {"Dir::Etc::SourceList", "Dir::State::Lists", "Dir::State::status", "Dir::Cache"} <= set(places)
    for name in places:
        assert settings[name].startswith('"/w x') or settings[name] == '"/dev/null"'


def test_nothing_of_the_machine_is_run_after_an_update() -> None:
    """Hooks that clean the machine's own cache need rights that we do not have, and would touch what is not ours."""
    assert "#clear APT::Update::Post-Invoke;" in apt_conf(Path("/w"))


@pytest.mark.parametrize(
    ("printed", "error"),
    [
        ("W: odd\nE: Failed to fetch it: refused\nE: Some index files failed", "Failed to fetch it: refused"),
        ("W: odd\n", ""),
        ("", ""),
    ],
)
def test_the_first_error_is_the_reason(printed: str, error: str) -> None:
    assert first_error(printed) == error

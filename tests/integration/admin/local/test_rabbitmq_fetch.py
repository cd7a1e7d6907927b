"""Fetching RabbitMQ, played: a few lines of shell stand in for apt-get and its family, so that it takes no time."""

import io
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from mailmend.admin.frame.terminal import PlainLines
from mailmend.admin.local import rabbitmq
from mailmend.admin.local.rabbitmq import SUITE, find_or_fetch, installation_in
from mailmend.admin.local.server import Machine
from mailmend.model.errors import LocalServerError
from mailmend.repair.clock import SystemClock

NOWHERE = Path("/nowhere")
MIRROR = "http://mirror.example/debian"
# What each of them was asked goes into a file; `fails` beside it makes the next download fail as apt-get fails.
_APT_GET = """#!/bin/sh
echo "apt-get $*" >> {folder}/calls
echo "$APT_CONFIG" > {folder}/config
case "$*" in
*download*)
  if [ -e {folder}/fails ]; then echo "W: odd" >&2; echo "E: Failed to fetch it" >&2; exit 100; fi
  shift 2; for name in "$@"; do : > "$name.deb"; done ;;
esac
"""
_APT_CACHE = """#!/bin/sh
case "$*" in
*--recurse*) printf 'rabbitmq-server\\n  Depends: adduser\\n  Depends: erlang-base\\nadduser\\nerlang-base\\n'
             printf '  Depends: {ssl}\\nerlang-crypto\\nerlang-base\\n<erlang-abi-17.0>\\n' ;;
*) printf 'erlang-crypto\\n  Depends: erlang-base\\n  Depends: {ssl}\\n    {ssl}:i386\\n' ;;
esac
"""
_DPKG_DEB = """#!/bin/sh
case "$2" in
*rabbitmq-server.deb)
  mkdir -p "$3/usr/lib/rabbitmq/bin" "$3/usr/lib/rabbitmq/lib/rabbitmq_server-4.0.9/plugins"
  : > "$3/usr/lib/rabbitmq/bin/rabbitmq-server" ;;
*erlang-base.deb)
  mkdir -p "$3/usr/lib/erlang/bin"; echo 'ROOTDIR=/usr/lib/erlang' > "$3/usr/lib/erlang/bin/erl" ;;
esac
"""


@dataclass(frozen=True, slots=True)
class Played:
    """A machine whose apt-get is played, and what was asked of it."""

    folder: Path
    machine: Machine
    said: io.StringIO

    @property
    def own(self) -> Path:
        return self.machine.cache / "rabbitmq" / SUITE

    def calls(self, word: str) -> list[list[str]]:
        lines = (self.folder / "calls").read_text(encoding="utf-8").splitlines()
        return [line.split() for line in lines if word in line.split()]

    def fetch(self) -> Path:
        return find_or_fetch(self.machine, NOWHERE)


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Played:
    keys = tmp_path / "keys.gpg"
    keys.touch()
    monkeypatch.setattr(rabbitmq, "KEYRING", keys)
    scripts = {"apt-get": _APT_GET, "apt-cache": _APT_CACHE, "dpkg-deb": _DPKG_DEB, "patchelf": "#!/bin/sh\n"}
    for name, text in scripts.items():
        program = tmp_path / name
        program.write_text(text.replace("{folder}", str(tmp_path)).replace("{ssl}", "libssl3t64"), encoding="utf-8")
        program.chmod(0o755)
    said = io.StringIO()
    environment = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", rabbitmq.URI_VARIABLE: MIRROR}
    return Played(tmp_path, Machine(environment, tmp_path / "cache", PlainLines(said, SystemClock())), said)


def test_what_is_fetched_is_whole_and_nothing_besides(played: Played) -> None:
    # Given what a killed fetch has left
    leftover = played.own.with_suffix(".new") / "root" / "leftover"
    leftover.parent.mkdir(parents=True)
    leftover.touch()
    # When the parts are fetched
    root = played.fetch()
    # Then they are all there, made for where they are, and nothing else is
    found = installation_in(root)
    assert found is not None
    assert (root / "usr/lib/erlang/bin/erl").read_text(encoding="ascii") == f"ROOTDIR={root}/usr/lib/erlang\n"
    assert sorted(path.name for path in played.own.iterdir()) == ["root", "whole.json"]
    assert sorted(path.name for path in played.own.parent.iterdir()) == [SUITE, f"{SUITE}.lock"]
    assert not list(root.rglob("leftover"))


def test_erlang_is_fetched_as_far_as_rabbitmq_needs_it(played: Played) -> None:
    """With the C library that it was made for, and the library of secrets by the name that it has there."""
    played.fetch()
    (asked,) = played.calls("download")
    assert asked.count("erlang-base") == 1
    assert {"rabbitmq-server", "erlang-crypto", "libssl3t64", "libc6", "libstdc++6"} <= set(asked)
    assert not {"adduser", "<erlang-abi-17.0>"} & set(asked)


def test_apt_knows_of_its_own_world_only(played: Played) -> None:
    played.fetch()
    config = Path((played.folder / "config").read_text(encoding="utf-8").strip())
    assert config.is_relative_to(played.own.with_suffix(".new"))


def test_a_waiting_person_sees_progress(played: Played) -> None:
    played.fetch()
    (line,) = played.said.getvalue().splitlines()
    assert "fetching RabbitMQ and Erlang" in line
    assert "once" in line


def test_the_second_time_nothing_is_asked(played: Played) -> None:
    played.fetch()
    output = played.said.getvalue()
    played.fetch()
    assert len(played.calls("update")) == 1
    assert played.said.getvalue() == output


def test_of_two_at_once_one_fetches_and_one_waits(played: Played) -> None:
    with ThreadPoolExecutor(4) as pool:
        roots = set(pool.map(lambda _: played.fetch(), range(4)))
    assert len(roots) == 1
    assert len(played.calls("update")) == 1


def test_a_download_that_fails_is_reported_and_tried_anew(played: Played) -> None:
    # Given a mirror that lets us down
    (played.folder / "fails").touch()
    # When the parts are fetched
    with pytest.raises(LocalServerError, match=r"could not be fetched .*: Failed to fetch it") as caught:
        played.fetch()
    # Then the mirror is named, and nothing that looks whole is there
    assert MIRROR in str(caught.value)
    assert not played.own.exists()
    # And when it answers again, nobody has to clean up first
    (played.folder / "fails").unlink()
    assert installation_in(played.fetch()) is not None


def test_what_was_moved_is_made_anew_where_it_is(played: Played) -> None:
    # Given parts that somebody has moved with their cache
    played.fetch()
    stamp = played.own / "whole.json"
    stamp.write_text(json.dumps({**json.loads(stamp.read_text(encoding="utf-8")), "folder": "/before"}), "utf-8")
    (played.own / "root" / "old").touch()
    # When they are needed
    root = played.fetch()
    # Then they were fetched again, and nothing of the old ones is left
    assert len(played.calls("update")) == 2
    assert not (root / "old").exists()


def test_a_debian_without_its_library_of_secrets_is_reported(played: Played) -> None:
    program = played.folder / "apt-cache"
    program.write_text(program.read_text(encoding="utf-8").replace("libssl3t64", "libssl9"), encoding="utf-8")
    with pytest.raises(LocalServerError, match="erlang-crypto of Debian trixie depends on nothing like libssl3"):
        played.fetch()


def test_a_machine_without_debians_keys_reads_how_to_have_them(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rabbitmq, "KEYRING", NOWHERE)
    with pytest.raises(LocalServerError, match="cannot be verified") as caught:
        played.fetch()
    assert "debian-archive-keyring" in str(caught.value)
    assert not (played.folder / "calls").exists()


def test_a_machine_with_half_of_apt_reads_what_is_missing(played: Played) -> None:
    programs = played.folder / "programs"
    programs.mkdir()
    for name in ("apt-get", "apt-cache", "patchelf"):
        shutil.copy(played.folder / name, programs / name)
    machine = Machine({"PATH": str(programs)}, played.machine.cache)
    with pytest.raises(LocalServerError, match="dpkg-deb is not on this machine"):
        find_or_fetch(machine, NOWHERE)

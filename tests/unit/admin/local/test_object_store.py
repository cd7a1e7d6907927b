"""S3Proxy's configuration and keys: on no command line, for its owner alone, the same after every start."""

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.admin.local.s3proxy import HEAP_MIB, S3PROXY, Keys, ObjectStore, conf_of, keys_file, keys_of
from mailmend.admin.local.server import Site
from mailmend.model.errors import LocalServerError

STORE = ObjectStore()
KEYS = Keys("access-of-a-test", "secret-of-a-test")
JAR = Path("/cache/s3proxy.jar")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path, {"s3": 9123})


@pytest.fixture
def java_home(tmp_path: Path) -> Path:
    program = tmp_path / "jdk" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho 'openjdk version \"17.0.15\"' >&2\n", encoding="utf-8")
    program.chmod(0o755)
    return tmp_path / "jdk"


def properties(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines())


def test_it_listens_on_this_machine_alone_and_asks_for_keys(site: Site) -> None:
    found = properties(conf_of(site, KEYS))
    assert found["s3proxy.endpoint"] == "http://127.0.0.1:9123"
    assert found["s3proxy.authorization"] == "aws-v2-or-v4"
    assert (found["s3proxy.identity"], found["s3proxy.credential"]) == (KEYS.access_key, KEYS.secret_key)
    assert found["jclouds.filesystem.basedir"] == str(site.folder / "data")


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20))
def test_any_folder_is_written_as_java_reads_it(name: str) -> None:
    """In ASCII, a backslash twice: Java would take it for the beginning of something."""
    text = conf_of(Site(Path("/srv") / name.replace("/", "_"), {"s3": 1}), KEYS)
    assert text.isascii()
    value = properties(text)["jclouds.filesystem.basedir"]
    assert value.encode("ascii").decode("unicode_escape").encode("utf-16", "surrogatepass").decode("utf-16") == str(
        Path("/srv") / name.replace("/", "_") / "data"
    )


def test_keys_are_drawn_once_and_for_their_owner_alone(site: Site) -> None:
    STORE.write_files(JAR, site)
    drawn = keys_of(site)
    STORE.write_files(JAR, site)
    assert keys_of(site) == drawn
    assert len(drawn.secret_key) >= 40
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in site.folder.iterdir() if path.is_file()}
    assert modes == {"credentials": 0o600, "s3proxy.conf": 0o600}
    other = Site(site.folder / "other", site.ports)
    other.folder.mkdir()
    STORE.write_files(JAR, other)
    assert keys_of(other) != drawn


def test_keys_are_in_the_form_that_tools_read(site: Site) -> None:
    """`AWS_SHARED_CREDENTIALS_FILE` may name the file; so it does in what `status` shows."""
    STORE.write_files(JAR, site)
    keys = keys_of(site)
    assert keys_file(site).read_text(encoding="ascii") == (
        f"[default]\naws_access_key_id = {keys.access_key}\naws_secret_access_key = {keys.secret_key}\n"
    )
    assert STORE.contacts(site) == {"s3": "http://127.0.0.1:9123", "keys": str(keys_file(site))}


def test_no_key_is_shown(site: Site, java_home: Path) -> None:
    """Neither on the command line, nor among what people see, nor by the value itself."""
    STORE.write_files(JAR, site)
    keys = keys_of(site)
    [launch] = STORE.launches(JAR, site, {"JAVA_HOME": str(java_home), "PATH": ""})
    shown = f"{launch} {STORE.contacts(site)} {keys!r} {keys}"
    assert keys.access_key not in shown
    assert keys.secret_key not in shown


def test_it_is_one_java_of_little_memory(site: Site, java_home: Path) -> None:
    [launch] = STORE.launches(JAR, site, {"JAVA_HOME": str(java_home), "PATH": ""})
    assert launch.command[0] == str(java_home / "bin" / "java")
    assert f"-Xmx{HEAP_MIB}m" in launch.command
    assert launch.command[launch.command.index("-jar") + 1] == str(JAR)
    assert launch.mark == str(site.folder / "s3proxy.conf")
    assert launch.mark in launch.command


def test_nothing_of_the_environment_reaches_it(site: Site, java_home: Path) -> None:
    others = {"JAVA_TOOL_OPTIONS": "-Xmx9g", "AWS_SECRET_ACCESS_KEY": "x", "LANG": "C", "HOME": "/root"}
    [launch] = STORE.launches(JAR, site, {"JAVA_HOME": str(java_home), "PATH": "/p", **others})
    assert launch.environment["PATH"] == "/p"
    assert launch.environment["HOME"] == str(site.folder)
    assert not set(others.values()) & set(launch.environment.values())


@pytest.mark.parametrize(
    "text", [None, "", "nothing", "[default]\n", "[default]\naws_access_key_id = x\n", "[other]\na = b\n"]
)
def test_keys_that_cannot_be_read_are_reported_without_them(site: Site, text: str | None) -> None:
    if text is not None:
        keys_file(site).write_text(text, encoding="ascii")
    with pytest.raises(LocalServerError, match="cannot be read") as caught:
        keys_of(site)
    assert "mailmend local clean" in caught.value.mend
    assert caught.value.__cause__ is None


def test_nothing_that_listens_is_no_answer(site: Site) -> None:
    assert not STORE.answers(Site(site.folder, {"s3": 1}))


def test_its_title_is_that_of_its_jar() -> None:
    assert STORE.title == S3PROXY.name
    assert STORE.name == "s3"
    assert list(STORE.ports) == ["s3"]

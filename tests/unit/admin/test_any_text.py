"""Whatever stands in a file or on the command line: an exit code that scripts know, and a sentence; no traceback."""

import string
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.commands import CommandLine, Ended, command_line
from tests.support.migrating import HEAD, SHOP
from tests.support.migration_cluster import MigrationCluster, migration_cluster
from tests.support.thorough import few_or

NAMES = list(SHOP)
MARKS = "();,.{}<>[]'\"$=+-*/:?%\\ \n\t\x00é\u2028😀"
WORDS = [
    *MARKS,
    "--",
    "/*",
    "*/",
    "$$",
    "IF",
    "NOT",
    "EXISTS",
    "frozen<",
    "DROP",
    "ALTER",
    "WITH",
    "AND",
    "0x",
    "1e",
    "-- lint: ignore T1",
]
NEW = ("--replication-factor", "1")

quick = settings(
    max_examples=few_or(60, 20), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def cluster() -> Iterator[MigrationCluster]:
    """An empty cluster, the same for every example: nothing of what is asked here changes it."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield migration_cluster(monkeypatch)


@pytest.fixture
def mailmend(tmp_path: Path) -> CommandLine:
    """A shell for the shop."""
    return command_line(tmp_path, None, MAILMEND_HOST="10.0.0.1", MAILMEND_KEYSPACE="shop")


@st.composite
def spoilt(draw: st.DrawFn) -> str:
    """A migration of the shop in which a piece was replaced by another."""
    text = HEAD + draw(st.sampled_from(list(SHOP.values())))
    start = draw(st.integers(0, len(text)))
    end = draw(st.integers(start, min(len(text), start + 12)))
    return text[:start] + "".join(draw(st.lists(st.sampled_from(WORDS), max_size=4))) + text[end:]


def in_words(ended: Ended, *codes: int) -> None:
    """It ended with one of these codes; where it was refused, by one message on stderr and nothing on stdout."""
    assert ended.code in codes, ended
    assert "Traceback" not in ended.err
    assert "should not happen" not in ended.err, ended.err
    assert ended.code != 2 or (ended.out == "" and ended.err.strip()), ended


@quick
@given(st.lists(spoilt(), min_size=1, max_size=3))
def test_a_folder_of_any_text_is_planned_or_refused(
    cluster: MigrationCluster, mailmend: CommandLine, tmp_path: Path, texts: list[str]
) -> None:
    """By plan, dry run and verify alike; whatever an apply would refuse is refused while nothing is changed."""
    folder = tmp_path / "db"
    folder.mkdir(exist_ok=True)
    for file in folder.iterdir():
        file.unlink()
    for name, text in zip(NAMES, texts, strict=False):
        (folder / name).write_text(text, encoding="utf-8", newline="")
    planned = mailmend("schema", "plan", "--migrations", str(folder), *NEW)
    dry = mailmend("schema", "apply", "--migrations", str(folder), *NEW, "--dry-run")
    in_words(planned, 1, 2)
    in_words(dry, 0, 2)
    assert (planned.code, dry.code) in {(1, 0), (2, 2)}
    assert planned.out == dry.out
    assert planned.err == dry.err
    assert cluster.untouched


@quick
@given(spoilt())
def test_any_text_is_linted_or_refused(mailmend: CommandLine, tmp_path: Path, text: str) -> None:
    """And what is told of it can be shown, as JSON and SARIF too."""
    file = tmp_path / "a.cql"
    file.write_text(text, encoding="utf-8", newline="")
    reported = {form: mailmend("schema", "lint", str(file), "--format", form) for form in ("human", "json", "sarif")}
    for ended in reported.values():
        in_words(ended, 0, 1, 2)
    assert len({ended.code for ended in reported.values()}) == 1


@quick
@given(st.binary(max_size=60))
def test_any_bytes_are_refused_as_a_migration(
    cluster: MigrationCluster, mailmend: CommandLine, tmp_path: Path, held: bytes
) -> None:
    """Nobody's editor writes one by chance: the head is missing, at least."""
    folder = tmp_path / "db"
    folder.mkdir(exist_ok=True)
    (folder / NAMES[0]).write_bytes(held)
    ended = mailmend("schema", "plan", "--migrations", str(folder), *NEW)
    in_words(ended, 2)
    assert NAMES[0] in ended.err


@quick
@given(st.text(string.printable + "é😀", max_size=12), st.sampled_from(["--keyspace", "--ledger-keyspace"]))
def test_a_keyspace_of_any_name_is_refused_or_not_there(
    cluster: MigrationCluster, mailmend: CommandLine, name: str, option: str
) -> None:
    """Never a part of a statement: it is checked before it is sent."""
    ended = mailmend("schema", "verify", f"{option}={name}")
    in_words(ended, 2)
    assert cluster.untouched


@quick
@given(st.text("0123456789abcXYZ=:,. -'", max_size=14))
def test_a_replication_of_any_text_is_taken_or_refused(
    cluster: MigrationCluster, mailmend: CommandLine, text: str
) -> None:
    """What is taken stands in the statement, quoted."""
    ended = mailmend("schema", "plan", "--to", "1", f"--replication={text}", "--json")
    in_words(ended, 1, 2)
    if ended.code == 1:
        assert ended.json["create_keyspace"].count("'") % 2 == 0
    assert cluster.untouched

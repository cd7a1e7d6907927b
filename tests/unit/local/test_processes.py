"""Which process is ours: a number alone proves nothing."""

import pytest

from admin.local.processes import ProcessId, Seen, is_ours, parse_ps, parse_stat

MARK = "file:///srv/local/node1/conf/cassandra.yaml"
OURS = ProcessId(4711, "178432")
COMMAND = f"java -Dcassandra.config={MARK} org.apache.cassandra.service.CassandraDaemon"


def _stat(state: str = "S", threads: int = 60, name: str = "java") -> str:
    return f"4711 ({name}) {state} 1 4711 4711 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 {threads} 0 178432 4400 900"


def test_the_process_that_was_written_down_is_ours() -> None:
    """Same number, same start, our mark in its command."""
    assert is_ours(OURS, Seen(OURS, COMMAND), MARK)


@pytest.mark.parametrize(
    "seen",
    [
        None,
        Seen(ProcessId(4711, "999999"), COMMAND),
        Seen(OURS, "vim notes.txt"),
        Seen(OURS, COMMAND.replace("node1", "node2")),
        Seen(OURS, COMMAND, zombie=True),
        Seen(OURS, ""),
    ],
    ids=["gone", "number-reused", "another-program", "another-node", "zombie", "no-command"],
)
def test_anything_else_is_not(seen: Seen | None) -> None:
    """It is neither counted as running nor ever sent a signal."""
    assert not is_ours(OURS, seen, MARK)


def test_proc_tells_number_start_and_command() -> None:
    """The start is counted in ticks since the machine came up."""
    assert parse_stat(4711, _stat(), COMMAND) == Seen(OURS, COMMAND)


@pytest.mark.parametrize("name", ["my (odd) name", "a b c", ")", "x) S 1 2 3"])
def test_a_name_with_blanks_and_parentheses_confuses_nobody(name: str) -> None:
    """A program may call itself anything."""
    assert parse_stat(4711, _stat(name=name), COMMAND).id == OURS


@pytest.mark.parametrize(
    ("state", "threads", "ended"),
    [("S", 60, False), ("R", 1, False), ("Z", 0, True), ("Z", 1, True), ("X", 0, True), ("Z", 9, False)],
)
def test_a_process_has_ended_when_its_last_thread_has(state: str, threads: int, ended: bool) -> None:
    """While other threads end, the first one looks like a zombie, but the ports are still taken."""
    assert parse_stat(4711, _stat(state, threads), COMMAND).zombie is ended


def test_ps_tells_the_same_where_there_is_no_proc() -> None:
    """On macOS the start is a date."""
    seen = parse_ps(4711, f"Mon Nov 20 18:53:13 2026 S    {COMMAND}\n")
    assert seen == Seen(ProcessId(4711, "Mon Nov 20 18:53:13 2026"), COMMAND)


@pytest.mark.parametrize("line", ["", "\n", "Mon Nov 20"])
def test_ps_that_says_nothing_means_no_process(line: str) -> None:
    """The number is free."""
    assert parse_ps(4711, line) is None


def test_ps_shows_zombies_too() -> None:
    """They hold a number and nothing else."""
    seen = parse_ps(4711, "Mon Nov 20 18:53:13 2026 Z+ (java)")
    assert seen is not None
    assert seen.zombie

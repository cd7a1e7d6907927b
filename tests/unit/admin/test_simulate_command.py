"""`mailmend policy simulate` as a person types it, on a ledger in memory."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from mailmend.cql.applying import ensure_ledger
from mailmend.delivery.policy.replaying import RecordedAttempt
from tests.support.attempts import DAY, attempt, rows_of
from tests.support.commands import Ended
from tests.support.queue_commands import QueueShell, queue_shell

PLANNED = """\
policies:
  - fields: [localip, remotemx]
    conditions:
      - if: {remotemx: '*.slow.example'}
        then: {concurrency: 1}
    default: {rate: 10/1}
suspends:
  - {recipientdomain: bad.example}
"""
PRESENT = "- default: {concurrency: 100}\n"
SOURCES = ("192.0.2.1",)


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> QueueShell:
    shell = queue_shell(monkeypatch, tmp_path)
    (tmp_path / "planned.yaml").write_text(PLANNED)
    (tmp_path / "now.yaml").write_text(PRESENT)
    return shell


def recorded(shell: QueueShell, attempts: Sequence[RecordedAttempt]) -> None:
    ensure_ledger(shell.cluster, "mailmend", "mail")
    shell.cluster.keyspace("mailmend").write_all(rows_of(attempts))


def some_attempts() -> list[RecordedAttempt]:
    """Four to a slow server, two of which nobody knows the end; three to another one, one of them of a bad domain."""
    slow = [
        attempt(
            f"s{number}", number, lasted=lasted, sources=SOURCES, remotemx="mx.slow.example", recipientdomain="a.org"
        )
        for number, lasted in enumerate((60_000, 60_000, None, None))
    ]
    domains = ("b.org", "bad.example", "b.org")
    fast = [
        attempt(
            str(number), 0, lasted=1_000, sources=SOURCES, remotemx="mx.example", recipientdomain=domain, tenantid="t"
        )
        for number, domain in enumerate(domains)
    ]
    return [*slow, *fast]


def typed(shell: QueueShell, *options: str, file: str = "planned.yaml") -> Ended:
    return shell.line("policy", "simulate", str(shell.line.home / file), "spool", "--engine", "local", *options)


class TestSimulate:
    """What a person and a script are told."""

    def test_a_person_sees_drain_time_limits_with_their_places_and_whose_mails_wait(self, shell: QueueShell) -> None:
        """Beside what was recorded, and beside the present file."""
        recorded(shell, some_attempts())
        ended = typed(shell, "--against", str(shell.line.home / "now.yaml"))
        assert ended.code == 0, ended.err
        lines = [" ".join(line.split()) for line in ended.out.splitlines()]
        assert lines[0] == "spool: 7 attempts, 2026-05-01 08:00:00 to 2026-05-01 08:01:00 (UTC)."
        assert "drain time 1 min 2 min 1 min" in lines
        assert "longest wait 0 s 2 min 0 s" in lines
        assert "later than recorded 5 0" in lines
        assert "never begin 1 0" in lines
        assert "8:5 mails that it names suspended 1 1" in lines
        (limit,) = (line for line in lines if line.startswith("5:16 1 localip 192.0.2.1, remotemx"))
        assert limit.endswith("concurrency 1 3 0 2 min 1")
        assert "recipientdomain a.org 4 3 0 1.7 min 2 min" in lines
        assert "192.0.2.1 6 100.0 %" in lines

    def test_a_person_hears_what_is_assumed(self, shell: QueueShell) -> None:
        recorded(shell, some_attempts())
        err = typed(shell).err
        assert "lasts as long as it did" in err
        assert "Of 2 attempts no end is known: they are taken to last 1.0 s, the median." in err

    def test_a_script_gets_the_same(self, shell: QueueShell) -> None:
        recorded(shell, some_attempts())
        found = typed(shell, "--json", "--top", "1", "--since", "2026-05-01T08:00:00Z", "--concurrency", "5").json
        assert {
            name: found[name] for name in ("queue", "engine", "attempts", "without_end", "median_seconds", "exit")
        } == {
            "queue": "spool",
            "engine": "local",
            "attempts": 7,
            "without_end": 2,
            "median_seconds": 1.0,
            "exit": 0,
        }
        assert (found["since"], found["until"], found["against"]) == ("2026-05-01T08:00:00.000Z", None, None)
        assert found["recorded"]["first_ready_at"] == "2026-05-01T08:00:00.000Z"
        assert found["recorded"]["wait_seconds"] == {"p50": 0.0, "p95": 0.0, "p99": 0.0, "max": 0.0}
        simulated = found["simulated"]
        assert (simulated["begun"], simulated["drain_seconds"]) == (6, 122.0)
        assert simulated["delayed"]["never"] == 1
        all_together, first = simulated["policies"]
        assert (all_together["place"], all_together["most_at_once"]) == (None, 3)
        assert (first["place"], first["refusals"]) == ({"line": 2, "column": 5}, {"concurrency": 3, "rate": 1})
        suspension, limit = simulated["limits"]
        assert (suspension["suspension"], suspension["policy"], suspension["never"]) == (1, None, 1)
        assert suspension["place"] == {"line": 8, "column": 5}
        assert limit == {
            "place": {"line": 5, "column": 16},
            "policy": 1,
            "suspension": None,
            "key": {"localip": "192.0.2.1", "remotemx": "mx.slow.example"},
            "concurrency": 1,
            "rate": None,
            "connect_interval_seconds": None,
            "refused_by": "concurrency",
            "refusals": 3,
            "held": 3,
            "never": 0,
            "refused_seconds": 120.999,
            "most_at_once": 1,
        }
        assert simulated["sources"] == {"192.0.2.1": 6}

    def test_a_stretch_of_time_is_named_by_instants_or_by_how_long_ago(self, shell: QueueShell) -> None:
        recorded(shell, [attempt(str(hours), hours * 3_600_000) for hours in range(4)])
        shell.clock.advance((DAY - shell.now).total_seconds() + 4 * 3_600)
        options = {"--since": ("2h", 2), "--until": ("2026-05-01T10:00", 2)}
        for option, (value, count) in options.items():
            assert typed(shell, option, value, "--json").json["attempts"] == count
        assert typed(shell, "--since", "3h", "--until", "2h", "--json").json["attempts"] == 1

    def test_nothing_on_record_is_no_error(self, shell: QueueShell) -> None:
        """Neither where the ledger has no table of attempts: reading makes none."""
        ended = typed(shell)
        assert (ended.code, ended.out) == (0, "No attempts are recorded of spool in that time.\n")
        assert "mailmend" not in shell.cluster.keyspaces
        recorded(shell, some_attempts())
        assert typed(shell, "--since", "2026-06-01", "--json").json["simulated"] is None

    def test_what_cannot_be_simulated_is_refused(self, shell: QueueShell) -> None:
        """A file that the server would refuse, a time that is none, a record without any end, no queue."""
        (shell.line.home / "wrong.yaml").write_text("- fields: [domain]\n")
        recorded(shell, [attempt("a", lasted=None)])
        for options, said in (
            (("--against", str(shell.line.home / "wrong.yaml")), "line 1, column 12: 'domain' is no field"),
            (("--since", "yesterday"), "'yesterday' is neither a time nor a duration"),
            (("--since", "1h", "--until", "2h"), "--since is not before --until"),
            ((), "none of 1 attempts has an end"),
        ):
            ended = typed(shell, *options)
            assert (ended.code, ended.out) == (2, "")
            assert said in ended.err
        ended = shell.line("policy", "simulate", str(shell.line.home / "now.yaml"))
        assert (ended.code, "it is not said whose attempts" in ended.err) == (2, True)

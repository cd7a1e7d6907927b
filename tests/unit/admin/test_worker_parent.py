"""The parent of the processes of `delivery serve --processes N`: what forks inherit, and its exit code."""

import threading
import uuid
from pathlib import Path

import pytest

from mailmend.admin.frame.workers import Workers
from mailmend.admin.local.processes import free_port
from mailmend.repair.clock import SystemClock
from tests.support.queue_commands import queue_shell

HOST = "127.0.0.1"
POLICIES = """
policies:
  - fields: [recipientdomain]
    default: {concurrency: 2}
"""


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> list[uuid.UUID]:
    """The time UUIDs that were made."""
    made = list[uuid.UUID]()

    def uuid1() -> uuid.UUID:
        made.append(uuid.UUID(int=1))
        return made[-1]

    monkeypatch.setattr(uuid, "uuid1", uuid1)
    return made


@pytest.mark.parametrize("code", [0, 4, 137])
def test_the_parent_has_no_thread_and_no_time_uuid_and_ends_with_the_exit_code_of_its_workers(
    times: list[uuid.UUID], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Two processes would go on with its sequence of time UUIDs; threads are not in a fork."""
    policies = tmp_path / "policies.yaml"
    policies.write_text(POLICIES)
    threads = threading.active_count()
    seen = list[tuple[int, int]]()

    def run(workers: Workers) -> int:
        seen.append((threading.active_count(), len(times)))
        workers.reload()
        seen.append((threading.active_count(), len(times)))
        workers.stopped()
        return code

    monkeypatch.setattr(Workers, "run", run)
    shell = queue_shell(monkeypatch, tmp_path)
    words = ("--processes", "2", "--listen", f"127.0.0.1:{free_port([HOST])}", "--policies", str(policies), "--json")
    ended = shell.line("delivery", "serve", "spool", *words)

    assert seen == [(threads, 0)] * 2, ended.err
    assert (ended.code, ended.json["exit"]) == (code, code)


def test_a_time_uuid_is_seen_by_the_test_above(times: list[uuid.UUID]) -> None:
    SystemClock().new_uuid()
    assert len(times) == 1

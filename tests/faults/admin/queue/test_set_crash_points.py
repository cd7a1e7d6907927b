"""`mailmend delivery set`, killed before each of its steps: a mail has old or new values, and goes once."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from mailmend.mailqueue.codec import attribute
from tests.support.commands import Ended
from tests.support.mortal_commands import Shells, mortal
from tests.support.queue_commands import QueueShell
from tests.support.queue_world import Died, Fortune
from tests.support.queues import all_delivered

HOUR = timedelta(hours=1)
SET = ("set", "spool", "--tenant", "acme", "--set", "transport=bulk", "--set", "recipient=di@example.net")
NAMES = ("a", "b")


@pytest.fixture
def shells(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shells:
    return Shells(monkeypatch, tmp_path)


def filled(queue: QueueShell) -> None:
    """Two mails of a customer, due at different hours."""
    for number, name in enumerate(NAMES):
        fields = {"tenantid": attribute("acme")}
        queue.put_later(name, HOUR * (number + 1), recipients=(f"{name}@example.org",), attributes=fields)


def typed(queue: QueueShell, *words: str) -> Ended:
    ended = queue.line("delivery", *words)
    assert ended.code == 0, ended.err
    return ended


def killed(queue: QueueShell, after: int) -> Ended | None:
    """How the command ended that takes so many steps at most; None where it was killed before the next."""
    with mortal(queue, Fortune().dies_before(after)):
        try:
            return typed(queue, *SET, "--why", "x")
        except Died:
            return None


def values(queue: QueueShell) -> set[tuple[str, str | None]]:
    entries = typed(queue, "list", "spool", "--json").json["entries"]
    return {(entry["recipient"], entry["fields"].get("transportid")) for entry in entries}


def came(queue: QueueShell) -> Sequence[str]:
    assert queue("flush").code == 0
    return sorted(queue.on_queue(all_delivered))


def test_the_same_again_sets_what_a_killed_command_left(shells: Shells) -> None:
    def tell(queue: QueueShell, after: int) -> Ended | None:
        filled(queue)
        ended = killed(queue, after)
        old = {("a@example.org", None), ("b@example.org", None)}
        assert values(queue) <= old | {("di@example.net", "bulk")}
        typed(queue, *SET, "--why", "again")
        assert values(queue) == {("di@example.net", "bulk")}
        assert came(queue) == list(NAMES)
        return ended

    assert shells.each_step(tell) > 4


def test_what_a_killed_command_left_is_delivered_once(shells: Shells) -> None:
    """Although a mail may be there with both values for a while."""

    def tell(queue: QueueShell, after: int) -> Ended | None:
        filled(queue)
        ended = killed(queue, after)
        assert came(queue) == list(NAMES)
        queue.pass_time(hours=9)
        assert queue.delivers_nothing()
        return ended

    assert shells.each_step(tell) > 4

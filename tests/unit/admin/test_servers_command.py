"""`mailmend delivery servers` as a person types it, beside servers that deliver."""

from pathlib import Path

import pytest

from mailmend.admin.delivery import serve as delivery
from tests.support.commands import Ended
from tests.support.queue_commands import QueueShell, queue_shell
from tests.unit.admin.test_delivery_command import HOP, StoppingRelay


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> QueueShell:
    return queue_shell(monkeypatch, tmp_path)


@pytest.fixture
def relay(shell: QueueShell, monkeypatch: pytest.MonkeyPatch) -> StoppingRelay:
    relay = StoppingRelay(shell.clock)
    monkeypatch.setattr(delivery, "relay_of", lambda *_: relay)
    return relay


def servers(shell: QueueShell, *options: str) -> Ended:
    return shell.line("delivery", "servers", "spool", *options)


def test_where_no_server_ever_was_it_is_said_so(shell: QueueShell) -> None:
    """Reading creates no ledger."""
    assert servers(shell).out == "No server has shared limits of spool yet.\n"
    assert servers(shell, "--json").json["servers"] == []
    assert shell.cluster.keyspaces.keys() == {"mail"}


def test_a_server_is_shown_for_a_minute_after_its_end(shell: QueueShell, relay: StoppingRelay) -> None:
    """Who is started with its name then goes on with its part."""
    del relay
    shell.put("one")
    ended = shell.line("delivery", "serve", *HOP, "--server", "mx1")
    assert ended.code == 0, ended.err
    shown = servers(shell, "--json").json
    assert (shown["epoch"], shown["settled"], shown["absent"]) == (1, True, [])
    (one,) = shown["servers"]
    assert (one["name"], one["state"], one["has_share"], " pid " in one["owner"]) == ("mx1", "ended", True, True)
    assert "mx1" in servers(shell).out
    shell.pass_time(minutes=2)
    assert "mx1 is absent" in servers(shell).out
    assert servers(shell, "--json").json["absent"] == ["mx1"]


def test_a_name_that_is_none_is_refused(shell: QueueShell) -> None:
    ended = shell.line("delivery", "serve", *HOP, "--server", "a b")
    assert (ended.code, "'a b' is no name of a server" in ended.err) == (2, True)

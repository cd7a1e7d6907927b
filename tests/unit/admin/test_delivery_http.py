"""`mailmend delivery serve --http` as a person types it."""

import os
import signal
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import httpx2
import pytest

from mailmend.admin.delivery import serve as delivery
from mailmend.admin.local.processes import free_port
from tests.support.certificates import authority
from tests.support.commands import Ended
from tests.support.queue_commands import QueueShell, queue_shell
from tests.support.real_queue import until
from tests.unit.admin.test_delivery_command import HOP, StoppingRelay, served

T = TypeVar("T")

RETRIES = 8  # connection attempts, half a second and then twice as long apart: about a minute


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> QueueShell:
    """With a relay that nothing comes to."""
    shell = queue_shell(monkeypatch, tmp_path)
    monkeypatch.setattr(delivery, "relay_of", lambda *_: StoppingRelay(shell.clock))
    return shell


def served_while(asked: Callable[[], T], shell: QueueShell, *options: str) -> tuple[Ended, T]:
    """How the server ended, and what a client saw of it; SIGTERM stops it when the client has what it asked for.

    The signal waits until the server hears it: before that it would end the tests themselves.
    """
    handler_of_tests = signal.getsignal(signal.SIGTERM)

    def asked_then_stopped() -> T:
        until(lambda: signal.getsignal(signal.SIGTERM) != handler_of_tests)
        try:
            return asked()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    with ThreadPoolExecutor(1) as threads:
        answers = threads.submit(asked_then_stopped)
        ended = served(shell, *options)
    return ended, answers.result()


def test_whoever_asks_over_http_is_answered_while_the_server_works(shell: QueueShell, tmp_path: Path) -> None:
    """Those with a token; each call is on record with its name."""
    port, tokens, secret = free_port(["127.0.0.1"]), tmp_path / "tokens", "r" * 32
    tokens.write_text(f"watcher read {secret}")
    tokens.chmod(0o600)

    def asked() -> list[int]:
        """Whether it is ready, what is in the queue, with and without a token."""
        url = f"http://127.0.0.1:{port}"
        with httpx2.Client(transport=httpx2.HTTPTransport(retries=RETRIES), base_url=url, timeout=60) as client:
            codes = [client.get(path).status_code for path in ("/ready", "/entries")]
            codes.append(client.get("/entries", headers={"Authorization": f"Bearer {secret}"}).status_code)
        return codes

    ended, codes = served_while(asked, shell, *HOP, "--http", f"127.0.0.1:{port}", "--tokens-file", str(tokens))

    assert (ended.code, codes) == (0, [200, 401, 200]), ended.err
    assert "caller=watcher method=GET path=/entries status=200" in ended.err


def test_who_trusts_its_authority_is_answered_over_tls(shell: QueueShell, tmp_path: Path) -> None:
    """Who does not, and who speaks plainly, is not."""
    port, signer = free_port(["127.0.0.1"]), authority(tmp_path, "ours")
    own, trusted = signer.signed("mx1", "IP:127.0.0.1"), ssl.create_default_context(cafile=signer.file)

    def asked() -> list[int | None]:
        """The status of each call; None: there was no answer."""
        with httpx2.Client(transport=httpx2.HTTPTransport(retries=RETRIES, verify=trusted), timeout=60) as client:
            codes: list[int | None] = [client.get(f"https://127.0.0.1:{port}/ready").status_code]
        for url in (f"https://127.0.0.1:{port}/ready", f"http://127.0.0.1:{port}/ready"):
            try:
                codes.append(httpx2.get(url, timeout=60).status_code)
            except httpx2.TransportError:
                codes.append(None)
        return codes

    tls = ("--http-tls-cert", str(own.certificate), "--http-tls-key", str(own.key))
    ended, codes = served_while(asked, shell, *HOP, "--http", f"127.0.0.1:{port}", *tls)

    assert (ended.code, codes) == (0, [200, None, None]), ended.err


def test_an_http_address_that_others_reach_needs_tokens_and_tls(shell: QueueShell) -> None:
    """By the names of these options, before anything is connected to."""
    ended = served(shell, *HOP, "--http", "0.0.0.0:8443")
    assert ended.code == 2
    assert "--http-tls-cert" in ended.err
    assert not shell.asked

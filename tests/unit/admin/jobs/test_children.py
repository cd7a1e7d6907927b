"""Commands of ours in processes of their own."""

import asyncio
import sys
from collections.abc import Awaitable, Callable

import pytest

from mailmend.admin.jobs.children import ChildProcess

Begun = Callable[[str], Awaitable[tuple[ChildProcess, list[str], bytearray]]]


async def begun(code: str, kept: bytearray | None = None) -> tuple[ChildProcess, list[str]]:
    said: list[str] = []
    return await ChildProcess.begin([sys.executable, "-c", code], said.append, kept), said


async def test_a_child_says_what_it_writes_and_how_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAILMEND_TOKENS", "secret")
    code = (
        "import os, sys; print('a\\nb' + 'x' * 200000); print(os.environ.get('MAILMEND_TOKENS'), end=''); sys.exit(3)"
    )

    child, said = await begun(code)

    assert await child.wait() == 3
    assert (said[0], said[1][:2], sum(map(len, said)), said[-1]) == ("a", "bx", 200006, "None")


async def test_a_childs_output_can_be_kept() -> None:
    kept = bytearray()
    child, said = await begun("import sys; print('{}'); print('note', file=sys.stderr)", kept)

    assert (await child.wait(), bytes(kept), said) == (0, b"{}\n", ["note"])


async def test_a_child_is_stopped_as_a_service_manager_does_it() -> None:
    child, said = await begun(
        "import signal, time; signal.signal(15, lambda *_: exit(130)); print('up', flush=True); time.sleep(60)"
    )
    while not said:  # noqa: ASYNC110 - a line comes from another process
        await asyncio.sleep(0.01)

    child.stop()

    assert await child.wait() == 130
    child.kill()

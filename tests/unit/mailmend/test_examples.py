"""What the pages show of the public face runs as it stands there."""

import ast
import asyncio
import re
from datetime import timedelta
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import mailmend
from mailmend.admin.frame.settings import ConnectionSettings
from tests.support.cluster_twin import cluster_in_memory
from tests.support.queues import CONTENT, TwinQueue, mail

_PAGES = {
    "mailmend": re.findall(r"(?:^    .*\n|^\n(?=    ))+", mailmend.__doc__ or "", re.MULTILINE),
    "README.md": re.findall(r"```python\n(.*?)```", Path("README.md").read_text(), re.DOTALL),
}


class _Delivered(Exception):
    """The mail reached its deliverer."""


async def _deliver(_mail: object, content: bytes) -> None:
    raise _Delivered(content)


def _at_once(**_: int) -> timedelta:
    """Nobody else is at work who would publish a delayed mail."""
    return timedelta()


@pytest.mark.parametrize("page", _PAGES)
def test_every_example_runs_as_it_stands(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    twin = TwinQueue()
    sides = {name: getattr(twin, name) for name in ("tables", "broker", "blobs", "clock")}
    rest = {name: getattr(mailmend, name) for name in ("open_queue", "queue_name")}
    cluster_in_memory(monkeypatch, ConnectionSettings().keyspace)
    for example in _PAGES[page]:
        names: dict[str, Any] = {**sides, **rest, "timedelta": _at_once, "mail": mail("one"), "content": CONTENT}
        code = compile(dedent(example), page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        run = eval(code, {**names, "deliver": _deliver})
        if run is not None:
            with pytest.raises(_Delivered, match="Its body"):
                asyncio.run(run)
    assert _PAGES[page]


def test_a_check_of_what_it_does_not_know_is_refused() -> None:
    request = mailmend.CheckRequest(connection=ConnectionSettings(), what="blobs")
    with pytest.raises(mailmend.MailmendError, match="'blobs'"):
        mailmend.check(request, mailmend.Caller())

"""What the pages show of the public face runs as it stands there."""

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

_BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
_GUIDE = Path("docs/how-to/use-from-python.md")
_EXAMPLES = {
    "mailmend": re.findall(r"(?:^    .*\n|^\n(?=    ))+", mailmend.__doc__ or "", re.MULTILINE),
    "README.md": _BLOCK.findall(Path("README.md").read_text()),
    _GUIDE.name: _BLOCK.findall(_GUIDE.read_text()),
}


def run_example(page: str, example: str) -> dict[str, Any]:
    """Run it as a module of its own, with no name but Python's, and return its names."""
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(dedent(example), page, "exec"), names)
    return names


@pytest.mark.parametrize("page", _EXAMPLES)
def test_every_example_runs_as_it_stands(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster_in_memory(monkeypatch, ConnectionSettings().keyspace)

    for example in _EXAMPLES[page]:
        assert run_example(page, example)
    assert _EXAMPLES[page]


def test_the_example_of_a_queue_delivers_what_it_enqueues() -> None:
    twin = TwinQueue()
    (forward,) = (example for example in _EXAMPLES[_GUIDE.name] if "open_queue" in example)

    class DeliveredError(Exception):
        """The mail reached its deliverer; without it the example waits for more mails."""

    async def deliver(_mail: object, content: bytes) -> None:
        raise DeliveredError(content)

    run = run_example(_GUIDE.name, forward)["forward"]
    parts = (twin.tables, twin.broker, twin.blobs, twin.clock)
    with pytest.raises(DeliveredError, match="Its body"):
        asyncio.run(run(*parts, mail("one"), CONTENT, deliver, delay=timedelta()))


def test_a_check_of_what_it_does_not_know_is_refused() -> None:
    request = mailmend.CheckRequest(connection=ConnectionSettings(), what="blobs")
    with pytest.raises(mailmend.MailmendError, match="'blobs'"):
        mailmend.check(request, mailmend.Caller())

"""What the pages show of the public face runs as it stands there."""

import os
import re
from pathlib import Path
from textwrap import dedent

import pytest

import mailmend
from mailmend.admin.frame.settings import ConnectionSettings
from tests.support.cluster_twin import cluster_in_memory

_EXAMPLES = {
    "mailmend": re.findall(r"(?:^    .*\n|^\n(?=    ))+", mailmend.__doc__ or "", re.MULTILINE),
    "README.md": re.findall(r"```python\n(.*?)```", Path("README.md").read_text(), re.DOTALL),
}
"""The scripts of docs/how-to/use-as-a-library.md run against real servers, in tests/integration/mailmend."""


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings but those of the example."""
    for name in list(os.environ):
        if name.startswith(("MAILMEND_", "XDG_")) or name == "CQLSHRC":
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.parametrize("page", _EXAMPLES)
def test_every_example_runs_as_it_stands(
    page: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On an empty keyspace, in which a check finds nothing; with no name but Python's."""
    cluster_in_memory(monkeypatch, ConnectionSettings().keyspace)

    for example in _EXAMPLES[page]:
        exec(compile(dedent(example), page, "exec"), {"__name__": "example"})

    assert _EXAMPLES[page]
    assert capsys.readouterr().out == "{}\n" * len(_EXAMPLES[page])


def test_a_check_of_what_it_does_not_know_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster_in_memory(monkeypatch, ConnectionSettings().keyspace)
    with mailmend.open() as mail, pytest.raises(mailmend.MailmendError, match="'blobs'"):
        mail.check("blobs")

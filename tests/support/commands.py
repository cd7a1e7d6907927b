"""The command line inside the test's own process: what it said, where, and with which exit code it ended."""

import contextlib
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO
from unittest.mock import patch

from click.shell_completion import BashComplete

from mailmend.admin.local.folders import cache_home
from mailmend.admin.main import mailmend, run
from mailmend.cql.driver.contact import Contact
from tests.support.servers import CassandraServer

OURS = "MAILMEND_"
QUICK = ("--engine", "local", "--delay", "0")
"""A scan in this process, and no wait before the second look."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found


Typed = Callable[..., Ended]
"""A command that is typed with these words behind it."""


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A person's shell: an empty home, and environment variables that say where the cluster is."""

    home: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, *arguments: str, **environment: str) -> Ended:
        with io.StringIO() as out:
            ended = self.into(out, *arguments, **environment)
            return replace(ended, out=out.getvalue())

    def into(self, out: TextIO, *arguments: str, **environment: str) -> Ended:
        """Type it with stdout going there."""
        err = io.StringIO()
        with (
            _environment({**self.environment, **environment}, self.home),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            code = run(list(arguments))
        return Ended(code, "", err.getvalue())

    def completed(self, words: str) -> list[str]:
        """What bash is offered behind these words, for the last of them."""
        _, *typed, incomplete = words.split(" ")
        with _environment(self.environment, self.home):
            offered = BashComplete(mailmend, {}, "mailmend", "_").get_completions(typed, incomplete)
        return [one.value for one in offered]


def command_line(home: Path, server: CassandraServer | None = None, **environment: str) -> CommandLine:
    """A shell in that home; where a server is named, with what this user has downloaded: Spark's jars take seconds."""
    where: dict[str, str] = {}
    if server:
        cache = str(cache_home(os.environ, Path.home()))
        where = {"MAILMEND_HOST": server.host, "MAILMEND_PORT": str(server.port), "XDG_CACHE_HOME": cache}
    return CommandLine(home, {**where, **environment})


def contact_of(server: CassandraServer) -> Contact:
    return Contact((server.host,), server.port, server.local_dc)


@contextlib.contextmanager
def _environment(ours: Mapping[str, str], home: Path) -> Iterator[None]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    fresh = {**kept, "HOME": str(home), "XDG_CONFIG_HOME": str(home / "config"), "XDG_DATA_HOME": str(home / "data")}
    with patch.dict(os.environ, {**fresh, **ours}, clear=True):
        yield

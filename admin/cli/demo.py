"""`mailmend demo`: the main job, shown with the commands themselves on a real Cassandra of one's own.

Mail is loaded, broken in every way that production breaks it, found, mended, proved clean, undone and redone. Every
command that is shown is run as a person would type it; only the breaking has no command of its own.
"""

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import click

from admin.breaking import Breaker, Damage, break_one_by_one
from admin.local import ClusterRequest, LocalCluster, local_cluster
from admin.local.layout import default_layout
from admin.local.ports import free_port
from admin.present.presenter import rows_grid, stderr_console, stdout_console
from admin.progress import progress_on
from admin.settings import ConnectionSettings
from admin.wiring import OpenCluster, open_cluster
from model.errors import MailmendError
from model.operations import Scan, Write
from model.schema.table import Row
from repair.clock import SystemClock

KEYSPACE: Final = "apache_james"
USER: Final = "bob@example.org"
HOST: Final = "127.0.0.1"
MESSAGES_MIN: Final = 60
"""Fewer would leave some kinds of damage without a message to hurt."""

ARCHIVED: Final = 20
"""Mails of a second, smaller mailbox, where nothing is in doubt: a counter is mended only in such a one."""

_FINE_OR_DRIFT: Final = (0, 1)
_QUIET: Final = ("--no-writers", "--delay", "1s")


@dataclass(frozen=True, slots=True)
class Shell:
    """Types commands where a person can see them, against the demo's cluster and nothing else."""

    port: int
    folder: Path

    def type(self, *words: str, expect: Sequence[int] = (0,)) -> None:
        """Show a command, run it, and show its exit code.

        Raises:
            MailmendError: it ended otherwise than the demo tells.
        """
        click.secho(f"\n$ mailmend {shlex.join(words)}", bold=True)
        ended = subprocess.run([*_mailmend(), *words], env=self._environment(), check=False)  # noqa: S603
        if ended.returncode:
            click.secho(f"(exit code {ended.returncode})", dim=True)
        if ended.returncode not in expect:
            raise MailmendError(f"the demo did not go as it should: that ended with {ended.returncode}")

    def ask(self, *words: str) -> Any:
        command = [*_mailmend(), *words, "--json"]
        answer = subprocess.run(command, env=self._environment(), check=True, capture_output=True)  # noqa: S603
        return json.loads(answer.stdout)

    def last_run(self) -> str:
        return str(self.ask("runs", "list")["runs"][0]["run"])

    def _environment(self) -> dict[str, str]:
        """Names the demo's cluster, whatever the user's own settings say."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("MAILMEND_")}
        nothing = self.folder / "config.toml"
        nothing.touch()
        return own | {"MAILMEND_HOST": HOST, "MAILMEND_PORT": str(self.port), "MAILMEND_CONFIG": str(nothing)}


@click.command()
@click.option("--messages", type=click.IntRange(MESSAGES_MIN), default=300, show_default=True, help="How many mails.")
@click.option("--engine", type=click.Choice(["spark", "local"]), default="spark", show_default=True, help="What scans.")
@click.option("--keep", is_flag=True, help="Leave the demo's Cassandra running, to look around.")
def demo(messages: int, engine: str, *, keep: bool) -> None:
    """Write mail into a real Cassandra, break it, find it, mend it, prove it, undo and redo it.

    Everything happens in a Cassandra of its own, which is removed at the end.
    """
    layout = default_layout(os.environ, Path.home(), "demo")
    cluster = local_cluster(layout.root)
    _remove(cluster)
    port = free_port([HOST])
    try:
        _say(1, "A real Cassandra, of its own")
        with progress_on(stderr_console(), SystemClock()) as progress:
            local_cluster(layout.root, progress=progress).up(ClusterRequest(native_port=port))
        with tempfile.TemporaryDirectory(prefix="mailmend-demo-") as folder:
            _play(Shell(port, Path(folder)), messages, engine)
    finally:
        if keep:
            click.echo(f"\nIt still runs: mailmend check --host {HOST} --port {port} --engine local")
            click.echo(f"Remove it:     mailmend local down --dir {layout.root}")
        else:
            _remove(cluster)


def _play(shell: Shell, messages: int, engine: str) -> None:
    with_engine = ("--engine", engine)
    _say(2, "Mail arrives: the truth first, then every projection")
    shell.type("schema", "apply")
    shell.type("load", str(_mbox(shell.folder, messages)), "--user", USER, "--mailbox", "INBOX")
    shell.type("load", str(_mbox(shell.folder, ARCHIVED, "archive")), "--user", USER, "--mailbox", "Archive")
    _say(3, "Production happens")
    _break(shell.port)
    _say(4, "Find it, without touching anything")
    shell.type("check", "messages", *with_engine, *_QUIET, expect=(1,))
    _say(5, "Mend it: look again after the delay, keep a before-image, write as of T, read back")
    shell.type("repair", "messages", *with_engine, *_QUIET, expect=(1,))
    repaired = shell.last_run()
    _say(6, "Prove it: what a repair may mend is mended; what is left is a person's to decide")
    shell.type("check", "messages", *with_engine, *_QUIET, expect=(1,))
    _say(7, "Undo it, and redo it")
    shell.type("undo", repaired, expect=_FINE_OR_DRIFT)
    shell.type("check", "messages", "--engine", "local", *_QUIET, expect=(1,))
    shell.type("undo", shell.last_run(), expect=_FINE_OR_DRIFT)
    shell.type("check", "messages", "--engine", "local", *_QUIET, expect=(1,))
    shell.type("runs", "list")


def _break(port: int) -> None:
    with open_cluster(ConnectionSettings(hosts=(HOST,), port=port, keyspace=KEYSPACE)) as opened:
        damages = _damages(opened)
        writes = [write for damage in damages for write in damage.writes]
        for error in _written(opened, writes):
            raise error
    counted = dict.fromkeys((damage.kind, damage.story, damage.expected[0][1].value) for damage in damages)
    stdout_console().print(rows_grid("Broken now", ("what", "how it came about", "verdict to expect"), list(counted)))


def _damages(opened: OpenCluster) -> list[Damage]:
    """Every kind of damage in the larger mailbox; a wrong counter in the other one, if there is one."""
    (family, *_) = opened.families()
    truth, now = family.truth, opened.clock.micros()
    mailboxes: dict[UUID, list[Row]] = {}
    for row in sorted(opened.mail.scan(Scan(truth, truth.names)), key=lambda row: row["uid"]):
        mailboxes.setdefault(row["mailboxid"], []).append(row)
    inbox, *others = sorted(mailboxes.values(), key=len, reverse=True)
    damages = break_one_by_one(inbox, now, each=3, family=family)
    if not others:
        return damages
    wrong = Breaker(family, now).counter(others[0][0])
    return [*(damage for damage in damages if damage.kind != wrong.kind), wrong]


def _written(opened: OpenCluster, writes: Sequence[Write]) -> Iterable[MailmendError]:
    """One write after the other: some damages are made of writes that depend on each other."""
    for write in writes:
        try:
            opened.mail.write(write)
        except MailmendError as error:
            yield error


def _mbox(folder: Path, messages: int, name: str = "inbox") -> Path:
    """A mail folder as any server might export it: some mails read, some flagged, some deleted."""
    path = folder / f"{name}.mbox"
    with path.open("w", encoding="utf-8") as out:
        for number in range(messages):
            out.write(_mail(number, name))
    return path


def _mail(number: int, folder: str) -> str:
    sent = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=number)
    status = ("RO", "O", "")[number % 3]
    marks = ("", "F", "A", "", "D")[number % 5]
    return (
        f"From alice@example.org {sent:%a %b %d %H:%M:%S %Y}\n"
        f"From: Alice <alice@example.org>\nTo: Bob <{USER}>\nDate: {sent:%a, %d %b %Y %H:%M:%S +0000}\n"
        f"Message-ID: <{folder}.{number}@example.org>\nSubject: Letter {number}\nStatus: {status}\nX-Status: {marks}\n"
        f"\nDear Bob,\n\nthis is letter {number}.\n\nAlice\n\n"
    )


def _remove(cluster: LocalCluster) -> None:
    cluster.down()
    cluster.clean()


def _mailmend() -> list[str]:
    return [sys.executable, "-m", "mailmend"]


def _say(number: int, text: str) -> None:
    click.secho(f"\n== {number}. {text}", fg="cyan", bold=True)

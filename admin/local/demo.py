"""The main job, shown with the commands themselves on a real Cassandra of its own.

Mail is loaded, broken in every way that production breaks it, found, mended, proved clean, undone
and redone. Every command that is shown is run as a person would type it; only the breaking has no
command of its own.
"""

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import click

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import OpenCluster, open_cluster
from mailmend.admin.frame.command import Command
from mailmend.admin.frame.document import Document
from mailmend.admin.frame.options import flag, option
from mailmend.admin.frame.settings import LOOPBACK, ConnectionSettings
from mailmend.admin.local import LocalCluster, local_cluster
from mailmend.admin.local.folders import cluster_folder, home_of
from mailmend.admin.local.processes import free_port
from mailmend.model.catalog.mail import MESSAGES
from mailmend.model.errors import MailmendError
from mailmend.model.operations import Change, Count, Put, Remove, Scan, Write
from mailmend.model.projections.family import Family
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Row

USER: Final = "bob@example.org"
ARCHIVED: Final = 20
"""Mails of a second, smaller mailbox, where nothing is in doubt: a counter is mended only in such a mailbox."""
_FINE_OR_DRIFT: Final = (0, 1)
_QUIET: Final = ("--no-writers", "--delay", "1s")


FAR_UID = 1_000_000
"""Uids above this are never handed out by a mailbox of a demo, so a row there has no owner."""

Writes = tuple[Write, ...]


@dataclass(frozen=True, slots=True)
class DamageKind:
    """One kind of damage.

    Attributes:
        story: its cause.
        projection, verdict: what a check must find.
        writes: (live tables, truth row, timestamp in microseconds) -> the writes that do it.
        fits: which truth rows can be hurt so.
    """

    name: str
    story: str
    projection: str
    verdict: Verdict
    writes: Callable[[Family, Row, int], Writes]
    fits: Callable[[Row], bool] = lambda _: True


@dataclass(frozen=True, slots=True)
class Damage:
    """A damage done to one row."""

    kind: DamageKind
    writes: Writes


def _missing(family: Family, truth: Row, at: int) -> Writes:
    return (Remove(family.mirror.table, family.mirror.key_of(truth), at),)


def _stale_flags(family: Family, truth: Row, at: int) -> Writes:
    return _mirror_says(family, truth, at, flagflagged=not truth["flagflagged"])


def _wrong_keyword(family: Family, truth: Row, at: int) -> Writes:
    add = {"userflags": frozenset({"$wrong"})}
    return (Change(family.mirror.table, family.mirror.key_of(truth), add=add, at=at),)


def _stale_modseq(family: Family, truth: Row, at: int) -> Writes:
    return _mirror_says(family, truth, at, modseq=truth["modseq"] - 1)


def _stale_date(family: Family, truth: Row, at: int) -> Writes:
    """James's own repair never corrects it."""
    return _mirror_says(family, truth, at, internaldate=truth["internaldate"] - timedelta(days=1))


def _dangling(family: Family, truth: Row, at: int) -> Writes:
    """The same message under a uid that it no longer has."""
    return (Put(family.mirror.table, dict(family.mirror.row_of(truth)) | {"uid": truth["uid"] + FAR_UID}, at),)


def _half_written(family: Family, truth: Row, at: int) -> Writes:
    """A row of two columns."""
    key = (truth["mailboxid"], truth["uid"] + 2 * FAR_UID)
    return (Change(family.mirror.table, key, assign={"flagseen": True, "modseq": truth["modseq"]}, at=at),)


def _lost_content(family: Family, truth: Row, at: int) -> Writes:
    assert family.content is not None
    return (Remove(family.content.table, family.content.key_of(truth), at),)


def _torn(family: Family, truth: Row, at: int) -> Writes:
    """Only the columns of the flag update are left."""
    key = family.truth.key_of(truth)
    return (
        Remove(family.truth, key, at - 1),
        Change(family.truth, key, assign={"modseq": truth["modseq"]}, at=at),
    )


def _clash(family: Family, truth: Row, at: int) -> Writes:
    """Two messages claim one uid."""
    other = UUID(int=truth["messageid"].int ^ (1 << 33), version=1)
    put = Put(family.truth, dict(truth) | {"messageid": other, "threadid": other}, at)
    return (put, _content_of(family, truth, other, at))


def _unlisted(family: Family, truth: Row, at: int) -> Writes:
    unseen = family.filters[0]
    return (Remove(unseen.table, unseen.key_of(truth), at),)


def _undeletable(family: Family, truth: Row, at: int) -> Writes:
    """A message listed as deleted that is not deleted."""
    deleted = family.filters[1]
    return (Put(deleted.table, {mine: truth[theirs] for mine, theirs in deleted.key}, at),)


def _wrong_counter(family: Family, truth: Row, _at: int) -> Writes:
    """Further off than the messages in doubt can explain."""
    counts = family.counts[0]
    return (Count(counts.table, counts.key_of(truth), {"count": 50}),)


def _leaked(family: Family, truth: Row, at: int) -> Writes:
    return (_content_of(family, truth, UUID(int=truth["messageid"].int ^ (1 << 34), version=1), at),)


def _content_of(family: Family, truth: Row, message_id: UUID, at: int) -> Put:
    assert family.content is not None
    row: dict[str, Any] = {"messageid": message_id}
    for name in ("internaldate", "bodystartoctet", "fullcontentoctets", "headercontent"):
        row[name] = truth.get(name)
    return Put(family.content.table, row, at)


def _mirror_says(family: Family, truth: Row, at: int, **columns: object) -> Writes:
    return (Change(family.mirror.table, family.mirror.key_of(truth), assign=columns, at=at),)


def _unseen(truth: Row) -> bool:
    return not truth["flagseen"]


def _undeleted(truth: Row) -> bool:
    return not truth["flagdeleted"]


_MIRROR, (_UNSEEN, _DELETED, *_) = MESSAGES.mirror.name, [projection.name for projection in MESSAGES.filters]
WRONG_COUNTER = DamageKind(
    "wrong counter", "a batch was counted twice", MESSAGES.counts[0].name, Verdict.AMEND, _wrong_counter
)
KINDS: tuple[DamageKind, ...] = (
    DamageKind("missing projection", "killed between two writes", _MIRROR, Verdict.PROJECT, _missing),
    DamageKind("stale flags", "a flag update was lost", _MIRROR, Verdict.AMEND, _stale_flags),
    DamageKind("wrong keyword", "two updates crossed", _MIRROR, Verdict.AMEND, _wrong_keyword),
    DamageKind("stale modseq", "an update was half applied", _MIRROR, Verdict.AMEND, _stale_modseq),
    DamageKind("stale date", "an old bug wrote it so", _MIRROR, Verdict.AMEND, _stale_date),
    DamageKind("dangling projection", "a delete lost its half", _MIRROR, Verdict.WITHDRAW, _dangling),
    DamageKind("half-written row", "update after delete", _MIRROR, Verdict.WITHDRAW, _half_written),
    DamageKind("lost content", "tombstones purged too early", _MIRROR, Verdict.LOST_CONTENT, _lost_content),
    DamageKind("torn truth", "a delete lost to a flag update", _MIRROR, Verdict.TORN, _torn),
    DamageKind("clash", "a uid handed out twice", _MIRROR, Verdict.CLASH, _clash),
    DamageKind("unseen not listed", "an index write was lost", _UNSEEN, Verdict.PROJECT, _unlisted, _unseen),
    DamageKind("undeletable mail", "an index delete was lost", _DELETED, Verdict.WITHDRAW, _undeletable, _undeleted),
    WRONG_COUNTER,
    DamageKind("leaked content", "the cleanup never ran", "messageV3", Verdict.LEAK, _leaked),
)

MESSAGES_MIN = 60
"""How many healthy messages are enough for three damages of each kind."""


def break_one_by_one(truths: Sequence[Row], at: int, each: int = 1, family: Family = MESSAGES) -> list[Damage]:
    """Each kind of damage `each` times, no row hurt twice, in a fixed order.

    Args:
        truths: healthy truth rows; at least `each` x the number of kinds of them, or later kinds come short.
        at: stamp of the damaging writes in microseconds; later than the rows' own.
        each: how often each kind is done.
        family: the declarations, bound to the live tables.
    """
    free = list(truths)
    damages: list[Damage] = []
    for kind in KINDS:
        chosen = [row for row in free if kind.fits(row)][:each]
        free = [row for row in free if row not in chosen]
        for row in chosen:
            damages.append(Damage(kind, kind.writes(family, row, at)))
    return damages


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoRequest:
    """How many mails, what scans, and whether the demo's Cassandra is left running.

    Attributes:
        blobs: the address of the store that the contents are kept in; None: the demo's Cassandra.
    """

    messages: int = 300
    engine: str = "local"
    leave_running: bool = False
    blobs: str | None = None


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The folder of the demo's Cassandra; and its port, where it still runs."""

    folder: Path
    port: int | None


@dataclass(frozen=True, slots=True)
class Shell:
    """Types commands where a person can see them, against the demo's cluster and nothing else."""

    port: int
    folder: Path
    caller: Caller

    def type(self, *words: str, expect: Sequence[int] = (0,)) -> None:
        """Show a command, run it, and show its exit code; an unexpected one ends the demo."""
        self.caller.remark(f"\n$ mailmend {shlex.join(words)}")
        ended = subprocess.run([*_mailmend(), *words], env=self._environment(), check=False)  # noqa: S603
        if ended.returncode:
            self.caller.remark(f"(exit code {ended.returncode})")
        if ended.returncode not in expect:
            raise MailmendError(f"the demo did not go as it should: that ended with {ended.returncode}")

    def ask(self, *words: str) -> Any:
        command = [*_mailmend(), *words, "--json"]
        answer = subprocess.run(command, env=self._environment(), check=True, capture_output=True)  # noqa: S603
        return json.loads(answer.stdout)

    def last_run(self) -> str:
        return str(self.ask("runs", "list")["runs"][0]["run"])

    def _environment(self) -> dict[str, str]:
        """Names the demo's cluster, whatever the user's own settings say; the keys of a bucket are handed on."""
        environment = {}
        for name, value in os.environ.items():
            if name.startswith("MAILMEND_S3_") or not name.startswith("MAILMEND_"):
                environment[name] = value
        nothing = self.folder / "config.toml"
        nothing.touch()
        environment["MAILMEND_HOST"] = LOOPBACK
        environment["MAILMEND_PORT"] = str(self.port)
        environment["MAILMEND_CONFIG"] = str(nothing)
        return environment


def demo(request: DemoRequest, caller: Caller) -> DemoResult:
    """Show the main job; what the commands say goes to this process's stdout.

    Raises:
        MailmendError: a command ended otherwise than the demo tells.
    """
    root = cluster_folder(os.environ, home_of(os.environ), "demo").root
    port = free_port([LOOPBACK])
    cluster = local_cluster(root)
    _remove(cluster)
    try:
        with tempfile.TemporaryDirectory(prefix="mailmend-demo-") as folder:
            shell = Shell(port, Path(folder), caller)
            caller.remark("\n== 1. A real Cassandra, of its own")
            shell.type("local", "up", "--dir", str(root), "--port", str(port))
            play(shell, request, caller)
    finally:
        if not request.leave_running:
            _remove(cluster)
    if not request.leave_running:
        return DemoResult(root, None)
    return DemoResult(root, port)


def play(shell: Shell, request: DemoRequest, caller: Caller) -> None:
    """Run the whole demo on an empty cluster that is up."""
    scanning = ("--engine", request.engine, *_QUIET)
    blobs: tuple[str, ...] = ()
    if request.blobs:
        blobs = ("--blobs", request.blobs)
    caller.remark("\n== 2. Mail arrives: the truth first, then every projection")
    shell.type("schema", "apply")
    shell.type("load", str(mbox_in(shell.folder, request.messages)), "--user", USER, "--mailbox", "INBOX", *blobs)
    shell.type("load", str(mbox_in(shell.folder, ARCHIVED, "archive")), "--user", USER, "--mailbox", "Archive", *blobs)
    caller.remark("\n== 3. Production happens\n\nBroken now: what, how it came about, the verdict to expect")
    broken = break_everything(shell.port)
    for kind in dict.fromkeys(damage.kind for damage in broken):
        caller.remark(f"  {kind.name:20} {kind.story:32} {kind.verdict.value}")
    caller.remark("\n== 4. Find it, without touching anything")
    shell.type("check", "messages", *scanning, expect=(1,))
    caller.remark("\n== 5. Mend it: look again after the delay, keep a before-image, write as of T, read back")
    shell.type("repair", "messages", *scanning, expect=(1,))
    repaired = shell.last_run()
    caller.remark("\n== 6. Prove it: what a repair may mend is mended; what is left is a person's to decide")
    shell.type("check", "messages", *scanning, expect=(1,))
    caller.remark("\n== 7. Undo it, and redo it")
    shell.type("undo", repaired, expect=_FINE_OR_DRIFT)
    shell.type("check", "messages", "--engine", "local", *_QUIET, expect=(1,))
    shell.type("undo", shell.last_run(), expect=_FINE_OR_DRIFT)
    shell.type("check", "messages", "--engine", "local", *_QUIET, expect=(1,))
    shell.type("runs", "list")


def break_everything(port: int) -> list[Damage]:
    """Do every kind of damage, one write after the other: some depend on each other."""
    with open_cluster(ConnectionSettings(port=port)) as opened:
        damages = damages_for(opened)
        for damage in damages:
            for write in damage.writes:
                opened.mail.write(write)
    return damages


def damages_for(opened: OpenCluster) -> list[Damage]:
    """Every kind of damage in the larger mailbox; a wrong counter in the other one, if there is one."""
    (family, *_) = opened.families()
    truth = family.truth
    now = opened.clock.micros()
    mailboxes: dict[UUID, list[Row]] = {}
    for row in sorted(opened.mail.scan(Scan(truth, truth.names)), key=lambda row: row["uid"]):
        mailboxes.setdefault(row["mailboxid"], []).append(row)
    inbox, *others = sorted(mailboxes.values(), key=len, reverse=True)
    damages = break_one_by_one(inbox, now, each=3, family=family)
    if not others:
        return damages
    elsewhere = others[0][0]
    wrong = Damage(WRONG_COUNTER, WRONG_COUNTER.writes(family, elsewhere, now))
    kept = [damage for damage in damages if damage.kind is not WRONG_COUNTER]
    return [*kept, wrong]


def mbox_in(folder: Path, messages: int, name: str = "inbox") -> Path:
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


def demo_document(found: DemoResult) -> Document:
    if found.port is None:
        return Document(None)
    running = f"It still runs: mailmend check --host {LOOPBACK} --port {found.port} --engine local"
    return Document(None, hints=("", running, f"Remove it:     mailmend local down --dir {found.folder}"))


DEMO: Final = Command(
    name="demo",
    summary="Write mail, break it, find it, mend it, undo it.",
    about="Everything happens in a Cassandra of its own on this machine, which is removed at the end.",
    service="mailmend.admin.local.demo:demo",
    present="mailmend.admin.local.demo:demo_document",
    options=(
        option("--messages", "How many mails are written.", type=click.IntRange(MESSAGES_MIN), default=300),
        option(
            "--engine",
            "What scans: local, this process alone; or Spark, which needs mailmend[spark].",
            type=click.Choice(["local", "spark"]),
            default="local",
        ),
        option(
            "--blobs",
            "Blob store with the contents of mails: as with load. [default: the demo's Cassandra]",
            metavar="URL",
        ),
        flag("--leave-running", "Leave the demo's Cassandra running, to look around."),
    ),
    output=(),
)

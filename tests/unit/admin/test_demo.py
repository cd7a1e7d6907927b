"""The demo's story, told by its own script against a cluster in memory: every command ends as the demo says."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import open_cluster
from mailmend.admin.frame.settings import KEYSPACE_DEFAULT, ConnectionSettings
from mailmend.admin.local import demo
from mailmend.admin.local.demo import KINDS, MESSAGES_MIN, DemoRequest, Shell
from mailmend.model.catalog.james_tables import BLOBS
from mailmend.model.catalog.mail import IMAP_UID
from mailmend.model.errors import MailmendError
from mailmend.model.operations import Scan
from mailmend.repair.store.mail_files import FolderKind, Found, kind_of, mail_in
from tests.support.cluster_twin import ClusterTwin, cluster_in_memory
from tests.support.commands import CommandLine, Ended, command_line


@dataclass(slots=True)
class InProcess:
    """The demo's shell, whose commands run here; each a second after the one before."""

    mailmend: CommandLine
    cluster: ClusterTwin
    folder: Path
    port: int = 9042
    ended: list[tuple[str, Ended]] = field(default_factory=list)

    def type(self, *words: str, expect: Sequence[int] = (0,)) -> None:
        ended = self.run(*words)
        self.ended.append((" ".join(words[:2]), ended))
        assert ended.code in expect, (words, ended)

    def last_run(self) -> str:
        return str(self.run("runs", "list", "--json").json["runs"][0]["run"])

    def run(self, *words: str) -> Ended:
        ended = self.mailmend(*words)
        self.cluster.clock.advance(1)
        return ended


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> InProcess:
    cluster = cluster_in_memory(monkeypatch)
    cluster.keyspaces.clear()
    return InProcess(command_line(tmp_path, None, MAILMEND_HOST="127.0.0.1"), cluster, tmp_path)


def found(ended: Ended) -> dict[str, Any]:
    return cast("dict[str, Any]", json.loads(ended.out)["findings"])


def test_the_whole_story_goes_as_it_is_reported(shell: InProcess) -> None:
    """Loaded, broken in every way, found, mended but for what is a person's, undone, redone."""
    demo.play(cast("Shell", shell), DemoRequest(engine="local"), Caller())

    names = [name for name, _ in shell.ended]
    assert names == [
        "schema apply",
        f"load {shell.folder}/inbox.mbox",
        f"load {shell.folder}/archive.mbox",
        "check messages",
        "repair messages",
        "check messages",
        "undo " + names[6].split()[1],
        "check messages",
        "undo " + names[8].split()[1],
        "check messages",
        "runs list",
    ]
    left = found(shell.run("check", "messages", "--engine", "local", "--no-writers", "--delay", "0", "--json"))
    verdicts = {verdict for counts in left.values() for verdict in counts}
    assert verdicts == {"CLASH", "LOST_CONTENT", "TORN", "LEAK"}, left


def test_contents_may_be_kept_elsewhere(shell: InProcess) -> None:
    """In any store that load takes; the demo's cluster then keeps none."""
    kept = shell.folder / "kept"
    demo.play(cast("Shell", shell), DemoRequest(engine="local", blobs=kept.as_uri()), Caller())

    assert len([one for one in kept.iterdir() if one.is_file()]) > MESSAGES_MIN
    assert not list(shell.cluster.keyspace(KEYSPACE_DEFAULT).scan(Scan(BLOBS, ("id",))))


def test_every_way_of_breaking_is_found_as_the_demo_says(shell: InProcess) -> None:
    """Each kind of damage, three times each, by projection and verdict."""
    shell.type("schema", "apply")
    shell.type("load", str(demo.mbox_in(shell.folder, 300)), "--user", demo.USER, "--mailbox", "INBOX")
    healthy = shell.run("check", "--engine", "local", "--no-writers", "--delay", "0", "--json")
    assert (healthy.code, found(healthy)) == (0, {})

    demo.break_everything(shell.port)
    shell.cluster.clock.advance(1)

    broken = found(shell.run("check", "messages", "--engine", "local", "--no-writers", "--delay", "0", "--json"))
    assert {"PROJECT", "AMEND", "WITHDRAW", "CLASH", "LOST_CONTENT", "TORN"} <= set(broken["messageIdTable"])
    assert broken["messageV3"] == {"LEAK": 3}
    assert broken["messageIdTable"]["LOST_CONTENT"] == broken["messageIdTable"]["TORN"] == 3


def test_the_least_number_of_messages_is_enough_for_every_damage(shell: InProcess) -> None:
    shell.type("schema", "apply")
    shell.type("load", str(demo.mbox_in(shell.folder, MESSAGES_MIN)), "--user", demo.USER, "--mailbox", "INBOX")
    tables = shell.cluster.keyspace(KEYSPACE_DEFAULT)
    assert len(list(tables.scan(Scan(IMAP_UID, ("messageid",))))) == MESSAGES_MIN

    with open_cluster(ConnectionSettings(keyspace=KEYSPACE_DEFAULT)) as opened:
        damages = demo.damages_for(opened)

    assert len(damages) == 3 * len(KINDS)


def test_the_demos_mail_is_mail(tmp_path: Path) -> None:
    """An mbox of as many letters as were asked for, some read, some flagged, each with its own subject."""
    path = demo.mbox_in(tmp_path, 30)

    letters = [one for one in mail_in(path, kind_of(path)) if isinstance(one, Found)]

    assert (kind_of(path), len(letters)) == (FolderKind.MBOX, 30)
    assert len({one.content for one in letters}) == 30
    assert any(b"X-Status: F" in one.content for one in letters)


class TestShell:
    """Commands are really run, as a person would type them."""

    def test_an_ending_that_the_demo_does_not_tell_stops_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The command is shown as it may be typed again, quoted where that is needed."""
        monkeypatch.setattr(demo, "_mailmend", lambda: ["/bin/sh", "-c", "exit 3"])

        said: list[str] = []
        shell = Shell(9042, tmp_path, Caller(remark=said.append))

        with pytest.raises(MailmendError, match="ended with 3"):
            shell.type("check", "two words")
        shell.type("check", expect=(3,))

        assert said == ["\n$ mailmend check 'two words'", "(exit code 3)", "\n$ mailmend check", "(exit code 3)"]

    def test_nothing_of_the_users_own_settings_reaches_the_demo(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It breaks mail: it must never do so in the cluster that a person works with. The keys of a bucket do."""
        monkeypatch.setenv("MAILMEND_HOST", "production")
        monkeypatch.setenv("MAILMEND_KEYSPACE", "precious")
        monkeypatch.setenv("MAILMEND_S3_ACCESS_KEY", "AK")
        script = 'printf \'["%s", "%s", "%s"]\' "$MAILMEND_HOST" "$MAILMEND_KEYSPACE" "$MAILMEND_S3_ACCESS_KEY"'
        monkeypatch.setattr(demo, "_mailmend", lambda: ["/bin/sh", "-c", script])

        assert Shell(9042, tmp_path, Caller()).ask("runs") == ["127.0.0.1", "", "AK"]


def test_what_the_demo_types_is_a_command_that_runs() -> None:
    """It runs in processes of their own, as a person would type it."""
    ended = subprocess.run([*demo._mailmend(), "--version"], capture_output=True, text=True, check=False)

    assert (ended.returncode, ended.stderr) == (0, "")

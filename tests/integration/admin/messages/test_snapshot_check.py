"""check --snapshot on files that a real Cassandra wrote: the same findings as a scan of the cluster."""

import json
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from mailmend.model.catalog.mail import FIRST_UNSEEN, IMAP_UID, MESSAGE_ID, MESSAGE_V3
from mailmend.model.operations import Change, Put, Remove, Scan
from mailmend.model.table import Column
from tests.support.commands import QUICK, CommandLine
from tests.support.mail_states import MailKeyspace, keyspace_of_its_own, shell_on
from tests.support.nodetool import nodetool_of
from tests.support.repairing import content_row, mirror_row, truth_row
from tests.support.servers import CassandraServer

pytestmark = pytest.mark.cassandra

MESSAGES = 40
BEFORE = "before"
AFTER = "after"
RAW = ("--no-recheck", "--json")


@dataclass(frozen=True, slots=True)
class Snapped:
    """A keyspace with damages, the folder of its tables, and a shell that knows it."""

    mail: MailKeyspace
    folder: Path
    shell: CommandLine

    def copy_of(self, snapshot: str, place: Path) -> Path:
        """The files of a snapshot of all tables, in a flat folder for each table."""
        for table in self.folder.iterdir():
            shutil.copytree(table / "snapshots" / snapshot, place / table.name)
        return place


@pytest.fixture(scope="module")
def snapped(cassandra: CassandraServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Snapped]:
    if cassandra.sstables is None:
        pytest.skip("the data files of this server are elsewhere")
    home = tmp_path_factory.mktemp("home")
    nodetool = shlex.split(nodetool_of(cassandra, home).format(host=cassandra.host))
    with keyspace_of_its_own(cassandra, "snapshot") as mail:

        def take(*words: str) -> None:
            subprocess.run([*nodetool, *words, mail.name], check=True, capture_output=True)

        mail.refill(MESSAGES)
        take("snapshot", "-t", BEFORE)
        damage(mail)
        take("flush")
        damage_again(mail)
        take("snapshot", "-t", AFTER)
        yield Snapped(mail, cassandra.sstables / mail.name, shell_on(cassandra, mail, home))


def damage(mail: MailKeyspace) -> None:
    """Rows and cells that differ, removed and expired rows, a removed partition, a dropped column."""
    truths = mail.truths
    mail.lose_projection(truths[0])
    mail.lose_flag_update(truths[1])
    mail.lose_content(truths[2])
    mail.lose_truth(truths[3])
    mail.tables.write(Remove(IMAP_UID, (truths[4]["messageid"],)))
    mail.tables.write(Change(IMAP_UID, IMAP_UID.key_of(truths[5]), add={"userflags": frozenset({"work", "home"})}))
    mail.tables.write(Put(MESSAGE_ID, mirror_row(truth_row(MESSAGES + 1)), ttl_seconds=1))
    mail.tables.write(Put(IMAP_UID, truth_row(MESSAGES + 1)))
    mail.tables.write(Put(IMAP_UID, truth_row(MESSAGES + 2), ttl_seconds=3600))
    mail.tables.write(Put(MESSAGE_V3, content_row(truth_row(MESSAGES + 2)["messageid"])))
    alter = f"ALTER TABLE {mail.name}.{IMAP_UID.name}"
    mail.tables.cluster.execute_ddl(f"{alter} ADD later text")
    wide = replace(IMAP_UID, columns=(*IMAP_UID.columns, Column("later", "text")))
    mail.tables.write(Put(wide, {**truths[7], "later": "gone"}))
    time.sleep(2.1)
    mail.tables.cluster.execute_ddl(f"{alter} DROP later")


def damage_again(mail: MailKeyspace) -> None:
    """In another SSTable: a row that comes back, an element that goes, a partition of a filter that goes."""
    truths = mail.truths
    mail.tables.write(Put(MESSAGE_ID, mirror_row(truths[0])))
    mail.lose_projection(truths[6])
    mail.tables.write(Change(IMAP_UID, IMAP_UID.key_of(truths[5]), take={"userflags": frozenset({"home"})}))
    mail.tables.write(Remove(FIRST_UNSEEN, (mail.mailbox,)))


def raw(snapped: Snapped, findings: Path, *words: str) -> tuple[dict[str, Any], list[str]]:
    """The document and the sorted findings of a check without a second look."""
    ended = snapped.shell("check", "messages", "--engine", "local", *RAW, "--findings", str(findings), *words)
    assert ended.code in {1, 3}, ended.err
    return ended.json, sorted(findings.read_text().splitlines())


def snapshot_of(snapped: Snapped, name: str) -> tuple[str, ...]:
    return ("--snapshot", str(snapped.folder), "--snapshot-name", name)


def test_a_snapshot_gives_the_findings_of_a_scan_of_the_cluster(snapped: Snapped, tmp_path: Path) -> None:
    """Several SSTables, rows and cells that were removed or have expired, collections, counters."""
    live, expected = raw(snapped, tmp_path / "live.jsonl")

    document, findings = raw(snapped, tmp_path / "snapshot.jsonl", *snapshot_of(snapped, AFTER))

    assert findings == expected
    assert len(findings) > 20
    assert document["scanned"] == live["scanned"]
    assert document["findings"] == live["findings"]
    assert (document["snapshot"]["damaged"], document["snapshot"]["missing"]) == ([], [])


def test_a_snapshot_alone_needs_no_cluster(snapped: Snapped, tmp_path: Path) -> None:
    files = snapped.copy_of(BEFORE, tmp_path / "backup")

    ended = snapped.shell(
        "check", "messages", "--snapshot", str(files), *RAW, MAILMEND_HOST="127.0.0.9", MAILMEND_PORT="1"
    )

    assert (ended.code, ended.json["findings"]) == (0, {}), ended.err
    assert ended.json["scanned"]["imapUidTable"] == MESSAGES


def test_of_the_files_of_several_nodes_the_newest_cells_count(snapped: Snapped, tmp_path: Path) -> None:
    older = snapped.copy_of(BEFORE, tmp_path / "one")
    newer = snapped.copy_of(AFTER, tmp_path / "other")
    _, expected = raw(snapped, tmp_path / "live.jsonl")

    _, findings = raw(snapped, tmp_path / "both.jsonl", "--snapshot", str(older), "--snapshot", str(newer))

    assert findings == expected


def test_expiry_is_judged_at_the_time_of_the_snapshot(snapped: Snapped, tmp_path: Path) -> None:
    """The row of truth with an hour to live is gone where the snapshot is two hours younger."""
    files = snapped.copy_of(AFTER, tmp_path / "later")
    later = (datetime.now(UTC) + timedelta(hours=2)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    for manifest in files.glob("*/manifest.json"):
        found = json.loads(manifest.read_text())
        assert "created_at" in found
        manifest.write_text(json.dumps({**found, "created_at": later}))
    rows = sum(1 for _ in snapped.mail.tables.scan(Scan(IMAP_UID, ("uid",))))

    document, _ = raw(snapped, tmp_path / "after.jsonl", "--snapshot", str(files))

    assert document["scanned"]["imapUidTable"] == rows - 1


def test_the_second_look_reads_the_cluster(snapped: Snapped) -> None:
    """A row that was mended after the snapshot is no drift; the others are what a check of the cluster finds."""
    mended, *_ = snapped.mail.truths[6:]
    snapped.mail.tables.write(Put(MESSAGE_ID, mirror_row(mended)))
    live = snapped.shell("check", "messages", *QUICK, "--json")

    ended = snapped.shell("check", "messages", *QUICK, "--json", *snapshot_of(snapped, AFTER))

    snapped.mail.lose_projection(mended)
    assert (ended.code, ended.json["findings"]) == (1, live.json["findings"]), ended.err
    assert ended.json["suspects"] == live.json["suspects"] + 1


def test_damaged_and_missing_files_are_named_and_the_others_are_read(snapped: Snapped, tmp_path: Path) -> None:
    files = snapped.copy_of(AFTER, tmp_path / "damaged")
    spoilt, *_ = sorted(files.glob("messageidtable-*/*-Data.db"))
    content = bytearray(spoilt.read_bytes())
    content[len(content) // 2 :] = bytes(byte ^ 0xFF for byte in content[len(content) // 2 :])
    spoilt.write_bytes(content)
    gone, *_ = sorted(files.glob("messagev3-*/*-Data.db"))
    gone.unlink()

    ended = snapped.shell("check", "messages", "--snapshot", str(files), *RAW)

    document = ended.json
    assert ended.code == 3
    assert [damage["file"] for damage in document["snapshot"]["damaged"]] == [str(spoilt)]
    assert document["snapshot"]["missing"] == [str(gone)]
    assert document["scanned"]["imapUidTable"] > 0
    assert str(gone) in document["unseen"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("check", "queues"), "is for messages only"),
        (("check", "messages", "--engine", "spark"), "Spark does not read snapshots"),
        (("check", "messages", "--staging", "area"), "--staging has no effect"),
        (("check", "messages"), "has 2 snapshots: after, before"),
    ],
)
def test_what_snapshots_do_not_serve_is_refused(snapped: Snapped, words: tuple[str, ...], said: str) -> None:
    ended = snapped.shell(*words, "--snapshot", str(snapped.folder))

    assert ended.code == 2
    assert said in ended.err

"""Staged scans as a person types them: what stands is not read again, and T stays that of the first attempt."""

import json
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mailmend.cql.memory import Surround
from mailmend.cql.row_statements import Operation
from mailmend.model.catalog.mail import IMAP_UID, MESSAGE_ID, MESSAGE_V3
from mailmend.model.errors import TimedOut
from mailmend.model.instants import MICROS
from mailmend.model.operations import Change, Put, Read, Scan
from mailmend.repair.mending import limits
from mailmend.repair.staging import area as areas
from mailmend.repair.staging.folder import StagingFolder
from tests.support.cluster_twin import ClusterTwin
from tests.support.commands import QUICK, CommandLine, Ended, Typed
from tests.support.mail_states import MailKeyspace
from tests.support.repairing import content_row, mirror_row, truth_row

SEGMENTS = 3
TABLES = 8
"""Of a check of messages."""


@dataclass(slots=True)
class Interrupting:
    """Surrounds the tables, notes what is scanned by token, and ends the command in the middle of one such scan."""

    at: int | None = None
    scans: list[Scan] = field(default_factory=list)

    def __call__(self, operation: Operation, carry_out: Callable[[], Any]) -> Any:
        if not isinstance(operation, Scan) or operation.tokens is None:
            return carry_out()
        self.scans.append(operation)
        rows = carry_out()
        return _cut_off(rows) if len(self.scans) == self.at else rows


def _cut_off(rows: list[Any]) -> Iterator[Any]:
    yield from rows[:1]
    raise KeyboardInterrupt


@pytest.fixture(autouse=True)
def few_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(areas, "SEGMENTS_UNKNOWN", SEGMENTS)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "staged"


@pytest.fixture
def stage(mailmend: CommandLine, cluster: ClusterTwin, place: Path) -> Typed:
    """A command at once, a second after whatever happened before; `scans_of` tells what it read by token."""

    def call(
        *words: str, interrupted_at: int | None = None, surround: Surround | None = None, **environment: str
    ) -> Ended:
        cluster.clock.advance(1)
        scans = Interrupting(interrupted_at)
        cluster.keyspace("mail").surround = surround or scans
        ended = mailmend(*words, *QUICK, "--json", "--staging", str(place), **environment)
        call.scans = scans.scans  # type: ignore[attr-defined]
        return ended

    return call


def scans_of(stage: Typed) -> list[Scan]:
    found: list[Scan] = stage.scans  # type: ignore[attr-defined]
    return found


def damaged(mail: MailKeyspace, cluster: ClusterTwin) -> None:
    """A row to be projected, one to be amended, one to be withdrawn; and their margin has passed."""
    mail.lose_projection(mail.truths[0])
    mail.lose_flag_update(mail.truths[1])
    mail.lose_truth(mail.truths[2])
    cluster.clock.advance(100)


class TestGoingOn:
    """The same command after an interruption."""

    def test_whatever_segment_it_ended_in_the_next_attempt_reads_the_rest_and_finds_the_same(
        self, mailmend: CommandLine, stage: Typed, mail: MailKeyspace, cluster: ClusterTwin, place: Path
    ) -> None:
        damaged(mail, cluster)
        whole = mailmend("check", "messages", *QUICK, "--json").json

        for at in range(1, TABLES * SEGMENTS + 1, 4):
            first = stage("check", "messages", interrupted_at=at)
            assert (first.code, len(scans_of(stage))) == (130, at)
            assert "run the same command to continue" in first.err
            second = stage("check", "messages")
            assert (second.code, len(scans_of(stage))) == (1, TABLES * SEGMENTS - at + 1)
            document = second.json["staging"]
            assert (document["attempt"], document["kept"], document["segments"]) == (2, at - 1, TABLES * SEGMENTS)
            assert {name: second.json[name] for name in ("findings", "scanned", "suspects")} == {
                name: whole[name] for name in ("findings", "scanned", "suspects")
            }
            assert not [one for one in place.iterdir() if one.suffix == ".parquet"], "it is cleared at the end"

    def test_what_was_changed_since_the_first_attempt_began_is_left_and_all_else_mended_as_of_then(
        self, stage: Typed, mail: MailKeyspace, cluster: ClusterTwin
    ) -> None:
        damaged(mail, cluster)
        began = cluster.clock.micros() + MICROS
        quiet = {"MAILMEND_REPAIR_MESSAGES_NO_WRITERS": "0"}
        assert stage("repair", "messages", interrupted_at=20, **quiet).code == 130
        cluster.clock.advance(7200)
        changed = Change(IMAP_UID, IMAP_UID.key_of(mail.truths[1]), assign={"flagseen": True, "modseq": 9})
        mail.tables.write(changed)

        ended = stage("repair", "messages", **quiet)

        assert (ended.json["fixed"], ended.json["moved"]) == ({"PROJECT": 1, "WITHDRAW": 2}, 1)
        (row,) = mail.tables.read(Read(MESSAGE_ID, (mail.mailbox, mail.truths[0]["uid"]), times=True))
        assert set(row.written_at.values()) == {began - 30 * MICROS - 1000}, "a stamp of this attempt's own"

    def test_runs_have_stamps_of_their_own_and_each_is_taken_back_alone(
        self, mailmend: CommandLine, stage: Typed, mail: MailKeyspace
    ) -> None:
        """The first attempt is ended while it mends; the second reads nothing, and mends and counts the rest."""
        mail.refill(40)
        for truth in mail.truths[:30]:
            mail.lose_projection(truth)
        written: list[Operation] = []

        def ended_at_the_tenth(operation: Operation, carry_out: Callable[[], Any]) -> Any:
            if isinstance(operation, Put):
                written.append(operation)
                if len(written) == 10:
                    raise KeyboardInterrupt
            return carry_out()

        assert stage("repair", "messages", surround=ended_at_the_tenth).code == 130
        ended = stage("repair", "messages")

        assert (ended.code, ended.json["fixed"], scans_of(stage)) == (0, {"PROJECT": 21}, [])
        second, first = mailmend("runs", "list", "--json").json["runs"]
        assert (first["state"], first["summary"]["fixed"]) == ("INTERRUPTED", {"PROJECT": 9})
        assert second["options"]["segments_kept"] == "24 of 24"
        for run, number in ((second, 21), (first, 9)):
            assert mailmend("undo", run["run"], "--json").json["fixed"] == {"PROJECT": number}

    def test_a_check_serves_a_repair_and_a_dry_run_and_a_plan_with_other_policies(
        self, stage: Typed, mail: MailKeyspace, cluster: ClusterTwin, tmp_path: Path
    ) -> None:
        """Rows are staged, not verdicts."""
        damaged(mail, cluster)
        words = (("--dry-run",), ("--plan", str(tmp_path / "plan")), ("--dangling", "report"))
        for more in words:
            assert stage("check", "messages", interrupted_at=24).code == 130
            ended = stage("repair", "messages", *more)
            assert (ended.code, len(scans_of(stage)), ended.json["staging"]["kept"]) == (1, 1, 23), more
        head = json.loads((tmp_path / "plan").read_text().splitlines()[0])
        assert head["policy"]["as_of"] < cluster.clock.micros() - MICROS

    def test_what_settles_at_the_second_look_does_not_count_against_max_fixes(
        self, stage: Typed, mail: MailKeyspace, cluster: ClusterTwin
    ) -> None:
        """Mails that came between two attempts are in the truth, which is read last, and in no segment that stands."""
        damaged(mail, cluster)
        assert stage("repair", "messages", interrupted_at=19).code == 130
        cluster.clock.advance(7200)
        for truth in map(truth_row, range(10, 50)):
            content = content_row(truth["messageid"])
            for table, row in ((MESSAGE_V3, content), (IMAP_UID, truth), (MESSAGE_ID, mirror_row(truth))):
                mail.tables.write(Put(table, row))
        words = ("repair", "messages", "--max-fixes")

        refused, done = stage(*words, "3"), stage(*words, "5")

        assert (refused.code, "5 suspects in mail could be mended" in refused.err) == (1, True), refused.err
        fixed = {"PROJECT": 1, "AMEND": 2, "WITHDRAW": 2}  # a counter too
        assert (done.json["fixed"], done.json["staging"]["attempt"]) == (fixed, 3)
        assert done.json["suspects"] > 80, "the new ones too, in the denormalised tables that were read before"

    def test_where_the_cluster_is_lost_in_the_second_look_the_area_stays(
        self, stage: Typed, mail: MailKeyspace, cluster: ClusterTwin, monkeypatch: pytest.MonkeyPatch, place: Path
    ) -> None:
        damaged(mail, cluster)
        with monkeypatch.context() as patch:
            patch.setattr(limits.Breaker, "open", True)
            assert stage("repair", "messages").code == 4
        assert (place / areas.MANIFEST).exists()

        assert (stage("repair", "messages").code, scans_of(stage)) == (0, [])
        assert not (place / areas.MANIFEST).exists()

    def test_a_scan_that_gets_no_answer_keeps_the_segments_before(self, stage: Typed) -> None:
        scans = Interrupting()

        def silent(operation: Operation, carry_out: Callable[[], Any]) -> Any:
            if len(scans.scans) == 5:
                raise TimedOut("no answer in time")
            return scans(operation, carry_out)

        assert stage("check", "messages", surround=silent).code == 4

        ended = stage("check", "messages")
        assert (ended.code, ended.json["staging"]["kept"]) == (0, 5)


class TestProgress:
    """How far it is, and how long it takes yet."""

    def test_what_stands_is_said_and_only_the_rest_counts_as_work(self, stage: Typed, mail: MailKeyspace) -> None:
        """The truth's last segment of three is to be read: about half as many rows as the first two have."""
        mail.refill(90)
        assert stage("check", "messages", interrupted_at=TABLES * SEGMENTS).code == 130

        ended = stage("check", "messages")

        (line,) = [one for one in ended.err.splitlines() if "(2 of 3 segments stood)" in one and "..." in one]
        left = int(line.split("(of ")[1].split(")")[0])
        assert line.startswith("read imapUidTable (2 of 3 segments stood) (of ")
        assert 15 < left < 45, "a third of 90, as chance has it"
        assert "23 of 24 segments are kept; the scan began at" in ended.err

    def test_a_run_that_went_on_says_so_at_its_end(self, mailmend: CommandLine, stage: Typed, place: Path) -> None:
        assert stage("check", "messages", interrupted_at=5).code == 130

        ended = mailmend("check", "messages", *QUICK, "--staging", str(place))

        assert "4 of 24 segments stood from earlier attempts; the scan began at 20" in ended.out


class TestHalfWritten:
    """An area that a kill, or somebody, left in disorder."""

    @pytest.mark.parametrize(
        "disorder",
        [
            lambda file: file.write_bytes(file.read_bytes()[:-9]),
            lambda file: file.write_bytes(b""),
            lambda file: file.write_bytes(_flipped(file.read_bytes())),
            lambda file: file.with_name(f".{file.name}.part").write_bytes(b"PAR1") and file.unlink(),
            lambda file: file.write_bytes(file.with_name("imapUidTable.00001.parquet").read_bytes()),
            lambda file: file.unlink(),
        ],
        ids=["cut off", "empty", "a bit of it flipped", "under its first name", "another segment", "gone"],
    )
    def test_what_is_not_whole_is_read_again(
        self, stage: Typed, mail: MailKeyspace, cluster: ClusterTwin, place: Path, disorder: Callable[[Path], object]
    ) -> None:
        damaged(mail, cluster)
        whole = stage("check", "messages").json["findings"]
        assert stage("check", "messages", interrupted_at=24).code == 130
        disorder(place / "imapUidTable.00000.parquet")

        ended = stage("check", "messages")

        assert ended.json["findings"] == whole
        assert [one.table.spelling for one in scans_of(stage)].count("imapUidTable") == 2

    def test_an_area_that_was_cleared_in_part_is_begun_anew(self, stage: Typed, place: Path) -> None:
        assert stage("check", "messages", interrupted_at=24).code == 130
        (place / areas.MANIFEST).unlink()

        ended = stage("check", "messages")

        assert (ended.json["staging"]["attempt"], len(scans_of(stage))) == (1, TABLES * SEGMENTS)

    def test_files_are_their_owners_alone(self, stage: Typed, place: Path) -> None:
        assert stage("check", "messages", interrupted_at=24).code == 130

        assert stat.S_IMODE(place.stat().st_mode) == 0o700
        assert {stat.S_IMODE(one.stat().st_mode) for one in place.iterdir()} == {0o600}


def _flipped(content: bytes) -> bytes:
    middle = 40
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


_OTHERS = {
    "--keyspace other": "is of keyspace mail, not of other",
    "--level ONE": "is read at LOCAL_QUORUM, not at ONE",
    "--without save_date": "is of a scan of other tables or columns",
}
_SAID = {
    "version": "made by version 0.0.1 of mailmend, and this is",
    "tables": "altered since, or made anew, or are of another cluster",
}


class TestRefused:
    """An area that is not this scan's: exit 2, what it is of, and what to do; nothing of it is touched."""

    @pytest.mark.parametrize("words", _OTHERS)
    def test_of_another_scan(self, stage: Typed, cluster: ClusterTwin, place: Path, words: str) -> None:
        assert stage("check", "messages", interrupted_at=24).code == 130
        cluster.keyspaces["other"] = cluster.keyspaces["mail"]
        before = {one.name: one.read_bytes() for one in place.iterdir()}

        ended = stage("check", "messages", *words.split())

        assert (ended.code, _OTHERS[words] in ended.err, f"rm -r {place}" in ended.err) == (2, True, True), ended.err
        assert {one.name: one.read_bytes() for one in place.iterdir()} == before

    @pytest.mark.parametrize("name", _SAID)
    def test_of_another_version_or_schema(self, stage: Typed, place: Path, name: str) -> None:
        assert stage("check", "messages", interrupted_at=24).code == 130
        manifest = place / areas.MANIFEST
        said = json.loads(manifest.read_text())
        said["scope"][name] = "0.0.1"
        manifest.write_text(json.dumps(said))

        ended = stage("check", "messages")

        assert (ended.code, _SAID[name] in ended.err) == (2, True), ended.err

    @pytest.mark.parametrize("content", ["", "{}", "[1]", '{"scope": {}}'])
    def test_with_a_manifest_that_is_none(self, stage: Typed, place: Path, content: str) -> None:
        place.mkdir()
        (place / areas.MANIFEST).write_text(content)

        ended = stage("check", "messages")

        assert (ended.code, "is not as it was written" in ended.err) == (2, True), ended.err

    def test_a_folder_of_somebody_elses_files(self, stage: Typed, place: Path) -> None:
        place.mkdir()
        (place / "thesis.tex").write_text("dear")

        ended = stage("check", "messages")

        assert (ended.code, "does not belong to a staging area" in ended.err, (place / "thesis.tex").read_text()) == (
            2,
            True,
            "dear",
        )

    def test_where_another_run_is_at_work(self, stage: Typed, place: Path) -> None:
        with StagingFolder(place).held():
            ended = stage("check", "messages")

        assert (ended.code, "another run is at work" in ended.err) == (2, True)

    def test_without_room_for_what_is_to_be_read(self, stage: Typed, cluster: ClusterTwin) -> None:
        cluster.rows_recorded = 10**15

        ended = stage("check", "messages")

        assert (ended.code, "staging takes about" in ended.err) == (2, True), ended.err

    @pytest.mark.parametrize(
        "url", ["s3://bucket/x", "s3a://bucket", "s3a://key:hush@bucket/x", "s3a://bucket/x?secret=hush", "hdfs://a/b"]
    )
    def test_a_url_that_is_no_place_for_it(self, mailmend: CommandLine, url: str) -> None:
        ended = mailmend("check", "messages", *QUICK, "--staging", url)

        assert (ended.code, "hush" in ended.err, "Traceback" in ended.err) == (2, False, False), ended.err

    def test_a_bucket_in_the_clear(self, mailmend: CommandLine) -> None:
        ended = mailmend("check", "messages", *QUICK, "--staging", "s3a://mail/x?endpoint=http://s3.example.org")

        assert (ended.code, "is not encrypted" in ended.err) == (2, True), ended.err

    def test_beside_a_look_that_reads_no_table_whole(self, stage: Typed) -> None:
        ended = stage("repair", "messages", "--user", "bob")

        assert (ended.code, "--staging has no effect with --user" in ended.err) == (2, True)

    def test_a_folder_that_cannot_be_written_is_named(self, stage: Typed, place: Path) -> None:
        place.write_text("a file")

        ended = stage("check", "messages")

        assert (ended.code, str(place) in ended.err, "Traceback" in ended.err) == (3, True, False)

"""load, repair lags and runbook as a person types them, against a cluster in memory."""

import json
from pathlib import Path
from uuid import uuid4

import pytest

from mailmend.admin.frame import runbooks as runbook
from mailmend.admin.frame.runbooks import pages
from mailmend.mailqueue.rules.blob_ids import BlobNaming, BlobsMode, is_deduplicated
from mailmend.model.catalog.james_tables import BLOB_PARTS, BLOBS, THREAD
from mailmend.model.catalog.ledger import REPAIR_LAG
from mailmend.model.catalog.mail import IMAP_UID, MAILBOX, MAILBOX_PATH, MESSAGE_ID, MESSAGE_V3
from mailmend.model.errors import AccessDenied, CannotReach
from mailmend.model.ids import BlobId
from mailmend.model.operations import Put, PutIfAbsent, Scan
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Table
from mailmend.repair.ledger.lags import LagJournal, Spool
from mailmend.repair.store.mbox import entries_in
from tests.support.cluster_twin import ClusterTwin
from tests.support.commands import QUICK, CommandLine
from tests.support.mail_states import MailKeyspace
from tests.support.repairing import mirror_suspect
from tests.support.schemas import without_tables
from tests.support.stored_forms import encrypted
from tests.support.writing import Faults, on

LETTER = "From ann Thu Jan  1 00:00:00 2026\nSubject: one\n\nhello\n\n"
TO_INBOX = ("--user", "ann", "--mailbox", "INBOX")


def count_of(mail: MailKeyspace, table: Table) -> int:
    return len(list(mail.tables.scan(Scan(table, (table.names[0],)))))


def mbox(directory: Path, letters: int, name: str = "archive.mbox") -> Path:
    path = directory / name
    path.write_text(LETTER * letters)
    return path


def contents_in(mail: MailKeyspace, naming: BlobNaming, micros: int, *, kept: bool) -> set[BlobId]:
    """Give each message its ids of header and body, and the store their bytes where they are kept."""
    ids = set[BlobId]()
    for truth in mail.truths:
        pair = [naming.name(str((truth["uid"], part)).encode(), micros, uuid4()) for part in range(2)]
        row = {"messageid": truth["messageid"], "headercontent": pair[0], "bodycontent": pair[1]}
        mail.tables.write(Put(MESSAGE_V3, row))
        ids.update(pair)
    for blob_id in ids if kept else ():
        mail.tables.write(Put(BLOB_PARTS, {"id": blob_id, "chunknumber": 0, "data": b"x"}))
        mail.tables.write(Put(BLOBS, {"id": blob_id, "position": 1}))
    return ids


class TestLoad:
    """Real mail from files."""

    def test_the_mailbox_is_made_once_and_its_two_rows_agree(
        self, mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin, tmp_path: Path
    ) -> None:
        """A second folder goes into the same one; a check of everything, paths too, finds nothing."""
        first = mailmend("load", str(mbox(tmp_path, 2)), *TO_INBOX, "--json")
        second = mailmend("load", str(mbox(tmp_path, 1, "more.mbox")), *TO_INBOX, "--json")
        cluster.clock.advance(1)

        assert [(one.code, one.json["stored"]) for one in (first, second)] == [(0, 2), (0, 1)], first.err
        assert (count_of(mail, MAILBOX), count_of(mail, MAILBOX_PATH), count_of(mail, IMAP_UID)) == (1, 1, 4 + 3)
        assert mailmend("check", *QUICK, "--json").json["findings"] == {}

    def test_contents_are_kept_where_james_reads_them(
        self, mailmend: CommandLine, mail: MailKeyspace, tmp_path: Path
    ) -> None:
        """In the tables of the mail keyspace, named by their bytes: two copies share one."""
        mailmend("load", str(mbox(tmp_path, 2)), *TO_INBOX)

        content = next(row for row in mail.tables.scan(Scan(MESSAGE_V3, MESSAGE_V3.names)) if row["bodycontent"])
        parts = {row["id"]: row["data"] for row in mail.tables.scan(Scan(BLOB_PARTS, BLOB_PARTS.names))}
        assert parts[content["headercontent"]] + parts[content["bodycontent"]] == b"Subject: one\n\nhello\n"
        assert (count_of(mail, BLOBS), not (tmp_path / "data" / "mailmend" / "blobs").exists()) == (2, True)

    def test_a_folder_keeps_contents_only_when_it_is_named(
        self, mailmend: CommandLine, mail: MailKeyspace, tmp_path: Path
    ) -> None:
        ended = mailmend("load", str(mbox(tmp_path, 1)), *TO_INBOX, "--blobs", (tmp_path / "kept").as_uri())

        assert (ended.code, count_of(mail, BLOBS)) == (0, 0), ended.err
        assert len([one for one in (tmp_path / "kept").rglob("*") if one.is_file()]) == 2

    @pytest.mark.parametrize("mode", BlobsMode)
    def test_ids_are_like_those_of_the_messages_there(
        self, mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin, tmp_path: Path, mode: BlobsMode
    ) -> None:
        """James without deduplication deletes a blob with its message: copies must then not share one."""
        ids = contents_in(mail, BlobNaming(mode, family=7), cluster.clock.micros(), kept=True)

        ended = mailmend("load", str(mbox(tmp_path, 2)), *TO_INBOX)

        new = {row["id"] for row in mail.tables.scan(Scan(BLOBS, ("id",)))} - ids
        assert (ended.code, len(new)) == (0, 2 if mode is BlobsMode.DEDUPLICATED else 4), ended.err
        assert all(one.startswith("7_") and is_deduplicated(one) is (mode is BlobsMode.DEDUPLICATED) for one in new)

    def test_where_james_has_another_store_it_must_be_named(
        self, mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin, tmp_path: Path
    ) -> None:
        """Its messages' contents are not in the tables: what would be stored there it would not find."""
        contents_in(mail, BlobNaming(), cluster.clock.micros(), kept=False)
        folder = str(mbox(tmp_path, 1))

        refused = mailmend("load", folder, *TO_INBOX)
        kept = count_of(mail, IMAP_UID), count_of(mail, BLOBS)
        named = mailmend("load", folder, *TO_INBOX, "--blobs", "cassandra:?ids=deduplicated", "--json")

        assert (refused.code, kept) == (2, (len(mail.truths), 0)), refused.err
        assert "of the 4 messages of mail that were looked at, 0 have their content in its tables" in refused.err
        assert "--blobs 's3://BUCKET?endpoint=URL'" in refused.err
        assert (named.code, named.json["stored"], "is it the store that is read" in named.err) == (0, 1, True)
        assert all(is_deduplicated(row["id"]) for row in mail.tables.scan(Scan(BLOBS, ("id",))))

    @pytest.mark.usefixtures("mail")
    def test_tables_of_james_that_a_load_leaves_are_named_with_the_request_that_fills_them(
        self, mailmend: CommandLine, cluster: ClusterTwin, tmp_path: Path
    ) -> None:
        """Those that the keyspace has."""
        cluster.keyspaces["mail"] = without_tables(cluster.keyspaces["mail"], THREAD.name)
        folder = str(mbox(tmp_path, 1))

        shown = mailmend("load", folder, *TO_INBOX)
        mbox(tmp_path, 2)
        as_json = mailmend("load", folder, *TO_INBOX, "--json").json

        routes = {left["table"]: left["route"] for left in as_json["left_tables"]}
        view = "POST /mailboxes?task=populateEmailQueryView"
        assert (shown.code, routes["email_query_view_received_at"], routes["attachmentV2"]) == (0, view, ""), shown.err
        assert THREAD.spelling not in routes
        assert as_json["search_index"] == {"route": "POST /mailboxes?task=reIndex"}
        assert "Tables of James without these messages" in shown.out
        assert "James fills it by" in shown.out

    def test_nothing_is_stored_where_james_encrypts(
        self, mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin, tmp_path: Path
    ) -> None:
        """It could not decrypt what is stored as it is."""
        ids = contents_in(mail, BlobNaming(), cluster.clock.micros(), kept=True)
        for blob_id in ids:
            mail.tables.write(Put(BLOB_PARTS, {"id": blob_id, "chunknumber": 0, "data": encrypted(b"x")}))

        ended = mailmend("load", str(mbox(tmp_path, 1)), *TO_INBOX)

        assert (ended.code, count_of(mail, BLOBS)) == (2, len(ids)), ended.err
        assert "is encrypted, and mailmend has no key: James could not read a message" in ended.err

    @pytest.mark.parametrize("table", ["blobs", "firstUnseen"])
    def test_a_keyspace_that_lost_a_table_is_refused_with_what_it_lacks(
        self, mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin, tmp_path: Path, table: str
    ) -> None:
        """No message is stored without what follows from it."""
        cluster.keyspaces["mail"] = without_tables(cluster.keyspaces["mail"], table, table.lower())

        ended = mailmend("load", str(mbox(tmp_path, 1)), *TO_INBOX)

        assert (ended.code, f"lacks {table}" in ended.err, "--without" in ended.err) == (2, True, False), ended.err
        assert count_of(mail, IMAP_UID) == len(mail.truths)

    def test_what_was_loaded_is_not_loaded_again_by_accident(self, mailmend: CommandLine, tmp_path: Path) -> None:
        """Refused with the way to have a second copy; what was appended since is loaded alone."""
        folder = str(mbox(tmp_path, 2))
        mailmend("load", folder, *TO_INBOX)

        refused = mailmend("load", folder, *TO_INBOX)
        mbox(tmp_path, 3)
        grown = mailmend("load", folder, *TO_INBOX, "--json")
        again = mailmend("load", folder, *TO_INBOX, "--again", "--json")

        assert (refused.code, "--again" in refused.err) == (2, True)
        assert (grown.json["stored"], again.json["stored"]) == (1, 3)

    def test_the_sums_are_reported_to_people_with_what_to_do_next(
        self, mailmend: CommandLine, cluster: ClusterTwin, tmp_path: Path
    ) -> None:
        """Stored, refused by name, and lagging: with the command that mends them."""
        folder = tmp_path / "letters"
        folder.mkdir()
        (folder / "good.eml").write_text("Subject: x\n\nhello\n")
        (folder / "gone.eml").symlink_to(tmp_path / "nowhere")
        faults = Faults()
        faults.fail(on(MESSAGE_ID), CannotReach("no node answered"), times=6)
        cluster.keyspace("mail").surround = faults

        ended = mailmend("load", str(folder), *TO_INBOX)

        assert ended.code == 3
        assert "Stored 1 messages (18 bytes)." in ended.out
        assert "1 were refused; each was named." in ended.out
        assert "gone.eml: No such file or directory" in ended.err
        assert "1 lag. Next: mailmend repair lags --keyspace mail" in ended.out

    def test_an_interrupted_load_goes_on_where_it_was(
        self, mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin, tmp_path: Path
    ) -> None:
        """The cluster goes away in the midst: exit 4; the same command stores the rest, nothing twice."""
        folder = str(mbox(tmp_path, 3))
        faults = Faults()
        faults.pending.clear()
        cluster.keyspace("mail").surround = faults
        faults.fail(on(IMAP_UID, PutIfAbsent), CannotReach("no node answered"), times=100)

        broken = mailmend("load", folder, *TO_INBOX)
        faults.pending.clear()
        resumed = mailmend("load", folder, *TO_INBOX, "--json")

        assert (broken.code, resumed.code) == (4, 0), broken.err
        assert resumed.json["stored"] + resumed.json["already"] == 3
        assert count_of(mail, IMAP_UID) == 4 + 3

    def test_what_nobody_takes_note_of_is_said_and_fails_the_load(
        self, mailmend: CommandLine, cluster: ClusterTwin, tmp_path: Path
    ) -> None:
        """Neither ledger nor spool: every message is stored, and the command names what finds the lags."""
        spool = tmp_path / "data" / "mailmend" / "spool"
        spool.parent.mkdir(parents=True)
        spool.write_text("no folder")
        mailmend("repair", "lags", "--delay", "0")
        faults = {name: Faults() for name in ("mail", "mailmend")}
        for name, fault in faults.items():
            cluster.keyspace(name).surround = fault
        faults["mail"].fail(on(MESSAGE_ID), AccessDenied("no"), times=2)
        faults["mailmend"].fail(on(REPAIR_LAG), CannotReach("the ledger is away"), times=99)

        ended = mailmend("load", str(mbox(tmp_path, 3)), *TO_INBOX, "--json")

        cluster.clock.advance(1)

        assert (ended.code, ended.json["stored"], ended.json["lagged"], ended.json["unjournalled"]) == (3, 3, 2, 2)
        assert mailmend("check", *QUICK, "--json").json["findings"]["messageIdTable"] == {"PROJECT": 2}

    def test_names_are_written_as_james_writes_them(
        self, mailmend: CommandLine, mail: MailKeyspace, tmp_path: Path
    ) -> None:
        ended = mailmend("load", str(mbox(tmp_path, 1)), "--user", "Ann@Example.ORG", "--mailbox", "inbox")

        (path,) = mail.tables.scan(Scan(MAILBOX_PATH, ("user", "mailboxname")))
        assert (ended.code, path) == (0, {"user": "ann@example.org", "mailboxname": "INBOX"})

    @pytest.mark.parametrize(
        ("names", "says"),
        [
            (("ann", ""), "James has no mailbox '': it is empty"),
            (("ann", "100%"), "Did you mean '100'?"),
            (("ann", "#private"), "it begins with '#'"),
            (("ann", "x" * 201), "more than 200 characters"),
            (("ann bee", "INBOX"), "Did you mean 'annbee'?"),
            (("", "INBOX"), "James has no user '': it is empty"),
        ],
    )
    def test_names_that_james_cannot_know_are_refused_before_anything_is_written(
        self, mailmend: CommandLine, mail: MailKeyspace, tmp_path: Path, names: tuple[str, str], says: str
    ) -> None:
        user, mailbox = names
        ended = mailmend("load", str(mbox(tmp_path, 1)), "--user", user, "--mailbox", mailbox)

        assert (ended.code, says in ended.err) == (2, True), ended.err
        assert (count_of(mail, MAILBOX_PATH), count_of(mail, IMAP_UID)) == (0, len(mail.truths))

    def test_a_new_name_that_is_almost_another_is_said(self, mailmend: CommandLine, tmp_path: Path) -> None:
        mailmend("load", str(mbox(tmp_path, 1)), "--user", "ann@example.org", "--mailbox", "Sent")

        mailbox = mailmend("load", str(mbox(tmp_path, 1, "b")), "--user", "ann@example.org", "--mailbox", "sent")
        user = mailmend("load", str(mbox(tmp_path, 1, "c")), "--user", "anne@example.org", "--mailbox", "Sent")

        assert (mailbox.code, "mailbox 'sent' of 'ann@example.org' is new. Did you mean 'Sent'?" in mailbox.err) == (
            0,
            True,
        )
        assert (user.code, "'anne@example.org' is new. Did you mean 'ann@example.org'?" in user.err) == (0, True)

    def test_each_byte_of_an_mbox_is_accounted_for(self, mailmend: CommandLine, tmp_path: Path) -> None:
        path = tmp_path / "cr.mbox"
        path.write_bytes((LETTER * 3).replace("\n", "\r").encode())

        ended = mailmend("load", str(path), *TO_INBOX, "--json")

        found = ended.json
        parts = [found[name] for name in ("octets", "octets_envelopes", "octets_separators")]
        assert (ended.code, found["stored"], found["octets_read"]) == (0, 3, path.stat().st_size), ended.err
        assert (parts, sum(parts)) == ([60, 102, 3], path.stat().st_size)
        again = mailmend("load", str(path), *TO_INBOX, "--again")
        assert "165 bytes were read: 60 stored now, 102 of envelope lines, 3 of separators" in again.out

    def test_doubtful_lines_are_named_with_their_offsets(self, mailmend: CommandLine, tmp_path: Path) -> None:
        path = tmp_path / "doubtful.mbox"
        path.write_text(LETTER + "From memory: fine\nTo: whom\n\n" + LETTER)

        ended = mailmend("load", str(path), *TO_INBOX, "--json")
        shown = mailmend("load", str(path), *TO_INBOX, "--again")

        (doubt,) = ended.json["doubts"]
        assert (ended.code, ended.json["stored"], ended.json["doubtful"]) == (0, 2, 1)
        assert (doubt["offset"], doubt["line"], doubt["begins"]) == (len(LETTER), "From memory: fine", False)
        assert f"at byte {len(LETTER)}: 'From memory: fine' is part of a message" in ended.err
        assert "1 lines may be read in two ways" in shown.out
        assert "From memory: fine" in shown.out

    def test_what_is_skipped_has_its_own_sum_and_the_command_to_type_next(
        self, mailmend: CommandLine, tmp_path: Path
    ) -> None:
        maildir = tmp_path / "Maildir"
        for name in ("cur", "new", ".Sent/cur", ".Sent/new"):
            (maildir / name).mkdir(parents=True)
        (maildir / "cur" / "1.a:2,S").write_bytes(b"\x1f\x8b\x08\x00 packed")
        (maildir / "cur" / "2.a:2,S").write_text("Subject: x\n\nhello\n")
        (maildir / ".Sent" / "cur" / "3.a:2,S").write_text("Subject: x\n\nhello\n")

        ended = mailmend("load", str(maildir), *TO_INBOX, "--json")

        found = ended.json
        assert (ended.code, found["stored"], found["refused"], found["skipped"]) == (3, 1, 1, 1)
        assert [(one["reason"], one["why"]) for one in found["not_stored"]] == [
            ("refused", "it is a gzip file"),
            ("skipped", "a folder of its own"),
        ]
        assert found["not_stored"][1]["next"] == (
            f"Load it: mailmend load {maildir / '.Sent'} --user USER --mailbox Sent"
        )

    def test_a_load_whose_bytes_do_not_add_up_fails(
        self, mailmend: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Stands for any fault of reading: the load says so, and is not called complete."""
        path = mbox(tmp_path, 2)
        monkeypatch.setattr("mailmend.repair.store.mail_files.entries_in", lambda *args: list(entries_in(*args))[:1])

        ended = mailmend("load", str(path), *TO_INBOX)

        assert (ended.code, "55 bytes of" in ended.err, "are in no message" in ended.err) == (3, True, True), ended.err

    @pytest.mark.parametrize("keyspace", ["nowhere", "a;b"])
    def test_a_keyspace_that_is_not_there_is_refused_before_any_file_is_touched(
        self, mailmend: CommandLine, tmp_path: Path, keyspace: str
    ) -> None:
        """No journal of the load stays, or the next try would be refused."""
        ended = mailmend("load", str(mbox(tmp_path, 1)), *TO_INBOX, "--keyspace", keyspace)

        assert (ended.code, keyspace in ended.err) == (2, True)
        assert not (tmp_path / "data" / "mailmend" / "loads").exists()


class TestLags:
    """`repair lags`: exactly what was journalled."""

    @pytest.fixture
    def journal(self, mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin) -> LagJournal:
        mailmend("repair", "lags", "--delay", "0")
        return LagJournal(cluster.keyspace("mailmend"), mail.name, cluster.clock)

    def test_only_what_is_journalled_is_mended_and_then_forgotten(
        self, mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin, journal: LagJournal
    ) -> None:
        """A dry run tells it and keeps it; what nobody journalled stays as it is: no scan."""
        journalled, other = mail.truths[:2]
        mail.lose_projection(journalled)
        mail.lose_projection(other)
        journal.journal([mirror_suspect(journalled, Verdict.PROJECT)], "no node answered")
        cluster.clock.advance(1)

        dry = mailmend("repair", "lags", "--delay", "0", "--dry-run", "--json")
        mended = mailmend("repair", "lags", "--delay", "0", "--json")
        nothing = mailmend("repair", "lags", "--delay", "0", "--json")

        assert (dry.code, dry.json["due"], dry.json["run"]) == (1, {"PROJECT": 1}, None)
        assert (mended.code, mended.json["fixed"], mended.json["scanned"]) == (0, {"PROJECT": 1}, {})
        assert (nothing.code, nothing.json["suspects"]) == (0, 0)
        assert (mail.mirror(journalled) is not None, mail.mirror(other)) == (True, None)

    @pytest.mark.usefixtures("journal")
    def test_lags_on_the_local_disk_are_taken_too(
        self, mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin, tmp_path: Path
    ) -> None:
        mail.lose_projection(mail.truths[0])
        spool = Spool(tmp_path / "data" / "mailmend" / "spool", "mail")
        faults = Faults()
        faults.fail(lambda _: True, CannotReach("the ledger is away"))
        ledger = cluster.keyspace("mailmend")
        ledger.surround = faults
        LagJournal(ledger, "mail", cluster.clock, spool).journal([mirror_suspect(mail.truths[0], Verdict.PROJECT)], "")
        cluster.clock.advance(1)

        ended = mailmend("repair", "lags", "--delay", "0", "--json")

        assert (ended.json["fixed"], spool.files()) == ({"PROJECT": 1}, [])

    def test_a_dry_run_creates_no_ledger(self, mailmend: CommandLine, cluster: ClusterTwin) -> None:
        """Where nobody ever wrote through mailmend there is nothing to look for."""
        ended = mailmend("repair", "lags", "--delay", "0", "--dry-run")

        assert (ended.code, cluster.carried_out) == (0, []), ended.err
        assert "Nothing was written. A repair would mend 0." in ended.out

    def test_a_lag_that_cannot_be_mended_yet_is_kept(
        self, mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin, journal: LagJournal
    ) -> None:
        mail.lose_projection(mail.truths[0])
        mail.lose_content(mail.truths[0])
        journal.journal([mirror_suspect(mail.truths[0], Verdict.PROJECT)], "")
        cluster.clock.advance(1)

        ended = [mailmend("repair", "lags", "--delay", "0", "--json") for _ in range(2)]

        assert [(one.code, one.json["left"]) for one in ended] == [(1, {"LOST_CONTENT": 1})] * 2

    def test_lags_can_be_undone_like_any_run(
        self, mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin, journal: LagJournal
    ) -> None:
        mail.tables.write(Put(MESSAGE_ID, {"mailboxid": mail.mailbox, "uid": 1, "modseq": 0}))
        journal.journal([mirror_suspect(mail.truths[0], Verdict.AMEND)], "")
        cluster.clock.advance(1)
        run = mailmend("repair", "lags", "--delay", "0", "--json").json["run"]
        mended = mail.mirror(mail.truths[0])
        assert mended is not None
        assert mended["modseq"] == 1

        assert mailmend("undo", run).code == 0
        stale = mail.mirror(mail.truths[0])
        assert stale is not None
        assert stale["modseq"] == 0


class TestRunbook:
    """Pages for three in the morning."""

    def test_every_page_is_listed_with_its_question(self, mailmend: CommandLine) -> None:
        listed = mailmend("runbook", "list").out
        names = {one["name"]: one["title"] for one in mailmend("runbook", "list", "--json").json["runbooks"]}

        assert names == {page.name: page.title for page in pages()}
        assert all(name in listed for name in names)

    def test_a_page_goes_to_a_file_as_it_is(self, mailmend: CommandLine) -> None:
        assert mailmend("runbook", "show", "flags-differ").out == runbook.page_named("flags-differ").text

    def test_a_page_that_is_not_there_is_refused(self, mailmend: CommandLine) -> None:
        ended = mailmend("runbook", "show", "no")

        assert (ended.code, "mailmend runbook list" in ended.err) == (2, True)

    def test_an_installed_package_reads_its_own_pages(
        self, mailmend: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In a wheel they lie inside of `admin`; a checkout's folder beside it is not looked at then."""
        package = tmp_path / "site-packages" / "admin"
        (package / "runbooks").mkdir(parents=True)
        (package / "runbooks" / "only-here.md").write_text("# Is it read?\n\n## When\nNow.\n")
        (package / "runbooks" / "README.md").write_text("# Not a page\n")
        (package.parent / "runbooks").mkdir()
        (package.parent / "runbooks" / "elsewhere.md").write_text("# Not this one\n")
        monkeypatch.setattr(runbook, "__file__", str(package / "runbook.py"))
        monkeypatch.setattr(runbook, "files", lambda _: package, raising=False)

        assert json.loads(mailmend("runbook", "list", "--json").out) == {
            "runbooks": [{"name": "only-here", "title": "Is it read?"}]
        }

"""A column or table that somebody dropped: told as drift, never written around, left out on demand."""

from pathlib import Path

import pytest

from mailmend.model.errors import ExitCode
from tests.support.cluster_twin import ClusterTwin
from tests.support.commands import QUICK, CommandLine, Typed
from tests.support.mail_states import MailKeyspace
from tests.support.schemas import columns_of, with_columns, without_tables


def drop_flag(cluster: ClusterTwin) -> None:
    """ALTER TABLE messageIdTable DROP flagFlagged, in the schema that the cluster tells."""
    live = cluster.keyspaces["mail"]
    kept = (one for one in columns_of(live, "messageidtable") if one.name != "flagflagged")
    cluster.keyspaces["mail"] = with_columns(live, "messageidtable", kept)


class TestMissingColumn:
    """Somebody drops a column that is compared: that is drift, and no repair writes rows that lack it."""

    def test_a_check_names_it_as_drift_in_every_form(
        self, mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin, tmp_path: Path
    ) -> None:
        mail.lose_flag_update(mail.truths[0])
        drop_flag(cluster)
        cluster.clock.advance(1)

        as_json = mailmend("check", "messages", *QUICK, "--json")
        shown = mailmend("check", "messages", *QUICK, "--report", str(tmp_path / "drift.html"))

        assert (as_json.code, shown.code) == (1, 1)
        assert as_json.json["missing_columns"] == [{"table": "messageIdTable", "column": "flagFlagged"}]
        report = (tmp_path / "drift.html").read_text()
        assert all("messageIdTable" in text and "flagFlagged" in text for text in (shown.out, report))
        assert "Next: mailmend schema verify --keyspace mail" in shown.out
        assert "No drift" not in shown.out

    @pytest.mark.parametrize("what", ["messages", "lags"])
    @pytest.mark.parametrize("options", [(), ("--dry-run",)])
    def test_a_repair_is_refused_and_names_what_mends(
        self, mailmend: CommandLine, cluster: ClusterTwin, what: str, options: tuple[str, ...]
    ) -> None:
        drop_flag(cluster)

        ended = mailmend("repair", what, "--delay", "0", *options)

        assert ended.code == ExitCode.WRONG_USE
        assert "lacks messageIdTable.flagFlagged" in ended.err
        assert "mailmend schema verify --keyspace mail; or leave it out: --without flagFlagged" in ended.err

    def test_what_is_left_out_is_neither_compared_nor_written(
        self, mailmend: CommandLine, mail: MailKeyspace, mend: Typed, cluster: ClusterTwin
    ) -> None:
        """With the column or without it there: only modSeq differs, and only the rest of the row is written."""
        mail.lose_flag_update(mail.truths[0])
        ended = mend("--without", "FLAGFLAGGED")
        assert (ended.code, ended.json["fixed"]) == (0, {"AMEND": 1})
        assert (mail.mirror(mail.truths[0]) or {})["flagflagged"] is False
        assert ended.json["unseen"] == "Neither compared nor written: FLAGFLAGGED."

        only_the_flag = mailmend("check", *QUICK, "--without", "flagFlagged")
        whole = mailmend("check", *QUICK)
        drop_flag(cluster)

        assert (only_the_flag.code, whole.code) == (0, 1)
        assert mailmend("check", *QUICK, "--without", "flagFlagged").code == 0
        assert mend("--without", "flagFlagged").code == 0

    def test_an_unknown_column_and_a_whole_row_of_truth_do_not_go_with_it(self, mend: Typed) -> None:
        unknown, restore = mend("--without", "flagSean"), mend("--without", "flagSeen", "--dangling", "restore")

        assert (unknown.code, restore.code) == (2, 2)
        assert "'flagSean' is not a column or a table that can be left out" in unknown.err
        assert "--dangling restore does not go with --without" in restore.err


class TestWhatDecides:
    """A table, or a column of the truth by which one is decided, is dropped: drift, and all else is still checked."""

    @pytest.fixture(params=["firstUnseen", "flagSeen"])
    def lost(self, request: pytest.FixtureRequest, cluster: ClusterTwin) -> str:
        live, name = cluster.keyspaces["mail"], str(request.param)
        kept = (one for one in columns_of(live, "imapuidtable") if one.name != name.lower())
        cluster.keyspaces["mail"] = without_tables(with_columns(live, "imapuidtable", kept), name.lower(), name)
        return name

    def test_it_is_reported_in_every_form_and_other_drift_is_found(
        self, mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin, tmp_path: Path, lost: str
    ) -> None:
        mail.lose_projection(mail.truths[0])
        cluster.clock.advance(1)

        as_json = mailmend("check", *QUICK, "--json")
        shown = mailmend("check", *QUICK, "--report", str(tmp_path / "drift.html"))

        named = (as_json.json["missing_tables"], as_json.json["missing_columns"])
        column = [{"table": "imapUidTable", "column": "flagSeen"}]
        assert named == ((["firstUnseen"], []) if lost == "firstUnseen" else ([], column))
        assert (as_json.code, shown.code, as_json.json["findings"]) == (1, 1, {"messageIdTable": {"PROJECT": 1}})
        report = (tmp_path / "drift.html").read_text()
        assert all(lost in text and "Not looked at: firstUnseen" in text for text in (shown.out + shown.err, report))
        assert "Next: mailmend schema verify --keyspace mail" in shown.out

    def test_what_writes_is_refused_until_it_is_left_out(
        self, mailmend: CommandLine, mail: MailKeyspace, mend: Typed, lost: str
    ) -> None:
        mail.lose_projection(mail.truths[0])

        for refused in (mend(), mend("--mailbox", str(mail.mailbox)), mailmend("repair", "lags", "--delay", "0")):
            assert (refused.code, f"--without {lost}" in refused.err) == (2, True), refused.err
        assert mend("--without", lost).json["fixed"] == {"PROJECT": 1}
        assert mailmend("check", *QUICK, "--without", lost).code == 0

    def test_a_run_is_not_undone_half(
        self, mailmend: CommandLine, mail: MailKeyspace, mend: Typed, cluster: ClusterTwin
    ) -> None:
        """Before-images hold the column: they could not be put back whole."""
        mail.lose_flag_update(mail.truths[0])
        run = mend().json["run"]
        drop_flag(cluster)

        refused = mailmend("undo", run)

        assert (refused.code, "lacks messageIdTable.flagFlagged" in refused.err) == (2, True)
        assert "--without" not in refused.err
        assert len(mailmend("runs", "list", "--json").json["runs"]) == 1

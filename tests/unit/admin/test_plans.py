"""A repair that is planned and applied apart, as a person types it, against a cluster in memory."""

import json
import stat
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from mailmend.admin.frame.plan_files import PlanHead, PlanKind, plan_in, plan_into
from mailmend.cql.introspect import identity_of
from mailmend.model.catalog.mail import IMAP_UID, MAILBOX_COUNTERS, MESSAGE_ID, MESSAGE_V3
from mailmend.model.instants import MICROS
from mailmend.model.operations import Change, Count, Put, Read, Scan
from mailmend.model.projections.findings import Finding
from mailmend.model.projections.verdicts import Verdict
from tests.support.clock import START
from tests.support.cluster_twin import ClusterTwin
from tests.support.commands import QUICK, CommandLine, Ended, Typed
from tests.support.mail_states import MailKeyspace
from tests.support.repairing import DAY_SECONDS, content_row, message, mirror_row, mirror_suspect, truth_row
from tests.support.schema_twin import SchemaTwin
from tests.support.schemas import columns_of, with_columns
from tests.support.striking import interrupted_after
from tests.support.writing import Faults


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "plan.jsonl"


@pytest.fixture
def plan(mailmend: CommandLine, cluster: ClusterTwin, file: Path) -> Typed:
    """`repair messages --plan` at once, a second after whatever happened before, and a second before what comes."""

    def call(*arguments: str) -> Ended:
        cluster.clock.advance(1)
        ended = mailmend("repair", "messages", *QUICK, "--json", "--plan", str(file), *arguments)
        cluster.clock.advance(1)
        return ended

    return call


@pytest.fixture
def apply(mailmend: CommandLine, file: Path) -> Typed:
    return lambda *arguments: mailmend("apply", str(file), "--json", *arguments)


def lines_of(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_plan_writes_nothing_but_its_file_and_is_then_done_exactly(  # noqa: PLR0917 - fixtures
    mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin, plan: Typed, apply: Typed, file: Path
) -> None:
    """What went apart after the plan is none of it; undo, ledger and JSON are those of a repair."""
    missing, wrong, later, _ = mail.truths
    mail.lose_projection(missing)
    mail.lose_flag_update(wrong)
    asked = cluster.keyspace("mail").surround = Faults()

    planned = plan()

    assert (planned.code, planned.json["due"], planned.json["run"]) == (1, {"PROJECT": 1, "AMEND": 1}, None)
    assert all(isinstance(one, Read | Scan) for one in asked.seen)
    assert (cluster.carried_out, set(cluster.keyspaces)) == ([], {"mail"})
    assert stat.S_IMODE(file.stat().st_mode) == 0o600

    mail.lose_projection(later)
    dry = apply("--dry-run")
    assert (dry.code, dry.json["due"], mail.mirror(missing)) == (1, {"PROJECT": 1, "AMEND": 1}, None)
    asked.seen.clear()
    applied = apply()

    assert (applied.code, applied.json["fixed"], applied.json["left"]) == (0, {"PROJECT": 1, "AMEND": 1}, {})
    assert (applied.json["command"], applied.json["scanned"], set(applied.json)) == ("apply", {}, set(planned.json))
    assert not [one for one in asked.seen if isinstance(one, Scan)]
    assert (mail.mirror(missing) is None, mail.mirror(later)) == (False, None)
    (seen,) = mail.tables.read(Read(MESSAGE_ID, (missing["mailboxid"], missing["uid"]), times=True))
    assert seen.newest == lines_of(file)[0]["policy"]["as_of"]  # type: ignore[index] # the head's
    again = mailmend("apply", str(file))
    assert ("Nothing had to be mended." in again.out, "What became of them" in again.out) == (True, False)
    shown = mailmend("runs", "show", applied.json["run"], "--json").json
    assert shown["options"]["seal"] == lines_of(file)[-1]["seal"]

    assert mailmend("undo", applied.json["run"], "--json").json["fixed"] == {"PROJECT": 1, "AMEND": 1}
    assert mail.mirror(missing) is None


def test_what_is_not_as_it_was_seen_is_left(
    mail: MailKeyspace, cluster: ClusterTwin, plan: Typed, apply: Typed, tmp_path: Path
) -> None:
    """Changed by a user, gone, mended meanwhile by another: no verdict is acted on that was not approved."""
    changed, deleted, mended, same = mail.truths
    for truth in mail.truths:
        mail.lose_projection(truth)
    assert plan().json["due"] == {"PROJECT": 4}

    mail.lose_flag_update(changed)
    mail.lose_truth(deleted)
    mail.tables.write(Put(MESSAGE_ID, mirror_row(mended)))
    cluster.clock.advance(DAY_SECONDS / 2)
    findings = tmp_path / "findings.jsonl"
    applied = apply("--findings", str(findings))

    assert (applied.code, applied.json["fixed"], applied.json["moved"]) == (0, {"PROJECT": 1}, 1)
    assert [mail.mirror(one) is None for one in (changed, deleted, mended, same)] == [True, True, False, False]
    assert applied.json["reasons"] == {"MOVED": {"not as the plan saw it": 1}}
    assert applied.json["too_young"] == 0


def test_older_writes_that_arrive_late_are_another_before_image(
    mail: MailKeyspace, cluster: ClusterTwin, plan: Typed, apply: Typed
) -> None:
    """T alone would not tell: their timestamps lie before it."""
    truth = mail.truths[0]
    mail.lose_projection(truth)
    plan()
    flagged = {"flagflagged": True, "modseq": 9}
    at = cluster.clock.micros() - 2 * MICROS
    mail.tables.write(Change(IMAP_UID, IMAP_UID.key_of(truth), assign=flagged, at=at - MICROS // 2))

    assert (apply().json["moved"], mail.mirror(truth)) == (1, None)


def test_a_plan_that_was_half_done_goes_on_and_a_done_one_does_nothing(
    mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin, plan: Typed, apply: Typed
) -> None:
    """Each of its runs counts, and takes back, what it wrote itself."""
    first, second, *_ = mail.truths
    for truth in (first, second):
        mail.lose_projection(truth)
    plan()
    cluster.keyspace("mail").surround = interrupted_after(MESSAGE_ID)
    assert apply().code == 130
    (half,) = mailmend("runs", "list", "--json").json["runs"]
    rest, nothing = apply(), apply()

    assert (half["summary"]["fixed"], rest.json["fixed"]) == ({"PROJECT": 1}, {"PROJECT": 1})
    assert (nothing.code, nothing.json["fixed"], nothing.json["suspects"]) == (0, {}, 2)
    undone = mailmend("undo", half["run"], "--json").json
    assert undone["fixed"] == {"PROJECT": 1}
    assert sorted(mail.mirror(one) is None for one in (first, second)) == [False, True]
    for refused in (apply(), apply("--dry-run")):  # what was taken back stays so, and is not hidden by the undo's time
        assert (refused.code, f"mailmend undo {undone['run']}" in refused.err) == (2, True), refused.err
    assert mailmend("undo", undone["run"], "--json").json["fixed"] == {"PROJECT": 1}
    assert (apply().code, [mail.mirror(one) is None for one in (first, second)]) == (0, [False, False])
    again = mailmend("undo", half["run"], "--json").json
    assert f"mailmend undo {again['run']}" in apply().err


def test_counters_are_done_as_planned_or_left(mail: MailKeyspace, plan: Typed, apply: Typed) -> None:
    mail.tables.write(Count(MAILBOX_COUNTERS, (mail.mailbox,), {"count": 3}))
    assert plan().json["due"] == {"AMEND": 1}
    assert apply().json["fixed"] == {"AMEND": 1}
    assert mail.get(MAILBOX_COUNTERS, (mail.mailbox,)) == {"mailboxid": mail.mailbox, "count": 4, "unseen": 2}

    assert (apply().json["moved"], apply().json["fixed"]) == (0, {})

    mail.tables.write(Count(MAILBOX_COUNTERS, (mail.mailbox,), {"count": 3}))
    plan()
    mail.tables.write(Count(MAILBOX_COUNTERS, (mail.mailbox,), {"count": 1}))
    assert (apply().json["moved"], apply().json["fixed"]) == (1, {})


def test_counters_wait_in_a_plan_until_the_rows_of_their_mailbox_agree(
    mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin, plan: Typed, apply: Typed
) -> None:
    """One approval for all that one repair would mend: rows first, then what they kept from being mended."""
    mail.lose_projection(mail.truths[0])
    mail.tables.write(Count(MAILBOX_COUNTERS, (mail.mailbox,), {"count": 3}))

    planned = plan("--only", "AMEND,PROJECT")
    assert (planned.json["due"], planned.json["left"]) == ({"PROJECT": 1}, {"PROJECT": 1, "AMEND": 1})
    assert apply("--dry-run").json["reasons"]["AMEND"] == {
        "rows of its mailbox differ: counters are mended once they agree": 1
    }

    applied = apply().json
    assert (applied["fixed"], applied["left"]) == ({"PROJECT": 1, "AMEND": 1}, {})
    assert mailmend("undo", applied["run"], "--json").json["fixed"] == {"PROJECT": 1, "AMEND": 1}


QUEUES = ("level", "rows_per_second", "broker", "blobs", "marks", "no_blobs")


def test_memory_does_not_grow_with_a_plan(file: Path) -> None:
    head = PlanHead(kind=PlanKind.MESSAGES, keyspace="mail", tables="", options="", policy={"as_of": START, "only": []})
    of_queues = replace(
        head,
        kind=PlanKind.QUEUES,
        policy={"as_of": START, **dict.fromkeys(QUEUES), "level": "LOCAL_QUORUM", "no_blobs": False},
    )
    number = 4_000
    tracemalloc.start()
    with plan_into(file, head) as made:
        for uid in range(1, number + 1):
            suspect = mirror_suspect(truth_row(1, uid=uid), Verdict.PROJECT)
            made.add(Finding(suspect, Verdict.PROJECT, due=True))
            made.add(Finding(suspect, Verdict.CLASH))
    octets = file.stat().st_size
    with plan_in(file) as plan:
        keys = sum(len(suspect.key) for suspect in plan.suspects())
        assert (plan.verdicts, plan.head) == ({"messageIdTable": {Verdict.PROJECT: number}}, head)
    with plan_into(file, of_queues) as made:
        for uid in range(1, number + 1):
            made.add_line("deletedMailsV2", "ORPHAN_MARK", {"mark": ["spool", str(message(uid))]})
    with plan_in(file) as plan:
        marks = sum(1 for _ in plan.marks())
        assert (plan.verdicts, plan.head) == ({"deletedMailsV2": {Verdict.ORPHAN_MARK: number}}, of_queues)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert (keys, marks, octets > 800_000) == (2 * number, number, True)
    assert peak < 400_000


class TestRefused:
    """Exit 2, what is wrong, what to do: and nothing was written, no ledger made."""

    @pytest.fixture(autouse=True)
    def _planned(self, mail: MailKeyspace, plan: Typed) -> None:
        mail.lose_projection(mail.truths[0])
        plan()

    @pytest.fixture(autouse=True)
    def _unwritten(self, mail: MailKeyspace, cluster: ClusterTwin, _planned: None) -> object:
        yield
        assert (mail.mirror(mail.truths[0]), set(cluster.keyspaces) - {"other"}) == (None, {"mail"})

    def test_an_old_one(self, apply: Typed, cluster: ClusterTwin) -> None:
        cluster.clock.advance(3 * 3600)
        refused = apply("--max-age", "3h")
        assert (refused.code, "more than 3h ago" in refused.err, "--max-age" in refused.err) == (2, True, True)
        assert apply("--max-age", "4h", "--dry-run").code == 1
        cluster.clock.advance(DAY_SECONDS)
        assert apply().code == 2

    def test_one_from_the_future(self, apply: Typed, cluster: ClusterTwin) -> None:
        cluster.clock.advance(-3600)
        refused = apply()
        assert (refused.code, "in the future" in refused.err) == (2, True)

    def test_one_of_another_keyspace(self, apply: Typed, cluster: ClusterTwin) -> None:
        cluster.keyspaces["other"] = cluster.keyspaces["mail"]
        refused = apply("--keyspace", "other")
        assert (refused.code, "of keyspace 'mail', not of 'other'" in refused.err) == (2, True)

    def test_one_made_before_a_table_was_altered(self, apply: Typed, cluster: ClusterTwin) -> None:
        live = cluster.keyspaces["mail"]
        more = (*columns_of(live, "imapuidtable"), columns_of(live, "mailboxcounters")[1])
        cluster.keyspaces["mail"] = with_columns(live, "imapuidtable", more)
        refused = apply()
        assert (refused.code, "another cluster" in refused.err) == (2, True)

    def test_one_that_is_not_as_it_was_written(self, apply: Typed, file: Path) -> None:
        whole = file.read_text()
        for edited, said in (
            (whole.replace('"PROJECT"', '"AMEND"', 1), "edited"),
            (whole.replace('"orphans":"report"', '"orphans":"quarantine"'), "edited"),
            (whole.replace('{"PROJECT":1}', '{"PROJECT":2}'), "edited"),
            ("".join(whole.splitlines(keepends=True)[:-1]), "not whole"),
            (whole[: whole.index("before")], "not whole"),
            (whole + "\n", "edited"),
            (whole.replace('"format":1', '"format":2', 1), "format 2"),
            ("", "not a plan"),
            ("[]\n", "not a plan"),
            ("\0\n", "not a plan"),
        ):
            file.write_text(edited)
            refused = apply()
            assert edited != whole
            assert (refused.code, said in refused.err, "Traceback" in refused.err) == (2, True, False), refused.err

    def test_one_that_is_not_there(self, mailmend: CommandLine, tmp_path: Path) -> None:
        for place in (tmp_path, tmp_path / "none"):
            assert (mailmend("apply", str(place)).code, "no file" in mailmend("apply", str(place)).err) == (2, True)


class TestByName:
    """What destroys was asked for when the plan was made; what may bring back is asked about again."""

    def test_options_decide_where_the_plan_is_made(self, mail: MailKeyspace, plan: Typed, apply: Typed) -> None:
        """A lost content is quarantined by a plan that says so, and by no other."""
        mail.lose_content(mail.truths[0])
        key = IMAP_UID.key_of(mail.truths[0])

        assert (plan().json["due"], apply().json["fixed"], mail.get(IMAP_UID, key) is None) == ({}, {}, False)
        assert plan("--orphans", "quarantine").json["due"] == {"LOST_CONTENT": 1}
        assert (apply().json["fixed"], mail.get(IMAP_UID, key)) == ({"LOST_CONTENT": 1}, None)

    def test_content_is_collected_by_a_plan_unless_a_truth_came(
        self, mail: MailKeyspace, plan: Typed, apply: Typed
    ) -> None:
        for number in (7, 8):
            mail.tables.write(Put(MESSAGE_V3, content_row(message(number)), at=1))
        assert plan("--leaks", "collect").json["due"] == {"LEAK": 2}
        mail.tables.write(Put(IMAP_UID, {**mail.truths[0], "messageid": message(7), "uid": 7}))

        applied = apply().json

        assert (applied["fixed"], applied["moved"]) == ({"LEAK": 1}, 0)
        assert mail.get(MESSAGE_V3, (message(7),)) is not None

    def test_restoring_asks_where_it_is_done(self, mail: MailKeyspace, plan: Typed, apply: Typed) -> None:
        mail.lose_truth(mail.truths[0])
        key = IMAP_UID.key_of(mail.truths[0])
        assert plan("--dangling", "restore").json["due"]["WITHDRAW"] >= 1

        refused = apply()
        assert (refused.code, "--yes" in refused.err, mail.get(IMAP_UID, key)) == (2, True, None)
        assert apply("--dry-run").code == 1
        assert apply("--yes").code in {0, 1}
        assert mail.get(IMAP_UID, key) is not None

    def test_stores_are_of_other_plans(self, plan: Typed, apply: Typed) -> None:
        plan()
        refused = apply("--broker", "amqp://rabbit")
        assert (refused.code, "--broker amqp://rabbit has no effect on a plan of messages" in refused.err) == (2, True)

    def test_what_says_nothing_beside_a_plan_is_refused(self, plan: Typed, file: Path) -> None:
        for words in (("--max-fixes", "1"), ("--yes",), ("--keep", "1d")):
            assert (plan(*words).code, file.exists()) == (2, False)


def test_a_place_that_cannot_be_written_is_refused_before_the_scan(
    mailmend: CommandLine, cluster: ClusterTwin, tmp_path: Path, mail: MailKeyspace
) -> None:
    mail.lose_projection(mail.truths[0])
    cluster.clock.advance(1)
    asked = cluster.keyspace("mail").surround = Faults()

    assert mailmend("repair", "messages", *QUICK, "--plan", str(tmp_path / "no" / "plan")).code == 2
    assert asked.seen == []
    full = mailmend("repair", "messages", *QUICK, "--plan", "/dev/full")
    assert (full.code, "/dev/full cannot be written" in full.err) == (3, True)


def test_people_read_what_comes_next(
    mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin, file: Path
) -> None:
    mail.lose_projection(mail.truths[0])
    cluster.clock.advance(1)

    planned = mailmend("repair", "messages", *QUICK, "--orphans", "quarantine", "--plan", str(file))
    assert f"Next: mailmend apply {file} --keyspace mail" in planned.out
    assert f"Next: mailmend apply {file} --keyspace mail" in mailmend("apply", str(file), "--dry-run").out
    mail.lose_flag_update(mail.truths[0])

    moved = mailmend("apply", str(file)).out
    assert "Next: mailmend repair messages --keyspace mail --engine local --delay 0s" in moved
    assert all(f" {words}" in moved for words in ("--orphans quarantine", "--no-writers", f"--plan {file} "))


def test_a_table_made_anew_is_another() -> None:
    """Two clusters may have the same names and columns: the ids of their tables differ."""

    class Server(SchemaTwin):
        ids = "a"

        def query(self, text: str, _: object = ()) -> list[dict[str, object]]:
            return [{"table_name": "t", "id": self.ids}] if " id " in text else []

    one, other = Server(), Server()
    other.ids = "b"
    assert identity_of(one, "k", ("t",)) == identity_of(one, "k", {"t"}) != identity_of(other, "k", ("t",))

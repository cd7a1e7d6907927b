"""The declarations: each projection's key and row follow from the truth row alone."""

from uuid import uuid1

from mailmend.model.catalog.mail import FAMILIES, MESSAGES, PATHS
from mailmend.model.projections.conditions import Condition
from mailmend.model.projections.projection import Mirror

MAILBOX, MESSAGE = uuid1(), uuid1()
TRUTH = {"messageid": MESSAGE, "mailboxid": MAILBOX, "uid": 7, "modseq": 3, "flagseen": True, "userflags": {"a"}}


def test_the_mirror_is_the_truth_under_another_key() -> None:
    """Every column that both have, and nothing of its own."""
    row = MESSAGES.mirror.row_of(TRUTH)
    assert MESSAGES.mirror.key_of(TRUTH) == (MAILBOX, 7)
    assert set(row) == set(MESSAGES.mirror.table.names)
    assert MESSAGES.mirror.agree(TRUTH, row)


def test_a_mirror_that_differs_anywhere_does_not_agree() -> None:
    """Every compared column counts, also the ones that James's repair never looks at."""
    for column in MESSAGES.mirror.compared:
        other = not TRUTH.get(column.name) if column.type == "boolean" else "something else"
        row = MESSAGES.mirror.row_of(TRUTH) | {column.name: other}
        assert not MESSAGES.mirror.agree(TRUTH, row), column.name


def test_a_path_and_its_mailbox_agree_under_their_different_names() -> None:
    """The fields of the user type stand for the registry's columns."""
    path = {"namespace": "#private", "user": "bob", "mailboxname": "INBOX", "mailboxid": MAILBOX, "uidvalidity": 9}
    mailbox = {
        "id": MAILBOX,
        "mailboxbase.namespace": "#private",
        "mailboxbase.user": "bob",
        "name": "INBOX",
        "uidvalidity": 9,
    }
    assert PATHS.mirror.key_of(path) == (MAILBOX,)
    assert PATHS.mirror.agree(path, mailbox)
    assert not PATHS.mirror.agree(path, mailbox | {"name": "Sent"})
    assert PATHS.mirror.restored(mailbox) == path


def test_the_recents_table_keeps_its_misspelt_key() -> None:
    """James's own typing error is part of the schema."""
    recents = MESSAGES.filters[2]
    assert recents.key == (("mailboxid", "mailboxid"), ("recent_mesage_uid", "uid"))
    assert recents.key_of(TRUTH) == (MAILBOX, 7)


def test_each_message_counts_once_and_once_more_while_unseen() -> None:
    """What one row adds to the mailbox's counters."""
    assert MESSAGES.counts[0].deltas_of(TRUTH) == {"count": 1, "unseen": 0}
    assert MESSAGES.counts[0].deltas_of(TRUTH | {"flagseen": None}) == {"count": 1, "unseen": 1}


def test_a_condition_reads_null_as_false() -> None:
    """A null flag is an unset flag."""
    assert Condition("flagseen", value=False).holds({"flagseen": None})
    assert not Condition("flagdeleted", value=True).holds({})
    assert Condition("flagdeleted", value=True).holds({"flagdeleted": True})


def test_a_row_lacking_what_every_insert_writes_is_torn() -> None:
    """A flag update alone writes modseq and flags."""
    whole = TRUTH | {"internaldate": 1, "bodystartoctet": 1, "fullcontentoctets": 1, "headercontent": "x"}
    assert MESSAGES.mirror.whole(whole)
    assert not MESSAGES.mirror.whole(TRUTH)


def test_every_declared_column_exists_in_its_table() -> None:
    """A typing error in the catalog fails here, not at night."""
    for family in FAMILIES:
        for projection in family.projections:
            for mine, theirs in projection.key:
                assert mine in projection.table
                assert theirs in projection.truth
            if isinstance(projection, Mirror):
                renamed = dict(projection.renamed)
                assert all(column.name in projection.table for column in projection.compared)
                assert all(renamed.get(c.name, c.name) in projection.truth for c in projection.compared)


def test_findings_name_projections_as_james_spells_them() -> None:
    """The names are a contract with scripts."""
    assert [projection.name for projection in MESSAGES.projections] == [
        "messageIdTable",
        "firstUnseen",
        "messageDeleted",
        "mailboxRecents",
        "applicableFlag",
        "mailboxCounters",
        "messageV3",
    ]

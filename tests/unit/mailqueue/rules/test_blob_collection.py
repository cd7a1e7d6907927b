"""Which blobs may go: what ids tell, generations as James has them, and never what is younger than a day."""

import base64
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from mailmend.mailqueue.rules.blob_ids import BlobName, BlobVerdict, CollectionRule, ListedBlob, blob_name, referred_as
from mailmend.model.catalog.james_tables import naming_blobs
from mailmend.model.errors import WrongUse
from mailmend.model.ids import BlobId
from mailmend.model.table import Column, Kind, Table

NOW = datetime(2026, 11, 23, tzinfo=UTC)
DAY, MONTH = timedelta(days=1), timedelta(days=30)
CURRENT = (NOW - datetime(1970, 1, 1, tzinfo=UTC)) // MONTH
DIGEST = bytes(range(180, 212))
HASH = base64.urlsafe_b64encode(DIGEST).decode()
STANDARD = base64.standard_b64encode(DIGEST).decode()
RANDOM = "4c1e8a44-3c1b-4d0b-9f0e-6a3f2a1b0c9d"
RULE = CollectionRule(NOW)


@pytest.mark.parametrize(
    ("blob_id", "name"),
    [
        (f"1_692_{HASH}", BlobName(1, 692, by_content=True)),
        (f"1_692_{STANDARD}", BlobName(1, 692, by_content=True)),
        (f"1_692_{HASH.rstrip('=')}", BlobName(1, 692, by_content=True)),
        (f"1_692_{DIGEST.hex()}", BlobName(1, 692, by_content=True)),
        (f"1_692_{DIGEST.hex().upper()}", BlobName(1, 692, by_content=True)),
        (f"1_692_{base64.b32encode(DIGEST).decode()}", BlobName(1, 692, by_content=True)),
        (f"1_692_{base64.b32hexencode(DIGEST).decode()}", BlobName(1, 692, by_content=True)),
        (f"1_692_{RANDOM}", BlobName(1, 692, by_content=False)),
        (f"1/692/{RANDOM[0]}/{RANDOM[1]}/{RANDOM[2:]}", BlobName(1, 692, by_content=False)),
        (f"1/692/{STANDARD[0]}/{STANDARD[1]}/{STANDARD[2:]}", BlobName(1, 692, by_content=True)),
        (f"recovery/1_692_{HASH}", BlobName(1, 692, by_content=True)),
        (HASH, BlobName(None, None, by_content=True)),
        (RANDOM, BlobName(None, None, by_content=False)),
        ("backup/2026.tar", None),
        (f"1_692_{HASH[:-3]}", None),
        ("1_692_", None),
        (f"x_692_{HASH}", None),
        (f"vault/1_692_{HASH}", None),
    ],
)
def test_what_an_id_tells(blob_id: str, name: BlobName | None) -> None:
    assert blob_name(blob_id) == name


@pytest.mark.parametrize(
    ("blob_id", "age", "verdict"),
    [
        # generations: the current one and the one before it stay, whatever their age
        (f"1_{CURRENT}_{HASH}", MONTH, BlobVerdict.TOO_YOUNG),
        (f"1_{CURRENT - 1}_{HASH}", MONTH, BlobVerdict.TOO_YOUNG),
        (f"1_{CURRENT + 7}_{HASH}", MONTH, BlobVerdict.TOO_YOUNG),
        (f"1_{CURRENT - 2}_{HASH}", MONTH, BlobVerdict.COLLECT),
        (f"1_{CURRENT - 2}_{RANDOM}", MONTH, BlobVerdict.COLLECT),
        (f"recovery/1_{CURRENT - 2}_{HASH}", MONTH, BlobVerdict.COLLECT),
        # put back from a backup just now
        (f"1_{CURRENT - 2}_{HASH}", DAY / 2, BlobVerdict.TOO_YOUNG),
        # tables do not say when: the generation does
        (f"1_{CURRENT - 2}_{HASH}", None, BlobVerdict.COLLECT),
        # without a generation the age decides, and nobody's word for it is not enough
        (HASH, DAY + timedelta(seconds=1), BlobVerdict.COLLECT),
        (HASH, DAY, BlobVerdict.TOO_YOUNG),
        (RANDOM, DAY / 2, BlobVerdict.TOO_YOUNG),
        (RANDOM, -DAY, BlobVerdict.TOO_YOUNG),
        (RANDOM, None, BlobVerdict.TOO_YOUNG),
        # other families and other names stay
        (f"2_{CURRENT - 9}_{HASH}", MONTH, BlobVerdict.UNKNOWN_PREFIX),
        ("backup/2026.tar", MONTH, BlobVerdict.UNKNOWN_PREFIX),
        # chunks of James's compaction stay, whatever the length of their names
        (f"1_{CURRENT - 2}_chunk{HASH[:22]}", MONTH, BlobVerdict.PACKED),
        (f"1_{CURRENT - 2}_chunk{HASH[:38]}", MONTH, BlobVerdict.PACKED),
        (f"2_{CURRENT - 9}_chunk{HASH[:22]}", None, BlobVerdict.PACKED),
    ],
)
def test_when_a_blob_that_nothing_refers_to_may_go(blob_id: str, age: timedelta | None, verdict: BlobVerdict) -> None:
    blob = ListedBlob(BlobId(blob_id), None if age is None else NOW - age)
    assert RULE.verdict(blob) is verdict


def test_generations_may_be_short_and_the_day_stands() -> None:
    rule = CollectionRule(NOW, generation=timedelta(hours=1))
    hours = (NOW - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(hours=1)
    verdicts = {back: rule.verdict(ListedBlob(BlobId(f"1_{hours - back}_{RANDOM}"))) for back in (2, 24, 25, 26)}

    assert [back for back, verdict in verdicts.items() if verdict is BlobVerdict.COLLECT] == [26]


@pytest.mark.parametrize(
    ("blob_id", "stored_at", "asked"),
    [
        (HASH, None, True),
        (RANDOM, None, True),
        (HASH, NOW, False),
        (f"1_{CURRENT}_{HASH}", None, False),
        (f"1_{CURRENT - 2}_{HASH}", None, False),
        ("backup/2026.tar", None, False),
    ],
)
def test_the_age_is_asked_for_only_where_it_decides(blob_id: str, stored_at: datetime | None, *, asked: bool) -> None:
    assert RULE.depends_on_age(ListedBlob(BlobId(blob_id), stored_at)) is asked


@pytest.mark.parametrize(
    ("blob_id", "stored_at", "again"),
    [
        (HASH, NOW - MONTH, True),
        (RANDOM, NOW - MONTH, False),
        (f"1_{CURRENT - 4}_{HASH}", NOW - 4 * MONTH, False),
        (f"1_{CURRENT - 4}_{RANDOM}", NOW, False),
        (f"1_{CURRENT - 4}_{HASH}", NOW - MONTH, True),
        (f"1_{CURRENT - 4}_{HASH}", None, False),
        # the instant at which its generation ends, and the one before
        (f"1_692_{HASH}", datetime(1970, 1, 1, tzinfo=UTC) + 693 * MONTH, True),
        (f"1_692_{HASH}", datetime(1970, 1, 1, tzinfo=UTC) + 693 * MONTH - timedelta(microseconds=1), False),
        # a name of nobody's: whoever made it may make it again
        ("backup/2026.tar", NOW, True),
    ],
)
def test_only_names_of_contents_may_come_again(blob_id: str, stored_at: datetime | None, *, again: bool) -> None:
    """At any time without a generation; and where it was stored when its generation was over, by our reckoning."""
    assert RULE.may_come_again(ListedBlob(BlobId(blob_id), stored_at)) is again


def test_a_side_car_is_needed_as_long_as_its_header() -> None:
    assert referred_as(f"recovery/1_692_{HASH}") == f"1_692_{HASH}" == referred_as(f"1_692_{HASH}")


def test_nobody_may_ask_for_less_than_a_day() -> None:
    with pytest.raises(WrongUse, match="cannot be collected"):
        CollectionRule(NOW, min_age=timedelta(hours=23))


def test_columns_that_may_refer_to_blobs_are_texts_with_such_a_name() -> None:
    kept = Table(
        "kept",
        (
            Column("id", "text", Kind.PARTITION),
            *(Column(f"blob_{at}", type_) for at, type_ in enumerate(("text", "varchar", "ascii", "map<text, int>"))),
            Column("blob", "blob"),
            Column("blobs", "int"),
            Column("headercontent", "text"),
            Column("bodycontent", "ascii"),
        ),
    )
    names = [one.name for one in naming_blobs(kept)]
    assert names == ["blob_0", "blob_1", "blob_2", "blob_3", "headercontent", "bodycontent"]
    assert all(naming_blobs(replace(kept, spelling=store)) == () for store in ("blobs", "blobParts"))


@pytest.mark.parametrize(
    ("blob_id", "stored_at", "goes"),
    [
        (RANDOM, NOW - MONTH, True),
        (RANDOM, NOW - MONTH + timedelta(milliseconds=999), True),
        (RANDOM, NOW - MONTH + timedelta(seconds=1), False),
        (RANDOM, NOW - MONTH - timedelta(seconds=1), False),
        (RANDOM, None, False),
        ("backup/2026.tar", NOW - MONTH, False),
    ],
)
def test_a_blob_of_a_plan_goes_only_as_it_was(blob_id: str, stored_at: datetime | None, *, goes: bool) -> None:
    """Stored anew since, it is another one; listings tell fractions of a second that stores leave out."""
    assert RULE.is_as_planned(ListedBlob(BlobId(blob_id), stored_at), NOW - MONTH) is goes

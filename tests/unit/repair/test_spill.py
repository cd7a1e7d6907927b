"""What belongs together comes back together, whatever the sizes; and nothing stays on disk."""

import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mailmend.model.errors import MailmendError
from mailmend.model.projections.findings import Suspect
from mailmend.model.projections.verdicts import Verdict
from mailmend.repair.joins.records import FAN_OUT, Record, Spill, SuspectFile, Workshop
from tests.support.thorough import few_or

keys = st.tuples(st.binary(max_size=2), st.integers(0, 50))
records = st.lists(st.tuples(keys, st.integers(), st.text(max_size=5)), max_size=300)


@settings(max_examples=few_or(50))
@given(records, st.sampled_from([1, 200, 1 << 20]))
def test_every_record_comes_back_once_and_all_of_one_key_together(rows: list[Record], part_bytes_max: int) -> None:
    with Workshop() as workshop:
        spill = Spill(workshop, "x", part_bytes_max=part_bytes_max)
        for row in rows:
            spill.add(row)
        parts = list(spill.parts())
    assert Counter(record for part in parts for record in part) == Counter(rows)
    homes = Counter(key for part in parts for key in {record[0] for record in part})
    assert set(homes.values()) <= {1}


def add_many(spill: Spill, count: int) -> None:
    for number in range(count):
        spill.add(((number.to_bytes(8),), number))


@pytest.mark.parametrize(("part_bytes_max", "records_max"), [(4096, 20_000 / FAN_OUT / 2), (100, 10)])
def test_parts_stay_small_while_keys_differ(part_bytes_max: int, records_max: float) -> None:
    """20,000 records in parts of at most 4 KiB, or 100 bytes: no part holds more than a small share."""
    with Workshop() as workshop:
        spill = Spill(workshop, "x", part_bytes_max=part_bytes_max)
        add_many(spill, 20_000)
        sizes = [len(part) for part in spill.parts()]
    assert sum(sizes) == 20_000
    assert max(sizes) < records_max


def test_records_are_written_in_batches() -> None:
    with Workshop() as workshop:
        spill = Spill(workshop, "x")
        files = []
        for number in range(512):
            files.append(len(list(workshop.path.iterdir())))
            spill.add(((b"same",), number))
        assert (set(files), len(list(workshop.path.iterdir()))) == ({0}, 1)


def test_one_key_with_very_many_records_ends_the_spreading() -> None:
    with Workshop() as workshop:
        spill = Spill(workshop, "x", part_bytes_max=100)
        for number in range(2_000):
            spill.add(((b"same",), number))
        (part,) = spill.parts()
    assert len(part) == 2_000


def test_a_part_is_gone_from_disk_once_it_was_read() -> None:
    with Workshop() as workshop:
        spill = Spill(workshop, "x")
        add_many(spill, 100)
        for _ in spill.parts():
            pass
        assert list(workshop.path.iterdir()) == []


def test_a_closed_workshop_leaves_nothing(tmp_path: Path) -> None:
    with Workshop(tmp_path) as workshop:
        spill = Spill(workshop, "x")
        add_many(spill, 50_000)
        assert list(workshop.path.iterdir())
    assert list(tmp_path.iterdir()) == []


def test_files_can_be_read_by_nobody_else(tmp_path: Path) -> None:
    with Workshop(tmp_path) as workshop:
        assert workshop.path.stat().st_mode & 0o077 == 0


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(MailmendError, match="TMPDIR"):
        Workshop(tmp_path / "missing")


@pytest.mark.skipif(not os.access("/dev/full", os.W_OK), reason="needs a device that is always full")
def test_a_full_disk_is_named() -> None:
    with Workshop() as workshop:
        spill = Spill(workshop, "x")
        for part in range(FAN_OUT):
            (workshop.path / f"x.{part}").symlink_to("/dev/full")
        with pytest.raises(MailmendError, match="No space left"):
            add_many(spill, 100_000)


def test_suspects_come_back_in_order_as_often_as_asked_for() -> None:
    suspects = [Suspect("firstUnseen", (number,), Verdict.PROJECT) for number in range(1000)]
    with Workshop() as workshop:
        kept = SuspectFile(workshop)
        for suspect in suspects:
            kept.add(suspect)
        assert list(kept) == suspects
        assert list(kept) == suspects
        kept.close()


@pytest.mark.skipif(not os.access("/dev/full", os.W_OK), reason="needs a device that is always full")
def test_suspects_that_do_not_fit_on_disk_are_named_and_let_go() -> None:
    with Workshop() as workshop:
        (workshop.path / "suspects").symlink_to("/dev/full")
        kept = SuspectFile(workshop)
        kept.add(Suspect("firstUnseen", (1,), Verdict.PROJECT))
        with pytest.raises(MailmendError, match="No space left"):
            list(kept)
        kept.close()

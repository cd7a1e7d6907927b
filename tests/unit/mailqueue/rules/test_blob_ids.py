"""The ids of blobs: those that James makes are read and made, what others may refer to is known by its form."""

import base64
import hashlib
from datetime import UTC, datetime, timedelta
from itertools import product
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.mailqueue.rules.blob_ids import (
    ID_BYTES_MAX,
    BlobNaming,
    BlobsMode,
    HashSpelling,
    checked,
    is_deduplicated,
    naming_of,
    spelled,
)
from mailmend.model.errors import BadPayload, WrongUse
from mailmend.model.ids import BlobId
from tests.support.blobs import BAD_IDS, RANDOM_IDS, SHARED_IDS
from tests.support.james_queue import james_blobs

CHANCE = UUID("0f9a3c1e-7b0d-4c55-9a51-2f60d4a8c7e1")
NOVEMBER = round(datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp()) * 1_000_000
HOUR = timedelta(hours=1)
RANDOM, DEDUPLICATED = BlobsMode.RANDOM, BlobsMode.DEDUPLICATED
times = st.integers(0, 2**52)


class TestMaking:
    """What `put` calls a blob."""

    def test_ids_made_of_bytes_are_those_that_james_made(self) -> None:
        """Each blob of a queue that James 3.8.1 filled that day."""
        naming = BlobNaming(DEDUPLICATED, HashSpelling.BASE64)
        assert james_blobs()
        for blob_id, content in james_blobs().items():
            assert naming.name(content, NOVEMBER, CHANCE) == blob_id

    def test_newer_ids_have_no_slash(self) -> None:
        """The same hashes in the letters of URLs, which James writes by default since 3.9."""
        for blob_id, content in james_blobs().items():
            newer = BlobNaming(DEDUPLICATED).name(content, NOVEMBER, CHANCE)
            assert newer == blob_id.replace("/", "_").replace("+", "-")

    def test_a_random_id_ends_in_its_chance(self) -> None:
        """Family 1, in the generation of its time."""
        assert BlobNaming().name(b"whatever", NOVEMBER, CHANCE) == f"1_692_{CHANCE}"

    @pytest.mark.parametrize(
        ("micros", "generation"),
        [(0, 0), (30 * 86_400_000_000 - 1, 0), (30 * 86_400_000_000, 1), (NOVEMBER, 692)],
    )
    def test_a_generation_lasts_thirty_days(self, micros: int, generation: int) -> None:
        """Counted from 1970, to the microsecond."""
        assert BlobNaming(family=3).name(b"", micros, CHANCE) == f"3_{generation}_{CHANCE}"

    def test_a_generation_may_last_otherwise(self) -> None:
        """As James is told by `deduplication.gc.generation.duration`."""
        naming = BlobNaming(generation=timedelta(hours=1))
        assert naming.name(b"", 7_199_999_999, CHANCE) == f"1_1_{CHANCE}"

    @pytest.mark.parametrize(("family", "generation"), [(0, timedelta(1)), (-1, timedelta(1)), (1, timedelta(0))])
    def test_what_james_could_not_count_is_refused(self, family: int, generation: timedelta) -> None:
        """A family of 0 means none to James; no time is divided by nothing."""
        with pytest.raises(WrongUse, match="cannot be named"):
            BlobNaming(family=family, generation=generation)

    @given(
        st.binary(max_size=100), times, st.uuids(version=4), st.sampled_from(BlobsMode), st.sampled_from(HashSpelling)
    )
    def test_what_is_made_is_an_id_of_its_own_mode(
        self, content: bytes, micros: int, chance: UUID, mode: BlobsMode, spelling: HashSpelling
    ) -> None:
        """Whatever is put: the id is one, and tells whether others may refer to it."""
        blob_id = BlobNaming(mode, spelling).name(content, micros, chance)
        assert checked(blob_id) == blob_id
        assert is_deduplicated(blob_id) is (mode is DEDUPLICATED)

    @given(st.binary(max_size=100), st.binary(max_size=100), times)
    def test_equal_bytes_and_no_others_have_equal_ids(self, one: bytes, other: bytes, micros: int) -> None:
        """In one generation; chance has no part in it."""
        naming = BlobNaming(DEDUPLICATED)
        ids = [naming.name(content, micros, UUID(int=place)) for place, content in enumerate((one, other))]
        assert (ids[0] == ids[1]) is (one == other)

    @given(st.binary(min_size=32, max_size=32), st.sampled_from(HashSpelling))
    def test_a_hash_is_spelled_with_its_padding(self, digest: bytes, spelling: HashSpelling) -> None:
        """43 letters and an equals sign; either spelling can be read back."""
        text = spelled(digest, spelling)
        assert len(text) == 44
        assert text.endswith("=")
        assert base64.b64decode(text.replace("-", "+").replace("_", "/")) == digest


class TestNamingAsTheOthers:
    """What the ids that are there tell of how their writer names blobs now."""

    @given(
        st.sampled_from(BlobsMode),
        st.integers(1, 9),
        st.one_of(
            st.integers(1, 90).map(lambda days: timedelta(days=days)), st.integers(1, 48).map(lambda h: h * HOUR)
        ),
        st.uuids(version=4),
    )
    def test_the_next_blob_is_named_as_its_writer_would(
        self, mode: BlobsMode, family: int, generation: timedelta, chance: UUID
    ) -> None:
        theirs = BlobNaming(mode, family=family, generation=generation)

        ours = naming_of([(theirs.name(b"header", NOVEMBER, chance), NOVEMBER)])

        assert ours.name(b"body", NOVEMBER, chance) == theirs.name(b"body", NOVEMBER, chance)

    def test_james_itself(self) -> None:
        """3.8.1 with generations, as it filled a queue; and without them, as it filled a mailbox."""
        with_generations = [(blob_id, NOVEMBER) for blob_id in james_blobs()]
        without = [(BlobId(blob_id.split("_", 2)[2]), NOVEMBER) for blob_id in james_blobs()]

        assert naming_of(with_generations) == naming_of(without) == BlobNaming(DEDUPLICATED, HashSpelling.BASE64)

    def test_one_random_id_is_enough_for_random_ones(self) -> None:
        """Their store deletes a blob with its mail, whatever its id is: two mails must not share one."""
        shared = BlobNaming(DEDUPLICATED).name(b"", NOVEMBER, CHANCE)
        random = BlobNaming().name(b"", NOVEMBER, CHANCE)

        assert naming_of([(shared, NOVEMBER), (random, NOVEMBER - 1)]).mode is RANDOM

    @pytest.mark.parametrize("blob_id", ["0_5_x", "1_0_x", "2_99999999999999_x", "1/692/0/f/9a3c1e", "x"])
    def test_what_tells_nothing_leaves_the_default(self, blob_id: str) -> None:
        assert naming_of([(BlobId(blob_id), NOVEMBER)]).generation == timedelta(days=30)

    @pytest.mark.parametrize(
        ("number", "age", "generation"),
        [
            (2, timedelta(days=73), timedelta(days=30)),  # 36 days fit too: where the default fits it is taken
            (1, timedelta(days=3, hours=5), timedelta(days=3)),  # whole days before hours
            (10, timedelta(hours=31), timedelta(hours=3)),  # whole hours before minutes
            (10, timedelta(minutes=31), timedelta(minutes=3)),  # whole minutes before seconds
            (10, timedelta(seconds=31), timedelta(seconds=3)),
            (50, timedelta(seconds=100), timedelta(seconds=2)),  # the shortest unit: more numbers than minutes
            (100, timedelta(seconds=100), timedelta(seconds=1)),
            (101, timedelta(seconds=100), timedelta(days=30)),  # shorter than a second: none can be
            (3, timedelta(seconds=5), timedelta(days=30)),  # none of whole seconds fits
        ],
    )
    def test_the_newest_blob_tells_the_length_of_a_generation(
        self, number: int, age: timedelta, generation: timedelta
    ) -> None:
        micros = age // timedelta(microseconds=1)

        assert naming_of([(BlobId(f"1_{number}_x"), micros)]).generation == generation

    @pytest.mark.parametrize(
        ("blob_id", "spelling"),
        [
            ("1_692_Zl/Q=", HashSpelling.BASE64),
            ("1_692_Zl+Q=", HashSpelling.BASE64),
            ("1_692_+ZlQ=", HashSpelling.BASE64),
            ("+ZlQ=", HashSpelling.BASE64),
            ("1/692/Z/l/Q+A=", HashSpelling.BASE64),
            ("1_692_Zl-Q=", HashSpelling.BASE64URL),
            ("1_692_Zl_Q=", HashSpelling.BASE64URL),
            ("1/692/Z/l/Q-A=", HashSpelling.BASE64URL),  # its slashes are the folders of a store for MinIO
            ("1/692/Zl_Q=", HashSpelling.BASE64URL),  # its slashes belong to family and generation
        ],
    )
    def test_a_plus_or_a_slash_within_a_hash_tells_its_spelling(self, blob_id: str, spelling: HashSpelling) -> None:
        assert naming_of([(BlobId(blob_id), NOVEMBER)]).spelling is spelling

    def test_one_older_hash_with_a_slash_is_enough_for_its_spelling(self) -> None:
        """Many hashes hold neither sign."""
        stored = [(BlobId("1_692_ZlQ="), NOVEMBER), (BlobId("1_692_Zl/Q="), NOVEMBER - 1)]

        assert naming_of(stored).spelling is HashSpelling.BASE64

    def test_the_newest_blob_with_a_family_tells_family_and_generation(self) -> None:
        """A family of 0 is none to James, and an id without one says nothing."""
        age = timedelta(days=73) // timedelta(microseconds=1)
        stored = [(BlobId(blob_id), age) for blob_id in ("ZlQ=", "0_9_ZlQ=", "7_10_ZlQ=", "8_73_ZlQ=")]

        assert naming_of(stored) == BlobNaming(DEDUPLICATED, family=7, generation=timedelta(days=7))

    def test_where_nothing_is_stored_ids_are_made_of_content_in_james_generations(self) -> None:
        assert naming_of([]) == BlobNaming(DEDUPLICATED, HashSpelling.BASE64URL, 1, timedelta(days=30))

    def test_a_generation_may_last_a_second(self) -> None:
        assert BlobNaming(generation=timedelta(seconds=1)).name(b"", 5_000_000, CHANCE) == f"1_5_{CHANCE}"


class TestTelling:
    """Whether a blob may go with its mail."""

    @pytest.mark.parametrize("text", RANDOM_IDS)
    def test_a_uuid_is_ones_own(self, text: str) -> None:
        """With and without family and generation, and as a store for MinIO writes it."""
        assert not is_deduplicated(BlobId(text))

    @pytest.mark.parametrize("text", SHARED_IDS)
    def test_all_else_may_be_anothers(self, text: str) -> None:
        """Hashes in every spelling, and what cannot be told from one."""
        assert is_deduplicated(BlobId(text))

    @pytest.mark.parametrize("blob_id", list(james_blobs()))
    def test_what_james_made_of_bytes_is_anothers_too(self, blob_id: BlobId) -> None:
        """Its slashes and plus signs make no UUID of it."""
        assert is_deduplicated(blob_id)

    @pytest.mark.parametrize(
        "text",
        [
            f"1_692_{CHANCE}x",
            f"x1_692_{CHANCE}",
            f"1_692_{str(CHANCE).upper()}",
            f"1_692/{CHANCE}",
            f"1_692_0/f/{str(CHANCE)[2:]}",
            f"1/692/0/f/{str(CHANCE)[2:-1]}-",
            f"1/692/0/f/{'0' * 34}",
            f"692_{CHANCE}",
            f"{CHANCE}\n",
            CHANCE.hex,
        ],
    )
    def test_a_uuid_with_anything_about_it_is_none(self, text: str) -> None:
        """Where the form is not quite James's, nothing is deleted."""
        assert is_deduplicated(BlobId(text))

    @given(st.binary(min_size=16, max_size=32), st.sampled_from(HashSpelling))
    def test_no_hash_is_taken_for_a_uuid(self, digest: bytes, spelling: HashSpelling) -> None:
        """The shorter ones of newer Jameses too, which go without padding."""
        tails = {spelled(digest, spelling), spelled(digest, spelling).rstrip("="), digest.hex(), digest.hex().upper()}
        for head, tail in product(("", "1_692_", "1/692/"), tails):
            assert is_deduplicated(BlobId(head + tail))


class TestChecking:
    """What is no id reaches no store."""

    @pytest.mark.parametrize(
        "text", [*RANDOM_IDS, *SHARED_IDS, *james_blobs(), "a", "...", "a..b", ".a", "x" * ID_BYTES_MAX]
    )
    def test_ids_pass(self, text: str) -> None:
        """As they are."""
        assert checked(text) == text

    @pytest.mark.parametrize("text", BAD_IDS)
    def test_what_is_none_is_refused(self, text: str) -> None:
        """Ways out of a folder, what no store would spell, what no file could be called."""
        with pytest.raises(BadPayload, match="is not the id of a blob") as caught:
            checked(text)
        assert len(str(caught.value)) < 2 * ID_BYTES_MAX + 200

    @given(st.text(max_size=20))
    def test_what_passes_leads_nowhere_else(self, text: str) -> None:
        """Whatever is tried: no part of it is a way up, nothing of it is invisible."""
        try:
            checked(text)
        except BadPayload:
            return
        assert text.isascii()
        assert text.isprintable()
        assert not {".", ".."} & set(text.split("/"))


def test_the_suites_own_hashes_are_sha_256() -> None:
    """An empty body's, as anybody can look it up."""
    empty = base64.b64encode(bytes.fromhex("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")).decode()
    assert BlobNaming(DEDUPLICATED, HashSpelling.BASE64).name(b"", 0, CHANCE) == f"1_0_{empty}"
    assert hashlib.sha256(b"").hexdigest().startswith("e3b0c442")

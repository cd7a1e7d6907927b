"""Packed and encrypted blobs: recognised by their form, read where that is sure, and else refused by name."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mailmend.mailqueue.rules.blob_ids import BlobNaming, BlobsMode, is_blob_id, is_deduplicated, naming_of
from mailmend.mailqueue.rules.stored_forms import (
    Slot,
    content_in,
    crc32c,
    is_chunk,
    is_encrypted,
    refuse_chunk,
    slot_of,
    stored_as,
)
from mailmend.model.errors import BlobsUnreachable
from mailmend.model.ids import BlobId
from tests.support.blobs import RANDOM_IDS, SHARED_IDS
from tests.support.stored_forms import CHUNK, encrypted, packed, slot_bytes

MAIL = b"Subject: hello\r\n\r\nHello.\r\n"


def slot_with(content: bytes, metadata: bytes = b"") -> tuple[Slot, bytes]:
    stored = slot_bytes(content, 7, metadata)
    return Slot(CHUNK, 7, len(stored)), stored


class TestIds:
    """What an id says of where its bytes are."""

    def test_a_reference_names_its_chunk_and_its_place(self) -> None:
        assert slot_of(f"{CHUNK}~12345~678") == Slot(CHUNK, 12345, 678)
        assert stored_as(f"{CHUNK}~12345~678") == CHUNK

    @pytest.mark.parametrize("text", [*RANDOM_IDS, *SHARED_IDS, CHUNK, f"{CHUNK}~5", f"{CHUNK}~-5~9", "1_6_chunk~1~2"])
    def test_another_id_is_its_own_object(self, text: str) -> None:
        assert slot_of(text) is None
        assert stored_as(text) == text

    @pytest.mark.parametrize(
        ("text", "is_one"), [(CHUNK, True), (f"{CHUNK}~1~2", False), ("1_6_chunkShort", False), ("1_6_a_chunk", False)]
    )
    def test_a_chunk_is_known_by_its_name(self, text: str, is_one: bool) -> None:
        assert is_chunk(text) is is_one

    @given(st.integers(0, 10**12), st.integers(0, 10**12))
    def test_a_slot_spells_its_reference(self, offset: int, length: int) -> None:
        slot = Slot(CHUNK, offset, length)
        assert slot_of(slot.name) == slot
        assert is_blob_id(slot.name)

    def test_a_packed_blob_goes_with_no_mail(self) -> None:
        assert is_deduplicated(BlobId(f"{CHUNK}~1~40"))

    def test_a_packed_blob_says_nothing_of_how_blobs_are_named(self) -> None:
        random = BlobNaming(BlobsMode.RANDOM)
        micros = 1_800_000_000_000_000

        packed_one = (BlobId(f"{CHUNK}~1~40"), micros)
        other = (BlobId(f"7_694_{RANDOM_IDS[1]}"), micros)

        assert naming_of([packed_one, other]) == naming_of([other])
        assert naming_of([packed_one, other]).mode is random.mode


class TestPacked:
    """The bytes of a slot are the content, or refused."""

    @given(st.lists(st.binary(max_size=60), max_size=5))
    def test_each_content_of_a_chunk_comes_back(self, contents: list[bytes]) -> None:
        chunk, references = packed(contents)

        found = []
        for reference in references:
            slot = slot_of(reference)
            assert slot
            found.append(content_in(slot, chunk[slot.offset : slot.offset + slot.length]))

        assert found == contents

    def test_metadata_are_no_part_of_the_content(self) -> None:
        assert content_in(*slot_with(MAIL, b"kind=header\nsource=imap\n")) == MAIL

    @pytest.mark.parametrize("metadata", [b"content-encoding=zstd\n", b"kind=body\nContent-Encoding=zstd\n"])
    def test_a_compressed_slot_is_refused_by_name(self, metadata: bytes) -> None:
        with pytest.raises(BlobsUnreachable, match=r"chunk.*~7~.*is compressed \(zstd\)"):
            content_in(*slot_with(MAIL, metadata))

    def test_a_slot_of_the_first_form_is_refused_as_compressed(self) -> None:
        """It has two lines of metadata and no empty one after them."""
        slot, stored = slot_with(b"\x28\xb5\x2f\xfd", b"content-encoding=zstd\ncontent-original-size=4\n")

        with pytest.raises(BlobsUnreachable, match="is compressed"):
            content_in(slot._replace(length=slot.length - 1), stored.replace(b"4\n\n", b"4\n"))

    @given(st.data())
    def test_a_slot_with_a_changed_byte_is_never_another_content(self, data: st.DataObject) -> None:
        slot, stored = slot_with(MAIL, b"kind=header\n")
        place = data.draw(st.integers(0, len(stored) - 1))
        changed = bytearray(stored)
        changed[place] ^= data.draw(st.integers(1, 255))

        try:
            content = content_in(slot, bytes(changed))
        except BlobsUnreachable:
            return
        assert content == MAIL

    @given(st.integers(0, 39))
    def test_a_slot_that_is_cut_off_is_refused(self, length: int) -> None:
        slot, stored = slot_with(MAIL)

        with pytest.raises(BlobsUnreachable, match="its chunk ends after"):
            content_in(slot, stored[: min(length, slot.length - 1)])

    @pytest.mark.parametrize(
        ("slot", "why"),
        [
            (Slot(CHUNK, 7, 0), "names no length"),
            (Slot(CHUNK, 7, 12), "shorter than any slot"),
            (Slot(CHUNK, 8, 20), "another slot is there, which begins at 7"),
        ],
    )
    def test_a_reference_that_fits_no_slot_is_refused(self, slot: Slot, why: str) -> None:
        _, stored = slot_with(MAIL)

        with pytest.raises(BlobsUnreachable, match=why):
            content_in(slot, stored)

    def test_a_chunk_is_no_mail(self) -> None:
        with pytest.raises(BlobsUnreachable, match="is a chunk of many blobs"):
            refuse_chunk(CHUNK)

    def test_the_checksum_is_that_of_castagnoli(self) -> None:
        """The check value that is published for it, and the one of 32 zeros from RFC 3720."""
        assert crc32c(b"123456789") == 0xE3069283
        assert crc32c(bytes(32)) == 0x8A9136AA


class TestEncrypted:
    """Bytes of James's AES are known by their form."""

    @given(st.binary(max_size=9_000))
    @example(b"x" * 4_040)
    @example(b"x" * 4_041)
    def test_encrypted_bytes_of_any_length_are_known(self, content: bytes) -> None:
        assert is_encrypted(encrypted(content))

    @given(st.text(st.characters(exclude_categories=["Cc", "Cs"]) | st.sampled_from("\t\r\n"), min_size=100))
    def test_a_text_that_begins_with_a_bracket_is_a_mail(self, text: str) -> None:
        assert not is_encrypted(f"({text}".encode())

    @pytest.mark.parametrize(
        "content",
        [b"", MAIL, b"(", encrypted(b"")[:-1], encrypted(b"x" * 4_040) + b"\xee", b"\x29" + encrypted(b"")[1:]],
    )
    def test_bytes_of_another_form_are_a_mail(self, content: bytes) -> None:
        assert not is_encrypted(content)

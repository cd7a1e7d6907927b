"""The names of blobs' files: every id has one, no two have the same, and none is outside its folder."""

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.mailqueue.blobs.files import blob_id_of, file_name
from mailmend.mailqueue.rules.blob_ids import ID_BYTES_MAX, checked
from mailmend.model.errors import BadPayload
from mailmend.model.ids import BlobId
from tests.support.blobs import BAD_IDS, RANDOM_IDS, SHARED_IDS
from tests.support.james_queue import james_blobs

letters = st.sampled_from("abzAZ09_.,:@~+=/-")


def _is_id(text: str) -> bool:
    try:
        checked(text)
    except BadPayload:
        return False
    return True


ids = st.text(letters, min_size=1, max_size=60).filter(_is_id).map(BlobId)


@given(ids)
def test_an_id_can_be_had_back_from_its_name(blob_id: BlobId) -> None:
    assert blob_id_of(file_name(blob_id)) == blob_id


@given(ids, ids)
def test_two_ids_have_two_names(one: BlobId, other: BlobId) -> None:
    assert (file_name(one) == file_name(other)) is (one == other)


@given(ids)
def test_a_name_is_a_plain_file_of_the_folder(blob_id: BlobId) -> None:
    name = file_name(blob_id)
    assert PurePosixPath("/root", name).parent == PurePosixPath("/root")
    assert not name.startswith(".")
    assert len(name) <= 3 * len(blob_id)


@pytest.mark.parametrize("text", [*RANDOM_IDS, *SHARED_IDS, *james_blobs()])
def test_ids_of_james_are_short_enough_for_a_name(text: str) -> None:
    assert len(file_name(BlobId(text))) <= 255


def test_ids_without_a_slash_are_called_as_they_are() -> None:
    assert file_name(BlobId("1_692_ab-c=")) == "1_692_ab-c="
    assert file_name(BlobId("1_692_a//b+c=")) == "1_692_a%2F%2Fb+c="


def test_an_id_that_no_file_can_be_called_by_is_refused() -> None:
    with pytest.raises(BadPayload, match="too long for a file"):
        file_name(BlobId("/" * ID_BYTES_MAX))


@pytest.mark.parametrize("text", BAD_IDS)
def test_what_is_no_id_has_no_name(text: str) -> None:
    with pytest.raises(BadPayload):
        file_name(BlobId(text))


@pytest.mark.parametrize(
    "name", [".unfinished", ".nfs0001", "lost+found?", "a b", "%2e%2e", "%2E%2E%2Fx", "a%2fb", "a%", "%41", "é", "a~\n"]
)
def test_a_file_that_is_no_blob_has_no_id(name: str) -> None:
    """What somebody else put there, or spelled otherwise, is left alone."""
    assert blob_id_of(name) is None

"""Journals of loads, damaged in every way: the load goes on, or is refused, and stores nothing twice by that."""

import json
from pathlib import Path
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from mailmend.model.errors import MailmendError, WrongUse
from mailmend.repair.store.loading import Folder, LoadJournal
from mailmend.repair.store.mail_files import FolderKind
from tests.support.fuzzing import fuzzing, nested, result_or_our_error, spoilt_document, spoilt_text

MBOX = b"From a@example.org Tue Mar  3 10:00:00 2015\nSubject: x\n\nhello\n\n"
NEW = UUID("6e0ab5e0-8d1c-11f0-8000-000000000001")
WORDS = ("{", "}", "[", "]", '"', ":", ",", "\n", "\x00", "9" * 5_000, nested("[", "]"), "null", "load", "end")


def journal_of(directory: Path, kind: FolderKind) -> tuple[Folder, Path]:
    """A folder, and the file of its journal after one batch of a load."""
    source = directory / "mbox"
    source.write_bytes(MBOX)
    folder = Folder(source, kind, "mail", "bob", "INBOX")
    file = directory / "state" / folder.file_name
    file.unlink(missing_ok=True)
    with LoadJournal(directory / "state", folder) as journal:
        journal.open(NEW)
        journal.begin(["0", "5"])
        journal.end(len(MBOX))
        journal.begin(["9"])
    return folder, file


@fuzzing(600)
@given(st.data(), st.sampled_from([FolderKind.MBOX, FolderKind.MAILDIR]))
def test_a_journal_of_a_load_is_read_or_refused(tmp_path: Path, data: st.DataObject, kind: FolderKind) -> None:
    folder, file = journal_of(tmp_path, kind)
    lines = file.read_text().split()
    text = file.read_text()
    if data.draw(st.booleans()):
        number = data.draw(st.integers(1, len(lines))) - 1
        documents = [json.loads(line) for line in text.strip().splitlines()]
        number = min(number, len(documents) - 1)
        documents[number] = data.draw(spoilt_document(documents[number]))
        text = "\n".join(map(json.dumps, documents))
    else:
        text = data.draw(spoilt_text(text, WORDS))
    file.write_text(text, errors="replace")

    def resume(*, again: bool) -> UUID:
        with LoadJournal(tmp_path / "state", folder) as journal:
            found = journal.open(NEW, again=again)
            journal.is_done("0")
            return found

    resumed = result_or_our_error(lambda: resume(again=False))
    assert isinstance(resumed, UUID | WrongUse), resumed
    assert not isinstance(resume(again=True), MailmendError)

"""Awkward mail of the real world, loaded from every kind of folder: stored byte for byte, or refused by name."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from mailmend.mailqueue.blobs.cassandra import open_cassandra
from mailmend.model.catalog.mail import MAILBOX_PATH, MESSAGE_ID, MESSAGE_V3
from mailmend.model.operations import Read
from mailmend.repair.clock import SystemClock
from mailmend.repair.store.message_store import BlobBridge
from tests.support.awkward import AWKWARD, NO_MAIL, mbox_of, quoted
from tests.support.checkout import CHECKOUT
from tests.support.commands import CommandLine
from tests.support.in_turn import InTurn
from tests.support.mail_states import MailKeyspace, emptied, shell_on
from tests.support.servers import CassandraServer
from tests.support.thorough import first_of

pytestmark = pytest.mark.cassandra

FOLDER = CHECKOUT / "tests" / "data" / "mail"
REAL: Mapping[str, bytes] = {path.stem: path.read_bytes() for path in sorted(FOLDER.glob("*.txt"))}
MAILS: Mapping[str, bytes] = {**REAL, **AWKWARD}
FILES: Mapping[str, bytes] = {name: content for name, content in MAILS.items() if name not in {*NO_MAIL, "msg_19"}}
"""Without those that have no header field: the text of a digest, whose header its test adds, is one of them."""


@pytest.fixture(scope="module")
def keyspace(shared_mail: MailKeyspace) -> MailKeyspace:
    return emptied(shared_mail)


@pytest.fixture
def mailmend(cassandra: CassandraServer, keyspace: MailKeyspace, tmp_path: Path) -> CommandLine:
    return shell_on(cassandra, keyspace, tmp_path)


def an_mbox(directory: Path) -> tuple[Path, list[bytes]]:
    path = directory / "all.mbox"
    path.write_bytes(mbox_of(FILES))
    return path, [quoted(content) for content in FILES.values()]


def a_maildir(directory: Path) -> tuple[Path, list[bytes]]:
    path = directory / "Maildir"
    for name in ("cur", "new", "tmp"):
        (path / name).mkdir(parents=True)
    for number, (name, content) in enumerate(FILES.items()):
        folder, info = ("cur", ":2,S") if name in REAL else ("new", "")
        (path / folder / f"17000{number:05}.{number}.host{info}").write_bytes(content)
    return path, list(FILES.values())


def eml_files(directory: Path) -> tuple[Path, list[bytes]]:
    path = directory / "letters"
    path.mkdir()
    for name, content in FILES.items():
        (path / f"{name}.eml").write_bytes(content)
    return path, list(FILES.values())


def one_eml(directory: Path) -> tuple[Path, list[bytes]]:
    path, content = directory / "letter.eml", max(REAL.values(), key=len)
    path.write_bytes(content)
    return path, [content]


@pytest.mark.parametrize("make", first_of([an_mbox, a_maildir, one_eml, eml_files], quick=3))
def test_every_mail_is_stored_as_it_is(
    mailmend: CommandLine,
    keyspace: MailKeyspace,
    tmp_path: Path,
    make: Callable[[Path], tuple[Path, list[bytes]]],
) -> None:
    """Nothing refused, nothing lagging, no byte changed, and all that follows from them agrees."""
    path, contents = make(tmp_path)
    name = make.__name__

    ended = mailmend("load", str(path), "--user", "ann", "--mailbox", name, "--json")

    assert (ended.code, ended.json["stored"], ended.json["lagged"]) == (0, len(contents), 0), ended.err
    assert sorted(stored(keyspace, name)) == sorted(contents)
    assert mailmend("check", "--engine", "local", "--delay", "0", "--json").json["findings"] == {}


def test_what_cannot_be_stored_is_named(mailmend: CommandLine, keyspace: MailKeyspace, tmp_path: Path) -> None:
    path, contents = eml_files(tmp_path)
    (path / "gone.eml").symlink_to(tmp_path / "nowhere")
    shutil.copy(FOLDER / "README.md", path)
    shutil.copy(FOLDER / "msg_19.txt", path / "msg_19.eml")

    ended = mailmend("load", str(path), "--user", "ann", "--mailbox", "partly", "--json")

    found = ended.json
    assert (ended.code, found["stored"], found["refused"], found["skipped"]) == (3, len(contents), 2, 1)
    assert [name in ended.err for name in ("gone.eml", "README.md")] == [True, True]
    assert f"{path / 'msg_19.eml'}: it is no mail: it has no header field" in ended.err
    assert sorted(stored(keyspace, "partly")) == sorted(contents)


def test_the_real_ones_are_there() -> None:
    assert len(REAL) == 48


def stored(keyspace: MailKeyspace, mailbox: str) -> list[bytes]:
    """The bytes of every message of a mailbox of ann's, by way of the mirror, the content rows and the blobs."""
    tables, clock = keyspace.tables, SystemClock()
    blobs = BlobBridge(open_cassandra(InTurn(tables), clock))
    (path,) = tables.read(Read(MAILBOX_PATH, ("#private", "ann", mailbox)))
    ids = [seen.row["messageid"] for seen in tables.read(Read(MESSAGE_ID, (path.row["mailboxid"],)))]
    answers = tables.read_all([Read(MESSAGE_V3, (message_id,)) for message_id in ids])
    rows = [seen.row for answer in answers if isinstance(answer, list) for seen in answer]
    return [blobs.get(row["headercontent"], row["bodycontent"]) for row in rows]

"""How a queue over Pulsar is named on the command line, and what its address says."""

from pathlib import Path

import pytest

from mailmend.admin.frame.settings import is_pulsar, parse_pulsar
from mailmend.mailqueue.pulsar.settings import PulsarAuth, PulsarSettings
from mailmend.model.errors import WrongUse
from tests.support.commands import command_line


def test_a_bare_address_is_jamess_own_default() -> None:
    found = parse_pulsar("pulsar://pulsar.example.org")
    assert found == PulsarSettings("pulsar://pulsar.example.org:6650", "http://pulsar.example.org:8080")
    assert (found.namespace, found.auth, found.tls) == ("public/default", PulsarAuth.NONE, None)


def test_everything_may_be_named() -> None:
    found = parse_pulsar("pulsar+ssl://ann:secret@one.example.org,two.example.org:6652/mail/james")
    assert found.service == "pulsar+ssl://one.example.org:6651,two.example.org:6652"
    assert (found.admin, found.namespace) == ("https://one.example.org:8443", "mail/james")
    assert (found.auth, found.username, found.password) == (PulsarAuth.BASIC, "ann", "secret")
    assert found.tls is not None
    assert "secret" not in repr(found) + found.place


def test_a_password_without_a_user_is_a_token() -> None:
    assert parse_pulsar("pulsar://:token@pulsar.example.org").auth is PulsarAuth.TOKEN


@pytest.mark.parametrize(
    "url",
    [
        "pulsar://",
        "pulsar://host/one/two/three",
        "pulsar://host/one",
        "pulsar://host:99999",
        "pulsar://host?x=1",
        "amqp://host",
    ],
)
def test_what_is_no_address_of_pulsar_is_refused(url: str) -> None:
    with pytest.raises(WrongUse):
        parse_pulsar(url)


def test_the_scheme_says_which_broker_it_is() -> None:
    assert is_pulsar("pulsar://host")
    assert is_pulsar("pulsar+ssl://host")
    assert is_pulsar("file:///etc/james/conf/pulsar.properties")
    assert not is_pulsar("amqp://host")
    assert not is_pulsar("")


def test_a_file_of_jamess_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    ended = command_line(tmp_path)("queue", "list", "--broker", f"file://{tmp_path}/no%20file")
    assert (ended.code, ended.out) == (2, "")
    assert f"{tmp_path}/no file cannot be read: No such file" in ended.err

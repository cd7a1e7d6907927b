"""Where broker and blobs are: every spelling that is taken, every one that is refused, and no secret in any message."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.admin.frame.settings import (
    BlobsAddress,
    Store,
    has_password,
    parse_blobs,
    parse_broker,
    parse_management,
    without_secrets,
)
from mailmend.mailqueue.rabbitmq.broker.settings import Host
from mailmend.mailqueue.rules.blob_ids import BlobNaming, BlobsMode
from mailmend.model.errors import WrongUse


@pytest.mark.parametrize(
    ("url", "hosts", "vhost", "user", "password", "secure"),
    [
        ("amqp://rabbit", (Host("rabbit", 5672),), "/", "guest", "", False),
        ("amqp://rabbit/", (Host("rabbit", 5672),), "/", "guest", "", False),
        ("amqp://rabbit/%2F", (Host("rabbit", 5672),), "/", "guest", "", False),
        ("amqp://rabbit:1234/mail", (Host("rabbit", 1234),), "mail", "guest", "", False),
        ("amqps://rabbit", (Host("rabbit", 5671),), "/", "guest", "", True),
        ("amqp://james@rabbit", (Host("rabbit", 5672),), "/", "james", "", False),
        ("amqp://james:p%40ss@rabbit", (Host("rabbit", 5672),), "/", "james", "p@ss", False),
        ("amqp://a,b:1,c/mail", (Host("a", 5672), Host("b", 1), Host("c", 5672)), "mail", "guest", "", False),
        ("amqp://[::1]:1234", (Host("::1", 1234),), "/", "guest", "", False),
    ],
)
def test_brokers_are_named_as_rabbitmq_names_them(  # noqa: PLR0917 - the parts of a URL
    url: str, hosts: tuple[Host, ...], vhost: str, user: str, password: str, secure: bool
) -> None:
    found = parse_broker(url)

    assert (found.hosts, found.vhost, found.username, found.password) == (hosts, vhost, user, password)
    assert (found.tls is not None) is secure


@pytest.mark.parametrize(
    "url",
    [
        "rabbit:5672",
        "http://rabbit",
        "amqp://",
        "amqp://rabbit:0",
        "amqp://rabbit:many",
        "amqp://rabbit?x=1",
        "amqp://a b",
        "amqp://[::1",
        "",
    ],
)
def test_what_names_no_broker_is_refused(url: str) -> None:
    with pytest.raises(WrongUse) as refused:
        parse_broker(url)
    assert refused.value.mend


@given(secret=st.text("abcdefghijk%-_", min_size=6))
@pytest.mark.parametrize("url", ["http://u:{}@h", "amqp://u:{}@h:x", "amqp://u:{}@h?x", "s3://{}:{}@bucket", "u:{}@h"])
def test_no_message_shows_a_secret(url: str, secret: str) -> None:
    """However wrong the URL is, the password in it stays out of the message."""
    for parse in (parse_broker, parse_management, parse_blobs):
        with pytest.raises(WrongUse) as refused:
            parse(url.replace("{}", secret))
        assert secret not in str(refused.value)


def test_no_repr_shows_a_secret() -> None:
    assert "hunter2" not in repr(parse_broker("amqp://u:hunter2@h"))


@pytest.mark.parametrize(
    ("url", "secret"),
    [("amqp://u:p@h", True), ("amqp://u@h", False), ("amqp://h:5672/v", False), ("amqp://h/a:b@c", False)],
)
def test_a_password_in_a_url_is_seen(url: str, secret: bool) -> None:
    """So that it can be refused on a command line; what stands in the path is none."""
    assert has_password(url) is secret


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("amqp://u:p@h:1/v?x=y", "amqp://h:1/v"),
        ("file:///a/b", "file:///a/b"),
        ("u:p@h", "h"),
        ("nothing", "nothing"),
    ],
)
def test_a_url_is_shown_without_whoever_it_is_for(url: str, said: str) -> None:
    assert without_secrets(url) == said


def test_the_management_is_an_address_of_http() -> None:
    assert parse_management("http://rabbit:15672/") == "http://rabbit:15672"
    for wrong in ("rabbit:15672", "amqp://rabbit", "http://u:p@rabbit", "http://", "http://one,two"):
        with pytest.raises(WrongUse):
            parse_management(wrong)


def test_a_bucket_at_amazon_and_elsewhere() -> None:
    amazon = parse_blobs("s3://mails?region=eu-west-3")
    other = parse_blobs("s3://mails?endpoint=https://s3.example.org/&ids=deduplicated")

    assert (amazon.endpoint, amazon.region) == ("https://s3.eu-west-3.amazonaws.com", "eu-west-3")
    assert (other.endpoint, other.naming) == ("https://s3.example.org", BlobNaming(BlobsMode.DEDUPLICATED))
    assert amazon.naming is None


@pytest.mark.parametrize(
    ("endpoint", "in_the_clear"),
    [
        ("http://127.0.0.1:9000", True),
        ("http://localhost:9000", True),
        ("http://s3.example.org", False),
        ("http://s3.example.org&allow_http=true", True),
        ("http://s3.example.org&allow_http=no", False),
    ],
)
def test_mails_travel_in_the_clear_only_here_or_on_request(endpoint: str, in_the_clear: bool) -> None:
    assert parse_blobs(f"s3://mails?endpoint={endpoint}").allow_http is in_the_clear


def test_files_are_a_folder() -> None:
    """Named from the root, so that it does not depend on where somebody stands."""
    found = parse_blobs("file:///var/mail%20blobs")

    assert (found.store, found.folder, found.place) == (Store.FILES, Path("/var/mail blobs"), "/var/mail blobs")


@pytest.mark.parametrize(
    "url",
    [
        "s3://",
        "s3://bucket/prefix",
        "s3://bucket?endpiont=x",
        "s3://bucket?endpoint=ftp://x",
        "s3://bucket?ids=sha1",
        "s3://bucket#x",
        "file://host/x",
        "file:x",
        "file:///x?region=1",
        "/var/blobs",
        "cassandra:keyspace",
        "cassandra://host",
    ],
)
def test_what_names_no_store_is_refused(url: str) -> None:
    with pytest.raises(WrongUse, match="store of blobs"):
        parse_blobs(url)


def test_james_may_keep_blobs_in_cassandra() -> None:
    """In the mail keyspace itself, so there is nothing more to say."""
    found = parse_blobs("cassandra:?ids=deduplicated")

    assert (found.store, found.naming) == (Store.CASSANDRA, BlobNaming(BlobsMode.DEDUPLICATED))
    assert found.place == "the mail keyspace"


def test_a_place_is_reported_without_keys() -> None:
    address = BlobsAddress(Store.S3, "mails", "https://s3.example.org")
    assert address.place == "the bucket mails at https://s3.example.org"

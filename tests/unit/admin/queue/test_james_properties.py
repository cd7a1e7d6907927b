"""James's own `pulsar.properties` is read as James reads it."""

from dataclasses import replace

import pytest

from mailmend.admin.queue.broker_options import parse_pulsar_properties, properties_in
from mailmend.mailqueue.pulsar.settings import PulsarAuth, PulsarSettings
from mailmend.model.errors import BadSettings

PLACE = "broker.uri=pulsar://pulsar.example.org:6650/\nadmin.uri=http://pulsar.example.org:8090\nnamespace=mail/james\n"
FOUND = PulsarSettings("pulsar://pulsar.example.org:6650", "http://pulsar.example.org:8090", "mail/james")
SECRET = "s3cret-word"


@pytest.mark.parametrize(
    ("login", "found"),
    [
        ("", FOUND),
        (f"authentication.type=no-auth\nauthentication.token={SECRET}", FOUND),
        (
            f"authentication.type=token\nauthentication.token={SECRET}",
            replace(FOUND, auth=PulsarAuth.TOKEN, password=SECRET),
        ),
        (
            f"authentication.type=basic\nauthentication.basic.userId=ann\nauthentication.basic.password={SECRET}",
            replace(FOUND, auth=PulsarAuth.BASIC, username="ann", password=SECRET),
        ),
    ],
)
def test_each_way_to_log_in(login: str, found: PulsarSettings) -> None:
    assert parse_pulsar_properties(f"{PLACE}maxEnqueueConcurrency=10\n{login}") == found


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "broker.uri is missing"),
        (PLACE.replace("namespace=mail/james", ""), "namespace is missing"),
        (PLACE.replace("mail/james", "james"), "is no namespace"),
        (PLACE.replace("pulsar://", "amqp://"), "is not the address of a Pulsar"),
        (PLACE.replace("mail/james", "${env:NAMESPACE}"), "namespace is to be filled in by James"),
        (f"{PLACE}authentication.type=oauth2", "is not one that James knows"),
        (f"{PLACE}authentication.type=token", "authentication.token is missing"),
        (f"{PLACE}authentication.type=basic\nauthentication.basic.password={SECRET}", "userId is missing"),
    ],
)
def test_what_james_would_not_take_is_refused_without_secrets(text: str, what: str) -> None:
    with pytest.raises(BadSettings, match=what.replace("$", r"\$")) as refused:
        parse_pulsar_properties(text)
    assert SECRET not in refused.value.message


def test_properties_are_written_in_several_ways() -> None:
    text = "# a comment\n! another\n a = b=c \nd:e\nf g\nh\\:i=j\\u0041\\\\\nk=l\\\n   m\nempty=\n"
    assert properties_in(text) == {
        "a": "b=c", "d": "e", "f": "g", "h:i": "jA\\", "k": "lm", "empty": "",
    }  # fmt: skip

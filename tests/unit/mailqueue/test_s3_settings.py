"""Where a bucket is: wrong settings are told before the first request, and no secret is ever shown."""

import pickle
from pathlib import Path
from typing import Any

import pytest

from mailmend.mailqueue.blobs.s3 import S3Settings
from mailmend.model.errors import BadSettings, ExitCode

ACCESS, SECRET = "AKIA-of-nobody", "wJalr-of-nobody"


def settings(**changed: Any) -> S3Settings:
    given = {"endpoint": "https://s3.example.org", "bucket": "mail-blobs", "access_key": ACCESS, "secret_key": SECRET}
    return S3Settings(**{**given, **changed})


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"endpoint": "https://10.0.0.1:9000/"},
        {"endpoint": "https://host/below/a/path"},
        {"endpoint": "https://[::1]:9000"},
        {"endpoint": "http://127.0.0.1:9000", "allow_http": True},
        {"bucket": "abc"},
        {"bucket": "a.b-c.9"},
        {"bucket": "x" * 63},
        {"region": "garage"},
        {"tls_ca": Path("/etc/ca.pem")},
        {"access_key": "", "secret_key": "", "profile": "mail"},
        {"session_token": "t"},
    ],
    ids=str,
)
def test_settings_pass(changed: dict[str, Any]) -> None:
    assert settings(**changed).place == f"the bucket {settings(**changed).bucket} at {settings(**changed).endpoint}"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"endpoint": "s3.example.org"}, "not an endpoint"),
        ({"endpoint": "ftp://s3.example.org"}, "not an endpoint"),
        ({"endpoint": "https://"}, "not an endpoint"),
        ({"endpoint": ""}, "not an endpoint"),
        ({"endpoint": "https://host/?x=y"}, "not an endpoint"),
        ({"endpoint": "https://host/#x"}, "not an endpoint"),
        ({"endpoint": "http://host"}, "not encrypted"),
        ({"bucket": ""}, "name of a bucket"),
        ({"bucket": "ab"}, "name of a bucket"),
        ({"bucket": "x" * 64}, "name of a bucket"),
        ({"bucket": "Mail"}, "name of a bucket"),
        ({"bucket": "mail_blobs"}, "name of a bucket"),
        ({"bucket": "-mail"}, "name of a bucket"),
        ({"bucket": "mail."}, "name of a bucket"),
        ({"bucket": "ma..il"}, "name of a bucket"),
        ({"bucket": "../etc"}, "name of a bucket"),
        ({"bucket": "mail\n"}, "name of a bucket"),
        ({"endpoint": "https://s3..example.org"}, "is not an endpoint"),
        ({"region": ""}, "name of a region"),
        ({"region": "eu 1"}, "name of a region"),
        ({"access_key": ""}, "is missing"),
        ({"secret_key": ""}, "is missing"),
        ({"access_key": "", "secret_key": "", "session_token": "t"}, "is missing"),
    ],
    ids=str,
)
def test_wrong_ones_say_what_is_wrong_and_what_would_be_right(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(BadSettings, match=words) as caught:
        settings(**changed)
    assert caught.value.mend
    assert caught.value.exit_code is ExitCode.WRONG_USE


@pytest.mark.parametrize(
    "endpoint", [f"https://me:{SECRET}@host", f"https://{SECRET}@host/x", f"ftp://me:{SECRET}@host"]
)
def test_a_password_in_the_endpoint_is_refused_and_not_repeated(endpoint: str) -> None:
    with pytest.raises(BadSettings) as caught:
        settings(endpoint=endpoint)
    assert SECRET not in str(caught.value)


def test_no_key_is_shown() -> None:
    """Neither by the value itself nor by what is made of it for messages."""
    given = settings(session_token="token-of-nobody")
    shown = f"{given!r} {given} {given.place}"
    assert SECRET not in shown
    assert ACCESS not in shown
    assert "token-of-nobody" not in shown


def test_settings_can_be_sent_to_another_process() -> None:
    assert pickle.loads(pickle.dumps(settings())) == settings()

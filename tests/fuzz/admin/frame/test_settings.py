"""Settings of every kind, spoilt: files, cron texts, properties of Pulsar, tokens, words of a command line."""

from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mailmend.admin.frame.http.access import Access, Refusal, TokenRole, parse_listening, parse_tokens
from mailmend.admin.frame.nodetool import Nodetool
from mailmend.admin.frame.settings import (
    parse_blobs,
    parse_broker,
    parse_hosts,
    parse_management,
    parse_pulsar,
    parse_spark_setting,
)
from mailmend.admin.frame.settings_file import parse_cqlshrc, parse_credentials, parse_settings
from mailmend.admin.jobs.cron import parse_cron
from mailmend.admin.queue.broker_options import parse_pulsar_properties
from mailmend.model.durations import parse_duration
from tests.support.commands import CommandLine, command_line
from tests.support.fuzzing import fuzzing, nested, result_or_our_error, spoilt_text

FILE = Path("config.toml")
SETTINGS = """host = ["10.0.0.1", "10.0.0.2"]
port = 9042
keyspace = "mail"
tls = false
log-level = "warning"

[check]
delay = "5m"
rows-per-second = 1000

[queue]
broker = "amqp://127.0.0.1"

[jobs.nightly]
command = "repair messages"
schedule = "30 2 * * *"
time-zone = "Europe/Berlin"
jitter = "10m"
window = "22:00-06:00"
longest = "4h"
max-fixes = 100

[profiles.test]
keyspace = "other"
[profiles.test.check]
delay = "1s"
"""
TOML = (
    *("=", "[", "]", "{", "}", '"', "'", "\n", ".", ",", "#", "-", "\\", "\x00", "\ud800", "x", "profiles", "jobs"),
    *("1e400", "inf", "nan", "9" * 5_000, "9" * 400, "-1", "0x1", "1979-05-27T07:32:00Z", "true", "\u202e"),
    *(nested("[", "]"), nested("{x=", "}", "1"), "[" + ".".join("x" * 2_000) + "]", '""', "'''", '"""'),
)
CRON = (
    "*",
    "/",
    "-",
    ",",
    " ",
    "0",
    "5",
    "60",
    "99",
    "9" * 5_000,
    "MON",
    "JAN",
    "L",
    "#",
    "?",
    "\u0663",
    "\x00",
    "\n",
    "@daily",
)
PROPERTIES = """broker.uri=pulsar://pulsar:6650
admin.uri=http://pulsar:8080
namespace=james/mail
authentication.type=token
authentication.token=secret
"""
JAVA = (
    "\\u",
    "\\ud800",
    "\\uD83D",
    "\\",
    "=",
    ":",
    "\n",
    "${x}",
    "[",
    "]",
    "@",
    "//",
    "[::1",
    ":99999",
    ":" + "9" * 5_000,
    "\x00",
    "\u2028",
    "#",
)
URLS = (
    "[",
    "]",
    "@",
    ":",
    "/",
    "//",
    "?",
    "#",
    "%",
    "%zz",
    "%ff",
    "\x00",
    "\ud800",
    ":99999",
    ":-1",
    ":" + "9" * 5_000,
    "[::1",
    "[v1.x]",
    "\u2100",
    "=",
    "&",
    ",",
)
TOKENS = "ann read 0123456789012345678901\nbob operate abcdefghijabcdefghijab # comment\n"


CQLSHRC = "[connection]\nhostname = h\nport = 9042\nssl = true\n[ssl]\ncertfile = x\n"
TOKEN_WORDS = (*" \n\t#\ud800\x00\u2028\u0130", "read", "x" * 30)


@pytest.fixture
def mailmend(tmp_path: Path) -> CommandLine:
    return command_line(tmp_path)


@fuzzing(2_000)
@given(spoilt_text(SETTINGS, TOML))
def test_a_settings_file_is_read_or_refused(text: str) -> None:
    result_or_our_error(lambda: parse_settings(text, FILE))


@fuzzing(400)
@given(spoilt_text(SETTINGS, TOML))
@example("profiles = 1\n")
@example("[profiles]\ntest = 1\n")
@example('check = 1\n[profiles.test]\ncheck = {delay = "1s"}\n')
@example("port = 1e400\n")
@example("port = inf\n")
@example('host = ["10..0.0.2"]\n')
@example("[check]\ndelay = 1979-05-27\n")
@example('[jobs.x]\ncommand = "check"\nschedule = "99999999999999999999 * * * *"\n')
def test_a_command_takes_or_refuses_a_settings_file(mailmend: CommandLine, tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text, encoding="utf-8", errors="replace")
    for words in (("jobs", "list", "--json"), ("--profile", "test", "jobs", "list")):
        ended = mailmend("--config", str(file), *words)
        assert "should not happen" not in ended.err, ended.err
        assert "Traceback" not in ended.err


@fuzzing(1_000)
@given(spoilt_text("30 2 1-15/5 JAN,MAR *", CRON))
def test_a_cron_text_is_read_or_refused(text: str) -> None:
    result_or_our_error(lambda: parse_cron(text))


@fuzzing(1_000)
@given(spoilt_text(PROPERTIES, JAVA))
def test_properties_of_pulsar_are_read_or_refused(text: str) -> None:
    result_or_our_error(lambda: parse_pulsar_properties(text))


@fuzzing(500)
@given(
    spoilt_text("[connection]\nhostname = h\nport = 9042\nssl = true\n[ssl]\ncertfile = x\n", (*JAVA, "[", "9" * 5_000))
)
def test_a_file_of_cqlsh_is_read_or_refused(text: str) -> None:
    result_or_our_error(lambda: parse_cqlshrc(text, FILE))
    result_or_our_error(lambda: parse_credentials(text, FILE))


@fuzzing(500)
@given(
    spoilt_text(TOKENS, (" ", "\n", "\t", "#", "read", "\ud800", "\x00", "\u2028", "\u0130", "x" * 30)),
    st.text(max_size=30),
)
def test_tokens_are_read_or_refused_and_so_are_callers(text: str, given_token: str) -> None:
    tokens = result_or_our_error(lambda: parse_tokens(text.splitlines(), "MAILMEND_TOKENS"))
    for access in (Access(), Access(tokens) if isinstance(tokens, tuple) else Access()):
        for token in (given_token, given_token + "\ud800"):
            with suppress(Refusal):
                access.caller(token, TokenRole.READ, host=given_token, origin=None)


@fuzzing(1_500)
@given(
    spoilt_text("amqps://user:password@broker:5671,other/vhost", URLS)
    | spoilt_text("pulsar+ssl://token@pulsar:6651/tenant/namespace", URLS)
    | spoilt_text("s3://bucket?endpoint=https://s3.example.org:9000&region=eu-1", URLS)
    | spoilt_text("http://[::1]:15672", URLS)
)
def test_an_address_is_read_or_refused(text: str) -> None:
    for parse in (parse_broker, parse_pulsar, parse_blobs, parse_management, parse_spark_setting, Nodetool.parse):
        result_or_our_error(lambda parse=parse: parse(text))  # type: ignore[misc]
    result_or_our_error(lambda: parse_hosts((text,)))
    result_or_our_error(lambda: parse_listening(text, (), None, None))


@fuzzing(500)
@given(spoilt_text("1h30m", ("9" * 5_000, "d", "s", "ms", "-", ".", "e", "\u0663", "inf", " ", "\x00")))
def test_a_duration_is_read_or_refused(text: str) -> None:
    result_or_our_error(lambda: parse_duration(text, maximum=timedelta(days=1)))


def test_what_is_spoilt_is_good_before(mailmend: CommandLine, tmp_path: Path) -> None:
    """Else a fuzzer would only see one refusal."""
    file = tmp_path / "config.toml"
    file.write_text(SETTINGS.replace("10.0.0.", "127.0.0."), encoding="utf-8")

    ended = mailmend("--config", str(file), "jobs", "list", "--json")

    assert "nightly" in ended.out + ended.err
    assert [token.name for token in parse_tokens(TOKENS.splitlines(), "x")] == ["ann", "bob"]
    assert parse_pulsar_properties(PROPERTIES).namespace == "james/mail"
    assert parse_cqlshrc(CQLSHRC, FILE)["host"] == ["h"]

"""Settings: what people write, in every place where they may write it, and what is refused."""

from pathlib import Path

import pytest

from mailmend.admin.frame.settings import (
    ConnectionSettings,
    parse_hosts,
    parse_keyspace,
    parse_port,
    parse_spark_setting,
)
from mailmend.admin.frame.settings_file import line_of, parse_cqlshrc, parse_credentials, parse_settings, settings_path
from mailmend.model.errors import BadIdentifier, BadSettings, ExitCode, WrongUse

FILE = Path("/etc/mailmend.toml")


def test_hosts_may_be_listed_with_commas() -> None:
    assert parse_hosts(("a.example,10.0.0.1", " ::1 ")) == ("a.example", "10.0.0.1", "::1")


@pytest.mark.parametrize("host", ["a b", "http://a", "a/b", "-x", "a;b", "a'b", "10..0.0.2", "x" * 64])
def test_what_is_no_host_is_refused(host: str) -> None:
    with pytest.raises(WrongUse, match="is not a host"):
        parse_hosts((host,))


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_a_port_that_cannot_be_is_refused(port: int) -> None:
    with pytest.raises(WrongUse, match="is not a port"):
        parse_port(port)


@pytest.mark.parametrize("name", ["1abc", "a-b", '"Odd-Ks"', '"a"b"', "a b", "", "a;drop", "x" * 49, "ä"])
def test_a_keyspace_that_cql_would_not_take_is_refused(name: str) -> None:
    with pytest.raises(BadIdentifier):
        parse_keyspace(name)


@pytest.mark.parametrize(
    ("typed", "keyspace"), [("OddKs", "oddks"), ('"OddKs"', '"OddKs"'), ('"mail"', "mail"), ('"select"', '"select"')]
)
def test_only_a_quoted_keyspace_keeps_its_case(typed: str, keyspace: str) -> None:
    assert parse_keyspace(typed) == keyspace


@pytest.mark.parametrize(
    "names", [{"ledger_keyspace": "apache_james"}, {"keyspace": "mailmend"}, {"keyspace": "a", "ledger_keyspace": "a"}]
)
def test_mails_and_the_ledger_never_share_a_keyspace(names: dict[str, str]) -> None:
    """Whichever option named it: no command plans or makes the one's tables among the other's."""
    with pytest.raises(BadSettings, match=r"as the mail keyspace and as the ledger keyspace\n.*--ledger-keyspace"):
        ConnectionSettings(**names)  # type: ignore[arg-type]


def test_a_password_never_shows() -> None:
    assert "hunter2" not in repr(ConnectionSettings(username="u", password="hunter2"))


def test_settings_take_dashes_as_well_as_underscores() -> None:
    text = 'local-dc = "dc1"\n[repair.messages]\nmax-fixes = 10\n'

    assert parse_settings(text, FILE) == {"local_dc": "dc1", "repair": {"messages": {"max_fixes": 10}}}


def test_a_broken_settings_file_is_named_with_its_line() -> None:
    with pytest.raises(BadSettings, match=r"/etc/mailmend.toml, line 2") as caught:
        parse_settings('host = "a"\nport = = 1\n', FILE)

    assert caught.value.exit_code is ExitCode.WRONG_USE


def test_a_settings_file_that_ends_too_early_is_named() -> None:
    with pytest.raises(BadSettings, match=r"/etc/mailmend\.toml"):
        parse_settings('host = "a', FILE)


def test_the_line_of_a_setting_is_found_whatever_its_spelling() -> None:
    text = 'host = "a"\n\n[check]\nrows-per-second = 1\n'

    assert [line_of(text, name) for name in ("host", "check", "rows_per_second", "absent")] == [1, 3, 4, 1]


CQLSHRC = """
; a comment
[authentication]
username = cassandra
password = s3cr3t
keyspace = james
[connection]
hostname = 10.1.2.3
port = 9142
ssl = true
[ssl]
certfile = ~/ca.pem
usercert = ~/me.pem
userkey = ~/me.key
"""


def test_a_cqlshrc_is_read_so_that_nothing_is_typed_twice() -> None:
    found = parse_cqlshrc(CQLSHRC, FILE)

    assert found == {
        "host": ["10.1.2.3"],
        "port": 9142,
        "keyspace": "james",
        "username": "cassandra",
        "password": "s3cr3t",
        "tls": True,
        "tls_ca": "~/ca.pem",
        "tls_cert": "~/me.pem",
        "tls_key": "~/me.key",
    }


def test_a_cqlshrc_without_tls_names_no_certificates() -> None:
    """The section [ssl] counts only where [connection] switches it on."""
    assert parse_cqlshrc("[ssl]\ncertfile = x\n", FILE) == {}


@pytest.mark.parametrize("text", ["no section\n", "[connection]\nport = many\n", "[connection]\nssl = perhaps\n"])
def test_a_broken_cqlshrc_is_named(text: str) -> None:
    with pytest.raises(BadSettings, match=r"/etc/mailmend\.toml cannot be read"):
        parse_cqlshrc(text, FILE)


@pytest.mark.parametrize("section", ["plain_text_auth", "PlainTextAuthProvider"])
def test_the_credentials_file_of_cqlsh_is_read(section: str) -> None:
    assert parse_credentials(f"[{section}]\nusername = u\npassword = p%x\n", FILE) == {
        "username": "u",
        "password": "p%x",
    }


def test_a_broken_credentials_file_shows_none_of_its_lines() -> None:
    """The parser's own message would quote the line with the secret in it."""
    with pytest.raises(BadSettings) as caught:
        parse_credentials("hunter2\n", FILE)

    assert "hunter2" not in str(caught.value)


def test_a_credentials_file_without_our_section_says_nothing() -> None:
    assert parse_credentials("[kerberos]\nx = 1\n", FILE) == {}


def test_the_settings_file_lies_where_the_xdg_specification_says() -> None:
    """An absolute XDG_CONFIG_HOME counts, a relative one is ignored."""
    home = Path("/home/u")

    assert settings_path({"XDG_CONFIG_HOME": "/x"}, home) == Path("/x/mailmend/config.toml")
    assert settings_path({"XDG_CONFIG_HOME": "x"}, home) == Path("/home/u/.config/mailmend/config.toml")
    assert settings_path({}, home) == Path("/home/u/.config/mailmend/config.toml")


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("spark.executor.memory=2g", ("spark.executor.memory", "2g")),
        (" spark.executor.extraJavaOptions=-Dx=y -Dz=1 ", ("spark.executor.extraJavaOptions", "-Dx=y -Dz=1")),
        ("spark.jars.packages=", ("spark.jars.packages", "")),
    ],
)
def test_a_setting_of_spark_is_a_name_and_a_value(text: str, setting: tuple[str, str]) -> None:
    assert parse_spark_setting(text) == setting


@pytest.mark.parametrize("text", ["", "spark.executor.memory", "executor.memory=2g", "spark.=1", "spark.a b=1"])
def test_what_is_no_setting_of_spark_is_refused(text: str) -> None:
    with pytest.raises(WrongUse, match=r"spark\.executor\.memory=2g"):
        parse_spark_setting(text)


@pytest.mark.parametrize(
    "name",
    ["spark.cassandra.auth.password", "spark.authenticate.secret", "spark.hadoop.fs.s3a.access.key", "spark.x.Token"],
)
def test_a_secret_of_spark_is_refused_unseen(name: str) -> None:
    """Command lines are public; the message names the file that is not, and not the value."""
    with pytest.raises(WrongUse, match=r"spark-defaults\.conf") as caught:
        parse_spark_setting(f"{name}=hunter2")
    assert name in str(caught.value)
    assert "hunter2" not in str(caught.value)

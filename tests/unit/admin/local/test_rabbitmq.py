"""RabbitMQ's files and command lines: loopback only, nothing inherited, nothing secret in sight."""

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.admin.local.rabbitmq import (
    MEMORY_MIB,
    BrokerCertificates,
    Installation,
    RabbitMq,
    conf_of,
    environment_of,
)
from mailmend.admin.local.server import Launch, Site
from mailmend.mailqueue.broker_http import basic
from mailmend.model.errors import LocalServerError

PORTS = {"amqp": 5672, "management": 15672, "erlang": 25672, "epmd": 4369, "amqps": 5671, "management-tls": 15671}
SITE = Site(Path("/srv/mail box/rabbitmq"), PORTS)
TLS = BrokerCertificates(Path("/c/ca.pem"), Path("/c/node.pem"), Path("/c/node.key"))
OURS = Installation(Path("/opt/r/bin/rabbitmq-server"), Path("/opt/r/plugins"), Path("/opt/r/erlang/bin"))


def _settings(text: str) -> dict[str, str]:
    return dict(line.split(" = ", 1) for line in text.splitlines())


def _installed(root: Path) -> Path:
    for name in (
        "usr/lib/rabbitmq/bin/rabbitmq-server",
        "usr/lib/rabbitmq/lib/rabbitmq_server-4.0.5/plugins/a.ez",
        "usr/lib/erlang/bin/epmd",
    ):
        (root / name).parent.mkdir(parents=True)
        (root / name).touch(mode=0o755)
    return root


@pytest.fixture
def launches(tmp_path: Path) -> tuple[Launch, ...]:
    return RabbitMq().launches(_installed(tmp_path), SITE, {"PATH": "/usr/bin", "RABBITMQ_NODENAME": "theirs"})


def test_every_listener_is_on_the_loopback_address() -> None:
    settings = _settings(conf_of(PORTS, TLS))
    assert settings["listeners.tcp.1"] == "127.0.0.1:5672"
    assert settings["listeners.ssl.1"] == "127.0.0.1:5671"
    assert (settings["management.tcp.ip"], settings["management.tcp.port"]) == ("127.0.0.1", "15672")
    assert (settings["management.ssl.ip"], settings["management.ssl.port"]) == ("127.0.0.1", "15671")
    environment = environment_of(OURS, SITE, "/usr/bin")
    assert environment["ERL_EPMD_ADDRESS"] == environment["RABBITMQ_NODE_IP_ADDRESS"] == "127.0.0.1"
    assert "inet_dist_use_interface {127,0,0,1}" in environment["RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS"]


def test_memory_has_a_limit() -> None:
    """A share of the machine's memory, which is the default, is too much beside a Cassandra."""
    assert _settings(conf_of(PORTS, None))["vm_memory_high_watermark.absolute"] == f"{MEMORY_MIB}MB"


def test_without_certificates_nothing_speaks_tls() -> None:
    assert not [name for name in _settings(conf_of(PORTS, None)) if "ssl" in name]
    assert "amqps" not in RabbitMq().ports
    assert "amqps" in RabbitMq(TLS).ports


@pytest.mark.parametrize("asks", [True, False])
def test_clients_are_asked_for_a_certificate_where_configured(asks: bool) -> None:
    settings = _settings(conf_of(PORTS, BrokerCertificates(TLS.authority, TLS.certificate, TLS.key, asks_clients=asks)))
    for listener in ("ssl_options", "management.ssl"):
        assert settings[f"{listener}.verify"] == "verify_peer"
        assert settings[f"{listener}.fail_if_no_peer_cert"] == ("true" if asks else "false")
        assert settings[f"{listener}.cacertfile"] == "/c/ca.pem"
        assert settings[f"{listener}.certfile"] == "/c/node.pem"
        assert settings[f"{listener}.keyfile"] == "/c/node.key"


def test_nothing_of_another_rabbitmq_reaches_ours(launches: tuple[Launch, ...]) -> None:
    for launch in launches:
        assert launch.environment["RABBITMQ_NODENAME"] == "rabbit@localhost"
        assert "theirs" not in launch.environment.values()


@given(st.dictionaries(st.from_regex(r"(RABBITMQ|ERL)_[A-Z]{1,9}", fullmatch=True), st.just("theirs")))
def test_no_setting_of_theirs_is_inherited(theirs: dict[str, str]) -> None:
    environment = environment_of(OURS, SITE, theirs.get("PATH", "/bin"))
    assert "theirs" not in environment.values()


def test_its_own_erlang_is_found_first() -> None:
    assert environment_of(OURS, SITE, "/usr/bin")["PATH"] == f"/opt/r/erlang/bin{os.pathsep}/usr/bin"
    system = Installation(OURS.server, OURS.plugins, None)
    assert environment_of(system, SITE, "/usr/bin")["PATH"] == "/usr/bin"


def test_everything_it_writes_is_below_its_folder() -> None:
    environment = environment_of(OURS, SITE, "/usr/bin")
    written = [name for name, value in environment.items() if value.startswith(str(SITE.folder))]
    assert {"HOME", "RABBITMQ_LOG_BASE", "RABBITMQ_MNESIA_BASE", "RABBITMQ_GENERATED_CONFIG_DIR"} <= set(written)
    assert RabbitMq().log(SITE).is_relative_to(environment["RABBITMQ_LOG_BASE"])


def test_epmd_starts_before_the_node_and_ends_after_it(launches: tuple[Launch, ...]) -> None:
    """A node that finds none starts one of its own, which nobody would end."""
    assert [launch.name for launch in launches] == ["epmd", "server"]


def test_each_process_carries_its_mark_in_its_command(launches: tuple[Launch, ...]) -> None:
    for launch in launches:
        assert launch.mark in " ".join(launch.command)
    epmd, server = launches
    assert epmd.mark not in " ".join(server.command)
    assert server.mark not in " ".join(epmd.command)


def test_a_rabbitmq_without_erlang_is_reported(tmp_path: Path) -> None:
    home = _installed(tmp_path)
    (home / "usr/lib/erlang/bin/epmd").unlink()
    with pytest.raises(LocalServerError, match="epmd is not on the PATH"):
        RabbitMq().launches(home, SITE, {"PATH": "/nowhere"})


def test_two_nodes_do_not_carry_the_same_mark(tmp_path: Path) -> None:
    """Neither of the folder's name nor of the port may the one begin with the other."""
    parts = _installed(tmp_path)
    other = Site(Path(f"{SITE.folder}2"), {**PORTS, "epmd": 43690})
    ours, theirs = (RabbitMq().launches(parts, site, {}) for site in (SITE, other))
    for one, another in zip(ours, theirs, strict=True):
        assert one.mark not in " ".join(another.command)
        assert another.mark not in " ".join(one.command)


def test_the_command_stays_the_process_that_is_started(launches: tuple[Launch, ...]) -> None:
    """The script runs Erlang in its own place when it may read its input; and Erlang is told not to."""
    server = launches[1]
    assert server.environment["RABBITMQ_ALLOW_INPUT"] == "true"
    assert "-noinput" in server.command


def test_nothing_secret_is_in_a_command_or_an_environment(launches: tuple[Launch, ...], tmp_path: Path) -> None:
    # Given a node whose files are written twice
    site = Site(tmp_path / "site", PORTS)
    site.folder.mkdir()
    RabbitMq().write_files(tmp_path, site)
    cookie = site.folder / ".erlang.cookie"
    secret = cookie.read_text(encoding="ascii")
    RabbitMq().write_files(tmp_path, site)
    # Then the secret is the same, is for its owner's eyes, and is nowhere else
    assert cookie.read_text(encoding="ascii") == secret
    assert cookie.stat().st_mode & 0o777 == 0o400
    assert re.fullmatch(r"[0-9a-f]{48}", secret)
    for launch in launches:
        assert secret not in f"{launch.command} {launch.environment}"
    assert sorted(path.name for path in site.folder.iterdir()) == [".erlang.cookie", "enabled_plugins", "rabbitmq.conf"]


def test_two_nodes_share_no_secret(tmp_path: Path) -> None:
    secrets = set()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        RabbitMq().write_files(tmp_path, Site(tmp_path / name, PORTS))
        secrets.add((tmp_path / name / ".erlang.cookie").read_text(encoding="ascii"))
    assert len(secrets) == 2


def test_contacts_name_what_a_person_may_use() -> None:
    assert RabbitMq(TLS).contacts(SITE) == {
        "amqp": "amqp://127.0.0.1:5672",
        "management": "http://127.0.0.1:15672",
        "amqps": "amqps://127.0.0.1:5671",
        "management-tls": "https://127.0.0.1:15671",
    }


def test_a_user_is_reported_as_http_says() -> None:
    assert basic("guest", "guest") == "Basic Z3Vlc3Q6Z3Vlc3Q="

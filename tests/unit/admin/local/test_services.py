"""Servers beside Cassandra, as values: which there are, and what is written down of them."""

import socket
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.admin.local import ClusterRequest, local_servers
from mailmend.admin.local.folders import write_json
from mailmend.admin.local.processes import ServerRecord, StartedProcess, read_record
from mailmend.admin.local.server import Launch, Machine, Site
from mailmend.admin.local.servers import SERVICES, parse_names, parse_ports
from mailmend.model.errors import LocalServerError, WrongUse


@pytest.mark.parametrize("text", ["rabbitmq", " rabbitmq ", "rabbitmq,rabbitmq", "rabbitmq,"])
def test_names_are_read_with_commas(text: str) -> None:
    assert parse_names(text) == ("rabbitmq",)


@pytest.mark.parametrize("text", ["", ",", "kafka", "rabbitmq,kafka", "RabbitMQ", "rabbitmq s3"])
def test_other_names_are_refused_with_those_that_are_known(text: str) -> None:
    with pytest.raises(WrongUse) as caught:
        parse_names(text)
    assert all(name in str(caught.value) for name in SERVICES)


def test_ports_are_read_by_name() -> None:
    assert parse_ports(" amqp=5673, s3=9001,") == {"amqp": 5673, "s3": 9001}
    assert parse_ports("storage=7001,pulsar=6651,admin=8081,management=1,erlang=2,epmd=65535")["epmd"] == 65_535


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("amqps=1", "Did you mean 'amqp'? There are: storage, amqp, management, erlang, epmd, s3, pulsar, admin."),
        ("5673", "no server has a port '5673'"),
        ("amqp", "Write it like amqp=5673."),
        ("amqp=x", "Write it like amqp=5673."),
        ("amqp=0", "port"),
        ("amqp=70000", "port"),
        ("amqp=1,amqp=2", "repeats"),
        ("amqp=1,s3=1", "repeats"),
    ],
)
def test_ports_that_no_server_could_take_are_refused(text: str, said: str) -> None:
    with pytest.raises(WrongUse) as caught:
        parse_ports(text)
    assert said in str(caught.value)


def _listening() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


def test_all_taken_ports_are_named_before_anything_is_fetched_or_started(tmp_path: Path) -> None:
    servers = local_servers(tmp_path / "local", environment={"HOME": str(tmp_path)})
    with _listening() as cql, _listening() as amqp, _listening() as store:
        taken = [other.getsockname()[1] for other in (cql, amqp, store)]

        with pytest.raises(LocalServerError) as caught:
            servers.up(ClusterRequest(native_port=taken[0]), ["rabbitmq", "s3"], {"amqp": taken[1], "s3": taken[2]})

    for port in taken:
        assert f"port {port} on 127.0.0.1 is taken by another program" in caught.value.what
    assert caught.value.mend == (
        "Choose others with --port PORT --ports amqp=PORT --ports s3=PORT, or end those programs."
    )
    assert servers.status().services == ()
    assert not list(tmp_path.rglob("*.jar"))


def test_a_port_of_a_server_that_is_not_to_be_started_is_refused(tmp_path: Path) -> None:
    servers = local_servers(tmp_path / "local", environment={"HOME": str(tmp_path)})

    with pytest.raises(WrongUse, match="s3 is a port of s3, which is not to be started\nName it: --with s3"):
        servers.up(ClusterRequest(), ["rabbitmq"], {"s3": 9001})


def test_a_port_that_is_named_for_two_parts_is_refused(tmp_path: Path) -> None:
    servers = local_servers(tmp_path / "local", environment={"HOME": str(tmp_path)})

    with pytest.raises(WrongUse, match="port 9043 is named twice"):
        servers.up(ClusterRequest(native_port=9043), ["s3"], {"s3": 9043})


def test_the_named_ports_are_taken_and_others_keep_away_from_them() -> None:
    servers = local_servers(Path("/nowhere"), environment={"HOME": "/nowhere"})
    broker = servers.services["rabbitmq"]

    chosen = broker._chosen_ports({"amqp": 15_672})

    assert chosen["amqp"] == 15_672
    assert chosen["management"] != 15_672
    assert list(chosen) == ["amqp", "management", "erlang", "epmd"]


@given(st.lists(st.sampled_from(sorted(SERVICES)), min_size=1))
def test_the_order_of_names_means_nothing(names: list[str]) -> None:
    found = parse_names(",".join(names))
    assert set(found) == set(names)
    assert list(found) == [name for name in SERVICES if name in names]


def test_a_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    # Given a state of three processes, one of which was ended and one of which was started again
    state = ServerRecord({"amqp": 5672})
    for name, pid in (("epmd", 1), ("other", 2), ("server", 3), ("epmd", 4)):
        state = state.with_process(name, StartedProcess(pid, 1.5, f"mark of {name}"))
    state = state.without("other")
    # When it is written over an older one
    path = tmp_path / "deep" / "service.json"
    write_json(path, asdict(ServerRecord()))
    write_json(path, asdict(state))
    # Then it is read back whole, the order of the ends is that of the starts reversed, and nothing else lies there
    assert read_record(path) == state
    assert [name for name, _ in read_record(path).last_first] == ["server", "epmd"]
    assert [found.name for found in path.parent.iterdir()] == ["service.json"]


def test_no_state_is_an_empty_state(tmp_path: Path) -> None:
    assert read_record(tmp_path / "service.json") == ServerRecord()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"ports": {}}', '{"ports": {"a": "x"}, "processes": {}}', "\x00"]
)
def test_a_state_that_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "service.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(LocalServerError, match=str(path)):
        read_record(path)


def test_a_machine_and_a_launch_do_not_show_their_environment() -> None:
    environment = {"MAILMEND_PASSWORD": "hidden-word"}
    shown = repr(Machine(environment, Path("/c"))) + repr(Launch("server", ("x",), "x", environment))
    assert "hidden-word" not in shown


def test_the_cache_is_where_the_user_says() -> None:
    assert Machine.of_this_user({"XDG_CACHE_HOME": "/var/cache/ann"}).cache == Path("/var/cache/ann/mailmend")


def test_every_process_prints_into_a_file_of_its_own() -> None:
    site = Site(Path("/srv"), {})
    assert site.console("epmd") != site.console("server")

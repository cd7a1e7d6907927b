"""Servers beside Cassandra, as values: which there are, how they are told, what is written down, why one ended."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from admin.cli.command import made
from admin.cli.local import LOCAL
from admin.local import ClusterRequest, ClusterState, ClusterStatus, LocalStatus, NodeStatus, ServerState
from admin.local.cassandra_settings import first_settings
from admin.local.log_lines import why_ended
from admin.local.processes import StartedProcess
from admin.local.server_files import ServerRecord, read_record, write_json
from admin.local.server_kind import Launch, Machine, ServerStatus, Site
from admin.local.servers import SERVICES, parse_names
from admin.present.local import service_line
from admin.services.local_servers import exit_code
from model.errors import ExitCode, LocalServerError, WrongUse

SETTINGS = first_settings(ClusterRequest(native_port=9142), 17_001)
UP, SILENT, DEAD, STOPPED = ServerState.UP, ServerState.SILENT, ServerState.DEAD, ServerState.STOPPED


def _service(state: ServerState) -> ServerStatus:
    contacts = {"amqp": "amqp://127.0.0.1:5672", "management": "http://127.0.0.1:15672"}
    return ServerStatus("rabbitmq", "RabbitMQ", state, (11, 12) if state is UP else (), contacts, Path("/l/r.log"))


def _status(nodes: list[ServerState], services: list[ServerState]) -> LocalStatus:
    found = (NodeStatus(number, "127.0.0.1", 9142, state, None, Path("/l")) for number, state in enumerate(nodes, 1))
    cluster = ClusterStatus(Path("/srv"), SETTINGS if nodes else None, tuple(found))
    return LocalStatus(cluster, tuple(map(_service, services)))


@pytest.mark.parametrize(
    ("nodes", "services", "together"),
    [
        ([UP], [], ClusterState.UP),
        ([UP], [UP], ClusterState.UP),
        ([UP], [STOPPED], ClusterState.UP),
        ([UP], [DEAD], ClusterState.PARTLY),
        ([UP], [SILENT], ClusterState.PARTLY),
        ([UP, DEAD], [UP], ClusterState.PARTLY),
        ([STOPPED], [UP], ClusterState.PARTLY),
        ([], [UP], ClusterState.PARTLY),
        ([STOPPED], [STOPPED], ClusterState.DOWN),
        ([DEAD], [DEAD], ClusterState.DOWN),
        ([], [STOPPED], ClusterState.DOWN),
        ([], [], ClusterState.DOWN),
    ],
)
def test_a_server_beside_counts_until_it_is_stopped(
    nodes: list[ServerState], services: list[ServerState], together: ClusterState
) -> None:
    """One that was stopped on purpose is not missed; one that fell over is."""
    found = _status(nodes, services)
    assert found.state is together
    assert exit_code(found) == {
        ClusterState.UP: ExitCode.FINE,
        ClusterState.PARTLY: ExitCode.PARTLY_FAILED,
        ClusterState.DOWN: ExitCode.CANNOT_REACH,
    }.get(together)


@given(st.lists(st.sampled_from(ServerState), max_size=3))
def test_without_servers_beside_it_the_cluster_is_the_whole(nodes: list[ServerState]) -> None:
    """What scripts have read from the exit code they read still."""
    found = _status(nodes, [])
    assert found.state is found.cluster.state


def test_the_json_has_one_field_more_than_before() -> None:
    """Every name that was there is there, and says the same; the servers beside are a list of their own."""
    found = _status([UP], [UP])
    document = json.loads(json.dumps(found.as_json()))
    services = document.pop("services")
    assert document == json.loads(json.dumps(found.cluster.as_json()))
    assert services == [
        {
            "name": "rabbitmq",
            "title": "RabbitMQ",
            "state": "up",
            "pids": [11, 12],
            "contacts": {"amqp": "amqp://127.0.0.1:5672", "management": "http://127.0.0.1:15672"},
            "log": "/l/r.log",
        }
    ]


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (UP, ["is up", "amqp://127.0.0.1:5672", "http://127.0.0.1:15672"]),
        (SILENT, ["does not answer yet", "/l/r.log"]),
        (DEAD, ["is gone", "/l/r.log", "mailmend local up --with rabbitmq"]),
        (STOPPED, ["is stopped", "mailmend local up --with rabbitmq"]),
    ],
)
def test_a_person_is_told_how_it_is_and_what_to_type(state: ServerState, words: list[str]) -> None:
    """Where to connect, where to read on, or how to start it."""
    line = service_line(_service(state))
    assert all(word in line for word in words)


@pytest.mark.parametrize("text", ["rabbitmq", " rabbitmq ", "rabbitmq,rabbitmq", "rabbitmq,"])
def test_names_are_read_with_commas(text: str) -> None:
    """Each once, blanks and an empty end forgiven."""
    assert parse_names(text) == ("rabbitmq",)


@pytest.mark.parametrize("text", ["", ",", "kafka", "rabbitmq,kafka", "RabbitMQ", "rabbitmq s3"])
def test_other_names_are_refused_with_those_that_are_known(text: str) -> None:
    """All names that can be typed stand in the message."""
    with pytest.raises(WrongUse) as caught:
        parse_names(text)
    assert all(name in str(caught.value) for name in SERVICES)


@given(st.lists(st.sampled_from(sorted(SERVICES)), min_size=1))
def test_the_order_of_names_means_nothing(names: list[str]) -> None:
    """They are started in one order, whoever typed them how."""
    found = parse_names(",".join(names))
    assert set(found) == set(names)
    assert list(found) == [name for name in SERVICES if name in names]


def test_the_command_refuses_unknown_servers_before_anything_is_touched(tmp_path: Path) -> None:
    """By the parser, with the option's name."""
    answer = CliRunner().invoke(made(LOCAL), ["up", "--dir", str(tmp_path), "--with", "kafka"])
    assert answer.exit_code == ExitCode.WRONG_USE
    assert "--with" in answer.output
    assert not list(tmp_path.iterdir())


def test_the_help_names_every_server() -> None:
    """A person need not guess."""
    said = CliRunner().invoke(made(LOCAL), ["up", "--help"]).output
    assert all(name in said for name in SERVICES)


def test_a_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Ports, and processes in the order of their start."""
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
    """Before the first start there is nothing."""
    assert read_record(tmp_path / "service.json") == ServerRecord()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"ports": {}}', '{"ports": {"a": "x"}, "processes": {}}', "\x00"]
)
def test_a_state_that_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    """With what to do about it."""
    path = tmp_path / "service.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(LocalServerError, match=str(path)):
        read_record(path)


@pytest.mark.parametrize(
    ("log", "printed", "why"),
    [
        (
            "fine\n2026 [error] <0.9> out of luck\n2026 [error] consequence",
            "starting\n",
            "2026 [error] <0.9> out of luck",
        ),
        ("2026 [error] logged", "BOOT\nERROR: printed\n{exit,x}", "ERROR: printed"),
        ("", "Exception in thread main\n\tat a.b(C.java:1)\n", "Exception in thread main"),
        ("", "erl: 57: exec: not found\n\n", "erl: 57: exec: not found"),
        ("all is well", "", "it printed nothing"),
    ],
    ids=["logged", "printed-first", "java", "last-line", "silence"],
)
def test_the_first_complaint_is_the_reason(log: str, printed: str, why: str) -> None:
    """What follows it is often only its consequence."""
    assert why_ended(log, printed) == why


def test_a_machine_and_a_launch_do_not_show_their_environment() -> None:
    """Passwords of other programs may be in it."""
    environment = {"MAILMEND_PASSWORD": "hidden-word"}
    shown = repr(Machine(environment, Path("/c"))) + repr(Launch("server", ("x",), "x", environment))
    assert "hidden-word" not in shown


def test_the_cache_is_where_the_user_says() -> None:
    """As for everything else that can be fetched again."""
    assert Machine.of_this_user({"XDG_CACHE_HOME": "/var/cache/ann"}).cache == Path("/var/cache/ann/mailmend")


def test_every_process_prints_into_a_file_of_its_own() -> None:
    """So that the one does not hide what the other said."""
    site = Site(Path("/srv"), {})
    assert site.console("epmd") != site.console("server")

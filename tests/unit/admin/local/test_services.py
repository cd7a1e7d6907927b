"""Servers beside Cassandra, as values: which there are, and what is written down of them."""

from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.admin.local.folders import write_json
from mailmend.admin.local.processes import ServerRecord, StartedProcess, read_record
from mailmend.admin.local.server import Launch, Machine, Site
from mailmend.admin.local.servers import SERVICES, parse_names
from mailmend.model.errors import LocalServerError, WrongUse


@pytest.mark.parametrize("text", ["rabbitmq", " rabbitmq ", "rabbitmq,rabbitmq", "rabbitmq,"])
def test_names_are_read_with_commas(text: str) -> None:
    assert parse_names(text) == ("rabbitmq",)


@pytest.mark.parametrize("text", ["", ",", "kafka", "rabbitmq,kafka", "RabbitMQ", "rabbitmq s3"])
def test_other_names_are_refused_with_those_that_are_known(text: str) -> None:
    with pytest.raises(WrongUse) as caught:
        parse_names(text)
    assert all(name in str(caught.value) for name in SERVICES)


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

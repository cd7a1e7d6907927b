"""The servers that tests share: started when the first test asks, ended with the session."""

import gc
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.metadata import distributions
from pathlib import Path
from platform import python_version

import pytest

import mailmend
from mailmend.admin.local import ClusterRequest
from tests.support.brokers import Broker, one_rabbitmq
from tests.support.guarded import GuardedNode, guarded_node
from tests.support.installed import refuse_other_than_the_wheel
from tests.support.mail_states import MailKeyspace, shared_mail_keyspace
from tests.support.object_stores import S3, one_s3
from tests.support.pulsars import RealPulsar, one_pulsar
from tests.support.servers import (
    OPTIONAL_PARTS_4_1,
    CassandraServer,
    ThreeNodes,
    driver_without_schema,
    local_node,
    one_node,
    patient_driver,
    three_local_nodes,
)
from tests.support.spark import shared_spark, spark
from tests.support.thorough import ALL, LEFT_TO_ALL, SEED, configure, left_out, seeds_of
from tests.support.thread_calls import count_thread_calls

__all__ = ["shared_spark", "spark"]

pytest_plugins = ["tests.support.lane_rules"]

_NEEDS = {
    "cassandra": {"cassandra", "cassandra41", "guarded", "three_nodes", "throwaway"},
    "broker": {"rabbitmq"},
    "object_store": {"s3"},
    "pulsar": {"pulsar"},
    "spark": {"shared_spark", "standalone"},
}
"""Every marker of a server, and the fixtures that start one."""


_TESTS = Path(__file__).parent
_LEFT = pytest.StashKey[int]()
_PULSAR = pytest.StashKey[ExitStack]()
"""What ends the Pulsar that tests share."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """What `make test-all` asks for."""
    parser.addoption(ALL, action="store_true", help="run what is marked thorough too, with more examples")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Before Hypothesis reads its options.

    The garbage collector rests until the tests are collected: nearly all that collecting them makes stays.
    """
    gc.disable()
    refuse_other_than_the_wheel(Path(mailmend.__file__))
    configure(config)
    count_thread_calls()


def pytest_report_header() -> str:
    """What this lane has: the driver that is imported, Spark, Python."""
    names = ("cassandra-driver", "scylla-driver", "pyspark")
    parts = {one.name.lower(): one.version for name in names for one in distributions(name=name)}
    return ", ".join((*(f"{name} {parts[name]}" for name in names if name in parts), f"Python {python_version()}"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes `story_seed` runs once for each."""
    if "story_seed" in metafunc.fixturenames:
        metafunc.parametrize("story_seed", seeds_of(metafunc.config))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """What was left out, and the seed under what failed."""
    if left := config.stash.get(_LEFT, 0):
        terminalreporter.write_line(f"{left} {LEFT_TO_ALL}")
    if (seed := config.getoption(SEED)) is not None:
        terminalreporter.write_line(f"Drawn from a seed: {SEED}={seed} draws the same again.")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is thorough; mark each test with its kind, which is the first folder, and what needs a server.

    So `-m faults` and `-m "not cassandra and not broker"` work. What faces PySpark alone is marked too: it runs with
    Spark 4 as well. Pulsar's tests stand together, so that it ends when they do.
    """
    config.stash[_LEFT] = left_out(config, items)
    for item in items:
        item.add_marker(item.path.relative_to(_TESTS).parts[0])
        if "spark_repair" in item.path.parts:
            item.add_marker(pytest.mark.spark)
        for marker, fixtures in _NEEDS.items():
            if fixtures & set(getattr(item, "fixturenames", ())):
                item.add_marker(getattr(pytest.mark, marker))
    items.sort(key=lambda item: not _takes_pulsar(item))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End Pulsar after its last test: a hundredth of a core is at work in one that nobody uses."""
    if _takes_pulsar(item) and nextitem and not _takes_pulsar(nextitem) and _PULSAR in item.config.stash:
        item.config.stash[_PULSAR].close()


def _takes_pulsar(item: pytest.Item) -> bool:
    return item.get_closest_marker("pulsar") is not None


def pytest_collection_finish() -> None:
    """Take modules and collected tests, which stay to the end, from what the garbage collector looks through."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def cassandra() -> Iterator[CassandraServer]:
    """A real Cassandra 5.0: `host`, `port`, `local_dc`, and `keyspace()` for a name of one's own."""
    with patient_driver(), driver_without_schema(), one_node() as server:
        yield server


@pytest.fixture(scope="session")
def shared_mail(cassandra: CassandraServer) -> Iterator[MailKeyspace]:
    """A mail keyspace and its ledger, which modules share one after the other: each begins with `emptied`.

    A test that changes their schema undoes that, or takes `keyspace_of_its_own`.
    """
    with shared_mail_keyspace(cassandra) as mail:
        yield mail


@pytest.fixture(scope="session")
def cassandra41() -> Iterator[CassandraServer]:
    """A real Cassandra 4.1."""
    with local_node(ClusterRequest(version="4.1", heap_mib=512, yaml=OPTIONAL_PARTS_4_1)) as server:
        yield server


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedNode]:
    """A real Cassandra 5.0 that lets nobody in without TLS, a password and a permission."""
    with driver_without_schema(), guarded_node(tmp_path_factory.mktemp("certificates")) as node:
        yield node


@pytest.fixture(scope="session")
def _ring() -> Iterator[ThreeNodes]:
    with three_local_nodes() as nodes:
        yield nodes


@pytest.fixture
def three_nodes(_ring: ThreeNodes) -> ThreeNodes:
    """Three real nodes, all of them running when the test begins, whatever the test before has done to them."""
    _ring.start_all()
    return _ring


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[Broker]:
    """A real RabbitMQ that tests share: `host`, `port`, `management_port`, and `vhost()` for one of one's own."""
    with one_rabbitmq() as broker:
        yield broker


@pytest.fixture
def vhost(rabbitmq: Broker) -> Iterator[str]:
    """The name of a virtual host of the test's own, empty."""
    with rabbitmq.vhost() as name:
        yield name


@pytest.fixture(scope="session")
def pulsar(pytestconfig: pytest.Config) -> Iterator[RealPulsar]:
    """A real Pulsar that tests share: `settings` says where; whoever needs queues takes names of its own.

    It ends after the last test that takes it.
    """
    with ExitStack() as stack:
        pytestconfig.stash[_PULSAR] = stack
        yield stack.enter_context(one_pulsar())


@pytest.fixture(scope="session")
def s3() -> Iterator[S3]:
    """A real store that speaks S3, which tests share: `endpoint`, the keys, and `bucket()` for one of one's own."""
    with one_s3() as store:
        yield store

"""One Spark for all tests: two cores, a small heap, started when the first test asks."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mailmend.admin.local.jars import connector_jars
from mailmend.model.errors import JavaMissing, LocalServerError
from mailmend.spark_repair.jvm import forget_ended_session
from mailmend.spark_repair.session import SparkSettings, coordinates_here, open_session
from tests.support.servers import unavailable


def started_settings(master: str = "local[2]", **settings: Any) -> SparkSettings:
    """Settings with the connector's jars, which are fetched where they are not here."""
    try:
        return SparkSettings(master, jars=connector_jars(coordinates_here()), **settings)
    except (JavaMissing, LocalServerError) as error:
        unavailable(error)


LOCAL = partial(
    started_settings,
    driver_memory="1g",
    brief=True,
    options={"spark.sql.shuffle.partitions": "2", "spark.default.parallelism": "1"},
)
"""As a command has it whose keyspace is small: each test reads some thousand rows at most.

The connector reads each table in 1 + 2 * parallelism tasks, and shuffles have as many parts.
"""


@pytest.fixture(scope="session")
def shared_spark() -> Iterator[Callable[[], SparkSession]]:
    """Gives the session that tests share, or another one where its Java process has ended."""
    yield _living_session
    forget_ended_session()
    if session := SparkSession.getActiveSession():
        session.stop()


@pytest.fixture
def spark(shared_spark: Callable[[], SparkSession]) -> SparkSession:
    """A session that lives: a test whose session lost its Java process fails alone."""
    return shared_spark()


def _living_session() -> SparkSession:
    forget_ended_session()
    return SparkSession.getActiveSession() or open_session(LOCAL())


def jobs_of(spark: SparkSession) -> int:
    """How many jobs the session has begun."""
    context: Any = spark.sparkContext._jsc
    return int(context.sc().statusStore().jobsList(None).size())

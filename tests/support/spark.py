"""One Spark for all tests: two cores, a small heap, started when the first test asks."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from pyspark.sql import SparkSession

from admin.local.connector import connector_jars
from model.errors import JavaMissing, LocalServerError
from spark_repair.session import SparkSettings, coordinates_here, open_session
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
    options={"spark.sql.shuffle.partitions": "4", "spark.default.parallelism": "2"},
)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = open_session(LOCAL())
    yield session
    session.stop()

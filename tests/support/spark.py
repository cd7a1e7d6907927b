"""One Spark for all tests: two cores, a small heap, started when the first test asks."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from spark_repair.session import SparkSettings, open_session

LOCAL = SparkSettings(
    master="local[2]",
    driver_memory="1g",
    options={"spark.sql.shuffle.partitions": "4", "spark.default.parallelism": "2"},
)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = open_session(LOCAL)
    yield session
    session.stop()

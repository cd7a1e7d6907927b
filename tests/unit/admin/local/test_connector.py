"""The connector's jars: one pinned checksum for each jar of the list, for each Spark that is served."""

import os
from pathlib import Path

import pytest

from mailmend.admin.local.jars import connector_is_here, connector_program, jars_listed, pins_of
from mailmend.spark_repair.session import CONNECTORS


@pytest.mark.parametrize("coordinates", CONNECTORS.values())
def test_each_jar_that_is_listed_has_its_checksum(coordinates: str) -> None:
    program = connector_program(coordinates)

    named = {f"{module}-{version}.jar" for (_, module, version), _ in jars_listed(program)}

    assert named == set(pins_of(program))
    assert f"{program.module}-{program.version}.jar" in named
    assert not [name for name in named if name.startswith("scala-library-")]  # Spark brings its own


def test_an_empty_cache_holds_no_connector(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}

    assert not connector_is_here(CONNECTORS["3"], environment)

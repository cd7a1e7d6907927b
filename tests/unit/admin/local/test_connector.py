"""The connector's jars are looked for in the cache of this user."""

import os
from pathlib import Path

from mailmend.admin.local.jars import connector_is_here
from mailmend.spark_repair.session import CONNECTORS


def test_an_empty_cache_holds_no_connector(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}

    assert not connector_is_here(CONNECTORS["3"], environment)

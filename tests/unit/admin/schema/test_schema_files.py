"""The published files of the schema, which people review, are what the catalog declares."""

from pathlib import Path

import pytest

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.admin.schema.export import ExportRequest, export


@pytest.mark.parametrize(("folder", "kinds"), [("cql", ("cql",)), ("docs", ("page", "drawing"))])
def test_the_published_files_are_what_the_catalog_declares(folder: str, kinds: tuple[str, ...]) -> None:
    connection = ConnectionSettings(keyspace="apache_james")

    compared = export(ExportRequest(connection=connection, folder=Path(folder), kinds=kinds, check=True), Caller())

    assert (len(compared.files), compared.stale) == (len(kinds), ())

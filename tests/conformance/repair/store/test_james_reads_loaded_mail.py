"""What `mailmend load` stores, James 3.8.1's own classes read: each byte of each message, with either kind of ids."""

import base64
import os
import subprocess
from pathlib import Path
from uuid import uuid4

import pytest

from mailmend.admin.local import LOCAL_DC
from mailmend.cql.driver.session import CassandraCluster
from mailmend.cql.schema.generations import JAMES_3_8
from mailmend.model.catalog.mail import MESSAGE_V3
from mailmend.model.errors import JavaMissing, LocalServerError
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Scan
from mailmend.repair.store.mail_files import OCTETS_MAX
from tests.support.checkout import CHECKOUT
from tests.support.commands import command_line
from tests.support.james_itself import TABLES
from tests.support.james_jars import PROGRAM, REPAIR, james_command
from tests.support.keyspaces import created, dropped
from tests.support.servers import CassandraServer, unavailable

pytestmark = [pytest.mark.cassandra, pytest.mark.thorough]

SOURCE = CHECKOUT / "tests" / "james" / "JamesMailbox.java"
MAIL = sorted((CHECKOUT / "tests" / "data" / "mail").glob("*.txt"))[:5]
LARGE = b"Subject: large\r\n\r\n" + b"0123456789\r\n" * 30_000
"""Of several parts in the tables."""


def test_james_reads_what_was_loaded(cassandra: CassandraServer, cluster: CassandraCluster, tmp_path: Path) -> None:
    """Into a keyspace of its shape; the first load has nothing to go by, the last follows the ids that are there."""
    try:
        commands = [james_command(program) for program in (PROGRAM, REPAIR)]
    except (JavaMissing, LocalServerError) as error:
        unavailable(error)
    contents = [*(path.read_bytes() for path in MAIL), LARGE]
    assert max(map(len, contents)) < OCTETS_MAX
    keyspace = created(cluster, f"j_loaded_{uuid4().hex[:8]}", _with_other_buckets(JAMES_3_8.schema))
    mailmend = command_line(tmp_path, cassandra, MAILMEND_KEYSPACE=keyspace.name)
    for place, beside in enumerate(((), ("--blobs", "cassandra:?ids=random"), ())):
        folder = tmp_path / f"letters-{place}"
        folder.mkdir()
        for number, content in enumerate(contents):
            (folder / f"{number}.eml").write_bytes(content)
        ended = mailmend("load", str(folder), "--user", "ann", "--mailbox", "INBOX", "--json", *beside)
        assert (ended.code, ended.json["stored"]) == (0, len(contents)), ended.err
    rows = list(keyspace.scan(Scan(MESSAGE_V3, ("messageid", "headercontent"))))

    java, classpath = commands[0][0], os.pathsep.join(one for _, one in commands)
    where = [cassandra.host, str(cassandra.port), cassandra.local_dc or LOCAL_DC, keyspace.name]
    command = [str(java), "-Xmx256m", "-cp", classpath, str(SOURCE), *where, *(str(row["messageid"]) for row in rows)]
    run = subprocess.run(command, capture_output=True, check=False)
    dropped(cluster, (keyspace.name,))

    assert run.returncode == 0, run.stderr[-2000:]
    assert sorted(map(base64.b64decode, run.stdout.split())) == sorted(contents * 3)
    shared = len(rows) - len({row["headercontent"] for row in rows})
    assert shared == 0, "one random id is enough for random ones, and each load has one of each message"


def _with_other_buckets(schema: Schema) -> Schema:
    known = {table.name for table in schema.tables}
    return Schema(schema.types, (*schema.tables, *(one for one in TABLES.tables if one.name not in known)))

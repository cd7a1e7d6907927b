"""James 3.8.1's own SolveMessageInconsistenciesService, at work on a keyspace: a Java process with James's classes.

It compares messageIdTable with imapUidTable and nothing else. Where those two agree it changes nothing.
"""

import json
import subprocess
from pathlib import Path
from typing import Final

from mailmend.admin.local import LOCAL_DC
from mailmend.cql.driver.session import Contact
from mailmend.model.errors import JavaMissing, LocalServerError
from tests.support.james_jars import REPAIR, james_command

SOURCE: Final = Path(__file__).parents[1] / "james" / "JamesRepair.java"
SHIPPED: Final = 100
"""James's `messagesPerSecond` where nothing else is said: rows of one table a second."""
UNTHROTTLED: Final = 1_000_000
SAMPLE_SECONDS: Final = 30
SECONDS_MAX: Final = 900
ROWS_OF_A_MESSAGE: Final = 2


def james_per_second(contact: Contact, keyspace: str, rows_per_second: int, seconds: int) -> float | None:
    """Messages a second when James works for so many seconds at most; None where his classes are not to be had."""
    try:
        java, classpath = james_command(REPAIR)
    except (JavaMissing, LocalServerError) as error:
        print(f"James was not to be had: {error}")
        return None
    place = [contact.hosts[0], str(contact.port), contact.local_dc or LOCAL_DC, keyspace]
    command = [str(java), "-Xmx1g", "-cp", classpath, str(SOURCE), *place, str(rows_per_second), str(seconds)]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    document = json.loads(run.stdout)
    assert (document["changed"], document["errors"]) == (0, 0), document
    rows: int = document["rows"]
    return rows / ROWS_OF_A_MESSAGE / float(document["seconds"])

"""A whole `check` of declared tables, beside a check of as many messages, and beside bare scans of what each reads.

Users have a copy under another key, and a table of those that are to be confirmed. Each command is a
process of its own; all take turns on one server. As a program this file writes the tables, or scans them
and does nothing else: `python -m tests.bench.declaring HOST:PORT KEYSPACE ROWS|spark|local [brief]`.
"""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from mailmend.cql.driver.session import CassandraCluster, Contact, connect
from mailmend.cql.introspect import live_schema
from mailmend.model.keyspace import Schema
from mailmend.model.projections.declaration_file import read_declaration
from mailmend.model.projections.family import Family
from mailmend.model.table import Table, columns
from mailmend.repair.decisions.engines import SPARK_ROWS_MIN
from mailmend.repair.declared import declared_families
from mailmend.spark_repair.session import session_for_a_command
from tests.bench import checking, scanning
from tests.bench.checking import ROUNDS, Checked, run
from tests.bench.population import WORN, _uuid, _Writer
from tests.support.keyspaces import created
from tests.support.spark import started_settings

USERS: Final = Table(
    "users",
    columns("user_id uuid", regular="email text, name text, team text, confirmed boolean, created_at timestamp"),
)
BY_EMAIL: Final = Table(
    "users_by_email",
    columns("email text", regular="user_id uuid, name text, team text, confirmed boolean, created_at timestamp"),
)
TO_CONFIRM: Final = Table("users_to_confirm", columns("team text", "user_id uuid"))
TABLES: Final = Schema((), (USERS, BY_EMAIL, TO_CONFIRM))
DECLARED: Final = """
[truth.users.mirror.users_by_email]

[truth.users.filter.users_to_confirm]
when = { confirmed = false }
"""
STRAYS: Final = 7
"""Wrong rows of each kind, one in each of the first teams."""

USERS_PER_TEAM: Final = 1_000
FOUND: Final[Mapping[str, Mapping[str, int]]] = {
    "users_by_email": {"PROJECT": STRAYS, "AMEND": STRAYS},
    "users_to_confirm": {"WITHDRAW": STRAYS},
}
"""What a check finds in the tables."""

ENGINES: Final = ("spark", "local")
_AT_ONCE: Final = ("--delay", "0", "--no-writers", "--json")
_BORN: Final = 1_700_000_000  # seconds since 1970: when the first user came


@dataclass(frozen=True, slots=True)
class Lane:
    """One command that takes its turn.

    Attributes:
        words: the module and its arguments.
        found: what it finds; None: it only scans.
    """

    name: str
    words: Sequence[str]
    found: Mapping[str, Mapping[str, int]] | None = None


def populate(contact: Contact, keyspace: str, rows: int) -> None:
    """Write the users and what follows from them, in a process of its own."""
    with connect(contact) as cluster:
        created(cluster, keyspace, TABLES)
    _in_a_process(contact, keyspace, str(rows))


def measure(contact: Contact, declared: str, mail: str, rows: int) -> list[Checked]:
    """Run every lane in turn, three times; the medians.

    Args:
        contact: the server.
        declared: the keyspace of the users.
        mail: the keyspace of messages that James left, as `checking.populate` writes it.
        rows: the number of users, and of messages.
    """
    with TemporaryDirectory() as folder:
        file = Path(folder) / "users.toml"
        file.write_text(DECLARED)
        lanes = list(_lanes(contact, declared, mail, rows, file))
        runs: dict[str, list[Checked]] = {lane.name: [] for lane in lanes}
        for _ in range(ROUNDS):
            for lane in lanes:
                runs[lane.name].append(run(lane.name, lane.words, lane.found))
    return [checking.middle(of_lane) for of_lane in runs.values()]


def ratios(measured: Sequence[Checked]) -> dict[str, float]:
    """Each whole check in bare scans of the same tables, and the check of users in the check of mail."""
    seconds = {one.lane: one.seconds for one in measured}
    found: dict[str, float] = {}
    for engine in ENGINES:
        for what in ("users", "mail"):
            check = seconds[f"check of {what}, {engine}"]
            found[f"check of {what} ÷ bare scans, {engine}"] = check / seconds[f"scans of {what}, {engine}"]
        users = seconds[f"check of users, {engine}"]
        found[f"check of users ÷ check of mail, {engine}"] = users / seconds[f"check of mail, {engine}"]
    return {name: round(ratio, 2) for name, ratio in found.items()}


def _lanes(contact: Contact, declared: str, mail: str, rows: int, file: Path) -> list[Lane]:
    address = f"{contact.hosts[0]}:{contact.port}"
    brief = []
    if rows < SPARK_ROWS_MIN:
        brief.append("brief")
    at = ("--host", contact.hosts[0], "--port", str(contact.port))
    lanes = []
    for engine in ENGINES:
        how = (*_AT_ONCE, "--engine", engine, *at, "--keyspace")
        of_users = ("mailmend", "check", "--projections", str(file), *how, declared)
        of_mail = ("mailmend", "check", "messages", *how, mail)
        lanes += [
            Lane(f"check of users, {engine}", of_users, FOUND),
            Lane(f"scans of users, {engine}", ("tests.bench.declaring", address, declared, engine, *brief)),
            Lane(f"check of mail, {engine}", of_mail, WORN),
            Lane(f"scans of mail, {engine}", ("tests.bench.scanning", address, mail, engine, *brief)),
        ]
    return lanes


def family_in(cluster: CassandraCluster, keyspace: str) -> Family:
    """The users with all that follows, bound to the live tables."""
    declaration = read_declaration(DECLARED)
    (family,) = declared_families(keyspace, declaration, live_schema(cluster, keyspace))
    return family


def _written(session: SparkSession, contact: Contact, keyspace: str, rows: int) -> None:
    number = sf.col("id")
    name = sf.sha2(number.cast("string"), 256)
    users = session.range(0, rows, 1, 8).select(
        number,
        _uuid("user", number).alias("user_id"),
        sf.concat(sf.lit("u"), number.cast("string"), sf.lit("@example.org")).alias("email"),
        name.alias("name"),
        sf.concat(sf.lit("team"), sf.floor(number / USERS_PER_TEAM).cast("string")).alias("team"),
        (number % 4 != 0).alias("confirmed"),
        sf.timestamp_seconds(sf.lit(_BORN) + number).alias("created_at"),
    )
    put = _Writer(session, contact, keyspace)
    put(users, USERS)
    other = sf.when(_stray(3), sf.lit("another name")).otherwise(sf.col("name"))
    put(users.where(~_stray(2)).withColumn("name", other), BY_EMAIL)
    put(users.where(~sf.col("confirmed") | _stray(1)), TO_CONFIRM)


def _stray(rest: int) -> Any:
    """One user in each of the first teams; none of them is to be confirmed."""
    return sf.expr(f"id % {USERS_PER_TEAM} = {rest} and id < {STRAYS * USERS_PER_TEAM}")


def _in_a_process(contact: Contact, keyspace: str, *words: str) -> None:
    address = f"{contact.hosts[0]}:{contact.port}"
    subprocess.run([sys.executable, "-m", "tests.bench.declaring", address, keyspace, *words], check=True)


def main(arguments: Sequence[str]) -> None:
    """Write so many users into a new keyspace, or scan what a check of them reads."""
    address, keyspace, what, *brief = arguments
    if what in ENGINES:
        scanning.scan_once(address, keyspace, what, family_in, brief=bool(brief))
        return
    host, _, port = address.rpartition(":")
    with session_for_a_command(started_settings("local[2]")) as session:
        _written(session, Contact(hosts=(host,), port=int(port)), keyspace, int(what))


if __name__ == "__main__":
    main(sys.argv[1:])

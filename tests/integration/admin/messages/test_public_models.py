"""A data model that others published: its tables declared, written, damaged, mended and put back.

The shapes are those of KillrVideo, the reference application of Cassandra's courses: videos by user,
by day and by tag, and comments by video and by user. Expected rows come from plain Python.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import mailmend
from mailmend.cql.driver.session import Keyspace, connect
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Put, Remove, Scan
from mailmend.model.table import Row, Table, columns
from tests.support.commands import CommandLine, command_line, contact_of
from tests.support.keyspaces import created, dropped
from tests.support.servers import CassandraServer

pytestmark = [pytest.mark.cassandra]

VIDEOS = Table(
    "videos",
    columns(
        "videoid uuid",
        regular="userid uuid, name text, description text, location_type int, "
        "preview_image_location text, tags set<text>, added_date timestamp",
    ),
)
SHOWN = "name text, preview_image_location text"
USER_VIDEOS = Table("user_videos", columns("userid uuid", "added_date timestamp DESC, videoid uuid", SHOWN))
LATEST = Table(
    "latest_videos", columns("yyyymmdd text", "added_date timestamp DESC, videoid uuid", f"userid uuid, {SHOWN}")
)
BY_TAG = Table(
    "videos_by_tag",
    columns("tag text", "videoid uuid", f"added_date timestamp, {SHOWN}, tagged_date timestamp"),
)
COMMENTS = Table("comments_by_video", columns("videoid uuid", "commentid timeuuid DESC", "userid uuid, comment text"))
BY_USER = Table("comments_by_user", columns("userid uuid", "commentid timeuuid DESC", "videoid uuid, comment text"))
PROJECTIONS = (USER_VIDEOS, LATEST, BY_TAG, BY_USER)
DECLARED = """
[truth.videos.mirror.user_videos]

[truth.videos.mirror.latest_videos]
computed = { yyyymmdd = { day_of = "added_date", form = "digits" } }

[truth.videos.explode.videos_by_tag]
column = "tags"
element = "tag"
left_out = ["tagged_date"]

[truth.comments_by_video.mirror.comments_by_user]
"""
BEGIN = datetime(2026, 3, 30, 9, tzinfo=UTC)
USERS = tuple(UUID(int=number) for number in range(1, 4))
TAGS = ("cassandra", "queues", "repair")


def video(number: int) -> Row:
    return {
        "videoid": UUID(int=1000 + number),
        "userid": USERS[number % 3],
        "name": f"Video {number}",
        "description": None,
        "location_type": 0,
        "preview_image_location": f"/{number}.png",
        "tags": frozenset(TAGS[: number % 4]),
        "added_date": BEGIN + timedelta(hours=7 * number),
    }


def comment(number: int) -> Row:
    return {
        "videoid": UUID(int=1000 + number % 5),
        "commentid": UUID(f"cbea{number:04x}-1f4b-11ef-8000-00000000000a"),
        "userid": USERS[number % 2],
        "comment": f"Nr. {number}",
    }


VIDEO_ROWS = tuple(map(video, range(12)))
COMMENT_ROWS = tuple(map(comment, range(9)))


def picked(table: Table, row: Row, **more: Any) -> Row:
    return {name: more.get(name, row.get(name)) for name in table.names}


def expected() -> dict[str, list[Row]]:
    """What the tables hold when nothing is wrong."""
    by_day = [picked(LATEST, row, yyyymmdd=f"{row['added_date']:%Y%m%d}") for row in VIDEO_ROWS]
    by_tag = [picked(BY_TAG, row, tag=tag) for row in VIDEO_ROWS for tag in row["tags"]]
    rows: Mapping[str, Sequence[Row]] = {
        "user_videos": [picked(USER_VIDEOS, row) for row in VIDEO_ROWS],
        "latest_videos": by_day,
        "videos_by_tag": by_tag,
        "comments_by_user": [picked(BY_USER, row) for row in COMMENT_ROWS],
    }
    return {name: sorted(found, key=str) for name, found in rows.items()}


@dataclass(frozen=True, slots=True)
class Films:
    """The keyspace, and a shell in front of it."""

    tables: Keyspace
    mailmend: CommandLine
    file: Path

    def found(self) -> tuple[int, Mapping[str, Mapping[str, int]]]:
        ended = self.mailmend("check", "--projections", str(self.file), "--engine", "local", "--json")
        assert ended.code in (0, 1), ended.err
        return ended.code, ended.json["findings"]

    def rows(self) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = {}
        for table in PROJECTIONS:
            rows: list[Row] = [dict(row) for row in self.tables.scan(Scan(table, table.names))]
            found[table.name] = sorted(rows, key=str)
        return found


@pytest.fixture
def films(cassandra: CassandraServer, tmp_path: Path) -> Iterator[Films]:
    """Videos and comments, written by a program with one call each."""
    name = cassandra.keyspace()
    ledger = f"{name}_ledger"
    file = tmp_path / "films.toml"
    file.write_text(DECLARED)
    where = {"MAILMEND_KEYSPACE": name, "MAILMEND_LEDGER_KEYSPACE": ledger}
    for command in ("CHECK", "REPAIR_TABLES"):
        where[f"MAILMEND_{command}_DELAY"] = "0"
        where[f"MAILMEND_{command}_NO_WRITERS"] = "1"
    with connect(contact_of(cassandra)) as cluster:
        tables = created(cluster, name, Schema((), (VIDEOS, COMMENTS, *PROJECTIONS)))
        with mailmend.open(
            host=cassandra.host,
            port=cassandra.port,
            keyspace=name,
            ledger_keyspace=ledger,
        ) as opened:
            write(opened.writer("videos", file).put, VIDEO_ROWS)
            write(opened.writer("comments_by_video", file).put, COMMENT_ROWS)
        yield Films(tables, command_line(tmp_path, cassandra, **where), file)
        dropped(cluster, (name, ledger))


def write(put: Callable[[Row], object], rows: Sequence[Row]) -> None:
    for row in rows:
        put(row)


def damage(films: Films) -> None:
    """In each table one row is lost, one differs and one is left behind."""
    for number, table in enumerate(PROJECTIONS):
        lost, changed, *_ = films.rows()[table.name]
        films.tables.write(Remove(table, table.key_of(lost)))
        name = "comment"
        if table is not BY_USER:
            name = "name"
        films.tables.write(Put(table, {**changed, name: "another"}))
        left = {**changed, "videoid": UUID(int=9000 + number), "commentid": OTHER_COMMENT}
        films.tables.write(Put(table, {name: left[name] for name in table.names}))


OTHER_COMMENT = UUID("cbeaffff-1f4b-11ef-8000-00000000000a")


def test_a_published_model_is_written_damaged_mended_and_put_back(films: Films) -> None:
    # Given
    assert films.rows() == expected()
    assert films.found() == (0, {})
    damage(films)
    damaged = films.rows()

    # When
    code, found = films.found()
    repaired = films.mailmend("repair", "--projections", str(films.file), "--engine", "local", "--json")

    # Then
    assert code == 1
    assert found == {table.name: {"AMEND": 1, "PROJECT": 1, "WITHDRAW": 1} for table in PROJECTIONS}
    assert repaired.code == 0, repaired.err
    assert films.rows() == expected()
    assert films.found() == (0, {})
    assert films.mailmend("undo", repaired.json["run"], "--no-writers", "--json").code == 0
    assert films.rows() == damaged


def test_a_proposal_of_a_published_model_asks_for_its_tables(films: Films) -> None:
    proposed = films.mailmend("projections", "init", "--json").json

    assert "[truth.videos.mirror.user_videos]" in proposed["declaration"]
    assert "[truth.comments_by_user.mirror.comments_by_video]" in proposed["declaration"]
    asked = {question["table"]: question["text"] for question in proposed["questions"]}
    assert "Is comments_by_user the truth" in asked["comments_by_video"]
    assert "a row for each element of videos.tags?" in asked["videos_by_tag"]
    assert "its yyyymmdd?" in asked["latest_videos"]

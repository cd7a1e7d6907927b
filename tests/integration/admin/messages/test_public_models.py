"""A data model that others published: its tables declared, written, damaged, mended and put back.

The shapes are those of KillrVideo, the reference application of Cassandra's courses: videos by user,
by day and by tag, and comments by video and by user. Expected rows come from plain Python.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import mailmend
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Put, Remove
from mailmend.model.table import Row, Table, columns
from tests.support.declared_shops import DeclaredShop, declared_shop
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


@pytest.fixture
def films(cassandra: CassandraServer, tmp_path: Path) -> Iterator[DeclaredShop]:
    """Videos and comments, written by a program with one call each."""
    schema = Schema((), (VIDEOS, COMMENTS, *PROJECTIONS))
    with declared_shop(cassandra, tmp_path, schema, DECLARED) as films:
        with mailmend.open(
            host=cassandra.host,
            port=cassandra.port,
            keyspace=films.name,
            ledger_keyspace=films.ledger,
        ) as opened:
            write(opened.writer("videos", films.file).put, VIDEO_ROWS)
            write(opened.writer("comments_by_video", films.file).put, COMMENT_ROWS)
        yield films


def write(put: Callable[[Row], object], rows: Sequence[Row]) -> None:
    for row in rows:
        put(row)


def damage(films: DeclaredShop) -> None:
    """In each table one row is lost, one differs and one is left behind."""
    for number, table in enumerate(PROJECTIONS):
        lost, changed, *_ = films.rows(table)
        films.tables.write(Remove(table, table.key_of(lost)))
        name = "comment"
        if table is not BY_USER:
            name = "name"
        films.tables.write(Put(table, {**changed, name: "another"}))
        left = {**changed, "videoid": UUID(int=9000 + number), "commentid": OTHER_COMMENT}
        films.tables.write(Put(table, {name: left[name] for name in table.names}))


OTHER_COMMENT = UUID("cbeaffff-1f4b-11ef-8000-00000000000a")


def test_a_published_model_is_written_damaged_mended_and_put_back(films: DeclaredShop) -> None:
    # Given
    assert films.rows_of(PROJECTIONS) == expected()
    assert films.found() == (0, {})
    damage(films)
    damaged = films.rows_of(PROJECTIONS)

    # When
    code, found = films.found()
    repaired = films.mailmend("repair", "--projections", str(films.file), "--engine", "local", "--json")

    # Then
    assert code == 1
    assert found == {table.name: {"AMEND": 1, "PROJECT": 1, "WITHDRAW": 1} for table in PROJECTIONS}
    assert repaired.code == 0, repaired.err
    assert films.rows_of(PROJECTIONS) == expected()
    assert films.found() == (0, {})
    assert films.mailmend("undo", repaired.json["run"], "--no-writers", "--json").code == 0
    assert films.rows_of(PROJECTIONS) == damaged


def test_a_proposal_of_a_published_model_asks_for_its_tables(films: DeclaredShop) -> None:
    proposed = films.mailmend("projections", "init", "--json").json

    assert "[truth.videos.mirror.user_videos]" in proposed["declaration"]
    assert "[truth.comments_by_user.mirror.comments_by_video]" in proposed["declaration"]
    asked = {question["table"]: question["text"] for question in proposed["questions"]}
    assert "Is comments_by_user the truth" in asked["comments_by_video"]
    assert "a row for each element of videos.tags?" in asked["videos_by_tag"]
    assert "its yyyymmdd?" in asked["latest_videos"]

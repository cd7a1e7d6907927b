"""The demo from its first command to its last: on Spark with a store that speaks S3, and from a wheel without Spark."""

import asyncio
from pathlib import Path

import pytest

from mailmend.admin.local.demo import MESSAGES_MIN
from mailmend.mailqueue.blobs.object_storage import open_s3
from mailmend.spark_repair.session import SparkSettings
from tests.support.commands import command_line
from tests.support.object_stores import S3

pytestmark = [pytest.mark.cassandra, pytest.mark.spark, pytest.mark.object_store, pytest.mark.thorough]


def test_the_demo_keeps_its_contents_in_a_bucket(s3: S3, tmp_path: Path) -> None:
    """By its own processes, which get the keys handed on; its Cassandra is gone afterwards, the contents are not."""
    bucket = s3.bucket()
    blobs = f"s3://{bucket.bucket}?endpoint={bucket.endpoint}"
    mailmend = command_line(
        tmp_path,
        None,
        XDG_CACHE_HOME=str(SparkSettings().folder.parent),  # of what is downloaded once for a user
        MAILMEND_S3_ACCESS_KEY=s3.access_key,
        MAILMEND_S3_SECRET_KEY=s3.secret_key,
    )

    ended = mailmend("demo", "--engine", "spark", "--blobs", blobs, "--messages", str(MESSAGES_MIN))

    async def kept() -> int:
        return len([blob async for blob in open_s3(bucket).scan()])

    assert ended.code == 0, f"{ended.out}\n{ended.err}"
    assert asyncio.run(kept()) > MESSAGES_MIN
    assert not list((tmp_path / "data").rglob("sstables"))

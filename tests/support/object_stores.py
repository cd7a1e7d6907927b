"""A real store that speaks S3 for tests: found, started, ended; one fixture, whatever stands behind it.

`MAILMEND_TEST_S3=endpoint` names one that runs already, with `MAILMEND_TEST_S3_KEYS=access:secret`; else one is started
from the same code as `mailmend local up --with s3`, with a free port and a folder of its own. A test that kills or
wipes has a store of its own: `throwaway_s3()`.
"""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from mailmend.admin.local.s3proxy import ObjectStore, keys_of
from mailmend.admin.local.server import LocalServer
from mailmend.mailqueue.blobs.object_storage import create_bucket
from mailmend.mailqueue.blobs.s3 import S3Settings
from tests.support.servers import throwaway_server

GIVEN, GIVEN_KEYS = "MAILMEND_TEST_S3", "MAILMEND_TEST_S3_KEYS"


@dataclass(frozen=True, slots=True)
class S3:
    """A store that a test may use together with others: whoever needs one takes a bucket of its own."""

    endpoint: str
    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)

    def settings(self, bucket: str, **changed: Any) -> S3Settings:
        """What `open_s3` takes for a bucket, whether it is there or not."""
        given = {"access_key": self.access_key, "secret_key": self.secret_key, "allow_http": True, **changed}
        return S3Settings(self.endpoint, bucket, **given)

    def bucket(self) -> S3Settings:
        settings = self.settings(f"t-{uuid4().hex[:12]}")
        assert asyncio.run(create_bucket(settings))
        return settings


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnS3(S3):
    """A store that a test has for itself: it may be killed, started and wiped, and keeps its port and keys."""

    run: LocalServer

    def start(self) -> None:
        self.run.up()

    def stop(self) -> None:
        self.run.down()

    def kill(self) -> None:
        self.run.kill()


@contextmanager
def one_s3() -> Iterator[S3]:
    if given := os.environ.get(GIVEN):
        access_key, _, secret_key = os.environ[GIVEN_KEYS].partition(":")
        yield S3(given, access_key, secret_key)
    else:
        with throwaway_s3() as own:
            yield own


@contextmanager
def throwaway_s3() -> Iterator[OwnS3]:
    """A store of our own, that runs and holds nothing yet; ended with the block."""
    with throwaway_server(ObjectStore()) as run:
        keys = keys_of(run.site)
        yield OwnS3(run.status().contacts["s3"], keys.access_key, keys.secret_key, run=run)

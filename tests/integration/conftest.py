"""The servers that integration tests of a queue share."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.brokers import Broker
from tests.support.object_stores import S3
from tests.support.real_queue import RealQueue, real_queue
from tests.support.servers import CassandraServer
from tests.support.smtp_sink import Answer, SmtpSink


@pytest.fixture(scope="session")
def servers(
    cassandra: CassandraServer, rabbitmq: Broker, s3: S3, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealQueue]:
    bucket = s3.bucket()
    blobs = {
        "MAILMEND_BLOBS": f"s3://{bucket.bucket}?endpoint={s3.endpoint}",
        "MAILMEND_S3_ACCESS_KEY": s3.access_key,
        "MAILMEND_S3_SECRET_KEY": s3.secret_key,
    }
    with real_queue(cassandra, rabbitmq, tmp_path_factory.mktemp("home"), blobs) as queue:
        yield queue


@pytest.fixture
def queue(servers: RealQueue) -> RealQueue:
    servers.empty()
    return servers


@pytest.fixture
def sinks() -> Iterator[Callable[..., SmtpSink]]:
    """Begin servers of mail in a thread of their own; they end with the test."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    with ExitStack() as stack:

        def start(**script: Sequence[Answer]) -> SmtpSink:
            sink = SmtpSink(script)
            running = sink.running()
            asyncio.run_coroutine_threadsafe(running.__aenter__(), loop).result()
            stack.callback(lambda: asyncio.run_coroutine_threadsafe(running.__aexit__(None, None, None), loop).result())
            return sink

        yield start
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def serving(queue: RealQueue) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Begin `delivery serve` to a sink, as a process of its own."""
    with ExitStack() as stack:

        def start(sink: SmtpSink, *options: str) -> "subprocess.Popen[str]":
            hop = ("--next-hop", f"127.0.0.1:{sink.port}", "--retry", "1s", "--helo", "out.example.org", *options)
            process = subprocess.Popen(
                [sys.executable, "-m", "mailmend", "delivery", "serve", "spool", *hop],
                env={**queue.line.environment, "HOME": str(queue.line.home), "PATH": "/usr/bin:/bin"},
                stderr=subprocess.PIPE,
                text=True,
                cwd=Path(__file__).parents[2],
            )
            stack.callback(process.communicate)
            stack.callback(process.kill)
            return process

        yield start

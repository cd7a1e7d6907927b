"""The servers that integration tests of a queue share."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import pytest

from tests.support.brokers import Broker
from tests.support.checkout import CHECKOUT
from tests.support.dns_twin import DnsTwin
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
def beside() -> Iterator[Callable[[SmtpSink | DnsTwin], None]]:
    """Begin servers of a test in a thread of their own; they end with the test."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    with ExitStack() as stack:

        def start(server: SmtpSink | DnsTwin) -> None:
            running = server.running()
            asyncio.run_coroutine_threadsafe(running.__aenter__(), loop).result()
            stack.callback(lambda: asyncio.run_coroutine_threadsafe(running.__aexit__(None, None, None), loop).result())

        yield start
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def sinks(beside: Callable[[SmtpSink | DnsTwin], None]) -> Callable[..., SmtpSink]:
    """Begin servers of mail that answer as a script says."""

    def start(**script: Sequence[Answer]) -> SmtpSink:
        sink = SmtpSink(script)
        beside(sink)
        return sink

    return start


@pytest.fixture
def serving(queue: RealQueue) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Begin `delivery serve` to a sink, or to the servers that DNS names, as a process of its own."""
    with ExitStack() as stack:

        def start(sink: SmtpSink | None, *options: str, within: Sequence[str] = ()) -> "subprocess.Popen[str]":
            """Begin it; `within` is the command line that the words of this one are put behind."""
            hop = ("--next-hop", f"127.0.0.1:{sink.port}") if sink else ()
            named = ("--retry", "1s", "--helo", "out.example.org", *hop, *options)
            process = subprocess.Popen(
                [*within, sys.executable, "-m", "mailmend", "delivery", "serve", "spool", *named],
                env={**queue.line.environment, "HOME": str(queue.line.home), "PATH": "/usr/bin:/bin"},
                stderr=subprocess.PIPE,
                text=True,
                cwd=CHECKOUT,
            )
            stack.callback(process.communicate)
            stack.callback(process.kill)
            return process

        yield start

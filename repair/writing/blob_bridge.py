"""Lets the blocking message store call the asynchronous blob stores."""

import asyncio
import threading
from collections.abc import Coroutine
from functools import cache
from typing import Any, TypeVar

from model.ids import BlobId
from model.ports import Blobs
from model.queue.messages import BlobKind
from repair.writing.truth_rows import BlobIds

T = TypeVar("T")


class BlobBridge:
    """The contents of messages in a store of blobs, header and body side by side. Thread-safe."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    def put(self, header: bytes, body: bytes) -> BlobIds:
        """Store a message durably.

        Raises:
            BlobsUnreachable: the store does not answer, or accepts nothing.
        """
        both = _both(self._blobs.put(header, BlobKind.HEADER), self._blobs.put(body, BlobKind.BODY))
        return BlobIds(*_run(both))

    def get(self, header: str, body: str) -> bytes:
        """The whole message.

        Raises:
            BlobMissing: the store has nothing under one of the ids.
            BlobsUnreachable: the store does not answer.
        """
        return b"".join(_run(_both(self._blobs.get(BlobId(header)), self._blobs.get(BlobId(body)))))


async def _both(one: Coroutine[Any, Any, T], other: Coroutine[Any, Any, T]) -> tuple[T, T]:
    return await asyncio.gather(one, other)


def _run(step: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(step, _loop()).result()


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """The event loop for this process's blobs, in a thread that ends with the process."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="mailmend-blobs", daemon=True).start()
    return loop

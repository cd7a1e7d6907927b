"""A program at a port of this machine that takes one connection and answers it with given bytes."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def answering(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """The port of a server that gives its one connection to `answer`, and closes it then."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def visit() -> None:
            connection, _ = server.accept()
            with connection:
                answer(connection)

        visitor = threading.Thread(target=visit)
        visitor.start()
        yield int(server.getsockname()[1])
        visitor.join()

"""A disk that is full: no file grows beyond so many bytes, and whoever tries learns it as from a real one."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def full_after(octets: int) -> Iterator[None]:
    """For this process, while the block lasts: the part that fits is written, the rest is refused."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (octets, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

"""A cluster that a server keeps open: services that open this cluster get the kept one.

A command connects, works and closes. A server calls the services of commands for each of its
callers, and a connection to Cassandra takes longer than most answers.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from mailmend.cql.driver.contact import Contact

_KEPT: Final[ContextVar[tuple[Contact, Any] | None]] = ContextVar(
    "the cluster that is kept open",
    default=None,
)


@contextmanager
def keeping(contact: Contact, cluster: Any) -> Iterator[None]:
    """Have every opening of this contact's cluster give the open one, in this context only."""
    before = _KEPT.set((contact, cluster))
    try:
        yield
    finally:
        _KEPT.reset(before)


def kept_cluster(contact: Contact) -> Any:
    """The open cluster of this contact; None where none is kept."""
    kept = _KEPT.get()
    if kept and kept[0] == contact:
        return kept[1]
    return None

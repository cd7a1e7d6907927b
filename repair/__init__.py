"""The truth, its projections, and mending them: pure decisions inside, a thin shell around.

A service that writes mail takes `MessageStore` from here; it is loaded when it is first asked for, so that those who
only repair (Spark's executors among them) do not load what only a writer needs.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from repair.writing.message_store import MessageStore, WriterSettings

__all__ = ["MessageStore", "WriterSettings"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from repair.writing import message_store  # noqa: PLC0415 loaded when first asked for

    return getattr(message_store, name)

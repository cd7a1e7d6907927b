"""Requests under way without a thread for each, for `cql.driver.asynchronous`. Knows no driver."""

from collections.abc import Callable
from typing import Any

from model.schema.table import Row


class Flight:
    """A request under way. A read in pages lands once for each page; only `land` blocks, where there are several.

    Args:
        future: the driver's; None where the request could not even be sent.
        land: what the request answered, or the error that it met.
        page: the rows of the page that landed; raises what the request met instead.
    """

    def __init__(self, future: Any | None, land: Callable[[], Any], page: Callable[[], list[Row]]) -> None:
        self._future = future
        self.land = land
        self.page = page

    def tell(self, landed: Callable[[], None]) -> None:
        """Call back, in the driver's own thread, as soon as it has landed: well or not."""
        if self._future is None:
            landed()
            return
        self._future.clear_callbacks()
        self._future.add_callbacks(lambda *_: landed(), lambda *_: landed())

    @property
    def in_pages(self) -> bool:
        """Whether what landed is not all of the answer."""
        return self._future is not None and bool(self._future.has_more_pages)

    def go_on(self) -> None:
        """Ask for the next page; `tell` again."""
        assert self._future is not None
        self._future.clear_callbacks()
        self._future.start_fetching_next_page()

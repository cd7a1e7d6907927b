"""What a page is: a row of a table. A new page is a file, a template and a line of `PAGES`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from mailmend.admin.frame.cluster import OpenCluster
from mailmend.admin.frame.document import Document
from mailmend.admin.frame.http.access import TokenRole
from mailmend.admin.jobs.declaration import Job
from mailmend.model.instants import instant_of


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who looks at a page.

    Attributes:
        name: of the token; "" without tokens.
        cookie: what the tokens of this visitor's forms follow from.
    """

    name: str
    role: TokenRole
    cookie: str = ""

    @property
    def operates(self) -> bool:
        """Whether rows of mail and buttons that change something are shown."""
        return self.role >= TokenRole.OPERATE


@dataclass(frozen=True, slots=True)
class SettingShown:
    """A setting in force: its name, its value without secrets, and where it was set."""

    name: str
    value: str
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PageData:
    """What pages read from; every function of it blocks, and any thread may call it.

    Attributes:
        jobs: the declared jobs.
        settings: in the order in which they are shown.
        doctor: the document of `mailmend doctor`, as of at most half a minute ago.
    """

    opened: OpenCluster
    jobs: Callable[[], Sequence[Job]]
    settings: Sequence[SettingShown]
    doctor: Callable[[], Document]

    @property
    def keyspace(self) -> str:
        return self.opened.connection.keyspace

    def now(self) -> datetime:
        return instant_of(self.opened.clock.micros())


@dataclass(frozen=True, slots=True)
class PageRequest:
    """What was asked for: by whom, with which parts of the path, with which parameters."""

    visitor: Visitor
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)

    def text(self, name: str) -> str:
        """A parameter; "" where it was not given."""
        return self.query.get(name, "").strip()

    def link(self, path: str, **changed: str) -> str:
        """The path with the given parameters, some of them changed; "" leaves one out."""
        query = {name: value for name, value in {**self.query, **changed}.items() if value}
        if not query:
            return path
        return f"{path}?{urlencode(query)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebPage:
    """A page.

    Attributes:
        path: with parameters in braces.
        template: in the folder templates.
        look: gives the values of the template; it blocks, and is called in a thread.
        role: who may look at it.
        menu: its word in the menu; "" for a page that other pages lead to.
        below: the path of the page of the menu that it belongs to.
    """

    path: str
    title: str
    template: str
    look: Callable[[PageData, PageRequest], Mapping[str, Any]]
    role: TokenRole = TokenRole.READ
    menu: str = ""
    below: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageChange:
    """A form that changes something: always with a reason, and on record.

    Attributes:
        path: with parameters in braces.
        event: of the log line that records it.
        act: does it, and gives the path of the page with the result; it blocks, in a thread.
    """

    path: str
    event: str
    act: Callable[[PageData, PageRequest, str], str]
    role: TokenRole = TokenRole.OPERATE

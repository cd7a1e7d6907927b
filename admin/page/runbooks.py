"""The pages of runbooks: the list, and one page with its commands to copy, filled in."""

import re
import shlex
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

from mailmend.admin.frame.runbooks import RunbookPage, page_named, pages
from mailmend.admin.page.table import PageData, PageRequest, WebPage
from mailmend.model.errors import NotThere, WrongUse

VALUE_CHARACTERS_MAX: Final = 200
_PLACEHOLDER: Final = re.compile(r"\$([A-Z][A-Z_]*)")
_FENCE: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_PAGE_LINK: Final = re.compile(r"(?:\.\.?/)?(?:runbooks/)?([a-z0-9-]+)\.md(#[\w-]*)?")
_SOURCE: Final = "https://github.com/mailmend/mailmend/blob/main/"


def look_at_list(data: PageData, asked: PageRequest) -> Mapping[str, Any]:
    """The runbooks whose name, title or text has the words."""
    words = asked.text("words").lower().split()
    found = list[RunbookPage]()
    for page in pages():
        text = f"{page.name} {page.text}".lower()
        if all(word in text for word in words):
            found.append(page)
    return {"runbooks": found, "keyspace": data.keyspace}


def look_at_one(data: PageData, asked: PageRequest) -> Mapping[str, Any]:
    """One runbook, whose placeholders have the values that were given."""
    try:
        page = page_named(asked.path["name"])
    except WrongUse as error:
        raise NotThere(error.what, mend="The list of runbooks is in the menu.") from None
    values = values_of(page, asked, data.keyspace)
    return {
        "title": page.title,
        "page": page,
        "values": values,
        "html": html_of(filled(page.text, values)),
        "command": f"mailmend runbook show {page.name}",
    }


def values_of(page: RunbookPage, asked: PageRequest, keyspace: str) -> dict[str, str]:
    """A value for each placeholder of the page; "" where none is known.

    Raises:
        WrongUse: a value has control characters, or is too long.
    """
    values = {}
    for name in sorted(page.placeholders):
        value = asked.text(name)
        if not value and name == "KEYSPACE":
            value = keyspace
        if len(value) > VALUE_CHARACTERS_MAX or not value.isprintable():
            raise WrongUse(
                f"{name} is not a value of a command",
                mend="Give one line of at most 200 characters.",
            )
        values[name] = value
    return values


def filled(text: str, values: Mapping[str, str]) -> str:
    """The text with the placeholders in its blocks replaced, each by one word of a shell."""

    def value(found: re.Match[str]) -> str:
        given = values.get(found[1], "")
        if not given:
            return found[0]
        return shlex.quote(given)

    return _FENCE.sub(lambda block: _PLACEHOLDER.sub(value, block[0]), text)


@lru_cache(maxsize=1)
def _markdown() -> MarkdownIt:
    """HTML in a page is shown as text."""
    return MarkdownIt("commonmark", {"html": False}).enable("table")


def html_of(text: str) -> str:
    """The page as HTML, below the title of its own; its headings begin at the second level."""
    body = text.partition("\n")[2]
    tokens = _markdown().parse(body)
    for token in tokens:
        _lead_here(token)
    return str(_markdown().renderer.render(tokens, _markdown().options, {}))


def _lead_here(token: Token) -> None:
    """Have links to runbooks lead to pages here, and links to other files to the source."""
    for child in token.children or ():
        if child.type == "link_open":
            child.attrSet("href", _link(str(child.attrGet("href") or "")))
            child.attrSet("rel", "noreferrer")


def _link(target: str) -> str:
    if re.match(r"[a-z]+:|#", target):
        return target
    if found := _PAGE_LINK.fullmatch(target):
        return f"/runbooks/{found[1]}{found[2] or ''}"
    return _SOURCE + target.removeprefix("../")


LIST: Final = WebPage(
    path="/runbooks",
    title="Runbooks",
    menu="Runbooks",
    template="runbooks.html",
    look=look_at_list,
)
ONE: Final = WebPage(
    path="/runbooks/{name}",
    title="Runbook",
    template="runbook.html",
    look=look_at_one,
    below=LIST.path,
)

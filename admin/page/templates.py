"""The templates of the page: HTML that is rendered here, with every text escaped."""

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from mailmend.admin.frame.document import COMMANDS, DIFFERS, NUMERIC, Part
from mailmend.admin.frame.presenter import html_part
from mailmend.admin.frame.values import printable, shown

STYLE: Final = "/static/page.css"
ICON: Final = "/static/icon.svg"


@cache
def _templates() -> Environment:
    """Made once in a process: it keeps the templates that it has compiled."""
    environment = Environment(
        loader=PackageLoader("mailmend.admin.page", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        "numeric": NUMERIC,
        "commands": COMMANDS,
        "differs": DIFFERS,
        "version": version("mailmend"),
        "style_path": STYLE,
        "icon_path": ICON,
    }
    environment.filters |= {"at": shown, "plain": printable, "parts": _parts}
    return environment


def _parts(parts: Iterable[Part]) -> list[dict[str, Any]]:
    return [html_part(part) for part in parts]


def rendered(template: str, values: Mapping[str, Any]) -> str:
    return _templates().get_template(template).render(values)


@cache
def static_file(name: str) -> bytes:
    return (files("mailmend.admin.page") / "static" / name).read_bytes()

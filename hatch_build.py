"""What a build adds to the wheel and the source archive: the man pages, where `make man` has made them."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PAGES = Path("build", "man")


class ManPages(BuildHookInterface):
    """Puts `build/man` into `share/man/man1` of an installation; the source archive keeps it in its place."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's signature
        pages = Path(self.root) / PAGES
        if not pages.is_dir():
            return
        if self.target_name == "wheel":
            build_data["shared_data"][str(pages)] = "share/man/man1"
        else:
            build_data["force_include"][str(pages)] = str(PAGES)

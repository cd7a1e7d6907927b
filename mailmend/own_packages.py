"""Makes sure that imports of `model`, `cql`, `repair`, ... find our packages, although these names are generic.

The design asks for these names (DESIGN section 3). `claim` must run before any of our packages is imported: the command
calls it, and so does the first use of a public name of `mailmend`.
"""

import sys
import warnings
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Final

NAMES: Final = ("admin", "cql", "delivery", "mailqueue", "model", "repair", "spark_repair")
HOME: Final = str(Path(__file__).resolve().parent.parent)
"""The folder (or zip) that holds `mailmend` and the packages beside it."""


class ForeignPackage(ImportError):
    """Another package is loaded under one of our names, so ours cannot be imported."""


class HidesPackage(ImportWarning):
    """A package of ours has the name of one on the path, and hides it."""


class _OwnFirst(MetaPathFinder):
    """Finds our packages beside this one, whatever else is on the path."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - the signature of a finder
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        return PathFinder.find_spec(fullname, [HOME], target) if fullname in NAMES else None


def claim(*, warn: bool) -> None:
    """Make our names mean our packages in this process, from now on.

    Args:
        warn: whether a warning names the packages that become hidden: another program may need them.

    Raises:
        ForeignPackage: a package of somebody else is loaded already under one of our names.
    """
    loaded = {name: place for name in NAMES if (place := _place(sys.modules.get(name))) and not _is_ours(place)}
    if loaded:
        raise ForeignPackage(_message(loaded, "is loaded already", _WAY_OUT_LOADED))
    if warn and (hidden := _foreign_on_path()):
        warnings.warn(HidesPackage(_message(hidden, "is hidden from now on", _WAY_OUT_HIDDEN)), stacklevel=3)
    if not any(isinstance(finder, _OwnFirst) for finder in sys.meta_path):
        sys.meta_path.insert(0, _OwnFirst())


_WAY_OUT: Final = (
    "run mailmend as a program of its own (the command `mailmend`, or `python -m mailmend`), "
    "or rename that package, or put it into a package of yours"
)
_WAY_OUT_LOADED: Final = f"To get out: import mailmend in a process that does not import it; {_WAY_OUT}."
_WAY_OUT_HIDDEN: Final = f"If this program needs it: {_WAY_OUT}."


def _message(foreign: dict[str, str], what: str, way_out: str) -> str:
    named = "; ".join(f"{name!r} at {place}" for name, place in sorted(foreign.items()))
    return f"mailmend has packages of these names too, in {HOME}, and another one {what}: {named}. {way_out}"


def _foreign_on_path() -> dict[str, str]:
    """Other packages that an import would have found before ours, or without ours."""
    elsewhere = [entry for entry in sys.path if str(Path(entry).resolve()) != HOME]
    places = {name: _origin(PathFinder.find_spec(name, elsewhere)) for name in NAMES}
    return {name: place for name, place in places.items() if place and not _is_ours(place)}


def _origin(spec: ModuleSpec | None) -> str | None:
    if spec is None:
        return None
    return spec.origin or next(iter(spec.submodule_search_locations or ()), None)


def _place(module: ModuleType | None) -> str | None:
    """Where a module was loaded from; a folder without `__init__.py` has no file, only a search path."""
    if module is None:
        return None
    return getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), "an unknown place")


def _is_ours(place: str) -> bool:
    return Path(place).resolve().is_relative_to(HOME)

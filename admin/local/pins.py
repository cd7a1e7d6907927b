"""Which jars a program is made of, and the checksum of each.

They are kept in the repository, so that a download is verified against what was tested and not against what came with
it. The files under `pinned/` have the form that `sha256sum` writes and checks.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from admin.local.jar_programs import JarProgram

PINNED: Final = Path(__file__).parent / "pinned"
"""Those of the programs that mailmend itself fetches."""


def pins_of(program: JarProgram, pinned: Path = PINNED) -> dict[str, str]:
    """The checksum of every jar of a program, by file name; `pinned` is the folder of such lists."""
    _, module, version = program.coordinate
    return parse_pins((pinned / f"{module}-{version}.sha256").read_text(encoding="ascii"))


def parse_pins(text: str) -> dict[str, str]:
    """Read the lines of `sha256sum`: a checksum, two spaces, a file name."""
    return {name: digest for digest, name in (line.split(maxsplit=1) for line in text.splitlines() if line)}


def digests_in(folder: Path) -> dict[str, str]:
    """The checksum of every jar in a folder, by file name; a tenth of a second for a whole release."""
    return {jar.name: _digest(jar) for jar in sorted(folder.glob("*.jar"))}


def differences(pinned: Mapping[str, str], seen: Mapping[str, str]) -> list[str]:
    """The names of the jars that are missing, changed or not expected, in order."""
    return sorted(name for name in pinned.keys() | seen.keys() if pinned.get(name) != seen.get(name))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

"""What a release has to pass without network: `make release-check` runs it after `make check`.

The wheel and the source archive are built twice, and both times have the same bytes. The wheel holds one package, and
its page for an index has no relative link. The changelog has a section for the version: it becomes the notes of the
release, `dist/mailmend.notes.md`. `dist/mailmend.cdx.json` lists what the extra `[all]` installs, as CycloneDX (SBOM),
by the lock file.
"""

import hashlib
import re
import subprocess
import sys
import tempfile
import tomllib
from email.parser import BytesParser
from pathlib import Path
from typing import Final
from zipfile import ZipFile

from tests.support.checkout import CHECKOUT

UV: Final = CHECKOUT / ".uv" / "bin" / "uv"
DIST: Final = CHECKOUT / "dist"
SBOM: Final = DIST / "mailmend.cdx.json"
NOTES: Final = DIST / "mailmend.notes.md"
_RELATIVE_LINK: Final = re.compile(r"\]\((?!https?://|#|mailto:)([^)\s]+)\)")


def version_of_project() -> str:
    """The version in `pyproject.toml`."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def relative_links(page: str) -> list[str]:
    """The targets of links and pictures of a Markdown page that an index could not follow."""
    return _RELATIVE_LINK.findall(page)


def section_of(changelog: str, version: str) -> str:
    """What a changelog says of a version, without the heading; empty if it has no section for it."""
    heading = rf"^## {re.escape(version)}(?:[ \t][^\n]*)?$"
    section = re.search(rf"{heading}\n(.*?)(?=^## |\Z)", changelog + "\n", re.MULTILINE | re.DOTALL)
    if section is None:
        return ""
    return section[1].strip() + "\n"


def page_in(wheel: Path) -> str:
    """The description of the package for an index, as Markdown."""
    with ZipFile(wheel) as archive:
        [metadata] = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return str(BytesParser().parsebytes(archive.read(metadata)).get_payload())


def packages_in(wheel: Path) -> set[str]:
    """The names that a wheel puts into `site-packages`: not its metadata, and not its man pages."""
    with ZipFile(wheel) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
    return {top for top in tops if not top.endswith((".dist-info", ".data"))}


def man_pages_in(wheel: Path) -> set[str]:
    """The names of the man pages that a wheel installs below `share/man/man1`."""
    with ZipFile(wheel) as archive:
        files = {Path(name) for name in archive.namelist()}
    return {file.name for file in files if file.parent.match("*.data/data/share/man/man1")}


def digests_of(folder: Path) -> dict[str, str]:
    """SHA-256 by file name of the wheel and the source archive in a folder."""
    digests = {}
    for file in sorted(folder.iterdir()):
        if file.suffix in {".whl", ".gz"}:
            digests[file.name] = hashlib.sha256(file.read_bytes()).hexdigest()
    return digests


def build(folder: Path) -> dict[str, str]:
    """Build wheel and source archive into a folder, in place of older ones, and return their digests."""
    for older in folder.glob("mailmend-*"):
        older.unlink()
    subprocess.run([UV, "build", "--quiet", "--out-dir", folder, CHECKOUT], check=True)
    return digests_of(folder)


def problems() -> list[str]:
    """What keeps this tree from being released, one sentence each; the built files are in `dist/`."""
    found = []
    built = build(DIST)
    with tempfile.TemporaryDirectory() as folder:
        again = build(Path(folder))
    for name, digest in again.items():
        if built[name] != digest:
            found.append(f"{name} has other bytes when it is built again")
    version = version_of_project()
    wheel = DIST / f"mailmend-{version}-py3-none-any.whl"
    for target in relative_links(page_in(wheel)):
        found.append(f"README.md in the wheel has a link that an index cannot follow: {target}")
    if "mailmend.1" not in man_pages_in(wheel):
        found.append("the wheel installs no man pages: make man makes them")
    strangers = packages_in(wheel) - {"mailmend"}
    for name in sorted(strangers):
        found.append(f"the wheel installs {name} beside mailmend")
    notes = section_of((CHECKOUT / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    if not notes.strip():
        found.append(f"CHANGELOG.md has no section for {version}, or an empty one")
    NOTES.write_text(notes, encoding="utf-8")
    return found


def write_bill_of_materials() -> None:
    """Write what the extra `[all]` installs, with versions and digests of the lock file."""
    command = [str(UV), "export", "--quiet", "--locked", "--no-dev", "--extra", "all", "--format", "cyclonedx1.5"]
    subprocess.run([*command, "--output-file", str(SBOM)], check=True, cwd=CHECKOUT, stdout=subprocess.DEVNULL)


def main() -> int:
    found = problems()
    for problem in found:
        print(problem)
    if found:
        return 1
    write_bill_of_materials()
    for name, digest in digests_of(DIST).items():
        print(f"{digest}  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

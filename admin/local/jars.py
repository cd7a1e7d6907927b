"""The jars of a program on this machine: fetched once per user, verified at every start, used without network.

They are fetched into a folder of their own and moved into place as a whole, under a lock: a reader sees all of them or
none, and of two processes that need them at once one waits for the other. Their checksums are kept in the repository
(`pinned/`, as `sha256sum` writes them), so that a download is verified against what was tested.
"""

import hashlib
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from admin.local import ivy
from admin.local.jar_program import JarProgram
from admin.local.java import Java
from admin.local.server_files import locked
from model.errors import LocalServerError
from model.ports import Progress, Silent

FETCH_SECONDS_MAX: Final = 1800.0
PINNED: Final = Path(__file__).parent / "pinned"
"""Those of the programs that mailmend itself fetches."""


def pins_of(program: JarProgram, pinned: Path = PINNED) -> dict[str, str]:
    """SHA-256 by file name, from the program's list in the folder `pinned`."""
    return parse_pins((pinned / f"{program.module}-{program.version}.sha256").read_text(encoding="ascii"))


def parse_pins(text: str) -> dict[str, str]:
    """Parse lines of `sha256sum`: a checksum, two spaces, a file name."""
    return {name: digest for digest, name in (line.split(maxsplit=1) for line in text.splitlines() if line)}


def digests_in(folder: Path) -> dict[str, str]:
    """SHA-256 by file name; a tenth of a second for a whole release."""
    return {jar.name: _digest(jar) for jar in sorted(folder.glob("*.jar"))}


def differences(pinned: Mapping[str, str], seen: Mapping[str, str]) -> list[str]:
    """Names of the jars that are missing, changed or unexpected, sorted."""
    return sorted(name for name in pinned.keys() | seen.keys() if pinned.get(name) != seen.get(name))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True, slots=True)
class JarStore:
    """A folder with the jars of a program; each release has a folder named after its version."""

    root: Path
    environment: Mapping[str, str]
    progress: Progress = field(default_factory=Silent)
    pinned: Path = PINNED

    def jars(self, program: JarProgram, java: Java) -> tuple[Path, ...]:
        """Every jar of the program, verified; fetched first when one is missing or damaged.

        Raises:
            LocalServerError: they cannot be fetched, or are not the ones that were tested.
        """
        if not self._complete(program):
            with locked(self.root / f"{program.version}.lock", FETCH_SECONDS_MAX):
                if not self._complete(program):
                    self._fetch(program, java)
        return tuple(sorted(self.folder(program).glob("*.jar")))

    def folder(self, program: JarProgram) -> Path:
        return self.root / program.version

    def _pins(self, program: JarProgram) -> dict[str, str]:
        return pins_of(program, self.pinned)

    def _complete(self, program: JarProgram) -> bool:
        return not differences(self._pins(program), digests_in(self.folder(program)))

    def _fetch(self, program: JarProgram, java: Java) -> None:
        # Ivy's own cache stays until the work is whole, so an interrupted download goes on where it stopped.
        staging, cache = self.root / f"{program.version}.new", self.root / f"{program.version}.ivy"
        shutil.rmtree(staging, ignore_errors=True)
        module = cache / "module.xml"
        if text := ivy.module_text(program):
            cache.mkdir(parents=True, exist_ok=True)
            module.write_text(text, encoding="utf-8")
        command = ivy.resolve_command(
            java,
            ivy.ivy_jar(program.name),
            program,
            module=module,
            lib=staging,
            cache=cache,
            environment=self.environment,
        )
        self._run_ivy(command, program)
        self._verify(program, staging)
        shutil.rmtree(self.folder(program), ignore_errors=True)
        staging.rename(self.folder(program))
        shutil.rmtree(cache, ignore_errors=True)

    def _run_ivy(self, command: list[str], program: JarProgram) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        log = self.root / f"{program.version}.log"
        with subprocess.Popen(  # noqa: S603 (the person's own Java)
            command,
            env=dict(self.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            assert process.stdout is not None
            output = self._follow(process.stdout, len(self._pins(program)), program)
        log.write_text(output, encoding="utf-8")
        if process.returncode != 0:
            raise LocalServerError(
                f"the jars of {program.name} could not be fetched: {ivy.problem_in(output)}",
                mend=f"They are needed once, then never again. What was tried is in {log}",
            )

    def _follow(self, lines: Iterable[str], jars: int, program: JarProgram) -> str:
        """Read Ivy's output to its end and report progress: first it finds the modules, then it fetches the jars."""
        seen, fetched = list[str](), 0
        self.progress.stage(f"finding the parts of {program.name} (once; it may take minutes)")
        for line in lines:
            seen.append(line)
            if event := ivy.event_in(line):
                if event.kind == "fetched" and not fetched:
                    self.progress.stage(f"fetching the jars of {program.name}", jars)
                fetched += event.kind == "fetched"
                self.progress.advance(1)
        return "".join(seen)

    def _verify(self, program: JarProgram, folder: Path) -> None:
        wrong = differences(self._pins(program), digests_in(folder))
        if wrong:
            raise LocalServerError(
                f"{len(wrong)} jar(s) of {program.name} are not the ones that were tested: {wrong[0]}",
                mend=f"A mirror or proxy may have changed them. They are left in {folder} and are not used.",
            )

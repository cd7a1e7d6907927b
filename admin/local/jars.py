"""The jars of a program on this machine: fetched once per user, verified at every start, used without network.

They are fetched into a folder of their own and moved into place as a whole, under a lock: a reader sees all of them or
none, and of two processes that need them at once one waits for the other.
"""

import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from admin.local import ivy, pins
from admin.local.jar_programs import JarProgram
from admin.local.java import Java
from admin.local.locks import locked
from admin.local.progress import Progress, Silent
from model.errors import LocalServerError
from model.ports import Clock
from repair.clock import SystemClock

FETCH_SECONDS_MAX: Final = 1800.0


@dataclass(frozen=True, slots=True)
class JarStore:
    """A folder that holds the jars of a program, those of each release in a folder of its version."""

    root: Path
    environment: Mapping[str, str]
    progress: Progress = field(default_factory=Silent)
    clock: Clock = field(default_factory=SystemClock)
    pinned: Path = pins.PINNED

    def jars(self, program: JarProgram, java: Java) -> tuple[Path, ...]:
        """Every jar of the program, verified; fetched first when any of them is missing or damaged.

        Raises:
            LocalServerError: they cannot be fetched, or are not the ones that were tested.
        """
        if not self._complete(program):
            with locked(self.root / f"{program.version}.lock", self.clock, FETCH_SECONDS_MAX):
                if not self._complete(program):
                    self._fetch(program, java)
        return tuple(sorted(self.folder(program).glob("*.jar")))

    def folder(self, program: JarProgram) -> Path:
        """Where its jars are."""
        return self.root / program.version

    def _pins(self, program: JarProgram) -> dict[str, str]:
        return pins.pins_of(program, self.pinned)

    def _complete(self, program: JarProgram) -> bool:
        return not pins.differences(self._pins(program), pins.digests_in(self.folder(program)))

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
        """Read Ivy to its end and tell how far it is: first it finds the modules, then it fetches the jars."""
        seen: list[str] = []
        counts = {"found": 0, "fetched": 0}
        self.progress.begin(f"finding the parts of {program.name} (once; it may take minutes)")
        for line in lines:
            seen.append(line)
            if event := ivy.event_in(line):
                counts[event.kind] += 1
                if event.kind == "fetched" and counts["fetched"] == 1:
                    self.progress.begin(f"fetching the jars of {program.name}")
                self.progress.advance(counts[event.kind], jars)
        self.progress.end(f"fetched {counts['fetched']} jars of {program.name}")
        return "".join(seen)

    def _verify(self, program: JarProgram, folder: Path) -> None:
        wrong = pins.differences(self._pins(program), pins.digests_in(folder))
        if wrong:
            raise LocalServerError(
                f"{len(wrong)} jar(s) of {program.name} are not the ones that were tested: {wrong[0]}",
                mend=f"A mirror or proxy may have changed them. They are left in {folder} and are not used.",
            )

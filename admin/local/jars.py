"""The jars of a release on this machine: fetched once per user, verified at every start, used without network.

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
from admin.local.clock import Clock, SystemClock
from admin.local.java import Java
from admin.local.locks import locked
from admin.local.progress import Progress, Silent
from admin.local.releases import Release
from model.errors import LocalServerError

FETCH_SECONDS_MAX: Final = 1800.0


@dataclass(frozen=True, slots=True)
class JarStore:
    """A folder that holds the jars of releases, each in a folder of its version."""

    root: Path
    environment: Mapping[str, str]
    progress: Progress = field(default_factory=Silent)
    clock: Clock = field(default_factory=SystemClock)

    def jars(self, release: Release, java: Java) -> tuple[Path, ...]:
        """Every jar of the release, verified; fetched first when any of them is missing or damaged.

        Raises:
            LocalServerError: they cannot be fetched, or are not the ones that were tested.
        """
        if not self._complete(release):
            with locked(self.root / f"{release.version}.lock", self.clock, FETCH_SECONDS_MAX):
                if not self._complete(release):
                    self._fetch(release, java)
        return tuple(sorted(self.folder(release).glob("*.jar")))

    def folder(self, release: Release) -> Path:
        """Where the jars of a release are."""
        return self.root / release.version

    def _complete(self, release: Release) -> bool:
        return not pins.differences(pins.pins_of(release), pins.digests_in(self.folder(release)))

    def _fetch(self, release: Release, java: Java) -> None:
        # Ivy's own cache stays until the work is whole, so an interrupted download goes on where it stopped.
        staging, cache = self.root / f"{release.version}.new", self.root / f"{release.version}.ivy"
        shutil.rmtree(staging, ignore_errors=True)
        command = ivy.resolve_command(
            java, ivy.ivy_jar(), release, lib=staging, cache=cache, environment=self.environment
        )
        self._run_ivy(command, release)
        self._verify(release, staging)
        shutil.rmtree(self.folder(release), ignore_errors=True)
        staging.rename(self.folder(release))
        shutil.rmtree(cache, ignore_errors=True)

    def _run_ivy(self, command: list[str], release: Release) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        log = self.root / f"{release.version}.log"
        with subprocess.Popen(  # noqa: S603 (the person's own Java)
            command,
            env=dict(self.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            assert process.stdout is not None
            output = self._follow(process.stdout, len(pins.pins_of(release)), release)
        log.write_text(output, encoding="utf-8")
        if process.returncode != 0:
            raise LocalServerError(
                f"the jars of Cassandra {release.version} could not be fetched: {ivy.problem_in(output)}",
                mend=f"They are needed once, then never again. What was tried is in {log}",
            )

    def _follow(self, lines: Iterable[str], jars: int, release: Release) -> str:
        """Read Ivy to its end and tell how far it is: first it finds the modules, then it fetches the jars."""
        seen: list[str] = []
        counts = {"found": 0, "fetched": 0}
        self.progress.begin(f"finding the parts of Cassandra {release.version} (once, about a minute and a half)")
        for line in lines:
            seen.append(line)
            if event := ivy.event_in(line):
                counts[event.kind] += 1
                if event.kind == "fetched" and counts["fetched"] == 1:
                    self.progress.begin(f"fetching the jars of Cassandra {release.version}")
                self.progress.advance(counts[event.kind], jars)
        self.progress.end(f"fetched {counts['fetched']} jars of Cassandra {release.version}")
        return "".join(seen)

    def _verify(self, release: Release, folder: Path) -> None:
        wrong = pins.differences(pins.pins_of(release), pins.digests_in(folder))
        if wrong:
            raise LocalServerError(
                f"{len(wrong)} jar(s) of Cassandra {release.version} are not the ones that were tested: {wrong[0]}",
                mend=f"A mirror or proxy may have changed them. They are left in {folder} and are not used.",
            )

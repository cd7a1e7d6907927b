"""What a program made of jars has to say of itself, so that those of any are fetched and verified by the same code."""

from dataclasses import dataclass
from typing import Protocol


class JarProgram(Protocol):
    """A program of the public Maven repository."""

    @property
    def name(self) -> str:
        """Its name and version in messages: `Cassandra 5.0.9`."""

    @property
    def version(self) -> str:
        """Its version, which names the folder of its jars."""

    @property
    def java_majors(self) -> tuple[int, ...]:
        """The Java versions that run it, the preferred one first."""

    @property
    def coordinate(self) -> tuple[str, str, str]:
        """Organisation, module and revision."""

    @property
    def classifier(self) -> str:
        """The one jar that holds the whole program; empty where it is the module's own, with all that it needs."""

    @property
    def beside(self) -> tuple[tuple[str, str, str], ...]:
        """Coordinates of further modules that are wanted with all that they need; mostly none."""


@dataclass(frozen=True, slots=True)
class OneJar:
    """A program that comes as one jar with everything in it."""

    title: str
    version: str
    organisation: str
    module: str
    classifier: str
    java_majors: tuple[int, ...]

    @property
    def name(self) -> str:
        """Its name and version in messages."""
        return f"{self.title} {self.version}"

    @property
    def coordinate(self) -> tuple[str, str, str]:
        """Organisation, module and revision."""
        return (self.organisation, self.module, self.version)

    @property
    def beside(self) -> tuple[tuple[str, str, str], ...]:
        """Everything is in it."""
        return ()


S3PROXY = OneJar("S3Proxy", "4.1.0", "org.gaul", "s3proxy", "jar-with-dependencies", (17, 21))

"""A program made of jars of the public Maven repository."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JarProgram:
    """What is fetched, and which Java runs it.

    Attributes:
        title: its name in messages, without the version.
        java_majors: the Java versions that run it, the preferred one first.
        organisation, module: its Maven coordinate, with the version.
        classifier: of the one jar that holds the whole program; empty where it is the module with all that it needs.
        beside: coordinates (organisation, module, version) of further modules, wanted with all that they need.
    """

    title: str
    version: str
    java_majors: tuple[int, ...]
    organisation: str
    module: str
    classifier: str = ""
    beside: tuple[tuple[str, str, str], ...] = ()

    @property
    def name(self) -> str:
        """Such as `Cassandra 5.0.9`."""
        return f"{self.title} {self.version}"

    @property
    def coordinate(self) -> tuple[str, str, str]:
        """Organisation, module, version."""
        return (self.organisation, self.module, self.version)

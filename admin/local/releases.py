"""The Cassandra releases that `mailmend local` knows: which jars they are made of and which Java runs them.

What is known about a release is kept here as values, so that nothing else in the package asks for a version.
"""

from dataclasses import dataclass

from model.errors import WrongUse


@dataclass(frozen=True, slots=True)
class Release:
    """One release of Cassandra.

    Attributes:
        line: what a person types: `5.0`.
        version: the release that stands for the line.
        java_majors: the Java versions that run it, the preferred one first.
    """

    line: str
    version: str
    java_majors: tuple[int, ...]

    @property
    def name(self) -> str:
        """The release in messages."""
        return f"Cassandra {self.version}"

    @property
    def coordinate(self) -> tuple[str, str, str]:
        """The Maven organisation, module and revision that every jar is resolved from."""
        return ("org.apache.cassandra", "cassandra-all", self.version)

    @property
    def classifier(self) -> str:
        """The jar is the module's own."""
        return ""

    @property
    def beside(self) -> tuple[tuple[str, str, str], ...]:
        """The module needs all that there is to it."""
        return ()


RELEASES: tuple[Release, ...] = (
    Release(line="5.0", version="5.0.9", java_majors=(17, 21)),
    Release(line="4.1", version="4.1.10", java_majors=(17,)),
)
NEWEST = RELEASES[0]


def release_named(name: str) -> Release:
    """The release of a line (`5.0`) or of a full version (`5.0.9`).

    Raises:
        WrongUse: no such release is known.
    """
    for release in RELEASES:
        if name in {release.line, release.version}:
            return release
    known = ", ".join(release.line for release in RELEASES)
    raise WrongUse(f"Cassandra {name!r} is not known to mailmend local", mend=f"Known are: {known}.")

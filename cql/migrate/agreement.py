"""Whether all nodes have the same schema: checked before and after each statement of a migration.

A change that is sent while the nodes disagree may be merged with another in unplanned ways. So a migration waits a
bounded time, and then stops and names the nodes. A node that is down does not count: it takes the schema from the
others soon after it has returned. `--require-all-nodes` makes it count.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from mailmend.cql.ports import SchemaNodes
from mailmend.model.errors import SchemaDisagreement
from mailmend.model.ports import Clock

POLL_SECONDS = 0.2
WAIT_SECONDS = 90.0
"""How long, in seconds, the nodes may take to agree.

A node that missed a change (it was paused, or seemed down) asks for it automatically, but only
after a minute if it has been up for long (`cassandra.migration_delay_ms`).
"""


@dataclass(frozen=True, slots=True)
class NodeVersions:
    """The schema's version on every node that is up (None: it does not answer), and the nodes that are down."""

    up: Mapping[str, UUID | None]
    down: Sequence[str] = ()

    @property
    def agreed(self) -> bool:
        """Whether all nodes that are up answer with the same version."""
        return len(set(self.up.values())) == 1 and None not in self.up.values()

    @property
    def behind(self) -> tuple[str, ...]:
        """The nodes whose version is not the most frequent one, in their order."""
        counts = Counter(version for version in self.up.values() if version)
        usual = max(counts, key=counts.__getitem__, default=None)
        return tuple(node for node, version in self.up.items() if usual is None or version != usual)

    def __str__(self) -> str:
        answers = [f"{node} has {version or 'given no answer'}" for node, version in self.up.items()]
        return ", ".join([*answers, *(f"{node} is down" for node in self.down)])


@dataclass(frozen=True, slots=True)
class Agreement:
    """Waits until the nodes agree.

    Args:
        seconds: the longest wait.
        require_all: whether a node that is down counts as disagreeing.
    """

    nodes: SchemaNodes
    clock: Clock
    seconds: float = WAIT_SECONDS
    require_all: bool = False

    def wait(self, when: str) -> NodeVersions:
        """Wait until the nodes agree; returns their versions at the end.

        Args:
            when: the time, for the error message, such as "before anything was changed".

        Raises:
            SchemaDisagreement: they do not agree in time; the message names the nodes and their versions.
        """
        end = self.clock.monotonic() + self.seconds
        seen = self.look()
        while not self._enough(seen):
            if self.clock.monotonic() >= end:
                raise self._refusal(seen, when)
            self.clock.sleep(POLL_SECONDS)
            seen = self.look()
        return seen

    def look(self) -> NodeVersions:
        return NodeVersions(self.nodes.schema_versions(), tuple(self.nodes.nodes_down()))

    def _enough(self, seen: NodeVersions) -> bool:
        return seen.agreed and not (self.require_all and seen.down)

    def _refusal(self, seen: NodeVersions, when: str) -> SchemaDisagreement:
        if seen.agreed:
            return SchemaDisagreement(
                f"not every node is up, {when}: {', '.join(seen.down)}",
                mend="Start them and type the same command again; or leave out --require-all-nodes: "
                "they take the schema from the others when they return.",
            )
        return SchemaDisagreement(
            f"the nodes did not agree on the schema within {self.seconds:g} s, {when}: {seen}",
            mend=f"Look at {', '.join(seen.behind)}: nodetool describecluster, and its log. Once they agree, type the "
            "same command again. More: mailmend runbook show schema-disagreement",
        )

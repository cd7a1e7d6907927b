"""What is written beside the data of a server: its ports, and its processes in the order of their start.

Written whole and moved into place, so that a reader never sees half of it.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from admin.local.processes import ProcessId
from model.errors import LocalServerError


@dataclass(frozen=True, slots=True)
class Started:
    """A process that was started, and the words by which it is told from others."""

    process: ProcessId
    mark: str


@dataclass(frozen=True, slots=True)
class ServiceState:
    """A server as it was written down; no ports means that there is none."""

    ports: Mapping[str, int] = field(default_factory=dict)
    processes: Mapping[str, Started] = field(default_factory=dict)

    @property
    def last_first(self) -> tuple[tuple[str, Started], ...]:
        """The processes in the order in which they are to end."""
        return tuple(reversed(tuple(self.processes.items())))

    def with_process(self, name: str, started: Started) -> "ServiceState":
        """The state after a process was started."""
        return ServiceState(self.ports, {**self.processes, name: started})

    def without(self, name: str) -> "ServiceState":
        """The state after a process was ended."""
        return ServiceState(self.ports, {key: value for key, value in self.processes.items() if key != name})


def read_service_state(path: Path) -> ServiceState:
    """The state that was written last; an empty one when there is none.

    Raises:
        LocalServerError: the file is there and is not ours.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        processes = {
            str(name): Started(ProcessId(**started["process"]), started["mark"])
            for name, started in document["processes"].items()
        }
        return ServiceState({str(name): int(port) for name, port in document["ports"].items()}, processes)
    except FileNotFoundError:
        return ServiceState()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LocalServerError(
            f"{path} cannot be read: {error}", mend=f"If nothing runs there, remove {path.parent} and start again."
        ) from error


def write_service_state(path: Path, state: ServiceState) -> None:
    """Write the state in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(asdict(state), indent=2) + "\n", encoding="utf-8")
    fresh.replace(path)

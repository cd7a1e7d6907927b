"""What is written beside the data: the settings of the cluster and the processes of its nodes.

Written whole and moved into place, so that a reader never sees half of it.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from admin.local.processes import ProcessId
from admin.local.settings import Settings
from model.errors import LocalServerError


@dataclass(frozen=True, slots=True)
class State:
    """A local cluster as it was written down; no settings means that there is none."""

    settings: Settings | None = None
    processes: Mapping[int, ProcessId] = field(default_factory=dict)

    def with_process(self, number: int, process: ProcessId) -> "State":
        """The state after a node was started."""
        return State(self.settings, {**self.processes, number: process})

    def without(self, number: int) -> "State":
        """The state after a node was stopped."""
        return State(self.settings, {key: value for key, value in self.processes.items() if key != number})


def read_state(path: Path) -> State:
    """The state that was written last; an empty one when there is none.

    Raises:
        LocalServerError: the file is there and is not ours.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        processes = {int(number): ProcessId(**process) for number, process in document["processes"].items()}
        return State(Settings.from_json(document["settings"]), processes)
    except FileNotFoundError:
        return State()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LocalServerError(
            f"{path} cannot be read: {error}", mend=f"If nothing runs there, remove {path.parent} and start again."
        ) from error


def write_state(path: Path, state: State) -> None:
    """Write the state in one step.

    Args:
        path: the file.
        state: one that has settings.
    """
    assert state.settings is not None
    document = {
        "settings": state.settings.as_json(),
        "processes": {str(number): asdict(process) for number, process in state.processes.items()},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    fresh.replace(path)

"""What `mailmend local` says and exits with, given how the cluster is."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from admin.cli.command import made
from admin.cli.local import LOCAL
from admin.local import ClusterRequest, ClusterStatus, NodeStatus, ServerState
from admin.local.cassandra_settings import first_settings
from admin.present.local import summary_line
from admin.services.local_servers import exit_code
from model.errors import ExitCode

local = made(LOCAL)
SETTINGS = first_settings(ClusterRequest(native_port=9142), 17_001)


def _status(*states: ServerState) -> ClusterStatus:
    nodes = tuple(
        NodeStatus(number, f"127.0.0.{number}", 9142, state, None, Path("/l")) for number, state in enumerate(states, 1)
    )
    return ClusterStatus(Path("/srv"), SETTINGS, nodes)


@pytest.mark.parametrize(
    ("states", "code"),
    [
        ([ServerState.UP], ExitCode.FINE),
        ([ServerState.UP, ServerState.DEAD], ExitCode.PARTLY_FAILED),
        ([ServerState.SILENT], ExitCode.PARTLY_FAILED),
        ([ServerState.DEAD], ExitCode.CANNOT_REACH),
        ([ServerState.STOPPED], ExitCode.CANNOT_REACH),
        ([], ExitCode.CANNOT_REACH),
    ],
)
def test_the_exit_code_of_status_tells_how_many_answer(states: list[ServerState], code: ExitCode) -> None:
    """All, some, none."""
    assert exit_code(_status(*states)) == code


@pytest.mark.parametrize(
    ("states", "said"),
    [
        ([ServerState.UP], "Cassandra 5.0.9 is up. Use it with: --host 127.0.0.1 --port 9142"),
        ([ServerState.UP, ServerState.DEAD], "mailmend local up"),
        ([ServerState.STOPPED], "It is down. Start it: mailmend local up"),
    ],
)
def test_the_last_line_says_what_to_type_next(states: list[ServerState], said: str) -> None:
    """Options to copy, or the command that mends it."""
    assert said in summary_line(_status(*states))


def test_where_nothing_is_the_first_command_is_named() -> None:
    """With the folder that was looked at."""
    line = summary_line(ClusterStatus(Path("/srv"), None, ()))
    assert "/srv" in line
    assert "mailmend local up" in line


@pytest.mark.parametrize("command", ["up", "down", "status", "clean"])
def test_every_command_explains_itself(command: str) -> None:
    """Help names the folder option and the machine-readable form."""
    answer = CliRunner().invoke(local, [command, "--help"])
    assert answer.exit_code == 0
    assert "--dir" in answer.output
    assert "--json" in answer.output


def test_the_codes_of_status_are_in_its_help() -> None:
    """A script's author reads them there."""
    assert "0 every node answers, 3 some do, 4 none does" in " ".join(
        CliRunner().invoke(local, ["status", "--help"]).output.split()
    )


@pytest.mark.parametrize(
    "options",
    [["--nodes", "0"], ["--nodes", "4"], ["--heap", "1"], ["--port", "0"], ["--port", "x"], ["--version", "3"]],
)
def test_impossible_options_are_refused_before_anything_is_touched(options: list[str], tmp_path: Path) -> None:
    """By the parser, with the option's name."""
    answer = CliRunner().invoke(local, ["up", "--dir", str(tmp_path), *options])
    assert answer.exit_code == ExitCode.WRONG_USE
    assert options[0] in answer.output
    assert not list(tmp_path.iterdir())

"""The workflows of the forge are valid, pin what they use, and name only what the repository has."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

WORKFLOWS = sorted(Path(".github/workflows").glob("*.yml"))
PINNED = re.compile(r"uses: [\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+$")
TARGET = re.compile(r"^([a-z-]+):", re.MULTILINE)


def steps_in(file: Path) -> list[dict[str, Any]]:
    return [step for job in yaml.safe_load(file.read_text())["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("file", WORKFLOWS, ids=str)
def test_each_job_ends_in_time_and_each_step_does_something(file: Path) -> None:
    jobs = yaml.safe_load(file.read_text())["jobs"].values()

    assert [job for job in jobs if "timeout-minutes" not in job] == []
    assert [step for step in steps_in(file) if not {"uses", "run"} & step.keys()] == []


@pytest.mark.parametrize("file", WORKFLOWS, ids=str)
def test_each_action_is_pinned_to_a_commit_and_no_secret_is_used(file: Path) -> None:
    text = file.read_text()

    assert [line for line in text.splitlines() if "uses:" in line and not PINNED.search(line)] == []
    assert "secrets." not in text


@pytest.mark.parametrize("file", WORKFLOWS, ids=str)
def test_each_target_and_file_that_is_named_is_there(file: Path) -> None:
    targets = set(TARGET.findall(Path("Makefile").read_text()))
    commands = [step["run"] for step in steps_in(file) if "run" in step]
    named = {
        name for command in commands for words in re.findall(r"\bmake ([a-z -]+)", command) for name in words.split()
    }
    hashed = [
        place
        for text in re.findall(r"hashFiles\(([^)]*)\)", file.read_text())
        for place in re.findall(r"'([^']+)'", text)
    ]

    assert named <= targets
    assert [place for place in hashed if not list(Path().glob(place))] == []


def test_the_tests_that_make_names_are_there() -> None:
    lists = re.findall(r"\$\(addprefix tests/unit/,([^)]*)\)", Path("Makefile").read_text())

    assert len(lists) == 2
    assert [name for names in lists for name in names.split() if not Path("tests/unit", name).exists()] == []

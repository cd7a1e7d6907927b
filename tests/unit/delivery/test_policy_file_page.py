"""docs/policy-file.md: its examples are policy files, and no part of one is left out."""

import re
from pathlib import Path

import pytest

from mailmend.delivery.policy.file.description import FILE, THRESHOLD
from mailmend.delivery.policy.file.reading import policies_of
from mailmend.delivery.policy.lint import lint_policies

PAGE = Path("docs/policy-file.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("text", EXAMPLES)
def test_an_example_is_taken_and_means_what_it_says(text: str) -> None:
    assert list(lint_policies(policies_of(text, "docs/policy-file.md").said)) == []


def test_each_part_of_a_file_and_each_limit_is_described() -> None:
    tops = set(re.findall(r"^(\w+):", "\n".join(EXAMPLES), re.MULTILINE))
    assert tops == set(FILE.names)
    assert set(re.findall(r"^\| `(\w+): ", PAGE, re.MULTILINE)) == set(THRESHOLD.names)

"""What our lint says that servers refuse, compared with what real servers answered.

`tests/integration/cql/schema/lint/test_lint_corpus.py` asks the real ones.
"""

import pytest

from mailmend.cql.schema.lint.servers import ServerRelease
from tests.support.lint_corpus import refusals, stories


@pytest.mark.parametrize("release", [ServerRelease.CASSANDRA_4_1, ServerRelease.CASSANDRA_5_0])
def test_lint_refuses_what_servers_refused_and_nothing_else(release: ServerRelease) -> None:
    differing = []
    for story in stories():
        problems = refusals([tried.text for tried in story], release)
        for tried, problem in zip(story, problems, strict=True):
            if (release in tried.taken_by) == bool(problem):
                differing.append(f"{tried.text} -> {problem or 'nothing'}")
    assert differing == []

"""Plans that somebody changed and sealed again: applied, or refused in words."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cluster_twin import ClusterTwin
from tests.support.commands import QUICK, CommandLine
from tests.support.fuzzing import fuzzing, nested, sealed, spoilt_document
from tests.support.mail_states import MailKeyspace
from tests.unit.admin.conftest import cluster, mail, mailmend

__all__ = ["cluster", "mail", "mailmend"]


@pytest.fixture
def lines(mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin, tmp_path: Path) -> list[str]:
    """The lines of a plan, without its seal."""
    missing, wrong, *_ = mail.truths
    mail.lose_projection(missing)
    mail.lose_flag_update(wrong)
    cluster.clock.advance(1)
    file = tmp_path / "plan.jsonl"
    assert mailmend("repair", "messages", *QUICK, "--plan", str(file)).code == 1
    cluster.clock.advance(1)
    return file.read_text().splitlines()[:-1]


def applied(mailmend: CommandLine, tmp_path: Path, lines: Sequence[str]) -> None:
    file = tmp_path / "sealed.jsonl"
    file.write_text(sealed(lines))
    ended = mailmend("apply", str(file), "--dry-run")
    assert ended.code in {0, 1, 2, 3}, ended
    assert "Traceback" not in ended.err
    assert "should not happen" not in ended.err, ended.err


@fuzzing(600)
@given(st.data())
def test_a_plan_that_was_changed_and_sealed_is_applied_or_refused(
    mailmend: CommandLine, lines: list[str], tmp_path: Path, data: st.DataObject
) -> None:
    number = data.draw(st.integers(0, len(lines) - 1))
    changed: Any = data.draw(spoilt_document(json.loads(lines[number])))

    applied(mailmend, tmp_path, [*lines[:number], json.dumps(changed), *lines[number + 1 :]])


@pytest.mark.parametrize("number", [0, 1, 2, 3])
@pytest.mark.parametrize("line", [nested("[", "]"), nested('{"suspect":', "}", "1"), "9" * 5_000, "\x00", "null"])
def test_a_line_that_no_reader_of_json_takes_is_refused(
    mailmend: CommandLine, lines: list[str], tmp_path: Path, number: int, line: str
) -> None:
    applied(mailmend, tmp_path, [*lines[:number], line, *lines[number + 1 :]])

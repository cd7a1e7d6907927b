"""Questions on a terminal: shown on stderr, Enter means no, and nobody is asked where nobody sits."""

import io
import sys

import pytest
from rich.console import Console

from mailmend.admin.frame.terminal import Terminal, asking_on, progress_on
from mailmend.model.catalog.mail import MESSAGE_ID
from mailmend.model.operations import Put
from mailmend.model.ports import Silent
from mailmend.repair.clock import SystemClock
from tests.support.cluster_twin import ClusterTwin
from tests.support.commands import CommandLine
from tests.support.mail_states import MailKeyspace
from tests.support.repairing import mirror_row


class _Stream(io.StringIO):
    """A stream that says whether it is a terminal."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.mark.parametrize(
    ("typing", "reading", "asked"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_somebody_must_be_able_to_read_and_to_answer(
    monkeypatch: pytest.MonkeyPatch, typing: bool, reading: bool, asked: bool
) -> None:
    monkeypatch.setattr(sys, "stdin", _Stream(terminal=typing))
    monkeypatch.setattr(sys, "stderr", _Stream(terminal=reading))

    assert (asking_on(Silent(), Console()) is not None) is asked


def test_bars_stand_still_while_a_question_is_open() -> None:
    console = Console(file=io.StringIO(), force_terminal=True)
    with progress_on(console, SystemClock()) as progress:
        assert isinstance(progress, Terminal)
        progress.stage("scan")
        bars = progress._progress
        with progress.paused():
            assert not bars.live.is_started
        assert bars.live.is_started


class TestMaxFixes:
    """`repair messages --max-fixes` in front of a person."""

    @pytest.fixture(autouse=True)
    def _terminal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("mailmend.admin.frame.terminal.someone_is_there", lambda: True)

    def answer(self, monkeypatch: pytest.MonkeyPatch, typed: str) -> list[str]:
        questions: list[str] = []

        def prompt(question: str) -> str:
            questions.append(question)
            return typed

        monkeypatch.setattr("click.termui.visible_prompt_func", prompt)
        return questions

    @pytest.mark.parametrize(("typed", "code", "mended"), [("", 1, False), ("n", 1, False), ("y", 0, True)])
    def test_the_person_sees_what_is_due_and_decides(  # noqa: PLR0917 - fixtures
        self,
        mailmend: CommandLine,
        mail: MailKeyspace,
        cluster: ClusterTwin,
        monkeypatch: pytest.MonkeyPatch,
        typed: str,
        code: int,
        mended: bool,
    ) -> None:
        """Counts per verdict and examples, on stderr; Enter means no, and then nothing was written."""
        mail.lose_projection(mail.truths[0])
        mail.lose_flag_update(mail.truths[1])
        cluster.clock.advance(1)
        questions = self.answer(monkeypatch, typed)

        ended = mailmend("repair", "messages", "--engine", "local", "--delay", "0", "--max-fixes", "1")

        assert ended.code == code, ended.err
        assert (mail.mirror(mail.truths[0]) is not None) is mended
        assert questions == ["2 would be mended, --max-fixes allows 1. Mend them all? [y/N]: "]
        assert f"PROJECT in messageIdTable: {mail.mailbox} 1" in ended.err
        assert ("nothing was written" in ended.err) is not mended

    def test_what_is_only_reported_asks_nothing(
        self, mailmend: CommandLine, mail: MailKeyspace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        mail.tables.write(Put(MESSAGE_ID, mirror_row({**mail.truths[2], "uid": 99})))
        questions = self.answer(monkeypatch, "n")

        ended = mailmend(
            "repair", "messages", "--engine", "local", "--delay", "0", "--max-fixes", "0", "--dangling", "report",
            "--json",
        )  # fmt: skip

        assert (ended.code, ended.json["left"], questions) == (1, {"WITHDRAW": 1}, [])

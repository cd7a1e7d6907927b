"""What commands on a queue log at their most talkative level: ids, and nothing of the mails."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.queue_commands import QueueShell

OF_MAILS = ("ann@sender.example", "bob@recipient.example", "Quarterly", "figures of the body")
LETTER = f"From: {OF_MAILS[0]}\r\nSubject: {OF_MAILS[2]}\r\n\r\nThe {OF_MAILS[3]}.\r\n".encode()


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_line_of_the_log_holds_an_address_a_subject_or_a_body(queue: QueueShell, tmp_path: Path, form: str) -> None:
    """Whatever becomes of a mail: in, browsed, delayed, refused, lost, out, deleted, brought back."""
    # Given mails whose addresses, subjects and bodies are like no other text
    letter, out = tmp_path / "letter.eml", tmp_path / "out"
    letter.write_bytes(LETTER)
    people: dict[str, Any] = {"sender": OF_MAILS[0], "recipients": (OF_MAILS[1],)}
    lost, kept = queue.put("lost", "kept", **people)
    queue.put_later("late", timedelta(hours=1), **people)
    queue.lose_content(lost)

    # When they go through the commands that meet mails
    ended = [
        queue(*arguments, "--log-level", "debug", "--log-format", form)
        for arguments in (
            ("enqueue", str(letter), "--sender", OF_MAILS[0], "--recipient", OF_MAILS[1], "--json"),
            ("browse", "--json"),
            ("dequeue", "--limit", "2", "--exec", "false", "--json"),
            ("reconcile", "--json"),
            ("flush", "--json"),
            ("delete", "--recipient", OF_MAILS[1], "--dry-run", "--json"),
            ("delete", "--id", str(kept), "--json"),
            ("dequeue", "--dir", str(out), "--json"),
            ("health", "--json"),
        )
    ]

    # Then none was refused, a lost mail was logged by its id, and no log names anything of theirs
    assert {one.code for one in ended} <= {0, 1}, [one.err for one in ended if one.code > 1]
    logs = [one.err for one in ended]
    assert any("a mail has lost its bytes" in log and str(lost) in log for log in logs)
    assert [text for text in OF_MAILS for log in logs if text in log] == []

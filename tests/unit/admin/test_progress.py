"""Progress: a bar on a terminal, plain lines elsewhere, never on stdout."""

import io

from rich.console import Console

from mailmend.admin.frame.terminal import LINE_EVERY_SECONDS, PlainLines, progress_line, progress_on
from tests.support.clock import VirtualClock


def test_a_stage_is_reported_when_it_begins_and_when_it_ends() -> None:
    stream, clock = io.StringIO(), VirtualClock()
    lines = PlainLines(stream, clock)

    lines.stage("scan")
    clock.sleep(2)
    lines.advance(1000, 3)
    lines.stage("recheck", 3)
    lines.close()

    assert stream.getvalue().splitlines() == [
        "scan ...",
        "scan: 1,000, 3 suspects, 500/s",
        "recheck (of 3) ...",
    ]


def test_plain_lines_are_few() -> None:
    stream, clock = io.StringIO(), VirtualClock()
    lines = PlainLines(stream, clock)
    lines.stage("scan", 1_000_000)

    for _ in range(LINE_EVERY_SECONDS * 100):
        clock.sleep(0.02)
        lines.advance(1000)

    assert len(stream.getvalue().splitlines()) == 3


def test_a_line_tells_how_long_it_takes_yet() -> None:
    line = progress_line("scan", 250_000, 1_000_000, 0, 10_000_000)

    assert line == "scan: 250,000 of 1,000,000, 25,000/s, about 30 s left"


def test_no_time_and_no_total_are_no_error() -> None:
    assert progress_line("scan", 0, None, 0, 0) == "scan: 0"


def test_a_terminal_gets_a_bar_and_a_file_gets_lines() -> None:
    for terminal in (True, False):
        stream = io.StringIO()
        with progress_on(Console(file=stream, force_terminal=terminal, width=100), VirtualClock()) as progress:
            progress.stage("scan", 10)
            progress.advance(10, 2)
            progress.stage("recheck", 2)
            progress.advance(2)
        assert ("\x1b[" in stream.getvalue()) is terminal
        assert "scan" in stream.getvalue()
        assert "2 suspects" in stream.getvalue()


def test_steps_before_any_stage_are_shown_too() -> None:
    stream = io.StringIO()

    with progress_on(Console(file=stream, force_terminal=True, width=100), VirtualClock()) as progress:
        progress.advance(5)

    assert "5/?" in stream.getvalue()


def test_a_command_without_stages_draws_nothing() -> None:
    """`runs list` is over before a bar would help; not even the cursor moves."""
    stream = io.StringIO()

    with progress_on(Console(file=stream, force_terminal=True, width=100), VirtualClock()):
        pass

    assert not stream.getvalue()


def test_a_stage_named_after_a_folder_is_shown_as_it_is() -> None:
    """`mailmend load [Gmail]/All.mbox`: brackets are part of many a folder's name, and no markup."""
    stream = io.StringIO()

    with progress_on(Console(file=stream, force_terminal=True, width=100), VirtualClock()) as progress:
        progress.stage("loading [Gmail]/[/x].mbox")
        progress.advance(5)

    assert "loading [Gmail]/[/x].mbox" in stream.getvalue()

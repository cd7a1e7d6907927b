"""Waits that a person can follow: what a command waits for, and how many seconds have passed."""

from collections.abc import Iterator

from mailmend.model.ports import Clock, Progress


def wait_visibly(clock: Clock, progress: Progress, what: str, seconds: float) -> None:
    """Sleep, with a step of the progress after each second.

    Args:
        clock: of the caller, whose `sleep` blocks it.
        progress: gets a stage of as many steps as there are whole seconds.
        what: the name of the stage: what is waited for.
        seconds: 0 or less is no wait and no stage.
    """
    for portion in _portions(progress, what, seconds):
        clock.sleep(portion)
        progress.advance(1)


async def pause_visibly(clock: Clock, progress: Progress, what: str, seconds: float) -> None:
    """The same within an event loop."""
    for portion in _portions(progress, what, seconds):
        await clock.pause(portion)
        progress.advance(1)


def _portions(progress: Progress, what: str, seconds: float) -> Iterator[float]:
    """Seconds one by one, and what is left of the last; the stage begins with the first."""
    if seconds > 0:
        progress.stage(f"{what}, in seconds", round(seconds))
    while seconds > 0:
        yield min(1.0, seconds)
        seconds -= 1.0

"""The log as an operator reads it."""

import pytest

from mailmend.repair.log_fields import text_line


def logged(caplog: pytest.LogCaptureFixture) -> str:
    """Each record as a line of text: its event and its fields."""
    return "\n".join(map(text_line, caplog.records))

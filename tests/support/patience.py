"""How long a test waits for what has to come."""

from typing import Final

PATIENCE_SECONDS: Final = 240.0
"""So long that a machine ten times as busy as usual is no finding: what has not come by then does not come.

A test that passes never waits so long.
"""

"""Where the repository lies: a test that names a file of it may move to another folder."""

from pathlib import Path
from typing import Final

CHECKOUT: Final = Path(__file__).parents[2]

"""The description of the HTTP side, `docs/openapi.json`, generated from its routes.

`python -m admin.api.reference` writes it; `python -m admin.api.reference --check` exits 1 when it is not up to date.
"""

import json
import sys
from pathlib import Path
from typing import Final

from admin.api.access import Access
from admin.api.application import application
from cql.generated import write_or_check

FILE: Final = Path(__file__).resolve().parents[2] / "docs" / "openapi.json"


def text() -> str:
    return json.dumps(application(None, Access()).openapi(), indent=2) + "\n"


def main(arguments: list[str]) -> int:
    """With --check, exit 1 when the file is out of date; else write it."""
    return write_or_check(
        arguments, FILE, text(), "is not what the routes say: python -m admin.api.reference writes it"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

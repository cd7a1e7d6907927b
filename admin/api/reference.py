"""The descriptions of the HTTP sides, generated from their routes: `docs/openapi.json`, `docs/delivery.openapi.json`.

`python -m admin.api.reference` writes them; `python -m admin.api.reference --check` exits 1 when one is not up to date.
"""

import json
import sys
from pathlib import Path
from typing import Final

from admin.api.access import Access
from admin.api.application import Api, application
from admin.api.delivery.routes import DELIVERIES
from admin.api.jobs.routes import JOBS
from cql.generated import write_or_check

_DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
FILES: Final = {_DOCS / "openapi.json": JOBS, _DOCS / "delivery.openapi.json": DELIVERIES}


def text(api: Api) -> str:
    return json.dumps(application(api, None, Access()).openapi(), indent=2) + "\n"


def main(arguments: list[str]) -> int:
    """With --check, exit 1 when one of the files is out of date; else write them."""
    otherwise = "is not what the routes say: python -m admin.api.reference writes it"
    return max(write_or_check(arguments, file, text(api), otherwise) for file, api in FILES.items())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

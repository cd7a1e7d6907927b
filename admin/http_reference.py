"""The descriptions of the HTTP sides in `docs`, generated from their routes.

`python -m mailmend.admin.http_reference` writes them; with `--check` it exits 1 when one is not up
to date.
"""

import json
import sys
from pathlib import Path
from typing import Final

from mailmend.admin.delivery.http.routes import DELIVERIES
from mailmend.admin.frame.http.access import Access
from mailmend.admin.frame.http.application import Api, application
from mailmend.admin.jobs.http import JOBS
from mailmend.admin.routes import SERVED
from mailmend.cql.generated import write_or_check

_DOCS: Final = Path(__file__).resolve().parents[1] / "docs"
FILES: Final = {
    _DOCS / "openapi.json": JOBS,
    _DOCS / "delivery.openapi.json": DELIVERIES,
    _DOCS / "api.openapi.json": SERVED,
}


def text(api: Api) -> str:
    return json.dumps(application(api, None, Access()).openapi(), indent=2) + "\n"


def main(arguments: list[str]) -> int:
    """With --check, exit 1 when one of the files is out of date; else write them."""
    otherwise = "is not what the routes say: python -m mailmend.admin.http_reference writes it"
    return max(write_or_check(arguments, file, text(api), otherwise) for file, api in FILES.items())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

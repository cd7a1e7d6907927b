"""The entry point of the command `mailmend` and of `python -m mailmend`."""

import sys
from typing import NoReturn

from mailmend.own_packages import ForeignPackage, claim

WRONG_USE = 2


def main() -> NoReturn:
    try:
        claim(warn=False)
    except ForeignPackage as error:
        sys.stderr.write(f"mailmend: {error}\n")
        sys.exit(WRONG_USE)
    from admin.cli import main as command  # noqa: PLC0415 - our packages are found only from here on

    command()


if __name__ == "__main__":
    main()

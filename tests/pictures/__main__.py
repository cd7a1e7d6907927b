"""`python -m tests.pictures`: draw the pictures of docs/pictures that are old; `--check` compares only."""

import argparse
import sys

from tests.pictures.files import FOLDER, draw, old_in
from tests.pictures.story_run import story_in_memory


def main() -> int:
    arguments = argparse.ArgumentParser(prog="python -m tests.pictures", description=__doc__)
    arguments.add_argument("--check", action="store_true", help="write nothing, and name the pictures that are old")
    chosen = arguments.parse_args()
    story = story_in_memory()
    if chosen.check:
        old = old_in(FOLDER, story)
        mend = "Next: make pictures"
    else:
        old = draw(FOLDER, story)
        mend = "It needs a browser: apt-get install chromium, or name one in MAILMEND_TEST_CHROMIUM"
    if old:
        print(f"not up to date in docs/pictures: {', '.join(old)}. {mend}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

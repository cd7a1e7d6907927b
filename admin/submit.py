"""What `spark-submit` runs: the command `mailmend`, its packages from the zip of `--py-files` (`make zip`)."""

import sys

if __name__ == "__main__":
    sys.path.pop(0)  # this folder: its modules are not packages of their own
    from admin.cli import main

    main()

"""The application file of `spark-submit`: the command `mailmend`, imported from the zip of `make zip`.

spark-submit --py-files dist/mailmend.zip ... admin/submit.py check messages --host cassandra1
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    # Python begins its path with the folder of the file that it runs; ours would offer `settings`, `output` and others.
    sys.path[:] = [entry for entry in sys.path if Path(entry) != Path(__file__).parent]

    from mailmend.admin.main import main

    main()

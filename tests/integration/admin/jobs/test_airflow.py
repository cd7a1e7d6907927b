"""What `jobs install --airflow` writes, imported by Airflow, the oldest that it is for and a new one."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from mailmend.admin.jobs.install import airflow_dags
from mailmend.admin.jobs.units import limit_seconds
from tests.support.checkout import CHECKOUT
from tests.unit.admin.jobs.test_units import CHECK, NIGHTLY, PLACE

UV = CHECKOUT / ".uv" / "bin" / "uv"
SINCE = datetime(2026, 10, 20, tzinfo=UTC)
"""Clocks change five days later."""

AIRFLOWS = [("3.3.2", "2026-11-20"), *([("2.7.3", "2023-11-20")] if sys.version_info < (3, 12) else [])]
"""With the newest packages of that day; 2.7 knows no newer Python."""

READ = """
import json, sys, pendulum
from airflow.timetables.base import DataInterval, TimeRestriction
try:
    from airflow.dag_processing.dagbag import DagBag
except ImportError:
    from airflow.models.dagbag import DagBag

def next_runs(timetable, since):
    last, always = DataInterval.exact(since), TimeRestriction(since, None, True)
    for _ in range(8):
        found = timetable.next_dagrun_info(last_automated_data_interval=last, restriction=always)
        last = found.data_interval
        yield found.run_after.isoformat()

bag = DagBag(sys.argv[1])
told = {"errors": bag.import_errors}
for name, dag in bag.dags.items():
    (task,) = dag.tasks
    told[name] = {
        "runs": list(next_runs(dag.timetable, pendulum.parse(sys.argv[2]))),
        "catchup": dag.catchup,
        "max_active_runs": dag.max_active_runs,
        "seconds": task.execution_timeout.total_seconds(),
        "retries": task.retries,
        "command": task.bash_command,
    }
print(json.dumps(told))
"""


@pytest.mark.thorough
@pytest.mark.skipif(not (UV.exists() or shutil.which("uv")), reason="needs uv, which `make` installs")
@pytest.mark.parametrize(("version", "day"), AIRFLOWS)
def test_airflow_imports_a_dag_and_finds_in_it_what_was_declared(version: str, day: str, tmp_path: Path) -> None:
    folder = tmp_path / "dags"
    folder.mkdir()
    for name, text in airflow_dags([NIGHTLY, CHECK], PLACE).items():
        (folder / name).write_text(text)

    reported = imported(folder, tmp_path, version, day)

    assert reported.pop("errors") == {}
    for job, name in ((NIGHTLY, "mailmend_nightly_repair"), (CHECK, "mailmend_check")):
        found = reported.pop(name)
        assert shlex.split(found.pop("command")) == ["exec", *PLACE.words(job)]
        assert found == {
            "runs": [at.isoformat() for at in islice(job.schedule.after(SINCE, job.zone), 8)],
            "catchup": False,
            "max_active_runs": 1,
            "seconds": limit_seconds(job),
            "retries": 0,
        }
    assert reported == {}


def imported(folder: Path, home: Path, version: str, day: str) -> Any:
    """What Airflow tells of a folder of DAGs; uv makes its environment, and keeps what it downloads."""
    uv = str(UV) if UV.exists() else "uv"
    environment = f"--no-project --isolated --quiet --python {sys.executable} --exclude-newer {day}".split()
    ended = subprocess.run(
        [uv, "run", *environment, "--with", f"apache-airflow=={version}", "python", "-c", READ, folder, str(SINCE)],
        env={**os.environ, "AIRFLOW_HOME": str(home), "AIRFLOW__CORE__LOAD_EXAMPLES": "false"},
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])

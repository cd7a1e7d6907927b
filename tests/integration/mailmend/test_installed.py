"""Programs of users against the installed wheel, on a real Cassandra and RabbitMQ: no checkout is there."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.brokers import Broker
from tests.support.checkout import CHECKOUT
from tests.support.installed import HAS_UV, Installed, wheel_in
from tests.support.program_settings import settings_of_a_program
from tests.support.servers import CassandraServer

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(not HAS_UV, reason="needs uv, which `make` installs"),
]

FRAMEWORKS = ("django==5.2.19", "flask[async]==3.1.3")
PROJECTS = CHECKOUT / "tests" / "data" / "projects"
README = (CHECKOUT / "README.md").read_text()
NAMES = """
import socket

_known = socket.getaddrinfo


def getaddrinfo(host, *others, **named):
    return _known({"cassandra1": "127.0.0.1"}.get(host, host), *others, **named)


socket.getaddrinfo = getaddrinfo
"""
"""What /etc/hosts has in the network of the README's reader: the address of cassandra1."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    wheel = wheel_in(tmp_path_factory.mktemp("dist"))
    return Installed.of(wheel, tmp_path_factory.mktemp("venv"), "cassandra", "queue", packages=FRAMEWORKS)


@pytest.fixture
def settings(cassandra: CassandraServer, rabbitmq: Broker, tmp_path: Path) -> Iterator[Mapping[str, str]]:
    with settings_of_a_program(cassandra, rabbitmq, tmp_path) as environment:
        yield environment


@pytest.mark.cassandra
@pytest.mark.broker
def test_the_script_of_the_readme_runs_as_it_stands(
    installed: Installed, settings: Mapping[str, str], tmp_path: Path
) -> None:
    (script,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (tmp_path / "sitecustomize.py").write_text(NAMES)
    environment = {**settings, "PYTHONPATH": str(tmp_path)}

    ended = installed.run("-c", script, cwd=tmp_path, environment=environment)

    assert (ended.returncode, ended.stderr, ended.stdout) == (0, "", "{}\n")


@pytest.mark.cassandra
@pytest.mark.broker
def test_a_django_project_with_packages_of_our_names_archives_mail(
    installed: Installed, settings: Mapping[str, str], tmp_path: Path
) -> None:
    project = shutil.copytree(PROJECTS / "django_project", tmp_path / "project")

    ended = installed.run("visit.py", cwd=project, environment=settings)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == [
        "{'uid': 1}",
        "{'mails': ['Subject: hello\\r\\n\\r\\nGood day.\\r\\n']}",
        "{}",
        "The project's own pages for its staff: no part of mailmend.",
        "The project's own models: no part of mailmend.",
        "The project's own texts of CQL: no part of mailmend.",
    ]


@pytest.mark.cassandra
@pytest.mark.broker
def test_a_flask_application_stores_and_sends_mail(
    installed: Installed, settings: Mapping[str, str], tmp_path: Path
) -> None:
    project = shutil.copytree(PROJECTS / "flask_project", tmp_path / "project")

    ended = installed.run("visit.py", cwd=project, environment=settings)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == [
        "{'uid': 1}",
        "{'bytes': 29, 'sender': 'ann@example.org'}",
        "{'findings': {}}",
    ]


def test_a_type_checker_knows_the_installed_package(installed: Installed, tmp_path: Path) -> None:
    """The wheel has `py.typed`; a wrong argument of a public function is found, and a right program has no error."""
    program = shutil.copy(CHECKOUT / "tests" / "support" / "user_program.py", tmp_path / "program.py")
    wrong = tmp_path / "wrong.py"
    wrong.write_text("import mailmend\n\nmailmend.open(port='9042')\nmailmend.MailFilter(sender=b'ann')\n")
    checking = [sys.executable, "-m", "mypy", "--strict", "--python-executable", installed.command("python")]

    ended = subprocess.run(
        [*checking, str(program), str(wrong)], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    errors = [line for line in ended.stdout.splitlines() if " error: " in line]
    assert [re.sub(r": error.*\[", " [", line) for line in errors] == ["wrong.py:3 [arg-type]", "wrong.py:4 [arg-type]"]

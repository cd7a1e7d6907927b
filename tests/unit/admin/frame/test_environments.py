import ast
from pathlib import Path

import pytest

from mailmend.admin.frame.environments import environment_of_others
from tests.support.checkout import CHECKOUT

PACKAGES = ("admin", "cql", "delivery", "mailqueue", "model", "repair", "spark_repair")
STARTERS = frozenset({"run", "Popen", "create_subprocess_exec", "create_subprocess_shell", "check_output", "call"})


def test_a_program_of_others_gets_nothing_of_ours() -> None:
    ours = {
        "MAILMEND_TOKENS": "x",
        "MAILMEND_TO_BROKER": "amqp://u:x@h",
        "MAILMEND_S3_SESSION_TOKEN": "x",
        "MAILMEND_KEYSPACE": "mail",
        "AWS_PROFILE": "x",
        "AWS_SESSION_TOKEN": "x",
        "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "x",
    }
    theirs = {
        "PATH": "/bin",
        "HOME": "/root",
        "JAVA_HOME": "/java",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://h",
        "MAIL": "m",
    }

    assert environment_of_others({**ours, **theirs}) == theirs


def starts(file: Path) -> list[ast.Call]:
    """The calls of the file that start a program: `subprocess.run(...)` and its like."""
    found = []
    for node in ast.walk(ast.parse(file.read_text())):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        module = node.func.value
        if isinstance(module, ast.Name) and module.id in {"subprocess", "asyncio"} and node.func.attr in STARTERS:
            found.append(node)
    return [call for call in found if not _is_asyncio_run(call)]


def _is_asyncio_run(call: ast.Call) -> bool:
    return ast.unparse(call.func) == "asyncio.run"


@pytest.mark.parametrize("package", PACKAGES)
def test_every_start_of_a_program_states_its_environment(package: str) -> None:
    """Without `env=` the program would get all of ours."""
    silent = [
        f"{file.relative_to(CHECKOUT)}:{call.lineno}"
        for file in sorted((CHECKOUT / package).rglob("*.py"))
        for call in starts(file)
        if "env" not in {keyword.arg for keyword in call.keywords}
    ]

    assert silent == []

"""SECURITY.md names every listener, role, secret, hook and level of TLS of the code; its contact is in the metadata."""

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click

from mailmend.admin import reference
from mailmend.admin.frame.http.access import TokenRole
from mailmend.admin.local.servers import known_names
from mailmend.admin.main import mailmend
from mailmend.cql.schema.grants import ROLES
from mailmend.delivery.transports import TlsLevel

PAGE = Path("SECURITY.md").read_text()
PACKAGES = ("admin", "cql", "delivery", "mailmend", "mailqueue", "model", "repair", "spark_repair")
LISTENING = re.compile(r"\b(?:create_server|start_server|start_http_server|HTTPServer|TCPServer|uvicorn\.Server)\(")
LISTENERS = {
    "admin/frame/http/server.py": ("delivery serve --http", "jobs serve --listen", "serve --listen"),
    "delivery/smtp/incoming/listener.py": ("delivery serve --listen",),
    "delivery/smtp/incoming/open_places.py": ("delivery serve --listen",),
}
"""The modules that listen, and the options that ask for it."""

VARIABLE = re.compile(r"\bMAILMEND_[A-Z0-9_]+\b")
SECRET = re.compile(r"PASSWORD|SECRET|TOKEN|ACCESS_KEY")
NAMES_A_SOURCE = re.compile(r"_(?:FILE|COMMAND)$")
URLS_WITH_PASSWORDS = {"MAILMEND_BROKER", "MAILMEND_QUEUE_MOVE_TO_BROKER", "MAILMEND_MAVEN_REPOSITORY"}


@cache
def modules() -> dict[str, str]:
    return {str(file): file.read_text() for package in PACKAGES for file in sorted(Path(package).rglob("*.py"))}


@cache
def options() -> tuple[tuple[str, reference.ListedOption], ...]:
    """The path of each command without `mailmend`, with each of its options."""
    found = []
    for command in reference.commands_of(mailmend, click.Context(mailmend, info_name="mailmend")):
        for option in command.options():
            found.append((command.path.removeprefix("mailmend "), option))
    return tuple(found)


def variables() -> Iterator[str]:
    """Every variable of ours: of options, and read by name in the code or in a help text."""
    for _, option in options():
        yield option.variable
    for text in modules().values():
        yield from VARIABLE.findall(text)


def test_every_module_that_listens_is_known_and_each_of_its_options_is_a_listener_of_the_page() -> None:
    listening = {name for name, text in modules().items() if LISTENING.search(text)}

    assert listening == LISTENERS.keys()
    assert [option for named in LISTENERS.values() for option in named if f"| `{option}`" not in PAGE] == []


def test_every_option_that_takes_an_address_to_listen_at_is_on_the_page() -> None:
    asking = set()
    for path, option in options():
        if "HOST:PORT" in option.names and "at this address" in option.text:
            asking.add(f"{path} {option.names.split()[0].rstrip(',')}")

    assert asking == {option for named in LISTENERS.values() for option in named}


def test_every_role_of_cassandra_and_of_a_token_is_on_the_page() -> None:
    assert [role for role in ROLES if f"\n| `{role}` |" not in PAGE] == []
    assert [role for role in TokenRole.__members__ if f"`{role.lower()}`" not in PAGE] == []


def test_every_variable_with_a_secret_is_on_the_page() -> None:
    secret = {name for name in variables() if SECRET.search(name) and not NAMES_A_SOURCE.search(name)}

    assert secret > {"MAILMEND_PASSWORD", "MAILMEND_TOKENS", "MAILMEND_S3_SECRET_KEY"}
    assert [name for name in sorted(secret | URLS_WITH_PASSWORDS) if f"`{name}`" not in PAGE] == []


def test_every_option_that_names_a_file_or_command_with_a_secret_is_on_the_page() -> None:
    names = {option.names.split()[0] for _, option in options()}
    sources = {name for name in names if re.search(r"password|token|keys-file|tls-key", name)}

    assert sources > {"--password-file", "--s3-keys-file", "--tls-key"}
    assert [name for name in sorted(sources) if f"`{name}`" not in PAGE] == []


def test_every_level_of_tls_says_on_the_page_whether_it_verifies() -> None:
    rows = re.findall(r"\| next mail server, `--smtp-tls ([\w-]+)`.*?\|(.*)\|", PAGE)

    assert {level for level, _ in rows} == {level.value for level in TlsLevel}
    assert {level for level, row in rows if "any certificate" in row} == {"optional", "required"}


def test_every_hook_and_every_local_server_is_on_the_page() -> None:
    hooks = {option.names.split()[0] for _, option in options() if "A hook that" in option.text}

    assert hooks
    assert [hook for hook in sorted(hooks) if f"`{hook}`" not in PAGE] == []
    assert [name for name in known_names().split(", ") if f"`--with {name}`" not in PAGE] == []


def test_the_contact_of_the_page_is_in_the_metadata_of_the_package() -> None:
    urls = tomllib.loads(Path("pyproject.toml").read_text())["project"]["urls"]

    assert f"<{urls['Report a vulnerability']}>" in PAGE
    assert urls["Report a vulnerability"] == f"{urls['Homepage']}/security/advisories/new"

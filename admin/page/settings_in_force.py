"""Which settings are in force, and where each was set: without any secret."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import click
from click.core import ParameterSource

from mailmend.admin.frame.options import stated_secret
from mailmend.admin.frame.settings_file import line_in_table, place_of, settings_file_of
from mailmend.admin.page.table import SettingShown

HIDDEN: Final = "(set; not shown)"
_SECRET: Final = re.compile(
    r"password|passwd|secret|token|credential|webhook|_keys?$",
    re.IGNORECASE,
)
_NAMES_A_FILE: Final = re.compile(r"_file$|tls_(?:key|cert|ca)$")
_USER_OF_A_URL: Final = re.compile(r"://[^\s/@]*@")
_SECRETS: Final = ("password", "broker_password", "s3_secret_key", "s3_session_token")


def value_shown(name: str, value: Any) -> str:
    """A value as the page shows it; of a secret only that it is set."""
    if isinstance(value, bool):
        return {True: "yes", False: "no"}[value]
    if _SECRET.search(name) and not _NAMES_A_FILE.search(name):
        return HIDDEN
    if isinstance(value, list | tuple):
        return ", ".join(value_shown("", element) for element in value)
    return _USER_OF_A_URL.sub("://...@", str(value))


def settings_in_force(own: Mapping[str, Any], context: click.Context) -> list[SettingShown]:
    """The settings of this command, its secrets, then the tables of the settings file."""
    given = {name: value for name, value in own.items() if value not in (None, ())}
    shown = [_option(name, value, context) for name, value in given.items()]
    files: Mapping[str, Any] = context.find_root().default_map or {}
    for name in _SECRETS:
        if stated_secret(context, name):
            shown.append(SettingShown(name, HIDDEN, f"environment MAILMEND_{name.upper()}"))
        elif files.get(name):
            shown.append(SettingShown(name, HIDDEN, place_of(context, name) or "cqlshrc"))
    shown += _tables(files, context)
    return shown


def _option(name: str, value: Any, context: click.Context) -> SettingShown:
    origin = "default"
    match context.get_parameter_source(name):
        case ParameterSource.COMMANDLINE:
            origin = "command line"
        case ParameterSource.ENVIRONMENT:
            origin = f"environment MAILMEND_{name.upper()}"
        case ParameterSource.DEFAULT_MAP:
            origin = place_of(context, name) or "cqlshrc"
        case _:
            pass
    return SettingShown(name, value_shown(name, value), origin)


def _tables(files: Mapping[str, Any], context: click.Context) -> Iterator[SettingShown]:
    """The settings in tables of the settings file, each with its line."""
    file, text = settings_file_of(context)
    for table, value in files.items():
        if isinstance(value, dict):
            for name, setting in _flat(table, value):
                parent, _, key = name.rpartition(".")
                line = line_in_table(text, parent, key)
                yield SettingShown(name, value_shown(key, setting), f"{file}, line {line}")


def _flat(name: str, table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(f"{name}.{key}", value)
        else:
            yield f"{name}.{key}", value

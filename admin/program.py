"""The settings of a Python program, read as a command reads them; its arguments are the options.

Precedence, lowest first: cqlshrc, settings file, its profile, environment, arguments. A program may
give passwords and keys as arguments, for no other user reads them there. No terminal is asked.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Final, cast

import click

from mailmend.admin.frame.command import Command, Shared
from mailmend.admin.frame.options import CONNECTION, GIVEN
from mailmend.admin.frame.settings import (
    BlobsSettings,
    ConnectionSettings,
    QueueSettings,
    has_password,
    is_pulsar,
    parse_broker,
    parse_pulsar,
)
from mailmend.admin.main import mailmend
from mailmend.admin.messages.options import CHECKED_PULSAR
from mailmend.admin.queue.options import CHECKED_BLOBS, MESSAGE_BLOBS, queue_settings, unless
from mailmend.mailqueue.pulsar.settings import PulsarSettings
from mailmend.mailqueue.rules.mails import queue_name
from mailmend.model.errors import WrongUse
from mailmend.model.projections.declarations import Declaration
from mailmend.model.texts import similar_name

SECRETS: Final[Sequence[str]] = (
    "password",
    "broker_password",
    "s3_access_key",
    "s3_secret_key",
    "s3_session_token",
)
"""Arguments that no command has as options."""

_QUEUE: Final = queue_settings(broker=unless(), blobs=unless())
_OPTIONS: Final = click.Command("open", params=list(chain(*_QUEUE.groups.values())))
_BY_NAME: Final = {str(option.name): option for option in _OPTIONS.params}
NAMES: Final = frozenset(_QUEUE.names).union(SECRETS)
"""The settings that a program may give, apart from the file and its profile."""


@dataclass(frozen=True)
class ProgramSettings:
    """What a program is to be connected to. Passwords are looked for when they are first needed.

    Attributes:
        context: of a command that has all of these options.
        file: the words that name the settings file and its profile.
    """

    context: click.Context = field(repr=False)
    file: Sequence[str] = ()

    @cached_property
    def connection(self) -> ConnectionSettings:
        """The cluster, its role, its keyspaces.

        Raises:
            BadSettings: the role has no password, or a file that is named cannot be read.
        """
        found: ConnectionSettings = self._built(CONNECTION)
        return found

    @cached_property
    def message_blobs(self) -> BlobsSettings | None:
        """The store of the messages' contents, where one is named."""
        found: BlobsSettings | None = self._built(MESSAGE_BLOBS)
        return found

    def checked_blobs(self, what: str) -> BlobsSettings | None:
        """The store in which a check of `what` looks for the contents of mails in queues."""
        found: BlobsSettings | None = self._built(CHECKED_BLOBS, what=what)
        return found

    def checked_pulsar(self, what: str) -> PulsarSettings | None:
        """Pulsar whose topics a check of `what` looks at; None for another broker."""
        found: PulsarSettings | None = self._built(CHECKED_PULSAR, what=what)
        return found

    def queue(self, name: str | None = None) -> QueueSettings:
        """The queue of this name, else the queue that the settings name, else `spool`.

        Raises:
            WrongUse: no broker is named, or no store of the mails' contents, or it is no name.
        """
        if name is None:
            return self._queue
        return replace(self._queue, name=queue_name(name))

    @cached_property
    def _queue(self) -> QueueSettings:
        found: QueueSettings = self._built(_QUEUE)
        return found

    def chosen(
        self,
        command: Command,
        given: Mapping[str, Any],
        *,
        words: Sequence[str] = (),
        below: Sequence[str] = (),
    ) -> dict[str, Any]:
        """The values of a command's own options: the arguments, and the settings for the rest.

        Args:
            command: whose options they are.
            given: the arguments by name; None is as good as no argument.
            words: the arguments of its command line.
            below: the names of the groups above it.

        Raises:
            WrongUse: no option has such a name, or a value is not of its kind.
            BadSettings: the settings file has what is no option of the command.
        """
        options = {str(option.name): option for option in command.options}
        _refuse_unknown(given, options)
        context = self.context.find_root()
        try:
            for name in below:
                context = click.Context(_named(context, name), info_name=name, parent=context)
            made = _named(context, command.name)
            found = made.make_context(command.name, [*self.file, *words], parent=context)
            values = {name: found.params[name] for name in options}
            for name, value in given.items():
                if value is not None:
                    values[name] = _cast(options[name], value, found)
        except click.ClickException as error:
            raise _refused(error) from error
        return values

    def _built(self, shared: Shared, **others: Any) -> Any:
        own = {name: self.context.params[name] for name in _QUEUE.names}
        return shared.build(own, others, self.context)


def settings_of(
    config: Path | None,
    profile: str | None,
    given: Mapping[str, Any],
) -> ProgramSettings:
    """Read the settings.

    Args:
        config: the settings file; None: the file that the commands read.
        profile: a profile of that file.
        given: the arguments by name; None is as good as no argument.

    Raises:
        WrongUse: no setting has such a name, or a value is not of its kind.
        BadSettings: a file cannot be read, or has what is no setting.
    """
    values = {name: value for name, value in given.items() if value is not None}
    _refuse_unknown(values, NAMES)
    secrets: dict[str, str] = {name: values.pop(name) for name in SECRETS if name in values}
    _take_password_of(values.get("broker"), secrets)
    words = []
    for name, value in values.items():
        words += _words(_BY_NAME[name], value)
    try:
        file = _named_file(config, profile)
        root = mailmend.make_context("mailmend", [*file, "open"])
        root.meta[GIVEN] = secrets
        _named(root, "queue")  # refuses what is no setting in the table [queue]
        # A command reads MAILMEND_CONFIG after the group does, so the file is named to both.
        return ProgramSettings(_OPTIONS.make_context("open", [*file, *words], parent=root), file)
    except click.ClickException as error:
        raise _refused(error) from error


def _named(context: click.Context, name: str) -> click.Command:
    """The command of this name in the context's group, which refuses what is no setting of it."""
    found = cast("click.Group", context.command).get_command(context, name)
    assert found is not None, "it is a command of ours"
    return found


def _cast(option: click.Parameter, value: Any, context: click.Context) -> Any:
    """The value in the type that the option gives a command; a declaration stands for its file."""
    if isinstance(value, Declaration):
        return value
    if option.multiple and isinstance(value, str | frozenset):
        value = (value,)
    return option.type_cast_value(context, value)


def _refused(error: click.ClickException) -> WrongUse:
    """The error in the words of a program: it names the setting, not the option."""
    if isinstance(error, click.BadParameter) and error.param is not None:
        return WrongUse(f"{error.param.name}: {error.message.rstrip('.')}")
    return WrongUse(error.format_message())


def _refuse_unknown(given: Iterable[str], known: Collection[str]) -> None:
    for name in given:
        if name in known:
            continue
        mend = f"There are: {', '.join(sorted(known))}."
        near = similar_name(name, sorted(known))
        if near:
            mend = f"Did you mean {near!r}?"
        raise WrongUse(f"{name!r} is not a setting", mend=mend)


def _take_password_of(broker: str | None, secrets: dict[str, str]) -> None:
    """The password in an argument's URL counts before the password in the environment."""
    if not broker or not has_password(broker):
        return
    if is_pulsar(broker):
        password = parse_pulsar(broker).password
    else:
        password = parse_broker(broker).password
    secrets.setdefault("broker_password", password)


def _named_file(config: Path | None, profile: str | None) -> list[str]:
    words = []
    if config is not None:
        words.append(f"--config={config}")
    if profile is not None:
        words.append(f"--profile={profile}")
    return words


def _words(option: click.Parameter, value: Any) -> list[str]:
    """The words of a command line that give an option this value."""
    if value is True:
        return [option.opts[0]]
    if value is False:
        return [option.secondary_opts[0]]
    values = [value]
    if option.multiple and not isinstance(value, str):
        values = list(value)
    return [f"{option.opts[0]}={text}" for text in values]

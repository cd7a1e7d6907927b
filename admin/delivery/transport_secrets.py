"""Keys and passwords that a policy file names: read where mails are sent, and by `policy lint`."""

import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mailmend.admin.frame.extras import import_or_name_extra
from mailmend.admin.frame.settings import first_line, reason_of
from mailmend.delivery.transports import ContentSigner, SigningKey, SigningKeys
from mailmend.model.errors import WrongUse

if TYPE_CHECKING:
    from mailmend.delivery.smtp.outgoing.signing import PrivateKey

_FILE_BYTES_MAX: Final = 65_536
_KEYS_MAX: Final = 1_000
"""Keys that are remembered over reloads of a policy file."""


@dataclass(frozen=True, slots=True)
class FileSecrets:
    """Implements `delivery.transports.TransportSecrets`.

    Attributes:
        folder: of the policy file, where relative names of files start.
        environment: variables by name.
        micros: the present, since 1970, for signatures.
    """

    folder: Path
    environment: Mapping[str, str]
    micros: Callable[[], int]
    _keys: dict[tuple[str, str], "PrivateKey"] = field(default_factory=dict, repr=False)

    def password_in_file(self, file: str) -> str:
        try:
            path = self._guarded(file)
        except WrongUse as error:
            cause = error.__cause__
            if not isinstance(cause, OSError):
                raise
            # what is no file may be the password itself, and is in no error
            problem = f"the file of the password cannot be read: {reason_of(cause)}"
            raise WrongUse(problem, mend=error.mend) from cause
        return first_line(path)

    def password_in_variable(self, name: str) -> str:
        password = self.environment.get(name, "")
        if not password:
            raise WrongUse(
                "the environment variable of this name is not set",  # it may be the password
                mend="Set it for the server, then start anew.",
            )
        return password

    def read_key(self, selector: str, file: str) -> None:
        path = self._guarded(file)
        try:
            found = path.stat()
            state = (found.st_ino, found.st_ctime_ns, found.st_mtime_ns, found.st_size)
            self._keys[selector, file] = _key_of(selector, path, state)
        except OSError as error:
            raise _unreadable(path, error) from error
        except WrongUse as error:
            raise WrongUse(f"{path}: {error.what}", mend=error.mend) from error

    def signer(self, keys: SigningKeys) -> ContentSigner:
        known = {domain: self._read(named) for domain, named in keys.items()}
        signing = import_or_name_extra("mailmend.delivery.smtp.outgoing.signing")
        made: ContentSigner = signing.DkimSigner(known, self.micros)
        return made

    def _read(self, named: Iterable[SigningKey]) -> Sequence["PrivateKey"]:
        return [self._keys[key.selector, key.file] for key in named]

    def _guarded(self, file: str) -> Path:
        """The path of a file of secrets.

        Raises:
            WrongUse: this process cannot look at it, it is too large, or others can open it.
        """
        path = self.folder / Path(file).expanduser()
        try:
            found = path.stat()
        except OSError as error:
            raise _unreadable(path, error) from error
        if not stat.S_ISREG(found.st_mode) or found.st_size > _FILE_BYTES_MAX:
            mend = "Name a file of at most 64 KiB."
            raise WrongUse(f"{path} is no file with a secret", mend=mend)
        if found.st_mode & stat.S_IRWXO and os.name == "posix":
            raise WrongUse(f"{path} can be read by other users", mend=f"chmod o= {path}")
        return path


@lru_cache(_KEYS_MAX)
def _key_of(selector: str, path: Path, _state: tuple[int, ...]) -> "PrivateKey":
    """The key in a file, which is read and checked anew where the state of the file is another.

    The check of a key of RSA takes many milliseconds, in which a server does nothing else.
    """
    signing = import_or_name_extra("mailmend.delivery.smtp.outgoing.signing")
    key: PrivateKey = signing.private_key(selector, path.read_bytes())
    return key


def _unreadable(path: Path, error: OSError) -> WrongUse:
    mend = "Name a file that this process can read; relative names start at the policy file."
    return WrongUse(f"{path} cannot be read: {reason_of(error)}", mend=mend)

"""Who may log in at a listener: a file of users, each with a password that is kept as a hash of scrypt.

A line is `name:$scrypt$ln=14,r=8,p=5$SALT$HASH`, in the form of passlib; `mailmend delivery user`
makes one. A password is compared outside the event loop, two at once. A process remembers which
passwords were right, by a hash with a key that no other process has, so that a client that logs in
for each mail costs the listener a scrypt once. Source: RFC 7914 (scrypt), RFC 4616 (PLAIN),
docs/adr/0084.
"""

import asyncio
import os
import re
import stat
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b, scrypt
from hmac import compare_digest
from pathlib import Path
from secrets import token_bytes
from typing import Final

from mailmend.model.errors import WrongUse
from mailmend.model.grammar import read_name

PASSWORD_BYTES_MAX: Final = 500
"""Bytes of a password, so that a login fits the longest line that the listener reads."""

_COST: Final = 14
_BLOCKS: Final = 8
_PASSES: Final = 5
_SALT_BYTES: Final = 16
_HASH_BYTES: Final = 32
_MEMORY_MAX: Final = 268_435_456
_AT_ONCE: Final = 2
_SALT_BYTES_MIN: Final = 8
_HASH_BYTES_MIN: Final = 16
"""A line that lost its end would let in one guess of 256, or of fewer."""
_FORM: Final = re.compile(
    r"\$scrypt\$ln=([0-9]{1,2}),r=([0-9]{1,2}),p=([0-9]{1,2})\$([A-Za-z0-9+/]{1,200})\$([A-Za-z0-9+/]{1,200})"
)
_COSTS: Final = range(10, 18)
_SIZES: Final = range(1, 17)
_EXAMPLE: Final = "Make a line: mailmend delivery user ann@example.org"


@dataclass(frozen=True, slots=True)
class PasswordHash:
    """What a file keeps of a password.

    Attributes:
        cost: the logarithm of scrypt's N.
    """

    cost: int
    blocks: int
    passes: int
    salt: bytes = field(repr=False)
    hash: bytes = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> "PasswordHash":
        """Read the text behind a user's name; no message shows it.

        Raises:
            WrongUse: it is no hash of scrypt, or one that costs too much or too little.
        """
        found = _FORM.fullmatch(text)
        if not found:
            raise WrongUse("this is no hash of a password", mend=_EXAMPLE)
        cost, blocks, passes = map(int, found.groups()[:3])
        if cost not in _COSTS or blocks not in _SIZES or passes not in _SIZES:
            raise WrongUse("the hash has a cost that is not taken: ln 10 to 17, r and p 1 to 16", mend=_EXAMPLE)
        try:
            salt, wanted = map(_decoded, found.groups()[3:])
        except ValueError as error:
            raise WrongUse("this is no hash of a password", mend=_EXAMPLE) from error
        if len(salt) < _SALT_BYTES_MIN or len(wanted) < _HASH_BYTES_MIN:
            raise WrongUse("the hash, or its salt, is too short", mend=_EXAMPLE)
        found_hash = cls(cost, blocks, passes, salt, wanted)
        if found_hash.memory > _MEMORY_MAX:
            raise WrongUse("the hash needs more than 256 MiB", mend=_EXAMPLE)
        return found_hash

    @property
    def memory(self) -> int:
        """Bytes that scrypt needs for it, as OpenSSL counts them."""
        return 128 * self.blocks * ((1 << self.cost) + self.passes + 2)

    @classmethod
    def of(cls, password: bytes) -> "PasswordHash":
        """The hash of a new password, with a salt of its own."""
        plain = _new_hash(bytes(_HASH_BYTES))
        return replace(plain, hash=plain.made(password))

    def made(self, password: bytes) -> bytes:
        """What scrypt makes of a password with this salt and cost; it takes tens of milliseconds or more."""
        return scrypt(
            password,
            salt=self.salt,
            n=2**self.cost,
            r=self.blocks,
            p=self.passes,
            maxmem=_MEMORY_MAX,
            dklen=len(self.hash),
        )

    def fits(self, password: bytes) -> bool:
        return compare_digest(self.made(password), self.hash)

    def __str__(self) -> str:
        costs = f"ln={self.cost},r={self.blocks},p={self.passes}"
        return f"$scrypt${costs}${_encoded(self.salt)}${_encoded(self.hash)}"


def _new_hash(made: bytes) -> PasswordHash:
    return PasswordHash(_COST, _BLOCKS, _PASSES, token_bytes(_SALT_BYTES), made)


def _hash_of_nobody(users: Iterable[PasswordHash]) -> PasswordHash:
    """A hash that no password fits, with the cost of most users."""
    costs = Counter((known.cost, known.blocks, known.passes) for known in users)
    ((cost, blocks, passes), _), *_ = costs.most_common(1)
    return PasswordHash(cost, blocks, passes, token_bytes(_SALT_BYTES), token_bytes(_HASH_BYTES))


def user_line(name: str, password: bytes) -> str:
    """A line of a users file.

    Raises:
        WrongUse: the name cannot be one, or the password is empty, too long, or no single line.
    """
    check_user(name)
    if not password or len(password) > PASSWORD_BYTES_MAX:
        raise WrongUse(
            f"a password has 1 to {PASSWORD_BYTES_MAX} bytes",
            mend="Give one line on standard input.",
        )
    if any(byte in password for byte in b"\0\r\n"):
        raise WrongUse("a password is one line", mend="Give one line on standard input.")
    return f"{name}:{PasswordHash.of(password)}"


def check_user(name: str) -> None:
    """Refuse a name that no user can have.

    Raises:
        WrongUse: it is empty, has a colon, begins like a comment, or cannot be shown.
    """
    if not name or ":" in name or name.startswith("#"):
        raise WrongUse(f"{name!r} is no name of a user", mend="Write it without ':', like ann@example.org.")
    read_name(name, "name of a user")


def parse_users(lines: Iterable[str], place: str) -> Mapping[str, PasswordHash]:
    """The users of a file by their names; empty lines and lines behind `#` are left out.

    Raises:
        WrongUse: a line is no user, or a name occurs twice; the message names the line and shows
            neither a hash, nor a name that cannot be one: it may be a password.
    """
    users = dict[str, PasswordHash]()
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, text = line.strip().partition(":")
        try:
            _check_name(name)
            users_hash = PasswordHash.parse(text)
        except WrongUse as error:
            raise WrongUse(f"{place}, line {number}: {error.what}", mend=error.mend) from error
        if name in users:
            raise WrongUse(
                f"{place}, line {number}: the user {name!r} is there twice",
                mend="Keep one of the lines.",
            )
        users[name] = users_hash
    return users


def _check_name(name: str) -> None:
    try:
        check_user(name)
    except WrongUse:
        raise WrongUse("this is no name of a user", mend=_EXAMPLE) from None


@dataclass(slots=True)
class ListenerUsers:
    """The users of a file, as it was read last."""

    file: Path
    _users: Mapping[str, PasswordHash] = field(default_factory=dict, repr=False)
    _right: dict[str, bytes] = field(default_factory=dict, repr=False)
    _key: bytes = field(default_factory=lambda: token_bytes(32), repr=False)
    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE), repr=False)
    _nobody: PasswordHash = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.read_again()

    def read_again(self) -> None:
        """Use what the file holds now, for logins from now on.

        Raises:
            WrongUse: it cannot be used; what was read before stays.
        """
        file = self.file.expanduser()
        try:
            with file.open(encoding="utf-8") as opened:
                mode = os.fstat(opened.fileno()).st_mode
                text = opened.read()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8"
            raise WrongUse(f"users file {file} cannot be read: {reason}") from error
        if mode & (stat.S_IRWXG | stat.S_IRWXO) and os.name == "posix":
            raise WrongUse(f"users file {file} may be read by others", mend=f"chmod 600 {file}")
        users = parse_users(text.splitlines(), str(file))
        if not users:
            raise WrongUse(f"users file {file} holds no user", mend=_EXAMPLE)
        self._users = users
        self._nobody = _hash_of_nobody(users.values())
        self._right.clear()

    async def knows(self, name: str, password: bytes) -> bool:
        """Whether the user has this password. A name that is not there takes as long.

        Where a client leaves meanwhile, its turn ends with the comparison, not before.
        """
        kept = self._users.get(name)
        digest = blake2b(password, key=self._key, person=b"mailmend-users").digest()
        if kept and compare_digest(self._right.get(name, b""), digest):
            return True
        wanted = kept or self._nobody
        await self._turns.acquire()
        comparing = asyncio.ensure_future(asyncio.to_thread(wanted.fits, password))
        comparing.add_done_callback(lambda _: self._turns.release())
        fits = await asyncio.shield(comparing)
        if kept is None or self._users.get(name) != kept or not fits:
            return False
        self._right[name] = digest
        return True


def _encoded(data: bytes) -> str:
    return b64encode(data).decode().rstrip("=")


def _decoded(text: str) -> bytes:
    return b64decode(text + "=" * (-len(text) % 4), validate=True)

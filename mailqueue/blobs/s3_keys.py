"""Keys of a bucket that the settings do not give: found and renewed by botocore, for both libraries (docs/adr/0017)."""

import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from mailmend.mailqueue.blobs.s3 import NO_KEYS, S3Settings
from mailmend.model.errors import BlobsUnreachable
from mailmend.model.instants import instant_of
from mailmend.repair.clock import SystemClock

if TYPE_CHECKING:
    from obstore.store import S3Credential

KEYS_VALID_FOR: Final = timedelta(minutes=1)
"""The validity that obstore is told of found keys: so short that it asks for them before each request, at most ten
times a second."""


class FoundKeys:
    """Keys that botocore finds: in the environment, a profile, by web identity, single sign-on, a process or a role.

    Botocore renews keys that expire. Keys from a file, which it does not renew, are read again when the store says that
    their token has expired.
    """

    def __init__(self, settings: S3Settings) -> None:
        self._settings = settings
        self._looking = threading.Lock()
        self._session: Any = None

    def __call__(self) -> "S3Credential":
        """The current keys; may block for seconds while a server is asked for them.

        Raises:
            BlobsUnreachable: there are no keys, or the server that issues them refuses.
        """
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - only where keys are to be found

        place = self._settings.place
        try:
            found = self.session().get_credentials()
            keys = found.get_frozen_credentials() if found else None
        except (BotoCoreError, ClientError, OSError, ValueError) as error:
            raise BlobsUnreachable(f"the keys to {place} cannot be had: {_reason(error)}", mend=NO_KEYS) from None
        if keys is None:
            raise BlobsUnreachable(f"no keys to {place} are found", mend=NO_KEYS)
        return {
            "access_key_id": keys.access_key,
            "secret_access_key": keys.secret_key,
            "token": keys.token,
            "expires_at": instant_of(SystemClock().micros()) + KEYS_VALID_FOR,
        }

    def session(self) -> Any:
        from botocore.session import Session  # noqa: PLC0415 - only where keys are to be found

        with self._looking:
            if self._session is None:
                session = Session(profile=self._settings.profile or None)
                if session.get_config_variable("region") is None:  # who gives keys may need one
                    session.set_config_variable("region", self._settings.region)
                self._session = session
        return self._session

    def forget(self) -> None:
        self._session = None


def _reason(error: Exception) -> str:
    """What failed, without texts of others: a process may have printed a key."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    answer = getattr(error, "response", {})
    beside = getattr(error, "kwargs", {})
    named = answer.get("Error", {}).get("Code") or beside.get("provider") or beside.get("profile")
    return f"{type(error).__name__} ({named})" if named else type(error).__name__


def found_keys(settings: S3Settings) -> FoundKeys | None:
    """The keys that botocore finds; None where the settings hold keys."""
    return None if settings.access_key else FoundKeys(settings)

"""TLS of a listener: its certificate, which may be renewed while it listens, and the authority of its clients'."""

import ssl
from dataclasses import dataclass, field
from pathlib import Path

from mailmend.model.errors import WrongUse


@dataclass(slots=True, kw_only=True)
class ListenerTls:
    """The files of a listener's certificate, and what is made of them.

    Attributes:
        certificate: with the certificates between it and its authority behind it.
        authority: who signs the certificates that clients have to show; None: they show none.
        context: for all connections; each gets the certificate that was read last.
    """

    certificate: Path
    key: Path
    authority: Path | None = None
    context: ssl.SSLContext = field(init=False)
    _newest: ssl.SSLContext = field(init=False)

    def __post_init__(self) -> None:
        """Reads the files.

        Raises:
            WrongUse: they cannot be read, or do not belong together.
        """
        self.context = self._newest = self._read()
        self.context.sni_callback = self._give_newest

    def read_again(self) -> None:
        """Use what the files hold now, for connections that begin from now on.

        Raises:
            WrongUse: it cannot be used; what was read before stays.
        """
        self._newest = self._read()

    def _read(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self.certificate.expanduser(), self.key.expanduser(), _no_password)
        except (OSError, ssl.SSLError) as error:
            raise WrongUse(
                f"the certificate {self.certificate} cannot be used with the key {self.key}: {_reason(error)}",
                mend="Both have to be PEM files, of one pair, and the key without a password.",
            ) from error
        if self.authority:
            try:
                context.load_verify_locations(self.authority.expanduser())
            except (OSError, ssl.SSLError) as error:
                raise WrongUse(f"the certificates in {self.authority} cannot be read: {_reason(error)}") from error
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _give_newest(self, connection: ssl.SSLObject, _name: str | None, _: ssl.SSLContext) -> None:
        """Called in every handshake, whether the client names a server or not."""
        connection.context = self._newest


def _no_password() -> str:
    """Asked for only where the key has one: else OpenSSL would ask the terminal."""
    return ""


def _reason(error: OSError) -> str:
    return error.strerror or str(error)

"""Encrypted connections to the broker and its HTTP API: both trust, and show, the same files."""

import ssl

from mailqueue.rabbitmq.broker.settings import BrokerTls
from model.errors import BadSettings


def context_of(tls: BrokerTls) -> ssl.SSLContext:
    """What the standard library takes; it checks the name and the signature of whoever answers.

    Raises:
        BadSettings: a file cannot be read, or is not what it should be.
    """
    try:
        context = ssl.create_default_context(cafile=tls.ca)
        if tls.certificate is not None:
            context.load_cert_chain(tls.certificate, tls.key)
    except OSError as error:  # ssl's own errors are among them
        files = ", ".join(str(path) for path in (tls.ca, tls.certificate, tls.key) if path is not None)
        raise BadSettings(
            f"the TLS files {files} cannot be used: {error}", mend="PEM files are needed, readable by this user."
        ) from error
    return context

"""The libraries' words about TLS, as they say them, and what they mean for a person."""

import pytest

from mailmend.mailqueue.broker_tls import tls_error
from mailmend.model.errors import ExitCode

AT = "RabbitMQ at 10.0.0.1:5671"
VERIFY = "[Errno 1] [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: "
ALERT = "Server communication error: SSLError(1, '[SSL: TLSV13_ALERT] tlsv13 alert {} (_ssl.c:2580)')"


@pytest.mark.parametrize(
    ("said", "what", "mend"),
    [
        (f"{VERIFY}unable to get local issuer certificate (_ssl.c:1006)", "unable to get local", "--broker-tls-ca"),
        (f"{VERIFY}certificate has expired (_ssl.c:1006)", "out of its time: certificate has expired", "Renew"),
        (
            f"{VERIFY}Hostname mismatch, certificate is not valid for 'localhost'. (_ssl.c:1006)",
            "for another host: Hostname mismatch, certificate is not valid for 'localhost'",
            "Name the broker",
        ),
        ("[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)", "does not speak TLS", "5671"),
        (ALERT.format("certificate required"), "does not take our certificate, or we", "--broker-tls-cert"),
        (ALERT.format("unknown ca"), "does not take our certificate, or we", "--broker-tls-cert"),
        (ALERT.format("certificate unknown"), "does not take our certificate, or we", "--broker-tls-cert"),
        ("Handshake failed: certificate verify failed (SSL routines)", "cannot be trusted: certificate", "-tls-ca"),
        (ALERT.format("certificate expired"), "for it has expired", "Renew"),
    ],
)
def test_each_reason_is_reported_with_what_to_do(said: str, what: str, mend: str) -> None:
    error = tls_error(said, AT)

    assert error is not None
    assert what in error.what
    assert AT in error.what
    assert mend in error.mend
    assert "_ssl.c" not in str(error)
    assert error.exit_code is ExitCode.CANNOT_REACH


@pytest.mark.parametrize("said", ["Connection refused", "no answer in time", "ACCESS_REFUSED - Login was refused", ""])
def test_other_errors_are_none_of_its_business(said: str) -> None:
    assert tls_error(said, AT) is None

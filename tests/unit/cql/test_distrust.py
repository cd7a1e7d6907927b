"""The driver's words about TLS, as it says them, and what they mean for a person."""

import pytest

from cql.driver.failures import tls_failure
from model.errors import ExitCode

AT = "10.0.0.1:9042"
TRIED = "[Errno 1] Tried connecting to [('10.0.0.1', 9042)]. Last error: "
VERIFY = f"{TRIED}[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: "


@pytest.mark.parametrize(
    ("said", "what", "mend"),
    [
        (f"{VERIFY}unable to get local issuer certificate (_ssl.c:1006)", "unable to get local issuer", "--tls-ca"),
        (f"{VERIFY}self-signed certificate in certificate chain (_ssl.c:1006)", "self-signed certificate", "--tls-ca"),
        (f"{VERIFY}certificate has expired (_ssl.c:1006)", "out of its time: certificate has expired", "Renew"),
        (
            f"{VERIFY}IP address mismatch, certificate is not valid for '10.0.0.1'. (_ssl.c:1006)",
            "for somebody else: IP address mismatch, certificate is not valid for '10.0.0.1'",
            "--no-tls-hostnames",
        ),
        (f"{TRIED}[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)", "does not speak TLS", "--no-tls"),
        (f"{TRIED}[SSL] tlsv13 alert certificate required (_ssl.c:2580)", "does not take our", "--tls-cert"),
        (f"{TRIED}EOF occurred in violation of protocol (_ssl.c:2427)", "hung up on TLS", "--tls-cert"),
    ],
)
def test_each_reason_is_told_with_what_to_do(said: str, what: str, mend: str) -> None:
    """OpenSSL's own words are kept, its source lines are not."""
    error = tls_failure(said, AT, tls=True)

    assert error is not None
    assert what in error.what
    assert AT in error.what
    assert mend in error.mend
    assert "_ssl.c" not in str(error)
    assert error.exit_code is ExitCode.CANNOT_REACH


def test_a_node_that_hangs_up_may_want_tls() -> None:
    """Only where we did not speak it."""
    said = f"{AT}: [Errno 104] Connection reset by peer"

    error = tls_failure(said, AT, tls=False)

    assert error is not None
    assert "--tls-ca" in error.mend
    assert tls_failure(said, AT, tls=True) is None


@pytest.mark.parametrize("tls", [True, False])
def test_other_troubles_are_none_of_its_business(tls: bool) -> None:
    """A node that is down is down with TLS and without."""
    assert tls_failure(f"{TRIED}Connection refused", AT, tls=tls) is None

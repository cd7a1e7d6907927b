"""Where a cluster is: plain data that travels, and never tells its secret."""

import pickle
import ssl
from pathlib import Path

import pytest

from cql.driver.contact import Contact, tls_context
from model.errors import BadSettings


def test_a_contact_travels_whole() -> None:
    """Workers elsewhere get the password too."""
    contact = Contact(("a", "b"), 9142, "dc1", "me", "secret", request_seconds=3)
    assert pickle.loads(pickle.dumps(contact)) == contact


def test_the_password_is_never_told() -> None:
    """Not in logs, not in tracebacks."""
    assert "secret" not in repr(Contact(username="me", password="secret"))


def test_the_address_is_as_people_write_it() -> None:
    """Each host with its port."""
    assert Contact(("a", "b"), 9142).address == "a:9142, b:9142"


def test_without_tls_files_there_is_no_tls() -> None:
    """Most clusters inside one network have none."""
    assert tls_context(Contact()) is None


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    """With the options to look at."""
    with pytest.raises(BadSettings, match=r"nowhere\.pem") as caught:
        tls_context(Contact(tls_ca=str(tmp_path / "nowhere.pem")))
    assert "--tls-ca" in caught.value.mend


def test_a_file_that_is_no_certificate_is_named(tmp_path: Path) -> None:
    """Whatever it is instead."""
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("no certificate")
    for contact in (Contact(tls_ca=str(nonsense)), Contact(tls_cert=str(nonsense))):
        with pytest.raises(BadSettings, match=r"nonsense\.pem"):
            tls_context(contact)


@pytest.mark.parametrize("hostnames", [False, True])
def test_certificates_are_always_checked(hostnames: bool) -> None:
    """Names only on demand: nodes are found by address."""
    authority = ssl.get_default_verify_paths().cafile
    if not (authority and Path(authority).exists()):
        pytest.skip("this machine has no certificates of authorities")
    context = tls_context(Contact(tls_ca=authority, tls_hostnames=hostnames))
    assert context is not None
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname is hostnames

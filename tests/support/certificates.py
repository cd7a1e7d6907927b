"""Certificates for a test: an authority, and what it signs, in a folder of the test's own."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

STORE_PASSWORD = "of-the-test"
_KEY = ("-newkey", "rsa:2048", "-nodes")
_VALID_DAYS = 2
_EXPIRED = ("-startdate", "20200101000000Z", "-enddate", "20200102000000Z")
_AUTHORITY = """[req]
distinguished_name = name
x509_extensions = authority
[name]
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
"""
_REGISTER = """[ca]
default_ca = register
[register]
database = {0}/register
new_certs_dir = {0}
rand_serial = yes
default_md = sha256
policy = any
[any]
commonName = supplied
"""
"""`openssl ca` signs for any dates, and keeps a register. `openssl x509` takes dates since 3.4 only."""

_END_ENTITY = """basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature, keyEncipherment
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
"""
"""What RFC 5280 asks of an authority and of what it signs: Python 3.13 verifies it (`ssl.VERIFY_X509_STRICT`)."""


@dataclass(frozen=True, slots=True)
class Signed:
    """PEM files of a certificate and its key."""

    certificate: Path
    key: Path

    def store(self) -> Path:
        store = self.certificate.with_suffix(".p12")
        _openssl(
            self.certificate.parent,
            *("pkcs12", "-export", "-inkey", str(self.key), "-in", str(self.certificate)),
            *("-out", str(store), "-passout", f"pass:{STORE_PASSWORD}"),
        )
        return store

    def encrypted(self, place: Path) -> None:
        """Write its key there with a password."""
        words = ("pkey", "-in", str(self.key), "-aes256", "-passout", f"pass:{STORE_PASSWORD}", "-out", str(place))
        _openssl(self.key.parent, *words)


@dataclass(frozen=True, slots=True)
class Authority:
    """Who signs: a certificate that signed itself."""

    folder: Path
    own: Signed

    @property
    def file(self) -> str:
        return str(self.own.certificate)

    def signed(self, name: str, alternative: str, *, expired: bool = False) -> Signed:
        """A certificate for a name as OpenSSL writes it: `IP:127.0.0.1`, `DNS:mail.example`."""
        files = Signed(self.folder / f"{name}.pem", self.folder / f"{name}.key")
        wish, names = self.folder / f"{name}.csr", self.folder / f"{name}.names"
        names.write_text(f"{_END_ENTITY}subjectAltName={alternative}\n")
        _openssl(
            self.folder, "req", *_KEY, "-keyout", str(files.key), "-out", str(wish), "-subj", f"/CN=mailmend {name}"
        )
        signing = ("-in", str(wish), "-out", str(files.certificate), "-extfile", str(names))
        by: tuple[str, ...]
        if expired:
            register = self.folder / "register.cnf"
            register.write_text(_REGISTER.format(self.folder))
            (self.folder / "register").touch()
            by = ("-config", str(register), "-cert", self.file, "-keyfile", str(self.own.key))
            _openssl(self.folder, "ca", "-batch", "-notext", *by, *signing, *_EXPIRED)
            return files
        by = ("-CA", self.file, "-CAkey", str(self.own.key), "-CAcreateserial")
        _openssl(self.folder, "x509", "-req", *by, *signing, "-days", str(_VALID_DAYS))
        return files


def authority(folder: Path, name: str) -> Authority:
    own = Signed(folder / f"{name}.pem", folder / f"{name}.key")
    config = folder / f"{name}.cnf"
    config.write_text(_AUTHORITY)
    subject = ("-subj", f"/CN=mailmend {name}", "-days", str(_VALID_DAYS))
    _openssl(
        folder,
        "req",
        "-x509",
        "-config",
        str(config),
        *_KEY,
        "-keyout",
        str(own.key),
        "-out",
        str(own.certificate),
        *subject,
    )
    return Authority(folder, own)


def _openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

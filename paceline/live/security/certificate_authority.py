"""A run's own certificate authority: made when it starts, kept in memory, forgotten at its end.

It vouches for the parties of one run and for nobody else; what it signs says which party of which run it is
(`paceline.live.security.tls`). EC P-256, as every TLS 1.3 library has it.
"""

from __future__ import annotations

import datetime
import hashlib
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from paceline.core.coordination.party import Party
from paceline.core.errors import ConfigError
from paceline.core.files.safe_path import safe_join
from paceline.live.security.tls import file_of, identity

LIFETIME = datetime.timedelta(days=30)  # for as long as a run may take newcomers
CLOCK_SKEW = datetime.timedelta(days=1)  # between the clocks of two machines

P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""The order of the group of NIST P-256 (SP 800-186); private keys lie between 1 and it."""

PEM = serialization.Encoding.PEM


class CertificateAuthority:
    """This is the authority of the run `job`."""

    def __init__(self, secret: str = "") -> None:
        """`secret`: who has the same has the same authority; without one it is new."""
        self.job = derived(secret, "job", 8).hex() if secret else secrets.token_hex(8)
        self._key = _key_of(secret) if secret else ec.generate_private_key(ec.SECP256R1())
        usage = x509.KeyUsage(
            digital_signature=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=False,
            encipher_only=False,
            decipher_only=False,
        )
        builder = _builder(f"paceline run {self.job}", self._key.public_key(), ca=True).add_extension(usage, True)
        self._certificate = builder.issuer_name(_name(f"paceline run {self.job}")).sign(self._key, hashes.SHA256())

    @property
    def certificate(self) -> bytes:
        """Returns the certificate as PEM."""
        return self._certificate.public_bytes(PEM)

    @property
    def pin(self) -> str:
        """Returns what others know this authority by: `sha256:` and the hash of its certificate."""
        return pin_of(self._certificate)

    def issue(self, party: Party, key: ec.EllipticCurvePublicKey) -> bytes:
        """Returns a certificate for `party`, who has the private half of `key`, as PEM.

        It serves both as client and as server: each party calls some of the others and is called by the rest.
        """
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        name = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(identity(self.job, party))])
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = _builder(str(party), key, ca=False).issuer_name(self._certificate.subject)
        for extension in (usage, name, issuer):
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(PEM)

    def write(self, folder: Path, parties: Iterable[Party]) -> None:
        """Writes credentials of these parties, each with a new key, into `folder`.

        Nobody but the owner may enter that. Raises ConfigError where a file is there already or cannot be written.
        """
        keep(folder, self.job, self.certificate)
        for party in parties:
            key = new_key()
            write_secret(folder, file_of(party), self.issue(party, key.public_key()) + private(key))


def derived(secret: str, purpose: str, length: int) -> bytes:
    """Returns `length` bytes for one purpose (HKDF, RFC 5869); they tell nothing of the secret nor of other
    purposes'.
    """
    return HKDF(hashes.SHA256(), length, salt=None, info=f"paceline {purpose}".encode()).derive(secret.encode())


def _key_of(secret: str) -> ec.EllipticCurvePrivateKey:
    """Returns the private key that belongs to `secret`.

    320 bits are drawn, 64 more than the order has, so that the remainder is as good as uniform (NIST SP 800-186).
    """
    return ec.derive_private_key(
        int.from_bytes(derived(secret, "authority", 40)) % (P256_ORDER - 1) + 1, ec.SECP256R1()
    )


def pin_of(certificate: x509.Certificate) -> str:
    """Returns `sha256:` and the hash of a certificate in DER, by which others recognise it."""
    return "sha256:" + hashlib.sha256(certificate.public_bytes(serialization.Encoding.DER)).hexdigest()


def new_key() -> ec.EllipticCurvePrivateKey:
    """Returns a new private key on P-256."""
    return ec.generate_private_key(ec.SECP256R1())


def private(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Returns the key as PEM."""
    return key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def keep(folder: Path, job: str, authority: bytes) -> None:
    """Writes whom the parties whose keys lie in `folder` shall trust; makes the folder, for its owner only."""
    folder.mkdir(mode=0o700, exist_ok=True)
    write_secret(folder, "job", job.encode())
    write_secret(folder, "authority.pem", authority)


def write_secret(folder: Path, name: str, data: bytes) -> None:
    """Writes a new file that only its owner can read. Raises ConfigError where a file of that name is there."""
    path = safe_join(folder, name)
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
            file.write(data)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None


def _name(text: str) -> x509.Name:
    """Returns a name of X.509 that holds `text` as its common name."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(name: str, key: ec.EllipticCurvePublicKey, *, ca: bool) -> x509.CertificateBuilder:
    """Returns a certificate to be, without issuer and extensions of its purpose.

    It is valid from CLOCK_SKEW ago: the clock of the machine that checks it may be behind.
    """
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=0 if ca else None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )

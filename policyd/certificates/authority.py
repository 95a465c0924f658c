"""An own certificate authority, and the server certificates it issues.

Everything is ECDSA P-256: a handshake costs a server a third of what it costs with RSA, and it is
handshakes that limit a webhook when the API server comes with a burst.
"""

import ipaddress
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from policyd.certificates.given import CertificatePair, check_match, load_certificate, load_key
from policyd.errors import ConfigurationError

DAY = 86400.0
"""Seconds in a day."""

AUTHORITY_DAYS = 3650
"""An authority outlives every cluster that asks for it; it is renewed ahead all the same."""

SERVER_DAYS = 90
"""Short enough that renewal is a habit and not an event."""

BACKDATE_SECONDS = 300.0
"""How far clocks may differ before a fresh certificate looks as if it came from the future."""


class Authority:
    """A certificate authority of policyd's own, whose certificate clients trust."""

    def __init__(self, pair: CertificatePair) -> None:
        """Load an authority kept as PEM.

        Raises:
            ConfigurationError: If it is not a certificate and key, they do not match, or the
                certificate is not an authority's.
        """
        check_match(pair, certificate="authority", key="authority key")
        self.pair = pair
        self._certificate = load_certificate(pair.certificate_pem, "authority")
        key = load_key(pair.key_pem, "authority key")
        if not isinstance(key, ec.EllipticCurvePrivateKey) or not _may_issue(self._certificate):
            raise ConfigurationError(
                "the authority's certificate may not issue others",
                hint="give a certificate with `CA:TRUE` and an ECDSA key",
            )
        self._key = key

    @classmethod
    def create(
        cls, *, now: float, name: str = "policyd authority", days: float = AUTHORITY_DAYS
    ) -> Self:
        """Make a new authority, valid from `now` for `days`."""
        key = ec.generate_private_key(ec.SECP256R1())
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        # A name of its own for each key: two authorities live side by side while one is replaced.
        subject = _name(f"{name} {identifier.digest.hex()[:8]}")
        builder = _builder(subject, key, now=now, days=days)
        certificate = (
            builder.issuer_name(subject)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(issues=True), critical=True)
            .add_extension(identifier, critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(_pair(certificate, key))

    @property
    def certificate_pem(self) -> bytes:
        """The authority's certificate, for a `caBundle` or a kubeconfig."""
        return self.pair.certificate_pem

    @property
    def not_after(self) -> float:
        """The moment it expires."""
        return self._certificate.not_valid_after_utc.timestamp()

    def issue(
        self, names: Sequence[str], *, now: float, days: float = SERVER_DAYS
    ) -> CertificatePair:
        """Issue a server certificate with a new key.

        Args:
            names: DNS names and IP addresses it is for, at least one; the first is its subject.
            now: The moment it becomes valid.
            days: How long it is valid; never longer than the authority itself.
        """
        if not names:
            raise ValueError("a server certificate is for at least one name")
        key = ec.generate_private_key(ec.SECP256R1())
        days = min(days, (self.not_after - now) / DAY)
        builder = _builder(_name(names[0]), key, now=now, days=days)
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = (
            builder.issuer_name(self._certificate.subject)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(issues=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectAlternativeName(_alternatives(names)), critical=False)
            .add_extension(identifier, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return _pair(certificate, key)

    def issued(self, certificate_pem: bytes) -> bool:
        """Tell whether this authority signed the certificate."""
        try:
            load_certificate(certificate_pem, "certificate").verify_directly_issued_by(
                self._certificate
            )
        except (ValueError, TypeError, ConfigurationError, InvalidSignature):
            return False
        return True


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> CertificatePair:
    return CertificatePair(
        certificate_pem=certificate.public_bytes(serialization.Encoding.PEM),
        key_pem=key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


def _builder(
    subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, now: float, days: float
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.fromtimestamp(now - BACKDATE_SECONDS, tz=UTC))
        .not_valid_after(datetime.fromtimestamp(now + days * DAY, tz=UTC))
    )


def _name(common_name: str) -> x509.Name:
    # RFC 5280 allows 64 characters; long service names are in the alternative names anyway.
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:64])])


def _usage(*, issues: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not issues,
        key_cert_sign=issues,
        crl_sign=issues,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _may_issue(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _alternatives(names: Iterable[str]) -> list[x509.GeneralName]:
    return [_alternative(name) for name in dict.fromkeys(names)]


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)

"""Certificates that users give: their facts, and whether they can be used."""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes

from policyd.api.meta import rfc3339
from policyd.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificatePair:
    """A certificate (the chain after it, if there is one) and its private key, both as PEM."""

    certificate_pem: bytes
    key_pem: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFacts:
    """The facts of a certificate: its end, and its names."""

    not_before: float
    not_after: float
    names: frozenset[str]
    """DNS names as written, IP addresses in their shortest form."""

    def covers(self, name: str) -> bool:
        """Tell whether a client that calls `name`, a DNS name or an IP address, would accept it.

        A wildcard stands for exactly one label, as RFC 6125 has it.
        """
        name = _canonical(name)
        _, _, parent = name.partition(".")
        return name in self.names or (bool(parent) and f"*.{parent}" in self.names)


def certificate_facts(
    certificate_pem: bytes, *, certificate: str = "certificate"
) -> CertificateFacts:
    """Read the first certificate of a PEM text.

    Args:
        certificate_pem: The text.
        certificate: Its name in an error, such as its path.

    Raises:
        ConfigurationError: If there is no certificate in it.
    """
    parsed = load_certificate(certificate_pem, certificate)
    return CertificateFacts(
        not_before=parsed.not_valid_before_utc.timestamp(),
        not_after=parsed.not_valid_after_utc.timestamp(),
        names=_names(parsed),
    )


def check_match(pair: CertificatePair, *, certificate: str, key: str) -> None:
    """Check that certificate and key belong together.

    Args:
        pair: Both, as PEM.
        certificate: The name of the certificate in an error, such as its path.
        key: The same for the key.

    Raises:
        ConfigurationError: If one of them is invalid, or they do not match.
    """
    public = load_certificate(pair.certificate_pem, certificate).public_key()
    if _der(public) != _der(load_key(pair.key_pem, key).public_key()):
        raise ConfigurationError(
            f"certificate `{certificate}` does not match key `{key}`",
            hint="the first certificate of the file must be the key's own, its issuers follow",
        )


def check_pair(
    pair: CertificatePair,
    *,
    now: float,
    certificate: str = "certificate",
    key: str = "key",
    names: Iterable[str] = (),
) -> CertificateFacts:
    """Check a server certificate before it is used: match of the key, validity, names.

    Args:
        pair: Certificate and key.
        now: The moment it is to be used.
        certificate: The name of the certificate in an error, such as its path.
        key: The same for the key.
        names: DNS names and IP addresses under which clients will call; each must be covered.

    Raises:
        ConfigurationError: For the first check that fails.
    """
    check_match(pair, certificate=certificate, key=key)
    facts = certificate_facts(pair.certificate_pem, certificate=certificate)
    if now >= facts.not_after:
        raise ConfigurationError(
            f"certificate `{certificate}` expired at {rfc3339(facts.not_after)}",
            hint="renew it, or let policyd issue its own and keep it in a Secret: `--secret`",
        )
    if now < facts.not_before:
        raise ConfigurationError(
            f"certificate `{certificate}` is not valid before {rfc3339(facts.not_before)}",
            hint="compare this machine's clock with the issuer's",
        )
    for name in names:
        if not facts.covers(name):
            raise ConfigurationError(
                f"certificate `{certificate}` is not for `{name}`",
                hint=f"it is for {', '.join(sorted(facts.names)) or 'no name at all'}",
            )
    return facts


def split_bundle(bundle_pem: bytes) -> tuple[bytes, ...]:
    """Return the certificates of a CA bundle one by one, each once, in order.

    Raises:
        ConfigurationError: If a part of it is not a certificate.
    """
    if not bundle_pem.strip():
        return ()
    try:
        certificates = x509.load_pem_x509_certificates(bundle_pem)
    except ValueError as error:
        raise ConfigurationError("the CA bundle is not a list of PEM certificates") from error
    texts = (c.public_bytes(serialization.Encoding.PEM) for c in certificates)
    return tuple(dict.fromkeys(texts))


def load_certificate(pem: bytes, source: str) -> x509.Certificate:
    """Parse the first certificate of a PEM text, which an error calls `source`.

    Raises:
        ConfigurationError: If there is none.
    """
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError as error:
        raise ConfigurationError(
            f"`{source}` is not a PEM certificate",
            hint="it should begin with `-----BEGIN CERTIFICATE-----`",
        ) from error


def load_key(pem: bytes, source: str) -> PrivateKeyTypes:
    """Parse a private key without a password, which an error calls `source`.

    Raises:
        ConfigurationError: If there is none, or it has a password.
    """
    try:
        return serialization.load_pem_private_key(pem, password=None)
    except TypeError as error:
        raise ConfigurationError(
            f"key `{source}` is encrypted", hint="give it without a password"
        ) from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ConfigurationError(
            f"`{source}` is not a PEM private key",
            hint="it should begin with `-----BEGIN PRIVATE KEY-----`",
        ) from error


def _der(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def _canonical(name: str) -> str:
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name.lower()


def _names(certificate: x509.Certificate) -> frozenset[str]:
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return frozenset()
    dns = (name.lower() for name in extension.value.get_values_for_type(x509.DNSName))
    addresses = (str(a) for a in extension.value.get_values_for_type(x509.IPAddress))
    return frozenset((*dns, *addresses))

"""Decode certificates: `x509.decode(pem).Issuer.CommonName`, with the fields of Go's structs."""

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from policyd.cel.cost import traverse
from policyd.cel.errors import CelError
from policyd.cel.functions import Overload, Size, function
from policyd.cel.types import DYN, STRING

if TYPE_CHECKING:
    from cryptography import x509

_RSA: Final = 1
"""Go's number of the algorithm."""
_PARTS: Final = {
    "2.5.4.6": "Country",
    "2.5.4.10": "Organization",
    "2.5.4.11": "OrganizationalUnit",
    "2.5.4.7": "Locality",
    "2.5.4.8": "Province",
    "2.5.4.9": "StreetAddress",
    "2.5.4.17": "PostalCode",
}
_SINGLE: Final = {"2.5.4.5": "SerialNumber", "2.5.4.3": "CommonName"}


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _name(name: "x509.Name") -> dict[str, Any]:
    made: dict[str, Any] = dict.fromkeys(_PARTS.values())
    made |= dict.fromkeys(_SINGLE.values(), "")
    made |= {"Names": [], "ExtraNames": None}
    for attribute in name:
        number = attribute.oid.dotted_string
        made["Names"].append({"Type": _numbers(number), "Value": attribute.value})
        if number in _SINGLE:
            made[_SINGLE[number]] = attribute.value
        elif number in _PARTS:
            made[_PARTS[number]] = [*(made[_PARTS[number]] or ()), attribute.value]
    return made


def _numbers(dotted: str) -> list[int]:
    return [int(number) for number in dotted.split(".")]


def _public_key(certificate: "x509.Certificate | x509.CertificateSigningRequest") -> Any:  # noqa: ANN401
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey  # noqa: PLC0415

    key = certificate.public_key()
    if not isinstance(key, RSAPublicKey):
        raise CelError("certificate should use rsa algorithm")
    numbers = key.public_numbers()
    return {"N": str(numbers.n), "E": numbers.e}


def _alternatives(
    certificate: "x509.Certificate | x509.CertificateSigningRequest",
) -> Mapping[str, Any]:
    from cryptography import x509  # noqa: PLC0415

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return {"DNSNames": None, "EmailAddresses": None, "IPAddresses": None}
    addresses = [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    return {
        "DNSNames": names.get_values_for_type(x509.DNSName) or None,
        "EmailAddresses": names.get_values_for_type(x509.RFC822Name) or None,
        "IPAddresses": addresses or None,
    }


def _constraints(certificate: "x509.Certificate") -> Mapping[str, Any]:
    from cryptography import x509  # noqa: PLC0415

    try:
        found = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    except x509.ExtensionNotFound:
        return {"BasicConstraintsValid": False, "IsCA": False, "MaxPathLen": 0}
    longest = -1 if found.path_length is None else found.path_length
    return {"BasicConstraintsValid": True, "IsCA": found.ca, "MaxPathLen": longest}


def _certificate(pem: bytes) -> dict[str, Any]:
    from cryptography import x509  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415

    certificate = x509.load_pem_x509_certificate(pem)
    return {
        "Raw": _text(certificate.public_bytes(Encoding.DER)),
        "RawTBSCertificate": _text(certificate.tbs_certificate_bytes),
        "RawSubject": _text(certificate.subject.public_bytes()),
        "RawIssuer": _text(certificate.issuer.public_bytes()),
        "Signature": _text(certificate.signature),
        "PublicKeyAlgorithm": _RSA,
        "PublicKey": _public_key(certificate),
        "SerialNumber": certificate.serial_number,
        "Issuer": _name(certificate.issuer),
        "Subject": _name(certificate.subject),
        "NotBefore": f"{certificate.not_valid_before_utc:%Y-%m-%dT%H:%M:%SZ}",
        "NotAfter": f"{certificate.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}",
        **_constraints(certificate),
        **_alternatives(certificate),
    }


def _request(pem: bytes) -> dict[str, Any]:
    from cryptography import x509  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415

    request = x509.load_pem_x509_csr(pem)
    return {
        "Raw": _text(request.public_bytes(Encoding.DER)),
        "RawTBSCertificateRequest": _text(request.tbs_certrequest_bytes),
        "RawSubject": _text(request.subject.public_bytes()),
        "Signature": _text(request.signature),
        "PublicKeyAlgorithm": _RSA,
        "PublicKey": _public_key(request),
        "Subject": _name(request.subject),
        **_alternatives(request),
    }


def _decode(text: str) -> dict[str, Any]:
    if "-----BEGIN CERTIFICATE-----" in text:
        read = _certificate
    elif "-----BEGIN CERTIFICATE REQUEST-----" in text:
        read = _request
    else:
        raise CelError("no PEM certificate or certificate request found")
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
    from cryptography.x509 import DuplicateExtension, UnsupportedGeneralNameType  # noqa: PLC0415

    try:
        return read(text.encode())
    except (
        *(ValueError, UnsupportedAlgorithm, DuplicateExtension, UnsupportedGeneralNameType),
    ) as error:
        raise CelError(f"invalid certificate: {error}") from None


# Reading a certificate takes about as long as comparing so many elements, and more if it is long.
_DECODE = Size(cost=traverse, work=lambda text: 2_000 + len(text) // 2)
CERTIFICATES: tuple[Overload, ...] = (
    function("x509.decode", STRING, returns=DYN, run=_decode, size=_DECODE),
)

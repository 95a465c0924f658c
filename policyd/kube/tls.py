"""The trusted authorities, and the client certificate."""

import ssl
import tempfile
from pathlib import Path

from policyd.errors import ConfigurationError


def client_context(authority: bytes | None, *, insecure: bool = False) -> ssl.SSLContext:
    """Return a context that trusts an authority alone, or the system's authorities for None.

    Args:
        authority: One or more certificates, as PEM.
        insecure: Trust any certificate.

    Raises:
        ConfigurationError: If `authority` holds no certificate.
    """
    try:
        text = authority.decode("ascii") if authority else None
        context = ssl.create_default_context(cadata=text)
    except (ssl.SSLError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            "the certificate authority of the API server is not a PEM certificate",
            hint="check `certificate-authority-data` or the file `certificate-authority`",
        ) from error
    # Authorities of older clusters lack extensions that Python 3.13 asks for by default.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def load_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Have new connections of `context` present a client certificate.

    Raises:
        ConfigurationError: If one is not PEM, or they do not belong together.
    """
    with tempfile.TemporaryDirectory(prefix="policyd-") as folder:  # OpenSSL reads files only
        paths = Path(folder, "certificate"), Path(folder, "key")
        for path, content in zip(paths, (certificate, key), strict=True):
            path.touch(mode=0o600)
            path.write_bytes(content)
        try:
            context.load_cert_chain(*paths, password=_no_password)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigurationError(
                "the client certificate and its key cannot be used together",
                hint="both must be PEM, of the same pair, and the key not encrypted",
            ) from error


def _no_password() -> str:
    raise ValueError("the key is encrypted")


def without_certificate(context: ssl.SSLContext) -> ssl.SSLContext:
    """Return a context with the same authorities that presents no client certificate.

    A request that presents one is that of its owner, whatever token it carries.
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = context.minimum_version
    made.check_hostname = context.check_hostname
    made.verify_mode = context.verify_mode
    made.verify_flags = context.verify_flags
    for authority in context.get_ca_certs(binary_form=True):
        made.load_verify_locations(cadata=authority)
    return made

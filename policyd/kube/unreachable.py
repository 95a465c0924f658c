"""Why there is no answer: the HTTP library's errors as one sentence and a hint."""

import os
import ssl

import aiohttp

from policyd.kube.connection import ApiConnection
from policyd.kube.errors import UnreachableError

_CERTIFICATE_HINT = "check `certificate-authority-data` and `tls-server-name` of the kubeconfig"
_SERVER_HINT = "is the API server running, and the kubeconfig's `server` right?"

# The first class that fits decides: narrower ones come first.
_SENTENCES: tuple[tuple[type[Exception], str, str | None], ...] = (
    (
        aiohttp.ClientConnectorCertificateError,
        "the certificate of `{server}` is not trusted: {why}",
        _CERTIFICATE_HINT,
    ),
    (aiohttp.ClientConnectorSSLError, "no TLS connection to `{server}`: {why}", _SERVER_HINT),
    (aiohttp.ClientConnectorDNSError, "the host of `{server}` has no address", _SERVER_HINT),
    (aiohttp.ClientProxyConnectionError, "the proxy `{proxy}` cannot be reached", None),
    (aiohttp.ClientHttpProxyError, "the proxy `{proxy}` refuses: {why}", None),
    (aiohttp.ClientConnectorError, "cannot connect to `{server}`: {why}", _SERVER_HINT),
    (aiohttp.InvalidURL, "`{server}` is not a server URL", None),
    (TimeoutError, "no answer to `{asked}` in time", None),
    (Exception, "the connection broke during `{asked}`", None),
)


def unreachable(error: Exception, *, asked: str, connection: ApiConnection) -> UnreachableError:
    """Turn what aiohttp or the system raised into an error of ours."""
    _, sentence, hint = next(row for row in _SENTENCES if isinstance(error, row[0]))
    message = sentence.format(
        server=connection.server, proxy=connection.proxy, asked=asked, why=_reason(error)
    )
    return UnreachableError(message, hint=hint)


def _reason(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        error = error.certificate_error
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"{error.status} {error.message}"
    if isinstance(error, aiohttp.ClientConnectorError):
        error = error.os_error
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno).lower()
    return str(error)

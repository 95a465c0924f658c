"""The meaning of settings for an admission server, and checks that they agree."""

from pathlib import Path
from urllib.parse import urlsplit

from policyd.config import Settings
from policyd.errors import ConfigurationError
from policyd.registration.configurations import Endpoint, ServiceEndpoint, UrlEndpoint
from webhooks.certificate.secret import SecretName
from webhooks.certificate.tls import CertificateFiles

SERVICE_NAME = "policyd-webhooks"
"""The Service that the chart makes."""


def needs_cluster(settings: Settings) -> bool:
    """Tell whether anything that is asked for needs an API server."""
    asked = settings.from_cluster or settings.register or settings.reports
    return asked or settings.kyverno or bool(settings.secret or settings.reads)


def serves_old_versions(settings: Settings) -> bool:
    """Tell whether the API server is to serve v1beta1 of Kueue's kinds, and to ask us for it.

    Where Kueue holds the jobs, its kinds are left to it.
    """
    return settings.serve_v1beta1 and settings.register and settings.queue


def certificate_files(settings: Settings) -> CertificateFiles | None:
    """Return the files of the certificate; None if it is kept in a Secret.

    Raises:
        ConfigurationError: If neither is given, or both, or one file of the two.
    """
    files = (settings.certificate, settings.key)
    if settings.secret and any(files):
        raise ConfigurationError(
            "a certificate is given twice, as files and as a Secret", hint="leave one of them out"
        )
    if settings.secret:
        return None
    if not all(files):
        raise ConfigurationError(
            "no certificate to serve with",
            hint="give `--certificate` and `--key`, or `--secret namespace/name` to have one made",
        )
    return CertificateFiles(certificate=Path(settings.certificate), key=Path(settings.key))


def check_callers(settings: Settings) -> None:
    """Check the settings for callers: that certificates are possible, and names are signed.

    Raises:
        ConfigurationError: If they do not.
    """
    if settings.client_ca and serves_old_versions(settings):
        raise ConfigurationError(
            "the API server shows no certificate when it asks for another version of Kueue's kinds",
            hint="leave out `--serve-v1beta1`, or `--client-ca`",
        )
    if settings.client_names and not settings.client_ca:
        raise ConfigurationError(
            "client names are given without a certificate authority to verify them",
            hint="give the authority with `--client-ca`",
        )


def secret_name(settings: Settings) -> SecretName:
    """Return where the Secret is.

    Raises:
        ConfigurationError: If it is not written as `namespace/name`.
    """
    namespace, name = _in_namespace(settings.secret, "secret")
    return SecretName(namespace=namespace, name=name)


def endpoint(settings: Settings) -> Endpoint:
    """Return where the API server calls.

    Raises:
        ConfigurationError: If an address is not one that it can call.
    """
    if settings.url:
        parts = urlsplit(settings.url)
        if parts.scheme != "https" or not parts.hostname or parts.query or parts.fragment:
            raise ConfigurationError(
                f"`{settings.url}` is not a URL that the API server can call",
                hint="write `https://host:port`",
            )
        return UrlEndpoint(url=settings.url)
    if not settings.service:
        return ServiceEndpoint(namespace=settings.namespace, name=SERVICE_NAME)
    service, _, port = settings.service.partition(":")
    namespace, name = _in_namespace(service, "service")
    if port and not port.isdecimal():
        raise ConfigurationError(f"`{port}` is not a Service port", hint="write a number")
    return ServiceEndpoint(namespace=namespace, name=name, port=int(port or 443))


def names_to_serve(called: Endpoint) -> tuple[str, ...]:
    """Return the names that the certificate must be for."""
    match called:
        case ServiceEndpoint():
            return called.dns_names
        case UrlEndpoint(url=url):
            return (urlsplit(url).hostname or "",)


def _in_namespace(text: str, setting: str) -> tuple[str, str]:
    namespace, _, name = text.partition("/")
    if not namespace or not name or "/" in name:
        raise ConfigurationError(
            f"`{text}` does not name a {setting}", hint=f"write `--{setting} namespace/name`"
        )
    return namespace, name

"""How to reach an API server: its address, the trusted authorities, and credentials."""

import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, urlsplit

from policyd.clock import Clock, SystemClock
from policyd.errors import ConfigurationError
from policyd.kube.auth import FetchedHeader, Header, TokenFile, basic, bearer
from policyd.kube.kubeconfig import SelectedContext, content, read_file, read_kubeconfig
from policyd.kube.plugins import ask_plugin, ask_provider
from policyd.kube.proxies import proxy_for
from policyd.kube.tls import client_context, load_certificate

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
NO_PROXIES: Mapping[str, str] = {}
_HEADER_NAME = "!#$&'*+-.^_`|~"
"""Allowed characters of a header's name besides letters and digits: RFC 9110, 5.6.2."""


class Credentials(Protocol):
    """Credentials of the requests' header; a client certificate is apart from these."""

    async def authorization(self) -> str:
        """Return the header `Authorization`, renewed if it is about to expire; empty for none.

        Raises:
            CredentialsError: If the credentials cannot be had. Going on without would be a
                request of the anonymous user.
        """
        ...

    def forget(self) -> bool:
        """Drop cached credentials, because the server refused them; tell whether that can help."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiConnection:
    """One API server, and the credentials for it."""

    server: str
    """Scheme, host, port, and the path before `/api`, if any; no slash at the end."""
    tls: ssl.SSLContext | None = None
    """The trusted authorities, and the client certificate; None over plain HTTP."""
    credentials: Credentials = field(default_factory=lambda: Header(""))
    server_name: str | None = None
    """The name that the server's certificate has, if it is not the host's."""
    proxy: str | None = None
    namespace: str = "default"
    """The context's namespace, or that of the pod we run in."""
    impersonation: tuple[tuple[str, str], ...] = ()
    """The headers that ask for the rights of another user."""


def connection_from(
    environ: Mapping[str, str],
    *,
    kubeconfig: str = "",
    context: str = "",
    clock: Clock | None = None,
    account: Path = SERVICE_ACCOUNT,
) -> ApiConnection:
    """Find out how to reach the API server.

    In this order: `kubeconfig`, the files of `KUBECONFIG`, the service account of the pod that we
    run in, `~/.kube/config`.

    Args:
        environ: The environment.
        kubeconfig: A file, or several joined by colons.
        context: A context of the kubeconfig; its current one if empty.
        clock: The clock by which tokens expire.
        account: The folder of the service account's files.

    Raises:
        ConfigurationError: If one does not exist, or it cannot be used as it is; a credential
            plugin is run, and its failure is one.
    """
    clock = clock or SystemClock()
    named = kubeconfig or environ.get("KUBECONFIG", "")
    if not named and not context and environ.get("KUBERNETES_SERVICE_HOST"):
        return _in_cluster(environ, account, clock)
    home = environ.get("HOME", "")
    named = named or str(Path(home, ".kube", "config"))
    paths = [Path(_expanded(part, home)) for part in named.split(":") if part]
    return connection_of(read_kubeconfig(paths).choose(context), clock, environ)


def _in_cluster(environ: Mapping[str, str], account: Path, clock: Clock) -> ApiConnection:
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    namespace = account / "namespace"
    return ApiConnection(
        server=server,
        tls=client_context(read_file(account / "ca.crt", what="certificate authority")),
        credentials=TokenFile(account / "token", clock=clock),
        proxy=proxy_for(server, environ),
        namespace=namespace.read_text().strip() if namespace.is_file() else "default",
    )


def connection_of(
    chosen: SelectedContext, clock: Clock, environ: Mapping[str, str] = NO_PROXIES
) -> ApiConnection:
    """Return how to reach the cluster of a context.

    Args:
        chosen: The context.
        clock: The clock by which tokens expire.
        environ: The environment, with proxies.

    Raises:
        ConfigurationError: If it cannot be used as it is.
    """
    cluster = chosen.cluster
    server = cluster.server.rstrip("/")
    if urlsplit(server).scheme not in {"http", "https"}:
        raise ConfigurationError(
            f"server `{cluster.server}` of context `{chosen.context}` is not a URL",
            hint="write `https://host:port`",
        )
    tls = _tls(chosen) if server.startswith("https:") else None
    return ApiConnection(
        server=server,
        tls=tls,
        credentials=_credentials(chosen, tls, clock),
        server_name=cluster.tls_server_name,
        proxy=_proxy(chosen, environ),
        namespace=chosen.namespace,
        impersonation=tuple(_impersonation(chosen)),
    )


def _tls(chosen: SelectedContext) -> ssl.SSLContext:
    cluster, user = chosen.cluster, chosen.user
    context = client_context(
        content(
            cluster.certificate_authority_data,
            cluster.certificate_authority,
            chosen.cluster_folder,
            what="certificate-authority",
        ),
        insecure=cluster.insecure_skip_tls_verify,
    )
    certificate = content(
        user.client_certificate_data,
        user.client_certificate,
        chosen.user_folder,
        what="client-certificate",
    )
    key = content(user.client_key_data, user.client_key, chosen.user_folder, what="client-key")
    if certificate and key:
        load_certificate(context, certificate, key)
    elif certificate or key:
        raise ConfigurationError(
            f"the user of context `{chosen.context}` has half of a client certificate",
            hint="`client-certificate` and `client-key` go together",
        )
    return context


def _credentials(chosen: SelectedContext, tls: ssl.SSLContext | None, clock: Clock) -> Credentials:
    user = chosen.user
    if user.token_file:
        return TokenFile(chosen.user_folder / user.token_file, clock=clock)
    if user.token:
        return bearer(user.token)
    if user.username and user.password:
        return basic(user.username, user.password)
    if user.exec:
        fetched = FetchedHeader(ask_plugin(chosen, tls), clock=clock)
    elif user.auth_provider:
        fetched = FetchedHeader(ask_provider(chosen, clock), clock=clock)
    else:
        return Header("")
    fetched.prime()
    return fetched


def _impersonation(chosen: SelectedContext) -> Iterator[tuple[str, str]]:
    user = chosen.user
    if not user.as_user and (user.as_uid or user.as_groups or user.as_user_extra):
        raise ConfigurationError(
            f"context `{chosen.context}` impersonates groups, a uid or extra without a user",
            hint="set `as` to the user",
        )
    if user.as_user:
        yield "Impersonate-User", user.as_user
    if user.as_uid:
        yield "Impersonate-Uid", user.as_uid
    yield from (("Impersonate-Group", group) for group in user.as_groups)
    for key, values in user.as_user_extra.items():
        name = f"Impersonate-Extra-{quote(key, safe=_HEADER_NAME)}"
        yield from ((name, value) for value in values)


def _proxy(chosen: SelectedContext, environ: Mapping[str, str]) -> str | None:
    proxy = chosen.cluster.proxy_url or proxy_for(chosen.cluster.server, environ)
    if proxy and urlsplit(proxy).scheme not in {"http", "https"}:
        raise ConfigurationError(
            f"proxy `{proxy}` of context `{chosen.context}` cannot be used",
            hint="only http and https proxies can",
        )
    return proxy


def _expanded(path: str, home: str) -> str:
    return home + path[1:] if path.startswith("~/") else path

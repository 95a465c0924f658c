"""How to reach an API server: its address, whom to trust, and who we are."""

import ssl
from dataclasses import dataclass, field
from typing import Protocol


class Credentials(Protocol):
    """Who we are, as far as a request's header says it (a client certificate says it otherwise)."""

    async def authorization(self) -> str:
        """Return the header `Authorization`, renewed if it is about to expire; empty for none.

        Raises:
            ConfigurationError: If the credentials cannot be had. Going on without would be a
                request of somebody else, the anonymous user.
        """
        ...

    def forget(self) -> bool:
        """Drop what is cached, because the server refused it; tell whether that can help."""
        ...


class NoCredentials:
    """A server that asks for none, or a client certificate alone."""

    async def authorization(self) -> str:
        """Return no header."""
        return ""

    def forget(self) -> bool:
        """There is nothing to drop."""
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """One API server, and the credentials for it."""

    server: str
    """Scheme, host, port, and the path before `/api`, if any; no slash at the end."""
    tls: ssl.SSLContext | None = None
    """Whom to trust, and the client certificate; None over plain HTTP."""
    credentials: Credentials = field(default_factory=NoCredentials)
    server_name: str | None = None
    """The name that the server's certificate has, if it is not the host's."""
    proxy: str | None = None
    namespace: str = "default"
    """Where requests go that name no namespace, by the kubeconfig's context or the pod's own."""

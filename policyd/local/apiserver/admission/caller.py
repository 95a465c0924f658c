"""Calling webhooks over HTTPS."""

import base64
import binascii
import os
import ssl
from collections.abc import Callable

import aiohttp

from policyd.http_sessions import open_session
from policyd.local.apiserver.admission.webhook import ConfiguredWebhook
from policyd.local.apiserver.status import Object

ResolveService = Callable[[str, str, int], tuple[str, int] | None]
"""Gives the address (host, port) of a Service's port by namespace, name and port; None if none."""

HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json, */*",
    "User-Agent": "kube-apiserver-admission",
}

LONGEST_ANSWER = 16 * 1024 * 1024
"""Bytes of an answer that are read."""


class CallError(Exception):
    """A webhook could not be asked; the text is the API server's."""


def no_services(_namespace: str, _name: str, _port: int) -> None:
    """Know no Service."""


class WebhookCaller:
    """Keeps connections to webhooks open, one pool for all."""

    def __init__(self, resolve: ResolveService = no_services) -> None:
        self._resolve = resolve
        self._session: aiohttp.ClientSession | None = None
        self._contexts: dict[str, ssl.SSLContext] = {}

    async def call(self, webhook: ConfiguredWebhook, body: bytes) -> bytes:
        """Send a review; return the body of the answer.

        Raises:
            CallError: If there is no answer in time, or it is not a 200.
        """
        url, server_name = self._address(webhook.client)
        shown = f"{url}?timeout={webhook.timeout_seconds}s"
        try:
            async with self._open_session().post(
                shown,
                data=body,
                headers=HEADERS,
                ssl=self._context(webhook.client.get("caBundle", "")),
                server_hostname=server_name,
                timeout=aiohttp.ClientTimeout(total=webhook.timeout_seconds),
                allow_redirects=False,
            ) as answer:
                content = await answer.content.read(LONGEST_ANSWER)
                status = answer.status
        except TimeoutError:
            raise CallError(f'Post "{shown}": context deadline exceeded') from None
        except (aiohttp.ClientError, OSError, ssl.SSLError) as error:
            raise CallError(f'Post "{shown}": {reason(error)}') from error
        if status != 200:
            raise CallError(_refused(status, content))
        return content

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = open_session()
        return self._session

    def _address(self, client: Object) -> tuple[str, str | None]:
        if "url" in client:
            return client["url"], None
        service = client["service"]
        namespace, name, port = service["namespace"], service["name"], service.get("port", 443)
        found = self._resolve(namespace, name, port)
        if found is None:
            raise CallError(f'service "{name}" not found')
        host, port = found
        return f"https://{host}:{port}{service.get('path', '/')}", f"{name}.{namespace}.svc"

    def _context(self, bundle: str) -> ssl.SSLContext:
        if bundle not in self._contexts:
            if bundle:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                context.load_verify_locations(cadata=_pem(bundle))
            else:
                context = ssl.create_default_context()
            self._contexts[bundle] = context
        return self._contexts[bundle]


def _pem(bundle: str) -> str:
    try:
        return base64.b64decode(bundle).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise CallError(f"unable to load root certificates: {error}") from error


def reason(error: Exception) -> str:
    """Say why a connection failed, as Go does where it is short."""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return f"tls: failed to verify certificate: x509: {error.certificate_error}"
        case aiohttp.ClientConnectorError():
            where = f"dial tcp {error.host}:{error.port}: connect"
            code = error.os_error.errno
            return f"{where}: {os.strerror(code).lower() if code else error.os_error}"
        case aiohttp.ServerDisconnectedError():
            return "EOF"
        case _:
            return str(error) or type(error).__name__


def _refused(status: int, content: bytes) -> str:
    if status == 404:
        return "the server could not find the requested resource"
    text = content[:200].decode(errors="replace").strip()
    if status >= 500:
        return f'an error on the server ("{text}") has prevented the request from succeeding'
    return f"the server rejected our request for an unknown reason: {status} {text}".strip()

"""Manifests and configurations of images, for Kyverno's `image.GetMetadata`.

The protocol is that of the OCI's distribution specification; tokens are fetched as Docker does.
A password goes to a registry, or to where it says that its tokens are, by HTTPS and no redirect.
That place is at the registry's own host, or at one above it, or is named as a registry, too.
Of an image for several platforms, the one for Linux on amd64 is looked at, as Kyverno does.
"""

import re
from collections.abc import Iterable, Mapping
from functools import partial
from hashlib import sha256
from typing import Any, Final, TypeVar

import msgspec
from yarl import URL

from policyd.api.meta import Json
from policyd.cel.errors import CelError
from policyd.dialects.kyverno.functions.images import Image, parse_image
from policyd.errors import ConfigurationError, PolicydError
from webhooks.external_data.addresses import read_address
from webhooks.external_data.fetching import FetchedResponse, Fetcher, Message
from webhooks.external_data.lookups import ExternalAnswer, ExternalLookups
from webhooks.external_data.passwords import Passwords

FRESH_SECONDS: Final = 60.0
"""How long an answer counts: a tag may move."""

PLATFORM: Final = {"os": "linux", "architecture": "amd64"}
"""Which image of several is looked at."""

_DOCKER: Final = "application/vnd.docker.distribution.manifest"
_OCI: Final = "application/vnd.oci.image"
_INDEXES = (f"{_OCI}.index.v1+json", f"{_DOCKER}.list.v2+json")
_MANIFESTS = (f"{_OCI}.manifest.v1+json", f"{_DOCKER}.v2+json")
_ACCEPTED = ", ".join((*_MANIFESTS, *_INDEXES))
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')
_TOKENS_AT: Final = frozenset({("index.docker.io", "auth.docker.io")})
"""Registries whose tokens are known to be elsewhere, and where."""
_MOVED: Final = 3
"""How many redirects of a registry are followed, to content that it keeps elsewhere."""


class RegistryError(PolicydError):
    """A registry is not asked, or does not answer."""


class _Described(msgspec.Struct, frozen=True):
    digest: str
    platform: dict[str, object] = {}


class _Index(msgspec.Struct, frozen=True):
    manifests: tuple[_Described, ...]


class _Manifest(msgspec.Struct, frozen=True):
    config: _Described


class _Token(msgspec.Struct, frozen=True):
    token: str = ""
    access_token: str = ""


T = TypeVar("T")


class Registries:
    """Reads the images of the registries that are declared.

    Args of the constructor:
        fetcher: Sends requests.
        lookups: Fetches the data of reviews.
        hosts: The registries: `ghcr.io`, `registry.example:5000`, `http://registry:5000`;
            `docker.io` for Docker's.
        passwords: Those of registries that want one.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        lookups: ExternalLookups,
        hosts: Iterable[str],
        passwords: Passwords | None = None,
    ) -> None:
        self._fetcher = fetcher
        self._lookups = lookups
        self._servers = dict(map(_server, hosts))
        self._passwords = passwords or Passwords()

    def metadata(self, image: str) -> Json:
        """Return a registry's data of an image.

        Raises:
            RegistryError: If its registry is not declared, or the image's name is none.
            PendingError: If it is to be asked first.
            UnansweredError: If there is no answer.
        """
        try:
            named = parse_image(image)
        except CelError as error:
            raise RegistryError(str(error)) from error
        if {".", ".."} & set(named.repository.split("/")):
            raise RegistryError(f"`{image}` names no repository")
        server = self._servers.get(named.registry)
        if server is None:
            message = f"policies may not query `{named.registry}` without `--registries"
            raise RegistryError(f"{message} {named.registry}`")
        key = b"image" + image.encode()
        return self._lookups.answer(key, partial(self._ask, image, named, server))

    async def _ask(self, image: str, named: Image, server: URL) -> ExternalAnswer:
        password = self._passwords.of(f"{named.registry}/{named.repository}")
        hosts = frozenset(each.raw_host or "" for each in self._servers.values())
        repository = _Repository(self._fetcher, server, named.repository, password, hosts)
        first = await repository.manifest(named.digest or named.tag)
        several = "manifests" in _read(first, dict[str, Any])
        used = await repository.manifest(_of_platform(_read(first, _Index))) if several else first
        config = await repository.blob(_read(used, _Manifest).config.digest)
        digest = named.digest or _digest(first)
        place = f"{named.registry}/{named.repository}{f':{named.tag}' if named.tag else ''}"
        found = {
            "image": image,
            "resolvedImage": f"{place}@{digest}",
            "registry": named.registry,
            "repository": named.repository,
            "identifier": named.digest or named.tag,
            "tag": named.tag,
            "digest": digest,
            "imageIndex": _read(first, dict[str, Any]) if several else None,
            "manifest": _read(used, dict[str, Any]),
            "config": _read(config, dict[str, Any]),
        }
        given = {name: value for name, value in found.items() if value}
        return ExternalAnswer(given, FRESH_SECONDS, len(first) + len(used) + len(config))


class _Repository:
    """One repository of a registry, with the password or token that it wants."""

    def __init__(
        self, fetcher: Fetcher, server: URL, name: str, password: str, named: frozenset[str]
    ) -> None:
        self._fetcher = fetcher
        self._named = named
        self._password = password if server.scheme == "https" else ""
        self._base = server / "v2" / name
        self._token: dict[str, str] = {}

    async def manifest(self, reference: str) -> bytes:
        """Return a manifest or an index, by its tag or its digest."""
        return await self._get("manifests", reference, {"Accept": _ACCEPTED})

    async def blob(self, digest: str) -> bytes:
        """Return the content with a digest."""
        return await self._get("blobs", digest, {})

    async def _get(self, kind: str, reference: str, headers: Mapping[str, str]) -> bytes:
        url = self._base / kind / reference
        fetched = await self._fetch(url, {**headers, **self._token})
        if fetched.status == 401 and not self._token and not fetched.led:
            self._token = await self._authorization(fetched.headers.get("WWW-Authenticate", ""))
            fetched = await self._fetch(url, {**headers, **self._token})
        if fetched.status != 200:
            raise RegistryError(f"the registry answers {fetched.status} to GET {url}")
        if ":" in reference and _digest(fetched.body) != reference:
            raise RegistryError(f"the registry's answer to GET {url} has another digest")
        return fetched.body

    async def _authorization(self, challenge: str) -> dict[str, str]:
        """Return the credentials for a registry: the password itself, or a token."""
        scheme, _, rest = challenge.partition(" ")
        if scheme.lower() == "basic" and self._password:
            return {"Authorization": self._password}
        asked = dict(_CHALLENGE.findall(rest))
        realm = _realm(asked.get("realm", ""))
        if scheme.lower() != "bearer" or realm is None:
            raise RegistryError(
                f"`{self._base.origin()}` requires a password, and policyd has none for HTTPS:"
                " give it with `--registry-credentials`"
            )
        if self._password and not self._is_its_own(realm.raw_host or ""):
            raise RegistryError(
                f"`{self._base.origin()}` issues tokens at `{realm.raw_host}`, which may not"
                f" receive its password without `--registries {realm.raw_host}`"
            )
        query = {name: asked[name] for name in ("service", "scope") if name in asked}
        password = {"Authorization": self._password} if self._password else {}
        redirects = 0 if password else _MOVED
        fetched = await self._fetch(realm.update_query(query), password, redirects=redirects)
        if fetched.status != 200:
            known = "for the password in" if password else "without a password: it takes"
            raise RegistryError(
                f"the registry gives no token {known} `--registry-credentials`: {fetched.status}"
            )
        fetched_token = _read(fetched.body, _Token)
        return {"Authorization": f"Bearer {fetched_token.token or fetched_token.access_token}"}

    def _is_its_own(self, host: str) -> bool:
        """Tell whether a host may get the password of the registry."""
        own = self._base.raw_host or ""
        above = "." in host and own.endswith(f".{host}")
        return host in self._named or host == own or above or (own, host) in _TOKENS_AT

    async def _fetch(
        self, url: URL, headers: Mapping[str, str], *, redirects: int = _MOVED
    ) -> FetchedResponse:
        message = Message(
            method="GET", url=url, headers=headers, redirects=redirects, named=self._named
        )
        return await self._fetcher.fetch(message)


def _realm(text: str) -> URL | None:
    """Read where tokens are; None if nothing secret can be sent there."""
    realm = read_address(text)
    return realm if realm is not None and realm.scheme == "https" else None


def _server(text: str) -> tuple[str, URL]:
    """Return a registry as references name it, and where it is.

    Raises:
        ConfigurationError: If it is not a host.
    """
    scheme, _, host = text.rpartition("://")
    try:
        registry = parse_image(f"{host}/some/image").registry
        address = read_address(f"{scheme or 'https'}://{registry}")
        if registry in (host, f"index.{host}") and address is not None:
            return registry, address
    except (CelError, ValueError):
        pass
    raise ConfigurationError(
        f"`{text}` is not a registry", hint="write `ghcr.io`, or `http://registry.example:5000`"
    )


def _of_platform(index: _Index) -> str:
    for each in index.manifests:
        if PLATFORM.items() <= each.platform.items():
            return each.digest
    raise RegistryError(f"no image found for {'/'.join(PLATFORM.values())}")


def _digest(body: bytes) -> str:
    return f"sha256:{sha256(body).hexdigest()}"


def _read(body: bytes, into: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=into)
    except (ValueError, RecursionError) as error:
        raise RegistryError(f"the registry's answer is invalid: {error}") from error

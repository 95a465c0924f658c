"""Parse image references: `parseImageReference('ghcr.io/team/app:1.2').registry()`."""

import re
from dataclasses import dataclass
from typing import Final

from policyd.cel.caches import cache_short
from policyd.cel.cost import traverse
from policyd.cel.errors import CelError
from policyd.cel.functions import Overload, Size, function, method
from policyd.cel.types import BOOL, STRING, Type

IMAGE = Type("kyverno.image")
_DEFAULT_REGISTRY: Final = "index.docker.io"
_DEFAULT_TAG: Final = "latest"
_REPOSITORY = re.compile(r"[a-z0-9_./-]{2,255}", re.ASCII)
_TAG = re.compile(r"[\w.-]{1,128}", re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
_REGISTRY = re.compile(r"(?:[A-Za-z0-9._~%-]+|\[[0-9a-fA-F:.]+\])(?::[0-9]{1,5})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Image:
    """A reference to an image; without a digest its tag is `latest`, unless it names one."""

    registry: str
    repository: str
    tag: str
    digest: str

    cel_type_name = IMAGE.name

    @property
    def identifier(self) -> str:
        """The tag, the digest, or both with `@` between them."""
        return "@".join(part for part in (self.tag, self.digest) if part)


@cache_short(2_048)
def parse_image(text: str) -> Image:
    """Parse a reference, with Docker's defaults for missing parts.

    Raises:
        CelError: If it is none.
    """
    named, at, digest = text.partition("@")
    if at and not _DIGEST.fullmatch(digest):
        raise _wrong(text, "the digest must be `sha256:` and 64 hexadecimal digits")
    registry, repository, tag = _split(named)
    if not _REPOSITORY.fullmatch(repository) or repository.startswith("/"):
        raise _wrong(text, "the repository must be 2 to 255 of the characters a-z0-9_-./")
    if tag and not _TAG.fullmatch(tag):
        raise _wrong(text, "the tag must be 1 to 128 letters, digits and `_-.`")
    if not _REGISTRY.fullmatch(registry):
        raise _wrong(text, "the registry is not a host")
    if registry == _DEFAULT_REGISTRY and "/" not in repository:
        repository = f"library/{repository}"
    return Image(registry, repository, tag or ("" if at else _DEFAULT_TAG), digest)


def _split(named: str) -> tuple[str, str, str]:
    """Return registry, repository and tag."""
    head, colon, tail = named.rpartition(":")
    if not colon or "/" in tail:  # the colon is that of a registry's port
        head, tail = named, ""
    first, slash, rest = head.partition("/")
    is_host = slash and ("." in first or ":" in first or first == "localhost")
    registry, repository = (first, rest) if is_host else (_DEFAULT_REGISTRY, head)
    if registry in ("docker.io", _DEFAULT_REGISTRY):
        registry = _DEFAULT_REGISTRY
    return registry, repository, tail


def _wrong(text: str, reason: str) -> CelError:
    return CelError(f"could not parse reference: {text[:200]}: {reason}")


def _is_image(text: str) -> bool:
    try:
        parse_image(text)
    except CelError:
        return False
    return True


def _parse(text: str) -> Image:
    return parse_image(text)


_READ = Size(cost=traverse, work=20)

IMAGES: tuple[Overload, ...] = (
    function("image", STRING, returns=IMAGE, run=_parse, size=_READ),
    function("parseImageReference", STRING, returns=IMAGE, run=_parse, size=_READ),
    function("isImage", STRING, returns=BOOL, run=_is_image, size=_READ),
    method("containsDigest", IMAGE, returns=BOOL, run=lambda image: bool(image.digest)),
    method("registry", IMAGE, returns=STRING, run=lambda image: image.registry),
    method("repository", IMAGE, returns=STRING, run=lambda image: image.repository),
    method("identifier", IMAGE, returns=STRING, run=lambda image: image.identifier),
    method("tag", IMAGE, returns=STRING, run=lambda image: image.tag),
    method("digest", IMAGE, returns=STRING, run=lambda image: image.digest),
)

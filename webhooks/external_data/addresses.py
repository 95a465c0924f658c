"""The addresses that policies may request: how they are written, and where they lead.

A name is checked by the addresses that it has when the connection is made, and by no others: the
answers of a name server to a check, and then to a connection, may differ.
"""

import errno
import re
import socket
import unicodedata
from collections.abc import Collection, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final
from urllib.parse import unquote_to_bytes

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver
from yarl import URL

Address = IPv4Address | IPv6Address

LONGEST: Final = 8 * 1024
"""Characters of an address that is asked."""

METADATA_NAMES: Final = frozenset(
    (
        *("metadata", "metadata.google.internal", "metadata.goog", "instance-data"),
        *("instance-data.ec2.internal", "metadata.tencentyun.com", "metadata.packet.net"),
    )
)
"""The names of the services by which clouds give a machine its credentials."""

_METADATA: Final = tuple(
    map(
        ip_network,
        (
            *("100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32"),
            *("fd00:ec2::/32", "fd20:ce::/32"),
        ),
    )
)
"""Where these services are, besides link-local addresses."""

_EMBEDDING: Final = (
    (ip_network("64:ff9b::/96"), 0),
    (ip_network("64:ff9b:1::/48"), 0),
    (ip_network("::/96"), 0),
    (ip_network("2002::/16"), 80),
)
"""Networks of IPv6 whose addresses hold one of IPv4, and how far it is from their end in bits."""

_WRITTEN = re.compile(r"https?://([^/?#@\\\s%]+)(?=[/?#]|\Z)(/[^?#]*)?", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NUMBER = re.compile(r"(?:\d+|0x[0-9a-f]*)\Z")
_READ_TWICE = re.compile(r"%(?:2[ef5]|5c|3b|[01][0-9a-f]|7f|(?![0-9a-f]{2}))", re.IGNORECASE)
"""Text that a server reads as another path if it decodes it once more, or sooner, than others."""


def read_address(text: str) -> URL | None:
    """Read an address; None if it is none, or one that servers may read differently."""
    written = _WRITTEN.match(text)
    if written is None or len(text) > LONGEST or _CONTROL.search(text):
        return None
    try:
        address = URL(text)
    except ValueError:
        return None
    plain = _is_plain_host(address.raw_host or "") and _is_plain_path(written[2] or "")
    return address if plain else None


def _is_plain_host(host: str) -> bool:
    """Tell whether a host is a name, or an address in its usual form."""
    if not host:
        return False
    if _NUMBER.search(host.rstrip(".").rpartition(".")[2]):
        literal = literal_of(host)
        return isinstance(literal, IPv4Address) and str(literal) == host
    literal = literal_of(host)
    return not isinstance(literal, IPv6Address) or not (literal.ipv4_mapped or literal.scope_id)


def _is_plain_path(path: str) -> bool:
    if _READ_TWICE.search(path) or "\\" in path:
        return False
    try:
        decoded = unquote_to_bytes(path).decode()
    except UnicodeDecodeError:
        return False
    shown = unicodedata.normalize("NFKC", decoded)
    return shown.count("/") == path.count("/") and not any(map(_is_dots, shown.split("/")))


def _is_dots(segment: str) -> bool:
    """Tell whether a step of a path may lead upwards, without the part behind `;`."""
    name = segment.partition(";")[0].strip()
    return bool(name) and not name.strip(".")


def literal_of(host: str) -> Address | None:
    """Return the address that a host is written as; None for a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def _all_of(address: Address) -> Iterator[Address]:
    """Yield an address, and the IPv4 addresses that it reaches."""
    yield address
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped:
            yield address.ipv4_mapped
        for network, shift in _EMBEDDING:
            if address in network:
                yield IPv4Address((int(address) >> shift) & 0xFFFFFFFF)


def _is_special(address: Address) -> bool:
    """Tell whether an address is of this machine, of its link, or of a service of the cloud."""
    return (
        address.is_loopback
        or address.is_link_local
        or address.is_unspecified
        or address.is_multicast
        or address in ip_network("0.0.0.0/8")
        or any(address in network for network in _METADATA)
    )


def _is_special_name(host: str) -> bool:
    name = host.rstrip(".").lower()
    return name == "localhost" or name.endswith(".localhost") or name in METADATA_NAMES


def refused(host: str, address: Address | None, named: Collection[str]) -> str:
    """Say why nothing is sent to a host; empty if something may be.

    Args:
        host: As it is called.
        address: One of its addresses; None if that is not known yet.
        named: The hosts that the operator named. Others may be anywhere in the internet, and
            nowhere else; a name that is known for an address of the machine stands for that.
    """
    if address is None:
        wrong = _is_special_name(host) and host not in named
        return f"`{host}` is reached if it is named as an address itself alone" if wrong else ""
    by_name = host in named and (literal_of(host) == address or _is_special_name(host))
    if any(map(_is_special, _all_of(address))) and not by_name:
        return f"`{host}` resolves to {address}: a loopback, link-local or cloud metadata address"
    if host not in named and not all(each.is_global for each in _all_of(address)):
        return f"`{host}` resolves to {address}, which is not an internet address"
    return ""


class CheckedResolver(AbstractResolver):
    """Resolves names to those of their addresses that may be asked.

    Attributes:
        named: The hosts that the operator named.
    """

    def __init__(self, named: frozenset[str], resolver: AbstractResolver | None = None) -> None:
        """Resolve as the machine does, or as another resolver."""
        self._resolver = resolver
        self.named = named

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses that may be asked: the connection is made to one of these.

        Raises:
            OSError: If there is none.
        """
        if self._resolver is None:
            self._resolver = ThreadedResolver()
        found = await self._resolver.resolve(host, port, family)
        why = [
            refused(host, ip_address(each["host"].partition("%")[0]), self.named) for each in found
        ]
        allowed = [each for each, refusal in zip(found, why, strict=True) if not refusal]
        if not allowed:
            raise OSError(errno.EACCES, next(iter(why), f"`{host}` has no address"))
        return allowed

    async def close(self) -> None:
        """Release the resolver."""
        if self._resolver is not None:
            await self._resolver.close()

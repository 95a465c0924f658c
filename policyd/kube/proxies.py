"""Which proxy leads to a server, by the usual environment variables."""

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit


def proxy_for(server: str, environ: Mapping[str, str]) -> str | None:
    """Return the proxy that the environment names for a server, if any.

    `NO_PROXY` is a list of names (with all below them), addresses, networks, or `*`. A server on
    this machine is never reached through a proxy.
    """
    parts = urlsplit(server)
    proxy = _variable(environ, f"{parts.scheme}_proxy")
    host = parts.hostname or ""
    if not proxy or _is_local(host):
        return None
    excepted = (entry.strip() for entry in _variable(environ, "no_proxy").split(","))
    return None if any(_covers(entry, host) for entry in excepted if entry) else proxy


def _variable(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name) or environ.get(name.upper()) or ""


def _is_local(host: str) -> bool:
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _covers(entry: str, host: str) -> bool:
    entry = entry.partition(":")[0] if entry.count(":") == 1 else entry  # a port is not compared
    if entry == "*":
        return True
    address = _address(host)
    if address is not None:
        try:
            return address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    name = entry.removeprefix("*").removeprefix(".").lower()
    return host == name or host.endswith(f".{name}")


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None

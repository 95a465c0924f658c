"""How many requests each user, and each address that is not signed in, may send to the page.

A bucket holds tokens: a request takes one, and they come back at a steady rate. Each has its own
bucket, so a client that sends too many is refused alone.
"""

import ipaddress
from collections import OrderedDict
from typing import Final, NamedTuple

from policyd.clock import Clock

MOST_BUCKETS: Final = 10_000
"""Buckets that are kept. The one that was used least recently is forgotten, that is, full again."""

NETWORK_BITS: Final = 64
"""Of an IPv6 address, what one client has: it may use all addresses that begin so."""


class Rate(NamedTuple):
    """A limit of requests.

    Attributes:
        per_second: How many come back in a second.
        burst: How many there are at first, and at most.
    """

    per_second: float
    burst: int


OF_A_USER: Final = Rate(10.0, 100)
OF_AN_ADDRESS: Final = Rate(20.0, 200)
"""Requests without a session: several people may be behind one address."""
SIGN_INS: Final = Rate(0.5, 30)
"""Tokens that an address has the API server review."""


class RequestRates:
    """The requests of clients in the last moments.

    Args of the constructor:
        clock: Time.
        rate: What each client may send.
    """

    def __init__(self, clock: Clock, rate: Rate) -> None:
        self._clock = clock
        self._rate = rate
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def wait(self, client: str) -> float:
        """Count a request, and return 0; or the seconds until the client may send one.

        Args:
            client: A user, or an address.
        """
        now = self._clock.monotonic()
        per_second, burst = self._rate
        left, at = self._buckets.pop(client, (float(burst), now))
        left = min(float(burst), left + (now - at) * per_second)
        wait = 0.0 if left >= 1 else (1 - left) / per_second
        self._buckets[client] = (left if wait else left - 1), now
        while len(self._buckets) > MOST_BUCKETS:
            self._buckets.popitem(last=False)
        return wait


def client_of(host: str) -> str:
    """Return what one client has of an address: all of IPv4, and the network part of IPv6."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host[:64]
    if address.version == 4:
        return str(address)
    return str(ipaddress.ip_network((address, NETWORK_BITS), strict=False).network_address)

"""IP addresses and networks: `cidr('10.0.0.0/8').containsIP('10.1.2.3')`."""

from collections.abc import Callable
from functools import lru_cache
from ipaddress import ip_network

from policyd.cel.cost import traversal, traverse, traverse_twice
from policyd.cel.errors import CelError
from policyd.cel.estimate import estimates
from policyd.cel.functions import Overload, Size, function, method
from policyd.cel.lib.addresses import Address, AddressError, parse_address
from policyd.cel.types import BOOL, INT, STRING, Type

IP_TYPE = Type("net.IP")
CIDR_TYPE = Type("net.CIDR")
_LOCAL_MULTICAST = (ip_network("224.0.0.0/24"), ip_network("ff02::/16"))
_BROADCAST = "255.255.255.255"
# The work of Python's addresses, in elements compared.
_PARSING = 40
_WRITING = 8
_MASKING = 24


class Ip:
    """An IP address."""

    __slots__ = ("address",)
    cel_type_name = IP_TYPE.name

    def __init__(self, address: Address) -> None:
        self.address = address

    def __eq__(self, other: object) -> bool:
        return type(other) is Ip and other.address == self.address

    def __hash__(self) -> int:
        return hash(self.address)


class Cidr:
    """An address with the length of its network's prefix."""

    __slots__ = ("address", "prefix")
    cel_type_name = CIDR_TYPE.name

    def __init__(self, address: Address, prefix: int) -> None:
        self.address = address
        self.prefix = prefix

    def __eq__(self, other: object) -> bool:
        same = type(other) is Cidr and other.address == self.address
        return same and isinstance(other, Cidr) and other.prefix == self.prefix

    def __hash__(self) -> int:
        return hash((self.address, self.prefix))

    @property
    def size(self) -> int:
        """Bytes of the prefix, by which the API server computes costs."""
        return -(-self.prefix // 8)

    @property
    def host_bits(self) -> int:
        """How many bits, the last ones, tell the addresses in it apart."""
        return self.address.max_prefixlen - self.prefix


def _checked(address: Address, shown: str) -> Address:
    if address.version == 6 and address.ipv4_mapped:
        raise CelError(f"{shown}IPv4-mapped IPv6 address is not allowed")
    return address


@lru_cache(maxsize=4_096)
def _ip(text: str) -> Ip:
    shown = f'IP Address "{text[:100]}" parse error during conversion from string: '
    if "%" in text:
        raise CelError(f'IP address "{text[:100]}" with zone value is not allowed')
    try:
        return Ip(_checked(parse_address(text), f'IP address "{text[:100]}": '))
    except AddressError as error:
        raise CelError(f"{shown}{error}") from None


@lru_cache(maxsize=4_096)
def _cidr(text: str) -> Cidr:
    shown = "network address parse error during conversion from string: "
    reason = f'{shown}netip.ParsePrefix("{text[:100]}"): '
    address, slash, bits = text.rpartition("/")
    if not slash:
        raise CelError(f"{shown}{reason}no '/'")
    if "%" in address:
        raise CelError(f"{shown}{reason}IPv6 zones cannot be present in a prefix")
    try:
        parsed = parse_address(address)
    except AddressError as error:
        raise CelError(f"{shown}{reason}{error}") from None
    return Cidr(_checked(parsed, f"{shown}{reason}"), _prefix(bits, parsed, f"{shown}{reason}"))


def _prefix(bits: str, address: Address, shown: str) -> int:
    valid = bits.isascii() and bits.isdigit() and len(bits) <= 3
    if not valid or (len(bits) > 1 and bits[0] == "0"):
        raise CelError(f'{shown}bad bits after slash: "{bits[:100]}"')
    if int(bits) > address.max_prefixlen:
        raise CelError(f"{shown}prefix length out of range")
    return int(bits)


def _test(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def can_parse(text: str) -> bool:
        try:
            parse(text)
        except CelError:
            return False
        return True

    return can_parse


def _is_canonical(text: str) -> bool:
    return str(_ip(text).address) == text


def _is_global_unicast(ip: Ip) -> bool:
    address = ip.address
    special = address.is_unspecified or address.is_loopback or address.is_multicast
    return not (special or address.is_link_local or str(address) == _BROADCAST)


def _contains_ip(cidr: Cidr, ip: Ip) -> bool:
    if ip.address.version != cidr.address.version:
        return False
    return (int(ip.address) ^ int(cidr.address)) >> cidr.host_bits == 0


def _contains_cidr(cidr: Cidr, other: Cidr) -> bool:
    return other.prefix >= cidr.prefix and _contains_ip(cidr, Ip(other.address))


def _masked(cidr: Cidr) -> Cidr:
    first = int(cidr.address) >> cidr.host_bits << cidr.host_bits
    return Cidr(type(cidr.address)(first), cidr.prefix)


def _cidr_text(cidr: Cidr) -> str:
    return f"{cidr.address}/{cidr.prefix}"


def _of_address(name: str, read: Callable[[Address], object], returns: Type = BOOL) -> Overload:
    return method(name, IP_TYPE, returns=returns, run=lambda ip: read(ip.address))


def _address_cost(cidr: Cidr, other: str | Ip) -> int:
    return traversal(2 * cidr.size) + _parsing_cost(other)


def _network_cost(cidr: Cidr, other: str | Cidr) -> int:
    return traversal(2 * cidr.size) + traversal(cidr.size) + 1 + _parsing_cost(other)


def _parsing_cost(other: str | Ip | Cidr) -> int:
    return traversal(len(other)) if type(other) is str else 0


_READ = Size(cost=traverse, work=_PARSING)
_TWICE = Size(cost=traverse_twice, work=_PARSING)
_WRITE = Size(work=_WRITING)
_MASK = Size(work=_MASKING)
_ADDRESS_INSIDE = Size(cost=_address_cost, work=_MASK.work, estimate=estimates.contains_address)
_NETWORK_INSIDE = Size(cost=_network_cost, work=_MASK.work, estimate=estimates.contains_network)

NETWORK: tuple[Overload, ...] = (
    function("ip", STRING, returns=IP_TYPE, run=_ip, size=_READ),
    function("isIP", STRING, returns=BOOL, run=_test(_ip), size=_READ),
    function("ip.isCanonical", STRING, returns=BOOL, run=_is_canonical, size=_TWICE),
    function("string", IP_TYPE, returns=STRING, run=lambda ip: str(ip.address), size=_WRITE),
    _of_address("family", lambda address: address.version, INT),
    _of_address("isUnspecified", lambda address: address.is_unspecified),
    _of_address("isLoopback", lambda address: address.is_loopback),
    _of_address(
        "isLinkLocalMulticast",
        lambda address: any(
            address in net for net in _LOCAL_MULTICAST if net.version == address.version
        ),
    ),
    _of_address("isLinkLocalUnicast", lambda address: address.is_link_local),
    method("isGlobalUnicast", IP_TYPE, returns=BOOL, run=_is_global_unicast, size=_WRITE),
    function("cidr", STRING, returns=CIDR_TYPE, run=_cidr, size=_READ),
    function("isCIDR", STRING, returns=BOOL, run=_test(_cidr), size=_READ),
    function("string", CIDR_TYPE, returns=STRING, run=_cidr_text, size=_WRITE),
    method("containsIP", CIDR_TYPE, IP_TYPE, returns=BOOL, run=_contains_ip, size=_ADDRESS_INSIDE),
    method(
        "containsIP",
        CIDR_TYPE,
        STRING,
        returns=BOOL,
        run=lambda cidr, text: _contains_ip(cidr, _ip(text)),
        size=_ADDRESS_INSIDE,
    ),
    method(
        "containsCIDR", CIDR_TYPE, CIDR_TYPE, returns=BOOL, run=_contains_cidr, size=_NETWORK_INSIDE
    ),
    method(
        "containsCIDR",
        CIDR_TYPE,
        STRING,
        returns=BOOL,
        run=lambda cidr, text: _contains_cidr(cidr, _cidr(text)),
        size=_NETWORK_INSIDE,
    ),
    method("ip", CIDR_TYPE, returns=IP_TYPE, run=lambda cidr: Ip(cidr.address)),
    method("masked", CIDR_TYPE, returns=CIDR_TYPE, run=_masked, size=_MASK),
    method("prefixLength", CIDR_TYPE, returns=INT, run=lambda cidr: cidr.prefix),
)

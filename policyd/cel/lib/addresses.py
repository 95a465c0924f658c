"""Parse IP addresses, with the error messages of Go's `netip`."""

import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address

from policyd.cel.errors import CelError
from policyd.cel.syntax.patterns import lazy_pattern

Address = IPv4Address | IPv6Address
_DIGITS = lazy_pattern(r"[0-9]+", re.ASCII)
_GROUP = lazy_pattern(r"[0-9A-Fa-f]*", re.ASCII)
_GROUPS = 8
_LONGEST = 100


class AddressError(CelError):
    """A text is not an address; the message is Go's."""


@lru_cache(maxsize=4_096)
def parse_address(text: str) -> Address:
    """Read an IPv4 or IPv6 address without a zone.

    Raises:
        AddressError: If `text` is none.
    """
    try:
        # Python takes a zone, and tries to read the text before it.
        return ip_address(text if "%" not in text and len(text) <= _LONGEST else "")
    except ValueError:
        wrong = _address_error(text[:_LONGEST])
        raise AddressError(f'ParseAddr("{text[:_LONGEST]}"): {wrong}') from None


def _address_error(text: str) -> str:
    for character in text:
        if character == ".":
            return _wrong_ipv4(text)
        if character == ":":
            return _wrong_ipv6(text)
        if character == "%":
            return "missing IPv6 address"
    return "unable to parse IP"


def _wrong_ipv4(text: str) -> str:
    offset = 0
    for place, octet in enumerate(text.split(".")):
        if place == 4:
            return "IPv4 address too long"
        if not octet:
            at = text[max(offset - 1, 0) :] if offset >= len(text) else text[offset:]
            return f'IPv4 field must have at least one digit (at "{at}")'
        wrong = _wrong_octet(octet, text[offset:])
        if wrong:
            return wrong
        offset += len(octet) + 1
    return "IPv4 address too short"


def _wrong_octet(octet: str, rest: str) -> str:
    digits = _DIGITS.match(octet)
    number = digits[0] if digits else ""
    if len(number) > 1 and number[0] == "0":
        return "IPv4 field has octet with leading zero"
    if number and (len(number) > 3 or int(number) > 255):
        return "IPv4 field has value >255"
    if number != octet:
        return f'unexpected character (at "{rest[len(number) :]}")'
    return ""


def _wrong_ipv6(text: str) -> str:
    address, percent, zone = text.partition("%")
    if percent:
        return "" if zone else "zone must be a non-empty string"
    rest = address.removeprefix("::")
    shortened = rest != address
    groups = 0
    while rest and groups < _GROUPS:
        group = _GROUP.match(rest)
        assert group is not None, "the pattern of a group matches the empty string"
        wrong = _wrong_group(group[0], rest)
        if wrong:
            return wrong
        groups += 1
        rest = rest[group.end() :]
        if rest.startswith("::") and shortened:
            return f'multiple :: in address (at "{rest[1:]}")'
        shortened = shortened or rest.startswith("::")
        rest = rest[2:] if rest.startswith("::") else rest[1:]
    if rest:
        return f'trailing garbage after address (at "{rest}")'
    return _wrong_length(shortened=shortened)


def _wrong_group(group: str, rest: str) -> str:
    following = rest[len(group) :]
    if len(group) > 4:
        return f'each group must have 4 or less digits (at "{rest}")'
    if not group:
        return f'each colon-separated field must have at least one digit (at "{rest}")'
    if following.startswith("."):
        return _wrong_ipv4(rest)
    if following and following[0] != ":":
        return f'unexpected character, want colon (at "{following}")'
    if following == ":":
        return 'colon must be followed by more characters (at ":")'
    return ""


def _wrong_length(*, shortened: bool) -> str:
    if shortened:
        return "the :: must expand to at least one field of zeros"
    return "address string too short"

"""Named formats: `format.dns1123Label().validate(name)`, with Kubernetes' own messages."""

import base64
import binascii
import re
from collections.abc import Callable
from datetime import date
from typing import Final

from policyd.api.names import (
    KEY_NAME,
    KEY_NAME_RULE,
    LABEL,
    LABEL_1035,
    LABEL_1035_RULE,
    LABEL_RULE,
    LABEL_VALUE,
    LABEL_VALUE_RULE,
    LONGEST_LABEL,
    LONGEST_SUBDOMAIN,
    SUBDOMAIN,
    SUBDOMAIN_RULE,
)
from policyd.cel.cost import traversal
from policyd.cel.errors import CelError
from policyd.cel.estimate import estimates
from policyd.cel.functions import Overload, Size, function, method
from policyd.cel.lib.time import parse_timestamp
from policyd.cel.lib.url import url_error
from policyd.cel.syntax.patterns import lazy_pattern
from policyd.cel.types import STRING, Type, list_of, optional_of
from policyd.cel.values import NONE, Optional

FORMAT = Type("kubernetes.NamedFormat")
Validate = Callable[[str], list[str]]

_UUID = lazy_pattern(
    r"[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}", re.ASCII
)
_BASE64 = lazy_pattern(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?", re.ASCII)


class NamedFormat:
    """A format that strings can be validated by."""

    __slots__ = ("name", "pattern_size", "validate")
    cel_type_name = FORMAT.name

    def __init__(self, name: str, validate: Validate, pattern_size: int) -> None:
        self.name = name
        self.validate = validate
        self.pattern_size = pattern_size

    def __eq__(self, other: object) -> bool:
        return type(other) is NamedFormat and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)


def _too_long(text: str, limit: int) -> list[str]:
    return [f"must be no more than {limit} bytes"] if len(text) > limit else []


def dns1123_label(text: str) -> list[str]:
    """Return the errors of a DNS label."""
    wrong = _too_long(text, LONGEST_LABEL)
    if re.fullmatch(LABEL, text):
        return wrong
    if re.fullmatch(SUBDOMAIN, text):
        return [*wrong, "must not contain dots"]
    return [*wrong, LABEL_RULE]


def dns1123_subdomain(text: str) -> list[str]:
    """Return the errors of a DNS subdomain."""
    wrong = _too_long(text, LONGEST_SUBDOMAIN)
    if not re.fullmatch(SUBDOMAIN, text):
        wrong.append(SUBDOMAIN_RULE)
    return wrong


def _dns1035_label(text: str) -> list[str]:
    wrong = _too_long(text, LONGEST_LABEL)
    if not re.fullmatch(LABEL_1035, text):
        wrong.append(LABEL_1035_RULE)
    return wrong


def _prefix_of(validate: Validate) -> Validate:
    """Return a validation for prefixes of generated names, which may end with a dash."""

    def masked(text: str) -> list[str]:
        ends = len(text) > 1 and text.endswith("-")
        return validate(f"{text[:-2]}a" if ends else text)

    return masked


def _qualified_name(text: str) -> list[str]:
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        extra = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return [f"a qualified name {KEY_NAME_RULE} {extra}"]
    wrong: list[str] = []
    if slash and not prefix:
        wrong.append("prefix part must be non-empty")
    elif slash:
        wrong.extend(f"prefix part {message}" for message in dns1123_subdomain(prefix))
    if not name:
        wrong.append("name part must be non-empty")
    wrong.extend(f"name part {message}" for message in _too_long(name, LONGEST_LABEL))
    if not re.fullmatch(KEY_NAME, name):
        wrong.append(f"name part {KEY_NAME_RULE}")
    return wrong


def _label_value(text: str) -> list[str]:
    wrong = _too_long(text, LONGEST_LABEL)
    if not re.fullmatch(LABEL_VALUE, text):
        wrong.append(LABEL_VALUE_RULE)
    return wrong


def _uri(text: str) -> list[str]:
    wrong = url_error(text)
    return [wrong] if wrong else []


def _uuid(text: str) -> list[str]:
    return [] if _UUID.fullmatch(text) else ["does not match the UUID format"]


def _byte(text: str) -> list[str]:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return ["invalid base64"]
    return [] if text and _BASE64.fullmatch(text) else ["invalid base64"]


def _date(text: str) -> list[str]:
    try:
        valid = len(text) == 10 and bool(date.fromisoformat(text))
    except ValueError:
        valid = False
    return [] if valid else ["invalid date"]


def _datetime(text: str) -> list[str]:
    try:
        parse_timestamp(text)
    except CelError:
        return ["invalid datetime"]
    return []


# The sizes are those the API server takes for the patterns when it computes costs.
FORMATS: Final[dict[str, NamedFormat]] = {
    name: NamedFormat(name, validate, size)
    for name, validate, size in (
        ("dns1123Label", dns1123_label, 30),
        ("dns1123Subdomain", dns1123_subdomain, 60),
        ("dns1035Label", _dns1035_label, 30),
        ("qualifiedName", _qualified_name, 60),
        ("dns1123LabelPrefix", _prefix_of(dns1123_label), 30),
        ("dns1123SubdomainPrefix", _prefix_of(dns1123_subdomain), 60),
        ("dns1035LabelPrefix", _prefix_of(_dns1035_label), 30),
        ("labelValue", _label_value, 40),
        ("uri", _uri, 1_103),
        ("uuid", _uuid, 70),
        ("byte", _byte, 84),
        ("date", _date, 71),
        ("datetime", _datetime, 71),
    )
}


def _named(name: str) -> Optional:
    found = FORMATS.get(name)
    return NONE if found is None else Optional(found)


def _validate(named: NamedFormat, text: str) -> Optional:
    wrong = named.validate(text)
    return Optional(wrong) if wrong else NONE


def _validation_cost(named: NamedFormat, text: str) -> int:
    return traversal(1 + len(text)) * ((named.pattern_size + 3) // 4)


def _constant(named: NamedFormat) -> Callable[[], NamedFormat]:
    return lambda: named


_SINCE = (1, 31)

NAMED_FORMATS: tuple[Overload, ...] = (
    function("format.named", STRING, returns=optional_of(FORMAT), run=_named, since=_SINCE),
    *(
        function(f"format.{name}", returns=FORMAT, run=_constant(named), since=_SINCE)
        for name, named in FORMATS.items()
    ),
    method(
        "validate",
        FORMAT,
        STRING,
        returns=optional_of(list_of(STRING)),
        run=_validate,
        size=Size(cost=_validation_cost, estimate=estimates.validate),
        since=_SINCE,
    ),
)

"""Semantic versions: `semver('1.2.3').isLessThan(semver('1.3.0'))`."""

import re
from typing import Final

from policyd.cel.caches import cache_short
from policyd.cel.cost import traverse
from policyd.cel.errors import CelError
from policyd.cel.functions import Overload, Size, function, method
from policyd.cel.syntax.patterns import lazy_pattern
from policyd.cel.types import BOOL, INT, STRING, Type

SEMVER = Type("kubernetes.Semver")
_PRERELEASE = lazy_pattern(r"(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)", re.ASCII)
_BUILD = lazy_pattern(r"[0-9A-Za-z-]+", re.ASCII)
_PARTS: Final = ("Major", "Minor", "Patch")
_MAX: Final = 2**64 - 1
_MAX_DIGITS: Final = 20
# Comparing so many characters takes about as long as an element.
_CHARACTERS: Final = 100


class Semver:
    """A version; the build does not matter for order or equality."""

    __slots__ = ("numbers", "order", "text")
    cel_type_name = SEMVER.name

    def __init__(self, numbers: tuple[int, ...], prerelease: tuple[str, ...]) -> None:
        self.numbers = numbers
        self.text = ".".join((*map(str, numbers), *prerelease))
        identifiers = [
            # Without zeros in front, the longer of two numbers is the larger.
            (0, len(part), part) if part.isdigit() else (1, 0, part)
            for part in prerelease
        ]
        # A release comes after all its pre-releases.
        self.order = (numbers, not prerelease, identifiers)

    @property
    def comparison_work(self) -> int:
        """Elements that take as long as comparing it."""
        return 1 + len(self.text) // _CHARACTERS

    def __eq__(self, other: object) -> bool:
        return type(other) is Semver and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.numbers)


@cache_short(2_048)
def parse_semver(text: str) -> Semver:
    """Read a semantic version.

    Raises:
        CelError: If the text is none.
    """
    if not text:
        raise CelError("Version string empty")
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise CelError("No Major.Minor.Patch elements found")
    patch, _, build = parts[2].partition("+")
    patch, dash, prerelease = patch.partition("-")
    numbers = tuple(map(_number, _PARTS, (parts[0], parts[1], patch)))
    if dash:
        _need_identifiers("prerelease", prerelease, _PRERELEASE)
    if "+" in parts[2]:
        _need_identifiers("build meta data", build, _BUILD)
    return Semver(numbers, tuple(prerelease.split(".")) if dash else ())


def _number(name: str, digits: str) -> int:
    if not digits or not digits.isascii() or not digits.isdigit():
        raise CelError(f"Invalid character(s) found in {name.lower()} number {digits[:64]!r}")
    if len(digits) > 1 and digits[0] == "0":
        raise CelError(f"{name} number must not contain leading zeroes {digits[:64]!r}")
    if len(digits) > _MAX_DIGITS or int(digits) > _MAX:
        raise CelError(f"{name} number out of range {digits[:64]!r}")
    return int(digits)


def _need_identifiers(name: str, text: str, pattern: re.Pattern[str]) -> None:
    for part in text.split("."):
        if not pattern.fullmatch(part):
            raise CelError(f"Invalid character(s) found in {name} {part[:64]!r}")


def _normalized(text: str) -> str:
    """Allow a leading `v`, leading zeros, and missing numbers."""
    parts = text.removeprefix("v").split(".", 2)
    stripped = [_without_leading_zeros(part) for part in parts]
    if len(stripped) < 3 and re.search(r"[+-]", stripped[-1]):
        raise CelError("Short version cannot contain PreRelease/Build meta data")
    return ".".join((*stripped, "0", "0")[: max(3, len(stripped))])


def _without_leading_zeros(part: str) -> str:
    stripped = part.lstrip("0") if len(part) > 1 else part
    return stripped if stripped[:1].isdigit() or part == stripped else f"0{stripped}"


def _semver(text: str, normalize: bool = False) -> Semver:  # noqa: FBT001, FBT002 - as in CEL
    return parse_semver(_normalized(text) if normalize else text)


def _is_semver(text: str, normalize: bool = False) -> bool:  # noqa: FBT001, FBT002 - as in CEL
    try:
        _semver(text, normalize)
    except CelError:
        return False
    return True


def _compare(a: Semver, b: Semver) -> int:
    return (a.order > b.order) - (a.order < b.order)


def _is_less(a: Semver, b: Semver) -> bool:
    return a.order < b.order


def _is_greater(a: Semver, b: Semver) -> bool:
    return a.order > b.order


def _parse_work(text: str, _normalize: bool = False) -> int:  # noqa: FBT001, FBT002 - as in CEL
    """Return the work of taking a version apart; not being one takes as long."""
    return 15 + 2 * len(text)


def _order_work(a: Semver, b: Semver) -> int:
    """Return the work of comparing identifier by identifier."""
    return 3 + min(len(a.text), len(b.text)) // 2


_READ = Size(cost=traverse, work=_parse_work)
_ORDER = Size(work=_order_work)
_SINCE = (1, 33)

SEMVERS: tuple[Overload, ...] = (
    function("semver", STRING, returns=SEMVER, run=_semver, size=_READ, since=_SINCE),
    function("semver", STRING, BOOL, returns=SEMVER, run=_semver, size=_READ, since=_SINCE),
    function("isSemver", STRING, returns=BOOL, run=_is_semver, size=_READ, since=_SINCE),
    function("isSemver", STRING, BOOL, returns=BOOL, run=_is_semver, size=_READ, since=_SINCE),
    method("major", SEMVER, returns=INT, run=lambda v: v.numbers[0], since=_SINCE),
    method("minor", SEMVER, returns=INT, run=lambda v: v.numbers[1], since=_SINCE),
    method("patch", SEMVER, returns=INT, run=lambda v: v.numbers[2], since=_SINCE),
    method("compareTo", SEMVER, SEMVER, returns=INT, run=_compare, size=_ORDER, since=_SINCE),
    method("isLessThan", SEMVER, SEMVER, returns=BOOL, run=_is_less, size=_ORDER, since=_SINCE),
    method(
        "isGreaterThan", SEMVER, SEMVER, returns=BOOL, run=_is_greater, size=_ORDER, since=_SINCE
    ),
)

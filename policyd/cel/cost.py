"""Count the cost of an evaluation, in the API server's units, and enforce its limits.

Every step has a cost, known when the expression is compiled or computed from the sizes of the
values that it works on before it runs. Besides, work that the API server's units do not count (deep
comparison, copies of lists) is counted as well, so that no expression uses more time or memory than
its cost allows. Both are counted, and no clock is read: the same expression on the same object
always ends at the same place.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import chain
from math import isnan
from typing import Any, Final, NamedTuple, NoReturn

from policyd.cel.errors import CelCostError, CelTimeError
from policyd.cel.values import Optional, Struct, UInt

EXPRESSION_LIMIT: Final = 1_000_000
"""Cost one expression may have."""
POLICY_LIMIT: Final = 10_000_000
"""Cost all expressions of a policy may have together."""
MATCH_CONDITIONS_LIMIT: Final = 2_500_000
"""Cost all match conditions of a policy may have together."""
WORK_LIMIT: Final = 250_000
"""Elements one expression may compare or copy beyond its cost. One takes a fifth to a
half of a microsecond, so that cost and work together stay well below 200 ms."""
_COST_OF_WORK: Final = EXPRESSION_LIMIT // WORK_LIMIT
REQUEST_LIMIT: Final = 20_000_000
"""Units that all expressions about one request may take together: about two seconds."""
WORK_UNITS: Final = 3
"""Units of a request for one element; a cost of 1 is one unit."""
# Comparing or copying so many characters takes about as long as an element.
_CHARACTERS: Final = 100

IDENTIFIER: Final = 1
SELECT: Final = 1
LIST: Final = 10
MAP: Final = 30
STRUCT: Final = 40

_SIZED: Final = frozenset((str, bytes, list, dict))
_PLAIN: Final = frozenset((int, float, bool, type(None)))
_OF_SIZE_1: Final = _PLAIN | {UInt}
_TEXT: Final = frozenset((str,))
_MAPS: Final = frozenset((dict,))
_CONTAINERS: Final[Any] = (dict, list)
# Types of which all values are the same in CEL and in JSON.
_SAME: Final = frozenset((dict, list, str, bool, type(None)))
# Scalars that are equal to themselves; a double may be no number.
_CERTAIN: Final = frozenset((int, bool, type(None)))
# Cost that is spent before it is charged to the request, and the time is checked: under 1 ms.
_UNSETTLED: Final = 2_000
# The work of converting one part of a value.
_WALK_WORK: Final = 2
# The work of reading a list besides its elements.
_LOOK_WORK: Final = 5
# Elements that are looked at one by one rather than all at once.
_FEW: Final = 8
# Maps that are opened together rather than one by one.
_MANY: Final = 256
# A tenth of each number that a byte may be.
_TENTHS: Final = bytes(number // 10 for number in range(256))
# Lists whose weights are remembered at a time.
_REMEMBERED: Final = 64

Cost = Callable[..., int]
"""Computes the cost of a call from its arguments."""


@dataclass(frozen=True, slots=True)
class LengthWork:
    """The work of reading a string: so much, and more for each so many characters."""

    base: int
    characters: int

    def __call__(self, text: str, *_rest: object) -> int:
        """Return the work of reading a string."""
        return self.base + len(text) // self.characters

    def expression(self, text: str) -> str:
        """Return it as generated code, for a string in the variable `text`."""
        return f"{self.base} + len({text}) // {self.characters}"


class Weight(NamedTuple):
    """The size of a value, found by a walk through all its parts.

    Attributes:
        cost: A tenth of each string's bytes, and 1 for each scalar.
        elements: How many values are in it, as far as the work limit; long texts count more.
        certain: Whether it is equal to itself, as a value that holds a NaN is not.
    """

    cost: int
    elements: int
    certain: bool


# Replaces weights if no budget is left: it is checked before each evaluation.
_EXHAUSTED: Final[dict[int, tuple[object, Weight]]] = {0: (None, Weight(0, 0, certain=False))}
_NO_WEIGHTS: Final[dict[int, tuple[object, Weight]]] = {}


class CallerFacts:
    """What functions of the caller know of a request besides their arguments: the caller's own.

    CEL passes them on with the budget, and reads nothing of them.
    """

    __slots__ = ()


class RequestBudget:
    """The budget of all expressions of one request, in units of cost.

    Half of it is shared out: each policy has as much as any other, regardless of those before it.
    The other half is for those that need more, first come, first served.

    Attributes:
        strained: Whether a policy took more than its share.
        facts: For functions of the caller; None if they need none.
    """

    strained = False
    facts: CallerFacts | None = None

    def __init__(
        self,
        policies: int = 1,
        is_late: Callable[[], bool] | None = None,
        *,
        units: int = REQUEST_LIMIT,
    ) -> None:
        """Divide the budget.

        Args:
            policies: How many policies will be asked.
            is_late: Returns whether the caller's timeout is about to expire.
            units: The budget.
        """
        self._pool = units // 2
        self._share = self._pool // (policies or 1)
        self._is_late = is_late
        self._taken: dict[str, int] = {}

    def left(self, policy: str) -> int:
        """Return the budget that a policy has left."""
        return max(self._share - self._taken.get(policy, 0), 0) + max(self._pool, 0)

    def take(self, policy: str, units: int) -> None:
        """Record the cost of a policy.

        Raises:
            CelTimeError: If the caller's timeout is about to expire.
        """
        before = self._taken.get(policy, 0)
        taken = self._taken[policy] = before + units
        if taken > self._share:
            self.strained = True
            self._pool -= taken - max(before, self._share)
        if self._is_late is not None and self._is_late():
            raise CelTimeError


class Budget:
    """The budget of the expressions of one policy.

    It is made for every policy, so that rarely used attributes have their values from the class.

    Attributes:
        limit: The cost limit.
        spent: The cost so far.
        work: Elements read by the expression that is being evaluated.
        work_limit: Elements it may look at.
        done: Elements that earlier expressions read.
        settle_at: The cost from which on the allowance is charged; the limit at most, which is
            enforced then for expressions that are too short to check it.
        weights: Lists that the expression has read, by their identity; they are kept, so that no
            others get the same. Values stay as they are only while an expression is evaluated.
    """

    __slots__ = (
        *("__dict__", "_allowance", "_policy"),
        *("limit", "settle_at", "spent", "weights", "work"),
    )
    work_limit = WORK_LIMIT
    done = 0
    _settled = 0
    _whole = 0

    def __init__(
        self, limit: int = POLICY_LIMIT, allowance: RequestBudget | None = None, policy: str = ""
    ) -> None:
        """Begin with nothing spent.

        Args:
            limit: The cost limit of the expressions.
            allowance: The budget that this is a part of.
            policy: Whose part.
        """
        self.limit = limit
        self.spent = 0
        self.work = 0
        self.settle_at = min(limit, _UNSETTLED)
        self.weights = _NO_WEIGHTS
        self._allowance = allowance
        self._policy = policy
        if allowance is not None and allowance.strained:
            self.renew()

    @property
    def facts(self) -> CallerFacts | None:
        """What functions of the caller know of the request besides their arguments, if anything."""
        return None if self._allowance is None else self._allowance.facts

    @property
    def remaining(self) -> int:
        """The cost that is left; below 0 if the last expression exceeded it."""
        return self.limit - self.spent

    @property
    def is_exhausted(self) -> bool:
        """Whether no more expressions are to be evaluated."""
        return self.weights is _EXHAUSTED

    def charge_work(self, elements: int) -> None:
        """Count elements about to be copied or compared.

        Raises:
            CelCostError: If the expression has done more work than allowed.
        """
        self.work += elements
        over = self.work - self.work_limit
        if over > 0:  # the excess is charged, and not executed
            elements = max(elements - over, 0)
        self.done += elements
        self.settle_at -= WORK_UNITS * elements
        if over > 0:
            exceed()

    def charge_walk(self, value: object) -> None:
        """Count a walk through all parts of a result, such as its conversion to JSON.

        Raises:
            CelCostError: If that is more work than allowed.
        """
        if type(value) in _SIZED or isinstance(value, dict | list | Optional):
            self.charge_work(_WALK_WORK * deep_size(value))

    def settle(self) -> None:
        """Report to the allowance the cost of expressions since the last report.

        Raises:
            CelCostError: If the limit is exceeded.
            CelTimeError: If the caller's timeout is about to expire.
        """
        units = self.spent + WORK_UNITS * self.done - self._settled
        self._settled += units
        exceeded = self.spent > self.limit
        self.settle_at = min(self.spent + _UNSETTLED, self.limit)
        if self.done >= max((self._whole or self.limit) // _COST_OF_WORK, WORK_LIMIT):
            self._narrow(0)
        if self._allowance is not None:
            try:
                self._allowance.take(self._policy, units)
            finally:
                self.renew()
        if exceeded:
            exceed()

    def excuse(self, cost: int) -> None:
        """Exclude a cost from the request's budget: it represents work of others."""
        self._settled += cost
        self.settle_at = min(self.settle_at + cost, self.limit)

    def renew(self) -> None:
        """Allow no more than the allowance has left by now."""
        if self._allowance is not None and self._allowance.strained:
            self._narrow(self._allowance.left(self._policy))

    def _narrow(self, units: int) -> None:
        self._whole = self._whole or self.limit
        self.limit = min(self.limit, self.spent + units)
        self.settle_at = min(self.settle_at, self.limit)
        self.work_limit = min(self.work_limit, units // WORK_UNITS)
        if not self.work_limit:
            self.weights = _EXHAUSTED

    def begin_weighing(self) -> None:
        """Drop the weights of the expression before.

        Raises:
            CelCostError: If no other is to be evaluated.
        """
        if self.weights is _EXHAUSTED:
            exceed()
        self.weights = _NO_WEIGHTS

    def weigh(self, values: object) -> Weight:
        """Return the weight of a value, which is looked at once in an evaluation.

        Its elements are to be charged: it is looked at as far as the work limit allows.
        """
        known = self.weights.get(id(values))
        if known is None:
            if self.weights is _EXHAUSTED:
                exceed()
            if self.weights is _NO_WEIGHTS or len(self.weights) >= _REMEMBERED:
                self.weights = {}
            known = self.weights[id(values)] = values, weigh(values, self.work_limit - self.work)
        return known[1]


def exceed() -> NoReturn:
    """Stop an expression that reached its limit.

    Raises:
        CelCostError: Always.
    """
    raise CelCostError("operation cancelled: actual cost limit exceeded")


def size_of(value: object) -> int:
    """Return the size the API server takes for a value: its length, or 1 for a scalar."""
    if type(value) in _OF_SIZE_1:
        return 1
    if type(value) in _SIZED or hasattr(value, "__len__"):
        return len(value)  # type: ignore[arg-type]  # ty: ignore[invalid-argument-type]
    return 1


def deep_size(value: object, *, times: int = 1) -> int:
    """Return how many elements are in a value, deep down, `times` over, as far as the work limit.

    A part that is in the value several times counts several times: it will be looked at so often.
    A container counts twice.
    """
    if type(value) is list and len(value) <= WORK_LIMIT and set(map(type, value)) <= _PLAIN:
        return times * (2 + len(value))
    return times * extent(value, WORK_LIMIT // times)[0]


def extent(value: object, most: int = WORK_LIMIT) -> tuple[int, bool]:
    """Return the deep size of a value, and whether all its parts are the same in CEL and in JSON.

    These are maps and lists, strings, booleans and nulls; a number may be another one in JSON.
    What has more than `most` parts is looked at no further.
    """
    kind = type(value)
    if kind is not Optional and not isinstance(value, _CONTAINERS):
        long = len(value) // _CHARACTERS if isinstance(value, str | bytes) else 0
        return 1 + long, kind in _SAME
    count, same = 0, True
    inside = [value]
    while inside and count <= most:
        parts, texts, scalars, plain = _walk(inside, most - count)
        kinds = set(map(type, scalars))
        same = same and plain and kinds <= _SAME
        count += parts
        count += sum([size // _CHARACTERS for size in map(len, texts) if size >= _CHARACTERS])
        if bytes in kinds:
            count += sum(len(each) // _CHARACTERS for each in scalars if type(each) is bytes)
        inside = [each.value for each in scalars if type(each) is Optional]
    return count, same


class _Parts(NamedTuple):
    """What values consist of, deep down; `texts` have the keys of maps, too.

    A container counts twice: to open it takes as long as to look at one part more.
    """

    number: int
    texts: list[str]
    scalars: list[Any]
    plain: bool


def _walk(values: list[Any], most: int) -> _Parts:
    """Take values apart, down to scalars and strings, until there are more than `most` parts."""
    count, plain = len(values), True
    maps: list[Collection[str]] = []
    texts: list[str] = []
    scalars: list[Any] = []
    pending = [*values]
    for part in pending:
        kind = type(part)
        if kind is str or kind in _PLAIN or not isinstance(part, _CONTAINERS):
            (texts if kind is str else scalars).append(part)
            continue
        plain = plain and kind in _CONTAINERS
        inner: Collection[Any] = part
        if kind is dict or kind is Struct:
            maps.append(part)
            inner = part.values()
        elif isinstance(part, dict):  # keys of such a map may be of any type
            inner = (*dict.keys(part), *dict.values(part))
        count += 1 + len(inner)
        if count > most:
            break
        if len(inner) < _MANY:
            pending += inner
            continue
        inner, more = _opened(inner, maps, most - count)
        count += more
        kinds = set(map(type, inner))
        (texts if kinds == _TEXT else scalars if kinds <= _PLAIN else pending).extend(inner)
    texts += chain.from_iterable(maps)
    return _Parts(count, texts, scalars, plain)


def _opened(
    parts: Collection[Any], maps: list[Collection[str]], most: int
) -> tuple[Collection[Any], int]:
    """Return parts as they are, or the values of all, if they are maps of at most `most` values.

    Maps in a long list, as variables of a container are, are opened together. They are added to
    `maps`; the second result is how many parts more they are.
    """
    size = len(parts) + sum(map(len, parts)) if set(map(type, parts)) == _MAPS else 0
    if not 0 < size <= most:
        return parts, 0
    maps += parts
    return [*chain.from_iterable(map(dict.values, parts))], size


def traversal(size: int) -> int:
    """Return the cost of reading so many characters or bytes."""
    return (size + 9) // 10


def traverse(value: object, *_rest: object) -> int:
    """Cost of reading the first argument once."""
    return (size_of(value) + 9) // 10


def traverse_twice(value: object, *_rest: object) -> int:
    """Cost of reading the first argument and writing as much."""
    return (2 * size_of(value) + 9) // 10


def traverse_least(a: object, b: object) -> int:
    """Cost of comparing two values."""
    if type(a) in _OF_SIZE_1 and type(b) in _OF_SIZE_1:
        return 1
    return (min(size_of(a), size_of(b)) + 9) // 10


def traverse_both(a: object, b: object) -> int:
    """Cost of joining two strings."""
    return (size_of(a) + size_of(b) + 9) // 10


def search(text: object, part: object, *_rest: object) -> int:
    """Cost of looking for one string in another."""
    return traversal(size_of(text)) * traversal(size_of(part))


def search_pattern(text: object, pattern: object, *_rest: object) -> int:
    """Cost of looking for a regular expression in a string."""
    return traversal(1 + size_of(text)) * ((size_of(pattern) + 3) // 4)


def elements(value: object, *_rest: object) -> int:
    """Cost of looking at each element of the first argument."""
    return size_of(value)


def visit(value: object, *_rest: object) -> int:
    """Cost of looking at a value deep down: a tenth of a string's bytes, and 1 for each scalar."""
    if type(value) is str:
        return _tenths([value])
    if type(value) is list and set(map(type, value)) <= _PLAIN:
        return len(value)
    return weigh(value).cost


def visit_list(values: object, _wanted: object, budget: Budget | None = None) -> int:
    """Cost of looking at a list, or any value, deep down; the work it is gets charged.

    Raises:
        CelCostError: If the expression has done more work than allowed.
    """
    if budget is None or type(values) is str:
        return visit(values)
    if type(values) is list and len(values) < _FEW and set(map(type, values)) <= _PLAIN:
        budget.charge_work(_LOOK_WORK + 2 + len(values))  # faster than to remember its weight
        return len(values)
    weight = budget.weigh(values)
    budget.charge_work(_LOOK_WORK + weight.elements)
    return weight.cost


def visit_each(values: object, budget: Budget | None = None) -> int:
    """Cost of looking at a list deep down; the work it is gets charged.

    Raises:
        CelCostError: If the expression has done more work than allowed.
    """
    return visit_list(values, None, budget)


def weigh(value: object, most: int = WORK_LIMIT) -> Weight:
    """Look at a value deep down, until it has more than `most` parts.

    A part that is in the value several times counts several times: it will be looked at so often.
    """
    most = max(most, 0)
    if type(value) is list and set(map(type, value[:most])) <= _CERTAIN:
        return Weight(len(value), 2 + len(value), certain=len(value) <= most)
    parts, texts, scalars, _ = _walk([value], most)
    weight = _weight(parts, texts, scalars)
    return weight if parts <= most else weight._replace(certain=False)


def _weight(elements: int, texts: list[str], scalars: list[Any]) -> Weight:
    """Return the weight of a value of so many parts, among them texts and scalars."""
    kinds = set(map(type, scalars))
    certain = kinds <= _CERTAIN or (
        kinds <= _PLAIN and not any(map(isnan, [s for s in scalars if type(s) is float]))
    )
    each = len(scalars) if kinds <= _PLAIN else sum(map(_cost_of_scalar, scalars))
    cost = _tenths(texts) + each
    if Optional in kinds:
        elements += deep_size([s.value for s in scalars if type(s) is Optional])
    return Weight(cost, elements + cost // 10, certain)


def _cost_of_scalar(value: object) -> int:
    return len(value) // 10 if isinstance(value, bytes) else 1


def _tenths(texts: Collection[str]) -> int:
    """Return the sum of a tenth of each text's bytes."""
    encoded = texts if all(map(str.isascii, texts)) else [*map(str.encode, texts)]
    try:
        return sum(bytes(map(len, encoded)).translate(_TENTHS))
    except ValueError:  # one has more than 255 bytes
        return sum([size // 10 for size in map(len, encoded) if size > 9])


def pairs(values: object, *_rest: object) -> int:
    """Work of comparing each element of a list with each other."""
    return deep_size(values, times=max(size_of(values), 1))


def pairs_of(a: object, b: object) -> int:
    """Work of comparing each element of one list with each of another; looking is work, too."""
    return deep_size(b, times=max(size_of(a), 1))


def product(a: object, b: object) -> int:
    """Cost of looking at each pair of elements."""
    return 1 + size_of(a) * size_of(b)


def product_twice(a: object, b: object) -> int:
    """Cost of looking at each pair of elements from both sides."""
    return 1 + 2 * size_of(a) * size_of(b)

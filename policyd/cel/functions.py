"""Declare functions: name, types, code and cost in one place."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from policyd.cel.cost import Cost
from policyd.cel.estimate.estimates import COUNTERPARTS, Charge, Estimator, Sized, fixed
from policyd.cel.types import Type, is_dyn
from policyd.cel.values import no_such_overload, type_name

T = TypeVar("T")

Code = Callable[..., Any]
"""The code of a function; its arguments have the declared types, elements of lists may not."""

Version = tuple[int, int]
"""A minor version of Kubernetes, as (1, 30)."""

OLDEST: Final[Version] = (1, 30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overload:
    """One way to call a function.

    Attributes:
        name: Its name; `math.abs` if it is in a namespace, `_+_` for an operator.
        parameters: Their types; the receiver of a method comes first.
        result: The type of its result.
        run: The code.
        member: Whether it is called as a method.
        cost: Cost of a call, in the API server's units.
        work: Elements that it reads or makes beyond its cost, computed from the
            arguments before it runs; None if there are none. Every function that makes more than
            its arguments has one, or a cost that covers it.
        estimate: Returns the possible cost of a call before its arguments are known, if that is not
            plain from `cost`.
        since: The first version of Kubernetes that has it.
        constant: Whether equal arguments give equal results, so that a call with constants may be
            made when the expression is compiled.
        counted: Whether code and cost may be given the budget after the arguments; the others
            of its name and arity leave it aside then.
        summary: What it does, where `summaries.json` does not say it.
        section: What it is about, then.
    """

    name: str
    parameters: tuple[Type, ...]
    result: Type
    run: Code
    member: bool = False
    cost: int | Cost = 1
    work: int | Cost | None = None
    estimate: Estimator | None = None
    since: Version = OLDEST
    constant: bool = True
    counted: bool = False
    summary: str = ""
    section: str = ""

    @property
    def sure(self) -> bool:
        """Whether a result always has the declared type, for any elements of the arguments."""
        inner = [part for parameter in self.parameters for part in parameter.parameters]
        return not self.result.variable and self.result not in inner

    def charge(self, arguments: tuple[Sized, ...]) -> Charge:
        """Return the estimated cost of a call, from the known facts of its arguments."""
        if self.estimate is not None:
            return self.estimate(arguments)
        if isinstance(self.cost, int):
            return fixed(self.cost)
        return COUNTERPARTS[self.cost](arguments)

    @property
    def style(self) -> tuple[str, bool, int]:
        """The style of a call, known before its types: name, method or not, arity."""
        return self.name, self.member, len(self.parameters)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The price of a call: `cost` in the API server's units, and `work` that it does not count.

    `estimate` gives the cost before the arguments are known, if it is not that of `cost`.
    With `counted` the code may be given the budget, which has the earlier reads.
    """

    cost: int | Cost = 1
    work: int | Cost | None = None
    estimate: Estimator | None = None
    counted: bool = False


_UNIT: Final = Size()


def function(
    name: str,
    *parameters: Type,
    returns: Type,
    run: Code,
    size: Size = _UNIT,
    since: Version = OLDEST,
) -> Overload:
    """Declare an overload of a function."""
    return Overload(
        name=name,
        parameters=parameters,
        result=returns,
        run=run,
        cost=size.cost,
        work=size.work,
        estimate=size.estimate,
        counted=size.counted,
        since=since,
    )


def method(
    name: str,
    *parameters: Type,
    returns: Type,
    run: Code,
    size: Size = _UNIT,
    since: Version = OLDEST,
) -> Overload:
    """Declare an overload of a method; the receiver is the first parameter."""
    overload = function(name, *parameters, returns=returns, run=run, size=size, since=since)
    return replace(overload, member=True)


Functions = Mapping[str, tuple[Overload, ...]]
"""The functions of an environment by name."""


def collect(libraries: Iterable[Iterable[Overload]]) -> dict[str, tuple[Overload, ...]]:
    """Group overloads by the name of their function."""
    functions: dict[str, tuple[Overload, ...]] = {}
    for library in libraries:
        for overload in library:
            functions[overload.name] = (*functions.get(overload.name, ()), overload)
    return functions


def dispatch(overloads: tuple[Overload, ...], made_of: Callable[[Overload], T]) -> Callable[..., T]:
    """Return a function that chooses the overload for the types of actual arguments.

    The budget may follow the arguments. The function returns what is made of an overload, once for
    each combination of types, and raises CelError if none fits.
    """
    known: dict[tuple[type, ...], T] = {}
    name, arity = overloads[0].name, len(overloads[0].parameters)

    def choose(*given: object) -> T:
        arguments = given[:arity]
        types = tuple(map(type, arguments))
        made = known.get(types)
        if made is None:
            overload = next((o for o in overloads if _accepts(o, arguments)), None)
            if overload is None:
                raise no_such_overload(name, *arguments)
            made = known[types] = made_of(overload)
        return made

    return choose


def call_dynamically(overloads: tuple[Overload, ...]) -> Code:
    """Return code that runs the overload for the types of its arguments."""
    choose = dispatch(overloads, lambda overload: _code(overloads, overload, overload.run))
    if len(overloads[0].parameters) != 1:
        return lambda *given: choose(*given)(*given)
    codes: dict[type, Code] = {}

    def call(argument: object, budget: object = None) -> object:
        code = codes.get(type(argument))
        if code is None:
            code = codes[type(argument)] = choose(argument)
        return code(argument, budget)

    if any(overload.counted for overload in overloads):
        return call

    def call_uncounted(argument: object) -> object:
        code = codes.get(type(argument))
        if code is None:
            code = codes[type(argument)] = choose(argument)
        return code(argument)

    return call_uncounted


def parts_dynamically(overloads: tuple[Overload, ...]) -> Callable[..., tuple[Code, Code, Code]]:
    """Return a function that gives the cost, the work and the code for the types of arguments."""

    def parts(overload: Overload) -> tuple[Code, Code, Code]:
        cost, work = (_code(overloads, overload, size) for size in (overload.cost, overload.work))
        return cost, work, _code(overloads, overload, overload.run)

    return dispatch(overloads, parts)


def _code(overloads: tuple[Overload, ...], overload: Overload, part: Code | int | None) -> Code:
    """Return a part of an overload as code that takes what any of the overloads does."""
    if part is None or isinstance(part, int):
        return lambda *_given: part or 0
    if overload.counted or not any(other.counted for other in overloads):
        return part
    arity = len(overload.parameters)
    return lambda *given: part(*given[:arity])


def amount(size: int | Cost | None, arguments: tuple[object, ...]) -> int:
    """Return the cost or the work of a call."""
    if size is None or isinstance(size, int):
        return size or 0
    return size(*arguments)


def _accepts(overload: Overload, arguments: tuple[object, ...]) -> bool:
    return all(
        kind.variable or is_dyn(kind) or kind.name == type_name(argument)
        for kind, argument in zip(overload.parameters, arguments, strict=True)
    )

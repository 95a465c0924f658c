"""Infer the types of type variables, by comparing types.

The rules are cel-go's: a variable takes the first type that it is unified with, and a more general
one later; dyn fits everything; null fits types without a zero value of their own.
"""

from itertools import count
from operator import is_not

from policyd.cel.types import NULL, Type, is_dyn

_SCALARS = frozenset(("bool", "int", "uint", "double", "string", "bytes", "dyn", "list", "map"))
_NOT_NULLABLE = _SCALARS | {"type"}
# Parts of a type. Written out, a few maps in each other have more than there is memory for.
_LARGEST = 100


class Substitution:
    """The types of type variables, as far as they are known."""

    def __init__(self) -> None:
        self._found: dict[Type, Type] = {}
        self._names = count()

    def fresh(self) -> Type:
        """Return an unused type variable."""
        return Type(f"_var{next(self._names)}", variable=True)

    def instantiate(self, types: tuple[Type, ...]) -> tuple[Type, ...]:
        """Return `types` with each of their variables replaced by a fresh one."""
        fresh: dict[Type, Type] = {}
        return tuple(self._renamed(kind, fresh) for kind in types)

    def resolve(self, kind: Type, *, default: Type | None = None) -> Type:
        """Replace the variables of `kind` that are known; the others by `default`, if given."""
        while kind.variable:
            known = self._found.get(kind)
            if known is None:
                return default if default is not None else kind
            kind = known
        parameters = tuple([self.resolve(part, default=default) for part in kind.parameters])
        # Types nest as deep as expressions: nothing is made, compared or hashed without need.
        changed = any(map(is_not, parameters, kind.parameters))
        return Type(kind.name, parameters) if changed else kind

    def is_too_large(self, kind: Type) -> bool:
        """Tell whether a type has more parts than one looks at."""
        parts, pending = 0, [kind]
        while pending and parts <= _LARGEST:
            part = pending.pop()
            parts += 1
            if part.variable:
                pending += [self._found[part]] if part in self._found else []
            pending += part.parameters
        return parts > _LARGEST

    def unify(self, actual: tuple[Type, ...], wanted: tuple[Type, ...]) -> bool:
        """Tell whether all of `actual` fit `wanted`, and remember the conclusions if they do."""
        before = dict(self._found)
        if len(actual) == len(wanted) and all(map(self._fits, actual, wanted)):
            return True
        self._found = before
        return False

    def assignable(self, actual: Type, wanted: Type) -> bool:
        """Tell whether `actual` fits `wanted`, and remember the conclusions if it does."""
        return self.unify((actual,), (wanted,))

    def _renamed(self, kind: Type, fresh: dict[Type, Type]) -> Type:
        if kind.variable:
            if kind not in fresh:
                fresh[kind] = self.fresh()
            return fresh[kind]
        if not kind.parameters:
            return kind
        return Type(kind.name, tuple(self._renamed(part, fresh) for part in kind.parameters))

    def _fits(self, actual: Type, wanted: Type) -> bool:
        if wanted.variable:
            return self._bind(wanted, actual)
        if actual.variable:
            return self._bind(actual, wanted)
        if is_dyn(actual) or is_dyn(wanted) or actual.name == wanted.name == "type":
            return True
        if NULL in (actual, wanted) and actual != wanted:
            other = wanted if actual == NULL else actual
            return other.name not in _NOT_NULLABLE
        if actual.name != wanted.name or len(actual.parameters) != len(wanted.parameters):
            return False
        return all(map(self._fits, actual.parameters, wanted.parameters))

    def _bind(self, variable: Type, kind: Type) -> bool:
        if variable == kind:
            return True
        known = self._found.get(variable)
        if known is None:
            if self._occurs(variable, kind):
                return False
            self._found[variable] = kind
            return True
        if known == kind:
            return True
        if not self._fits(kind, known):
            return False
        general = most_general(kind, known)
        if not self._occurs(variable, general):
            self._found[variable] = general
        return True

    def _occurs(self, variable: Type, kind: Type) -> bool:
        if kind == variable:
            return True
        if kind.variable:
            known = self._found.get(kind)
            return known is not None and self._occurs(variable, known)
        return any(self._occurs(variable, part) for part in kind.parameters)


def most_general(a: Type, b: Type) -> Type:
    """Return the less specific of two types that fit each other."""
    return a if _less_specific(a, b) else b


def _less_specific(a: Type, b: Type) -> bool:
    if is_dyn(a) or a.variable:
        return True
    if is_dyn(b) or b.variable:
        return False
    if a == NULL:
        return b == NULL
    if b == NULL:
        return True
    if a.name != b.name or len(a.parameters) != len(b.parameters):
        return False
    return all(map(_less_specific, a.parameters, b.parameters))

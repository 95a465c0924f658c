"""The reads of expressions in a pod, found by following each from `object` down.

The analysis follows variables, loops, conditions, and the few functions that return their argument.
Any other use of a value reads all of it.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Final

from policyd.api.admission import Operation
from policyd.cel.recursion import deep_recursion
from policyd.cel.syntax import ast
from policyd.cel.syntax.parser import parse
from policyd.engine.model.environments import REQUEST_OBJECTS
from policyd.engine.model.functions import CONTROLLER, METHODS
from policyd.engine.model.reads import selected
from policyd.engine.objects.workloads import EACH
from policyd.engine.remember.footprint_tree import BEGINNING, Footprint, UnboundedError

_HANDED_ON: Final = frozenset({"_+_", "orValue", "or", "value", "dyn"})
"""Functions that return their argument without reading it: a sum of lists."""

VOLATILE: Final = frozenset({"now", "random"})
"""Functions with another result each time, with any receiver."""

_MOST_PLACES: Final = 64
"""The most fields that one value may be: policies do not choose among more."""


class _Made:
    """A list that an expression makes, and that has no place in the object itself."""

    def __init__(self, items: "Place") -> None:
        self.items = items
        """The places that its items may be."""

    def at(self, *path: str) -> "Place":
        """Return one of its items; it has nothing else."""
        if path == (EACH,):
            return self.items
        self.items.take()
        return self

    def take(self) -> None:
        """Look at all of it."""
        self.items.take()


class _Filtered(_Made):
    """The items of a list for which a condition is true, or the names of the fields of a map."""


Place = Footprint | _Made

Places = tuple[Place, ...]
"""The places that a value may be, or be made of."""


class _Looped(tuple[Place, ...]):
    """The places of a variable that goes over the fields of maps, the items of lists, or texts."""

    maps: Places
    texts: tuple[str, ...]
    beginning: str

    def __new__(
        cls,
        items: Iterable[Place],
        maps: Places = (),
        texts: tuple[str, ...] = (),
        beginning: str = "",
    ) -> "_Looped":
        """Take the places that the variable may be.

        Args:
            items: Places of the items.
            maps: The places that are looped over; of maps, the variable is a name.
            texts: All texts that the variable may be, if known.
            beginning: The beginning of the name in this scope.
        """
        made = super().__new__(cls, items)
        made.maps, made.texts, made.beginning = maps, texts, beginning
        return made


Scope = Mapping[str, Places]
"""The local variables."""


def _ask(place: Place, method: str) -> None:
    """Add the reads of a method of the engine; one that counts devices skips memory and such."""
    own = METHODS[method]
    for path in own.looks_at:
        part = place.at(*path)
        if own.counts_devices and path[-1] == "resources" and isinstance(part, Footprint):
            part.devices = True
        else:
            part.take()


class ReadFinder:
    """The expressions of one policy, looking at a pod and at its request."""

    def __init__(
        self,
        variables: Mapping[str, str],
        operation: Operation,
        *,
        pod: Footprint,
        request: Footprint,
    ) -> None:
        """Begin with nothing that is looked at.

        Args:
            variables: The expressions of the policy's variables, by name.
            operation: That of the requests: what it decides alone has no reads.
            pod: Where to add the reads in the pod.
            request: Where to add those in the request.
        """
        self._sources = variables
        self._operation = operation
        self._pod = pod
        self._request = request
        self._variables: dict[str, Places] = {}
        self._operands: dict[int, tuple[ast.Logic, list[bool | None]]] = {}
        """By the id of an expression, which is kept so that no other gets it."""
        self._roots = {"object": (pod,), "pod": (pod,), "workload": (pod,), "request": (request,)}

    def take(self, source: str) -> None:
        """Add the reads of an expression.

        Raises:
            UnboundedError: If they cannot be determined.
        """
        with deep_recursion():
            self._take(parse(source), {})

    def _take(self, node: ast.ExpressionNode, scope: Scope) -> None:
        """Add a value that is used whole."""
        for place in self._look(node, scope):
            place.take()

    def _look(self, node: ast.ExpressionNode, scope: Scope) -> Places:
        """Add the reads that determine a value, and return the places in the pod that it may be."""
        field = selected(node)
        if field is not None:
            found = self._select(*field, scope)
            return () if isinstance(node, ast.Has) else found
        look = self._LOOKS.get(type(node), ReadFinder._take_parts)
        return look(self, node, scope)

    def _select(self, operand: ast.ExpressionNode, field: str, scope: Scope) -> Places:
        if isinstance(operand, ast.Identifier) and operand.name == "variables":
            return self._variable(field)
        if field in REQUEST_OBJECTS and self._is_request(operand, scope):
            return self._roots.get(field, ())
        return tuple(place.at(field) for place in self._look(operand, scope))

    def _is_request(self, node: ast.ExpressionNode, scope: Scope) -> bool:
        return self._look(node, scope) == (self._request,)

    def _variable(self, name: str) -> Places:
        found = self._variables.get(name)
        if found is None:
            if name not in self._sources:
                raise UnboundedError
            tree = parse(self._sources[name])
            found = self._variables[name] = self._look(tree, {})
        return found

    def _identifier(self, node: ast.Identifier, scope: Scope) -> Places:
        name = node.name
        if name == "variables":
            raise UnboundedError
        hidden = name in scope and not node.absolute
        if name == "maker" and not hidden:
            for path in CONTROLLER:
                self._pod.at(*path).take()
            self._request.at("userInfo").take()
        return scope[name] if hidden else self._roots.get(name, ())

    def _index(self, node: ast.Index, scope: Scope) -> Places:
        if isinstance(node.index, ast.Literal) and type(node.index.value) is int:
            return _items(self._look(node.operand, scope))
        looped = _looped(node.index, scope)
        if looped is not None and (looped.texts or looped.beginning):
            places = self._look(node.operand, scope)
            if looped.texts:
                return tuple(place.at(text) for place in places for text in looped.texts)
            if set(places) <= set(looped.maps):
                return tuple(place.at(BEGINNING + looped.beginning) for place in places)
        return self._take_parts(node, scope)

    def _logic(self, node: ast.Logic, scope: Scope) -> Places:
        """Look at all operands: one matters only as far as others do not decide without it."""
        decided = self._decided_operands(node, scope)
        if (not node.conjunction) in decided:
            return ()
        beginnings = (_beginning(each, negated=not node.conjunction) for each in node.operands)
        known = [(number, *each) for number, each in enumerate(beginnings) if each[1]]
        for number, operand in enumerate(node.operands):
            inner = dict(scope)
            for other, name, text in known:
                looped = scope.get(name)
                if other != number and isinstance(looped, _Looped):
                    inner[name] = _Looped(looped, looped.maps, looped.texts, text)
            if decided[number] is None:
                self._take(operand, inner)
        return ()

    def _decided(self, node: ast.ExpressionNode, scope: Scope) -> bool | None:
        """Return what an expression is, if the operation of the request decides it alone."""
        match node:
            case ast.Logic(conjunction=conjunction):
                parts = self._decided_operands(node, scope)
                if (not conjunction) in parts:  # errors of others are absorbed
                    return not conjunction
                return None if None in parts else conjunction
            case ast.Call(function="!_", arguments=(inner,)):
                found = self._decided(inner, scope)
                return None if found is None else not found
            case ast.Call(
                function="_==_" | "_!=_" as compared,
                arguments=(ast.Select() as asked, ast.Literal(value=str() as text)),
            ) if self._is_operation(asked, scope):
                return (text == self._operation) is (compared == "_==_")
            case ast.Call(function="@in", arguments=(ast.Select() as asked, container)) if (
                self._is_operation(asked, scope)
            ):
                texts = _texts(container)
                return self._operation in texts if texts else None
            case _:
                return None

    def _decided_operands(self, node: ast.Logic, scope: Scope) -> list[bool | None]:
        """Return what the operation decides of each operand: once, however deep they are nested."""
        known = self._operands.get(id(node))
        if known is None:
            parts = [self._decided(each, scope) for each in node.operands]
            known = self._operands[id(node)] = node, parts
        return known[1]

    def _is_operation(self, node: ast.Select, scope: Scope) -> bool:
        plain = node.field == "operation" and not node.optional
        # Nothing but a name: to look at more is what `_look` does, once.
        named = isinstance(node.operand, ast.Identifier)
        return plain and named and self._is_request(node.operand, scope)

    def _conditional(self, node: ast.Conditional, scope: Scope) -> Places:
        chosen = self._decided(node.condition, scope)
        if chosen is not None:
            return self._look(node.then if chosen else node.otherwise, scope)
        self._take(node.condition, scope)
        return _together(self._look(node.then, scope), self._look(node.otherwise, scope))

    def _comprehension(self, node: ast.Comprehension, scope: Scope) -> Places:
        looped = self._look(node.range, scope)
        of_maps = len(node.variables) > 1
        items = _items(looped, of_maps=of_maps)
        bound: dict[str, Places] = dict.fromkeys(node.variables, ())
        texts = self._texts(node.range)
        bound[node.variables[-1]] = items if of_maps else _Looped(items, looped, texts)
        inner = _within(scope, bound)
        if node.condition is not None:
            self._take(node.condition, inner)
        if node.kind == "map":
            return tuple(map(_Made, self._look(node.result, inner)))
        self._take(node.result, inner)
        return tuple(map(_Filtered, items)) if node.kind == "filter" else ()

    def _texts(self, node: ast.ExpressionNode) -> tuple[str, ...]:
        """Return the items of a list of texts that is written out, be it as a variable."""
        match node:
            case ast.Select(operand=ast.Identifier(name="variables"), field=name):
                source = self._sources.get(name)
                return () if source is None else _texts(parse(source))
            case _:
                return _texts(node)

    def _bind(self, node: ast.Bind, scope: Scope) -> Places:
        value = self._look(node.value, scope)
        return self._look(node.body, _within(scope, {node.name: value}))

    def _optional_map(self, node: ast.OptionalMap, scope: Scope) -> Places:
        value = self._look(node.operand, scope)
        return self._look(node.body, _within(scope, {node.name: value}))

    def _sort_by(self, node: ast.SortBy, scope: Scope) -> Places:
        given = self._look(node.operand, scope)
        self._take(node.key, _within(scope, {node.name: _items(given)}))
        return given

    def _call(self, node: ast.Call, scope: Scope) -> Places:
        if node.function.rpartition(".")[2] in VOLATILE:
            raise UnboundedError
        if node.function in ("size", "@in"):
            look = self._size if node.function == "size" else self._membership
            return look(node, scope)
        if node.function in _HANDED_ON:
            return _together(*(self._look(part, scope) for part in ast.children(node)))
        receiver = node.target if node.function in METHODS else None
        if receiver is None:
            return self._take_parts(node, scope)
        for place in self._look(receiver, scope):
            if place is not self._pod:
                place.take()
            _ask(place, node.function)
        for argument in node.arguments:
            self._take(argument, scope)
        return ()

    def _size(self, node: ast.Call, scope: Scope) -> Places:
        """Add the reads of a size: for a filtered list, those of its condition decide it."""
        for part in ast.children(node):
            for place in self._look(part, scope):
                if not isinstance(place, _Filtered):
                    place.take()
        return ()

    def _membership(self, node: ast.Call, scope: Scope) -> Places:
        """Look for a name: in a map that is one field, in a list all of it."""
        match node.arguments:
            case [ast.Literal(value=str() as name), container]:
                for place in self._look(container, scope):
                    place.at(name)
                return ()
            case _:
                return self._take_parts(node, scope)

    def _take_parts(self, node: ast.ExpressionNode, scope: Scope) -> Places:
        for part in ast.children(node):
            self._take(part, scope)
        return ()

    _LOOKS: ClassVar[
        Mapping[type[ast.ExpressionNode], Callable[["ReadFinder", Any, Scope], Places]]
    ] = {
        ast.Identifier: _identifier,
        ast.Index: _index,
        ast.Logic: _logic,
        ast.Conditional: _conditional,
        ast.Comprehension: _comprehension,
        ast.Bind: _bind,
        ast.OptionalMap: _optional_map,
        ast.SortBy: _sort_by,
        ast.Call: _call,
    }


def _looped(node: ast.ExpressionNode, scope: Scope) -> _Looped | None:
    """Return the loop of a variable, if an expression is one."""
    if not isinstance(node, ast.Identifier) or node.absolute:
        return None
    found = scope.get(node.name)
    return found if isinstance(found, _Looped) else None


def _texts(node: ast.ExpressionNode) -> tuple[str, ...]:
    """Return the items of a list of texts that is written out; none of anything else."""
    if not isinstance(node, ast.ListLiteral) or node.optionals:
        return ()
    found = [each.value for each in node.elements if isinstance(each, ast.Literal)]
    texts = tuple(each for each in found if isinstance(each, str))
    return texts if len(texts) == len(node.elements) else ()


def _beginning(node: ast.ExpressionNode, *, negated: bool) -> tuple[str, str]:
    """Return the variable of an expression, and the beginning that it must have to be true."""
    match node:
        case ast.Call(function="!_", arguments=(inner,)) if negated:
            return _beginning(inner, negated=False)
        case ast.Call(
            function="startsWith",
            target=ast.Identifier(name=name, absolute=False),
            arguments=(ast.Literal(value=str() as text),),
        ) if not negated:
            return name, text
        case _:
            return "", ""


def _within(scope: Scope, bound: Scope) -> Scope:
    """Return the local variables where some more are bound.

    Raises:
        UnboundedError: If one hides the policy's own variables, which no honest policy does.
    """
    if "variables" in bound:
        raise UnboundedError
    return {**scope, **bound}


def _items(places: Places, *, of_maps: bool = True) -> Places:
    """Return the items of lists, and of maps if they are looped over with their values."""
    for place in places:
        if of_maps and isinstance(place, Footprint):
            place.valued = True
    return tuple(place.at(EACH) for place in places)


def _together(*parts: Places) -> Places:
    """Join the places that a value may be.

    Raises:
        UnboundedError: If that is too much to follow.
    """
    joined = tuple(dict.fromkeys(place for part in parts for place in part))
    if len(joined) > _MOST_PLACES:
        raise UnboundedError
    return joined

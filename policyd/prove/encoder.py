"""Write checked expressions of CEL as formulas over unknown objects.

The errors of CEL are part of it: a field that is absent, a type that does not fit, an int out of
range, and `&&` and `||` that absorb errors. What has no formula is refused by name.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import z3

from policyd.cel.check.checked import FunctionReference, TypeReference, VariableReference
from policyd.cel.check.checker import check
from policyd.cel.environment import Environment
from policyd.cel.syntax import ast
from policyd.cel.syntax.parser import parse
from policyd.engine.export.expressions import claims_of, devices_of, gpus_of
from policyd.prove import functions
from policyd.prove import values as v
from policyd.prove.comprehensions import FOLDS, rounds_of
from policyd.prove.outcomes import decided, entries_of, opened, placed, truth, unwrapped
from policyd.prove.values import (
    FALSE,
    TRUE,
    Alternative,
    Outcome,
    UnencodableError,
    all_of,
    any_of,
    is_false,
    joined,
    negation,
    only_if,
    succeeds,
    sure,
    text_of_term,
    text_term,
)
from policyd.prove.world import UnknownValue, World


@dataclass
class Encoder:
    """The encoding of expressions in one world.

    Attributes:
        world: The unknown objects.
        roots: The values of the variables of policies, by name.
        variables: The outcomes of the policy's own variables.
    """

    world: World
    roots: Mapping[str, Outcome]
    variables: dict[str, Outcome] = field(default_factory=dict)
    _locals: dict[str, list[Outcome]] = field(default_factory=dict)
    _references: Mapping[ast.ExpressionNode, Any] = field(default_factory=dict)

    def expression(self, source: str, environment: Environment) -> Outcome:
        """Return what an expression may be.

        Raises:
            UnencodableError: If a part has no formula.
            CelCompileError: If it is not an expression of the environment.
        """
        macros = frozenset(environment.macros)
        checked = check(parse(source, macros=macros), source, environment)
        self._references = checked.references
        # Policies that are compared have most expressions in common.
        names = tuple(_resolved(node, each) for node, each in checked.references.items())
        given = tuple(
            (name, each.when.ast.value, id(each.value))
            for name, outcome in self.roots.items()
            for each in outcome
        )
        own = tuple((name, id(outcome)) for name, outcome in self.variables.items())
        key = source, macros, names, given, own
        if key not in self.world.encoded:
            kept = self.roots, dict(self.variables)  # so that no other value gets their addresses
            self.world.encoded[key] = self.encode(checked.tree), kept
        return self.world.encoded[key][0]

    def encode(self, node: ast.ExpressionNode) -> Outcome:
        """Return what a part of an expression may be."""
        outcome = self._encoded(node)
        self.world.spend(1 + len(outcome))
        return outcome

    def _encoded(self, node: ast.ExpressionNode) -> Outcome:
        reference = self._references.get(node)
        if isinstance(reference, VariableReference) and not isinstance(node, ast.Has):
            return self._variable(reference)
        if isinstance(reference, TypeReference):
            return sure(v.TypeName(reference.name))
        method: Callable[[Any], Outcome] | None = getattr(
            self, f"_{type(node).__name__.lower()}", None
        )
        if method is None:
            raise UnencodableError(type(node).__name__)
        return method(node)

    # Names.

    def _variable(self, reference: VariableReference) -> Outcome:
        names = [reference.name, *reference.fields]
        if names[0] == "variables" and len(names) > 1 and names[1] in self.variables:
            found, rest = self.variables[names[1]], names[2:]
        elif names[0].startswith("variables.") and names[0][10:] in self.variables:
            found, rest = self.variables[names[0][10:]], names[1:]
        elif names[0] in self.roots:
            found, rest = self.roots[names[0]], names[1:]
        else:
            raise UnencodableError(f"the variable {names[0]}")
        for name in rest:
            found = self._member(found, name)
        return found

    def _identifier(self, node: ast.Identifier) -> Outcome:
        bound = self._locals.get(node.name)
        if bound and not node.absolute:
            return bound[-1]
        if node.name in self.roots:
            return self.roots[node.name]
        raise UnencodableError(f"the variable {node.name}")

    @contextmanager
    def _binding(self, names: Mapping[str, Outcome]) -> Any:  # noqa: ANN401 - a context manager
        for name, outcome in names.items():
            self._locals.setdefault(name, []).append(outcome)
        try:
            yield
        finally:
            for name in names:
                self._locals[name].pop()

    def _literal(self, node: ast.Literal) -> Outcome:
        return sure(functions.constant(node.value))

    # Fields and elements.

    def _select(self, node: ast.Select) -> Outcome:
        operand = self.encode(node.operand)
        if node.optional:
            return self._optionally(operand, node.field)
        return self._member(operand, node.field)

    def _member(self, operand: Outcome, name: str) -> Outcome:
        made: list[Alternative] = []
        for when, value in opened(operand):
            if isinstance(value, v.OptionalValue):
                made.extend(only_if(when, self._optionally(sure(value), name)))
            else:
                there, outcome = self._found(value, name)
                made.extend(only_if(all_of([when, there]), outcome))
        return joined(made)

    def _found(self, value: Any, key: Any) -> tuple[Any, Outcome]:  # noqa: ANN401
        """Return whether a value has a field or element, and what it is."""
        if isinstance(value, UnknownValue) and isinstance(key, str):
            child = value.field(key)
            return (FALSE, ()) if child is None else (child.present, sure(child))
        if isinstance(value, UnknownValue | v.Mapping):
            if isinstance(key, str):
                key = sure(v.Text(text_term(key)))
            return self._looked_up(value, key)
        if isinstance(value, v.Listing) and not isinstance(key, str):
            return self._element(value, key)
        return FALSE, ()

    def _looked_up(self, value: UnknownValue | v.Mapping, key: Outcome) -> tuple[Any, Outcome]:
        wanted = [(when, each) for when, each in opened(key) if isinstance(each, v.Text)]
        fixed = [each.term for _, each in wanted if z3.is_string_value(each.term)]
        if isinstance(value, UnknownValue) and len(wanted) == len(fixed) == 1:
            child = value.field(text_of_term(fixed[0]))
            if child is None:
                return FALSE, ()
            return all_of([wanted[0][0], child.present]), sure(child)
        made = []
        for there, name, outcome in entries_of(value):
            same = any_of(all_of([when, each.term == name]) for when, each in wanted)
            made.append((all_of([there, same]), outcome))
        found = any_of(condition for condition, _ in made)
        return found, joined(each for condition, out in made for each in only_if(condition, out))

    def _element(self, value: v.Listing, index: Outcome) -> tuple[Any, Outcome]:
        made = []
        for when, each in opened(index):
            if not isinstance(each, v.Int):
                continue
            for place, there, outcome in placed(value):
                made.append((all_of([when, there, each.term == place]), outcome))
        found = any_of(z3.simplify(condition) for condition, _ in made)
        return found, joined(
            each for condition, out in made for each in only_if(z3.simplify(condition), out)
        )

    def _index(self, node: ast.Index) -> Outcome:
        operand, index = self.encode(node.operand), self.encode(node.index)
        if node.optional or any(isinstance(each, v.OptionalValue) for _, each in operand):
            return only_if(succeeds(index), self._optionally(operand, index))
        made: list[Alternative] = []
        for when, value in opened(operand):
            there, outcome = self._found(value, index)
            made.extend(only_if(all_of([when, there]), outcome))
        return joined(made)

    def _optionally(self, operand: Outcome, key: str | Outcome) -> Outcome:
        """Return the optional of a field or element."""
        made: list[Alternative] = []
        for when, value in opened(operand):
            if isinstance(value, v.OptionalValue):
                inner = self._optionally(value.value, key)
                nothing = v.OptionalValue(FALSE, ())
                made.extend(only_if(all_of([when, value.present]), inner))
                made.append(Alternative(all_of([when, negation(value.present)]), nothing))
            else:
                there, outcome = self._found(value, key)
                fits = self._fits(value, key)
                made.extend(only_if(all_of([when, fits]), sure(v.OptionalValue(there, outcome))))
        return joined(made)

    def _fits(self, value: Any, key: str | Outcome) -> Any:  # noqa: ANN401 - a value, a condition
        """Return the condition that a presence test does not fail: lists have no names."""
        if not isinstance(value, v.Listing):
            return TRUE
        if isinstance(key, str):
            return FALSE
        return any_of(when for when, each in opened(key) if isinstance(each, v.Int))

    def _has(self, node: ast.Has) -> Outcome:
        reference = self._references.get(node)
        if isinstance(reference, VariableReference):
            names = reference.name, *reference.fields
            if names[:-1] == ("variables",):  # it is there, if it has a value
                return only_if(succeeds(self._variable(reference)), sure(v.Bool(TRUE)))
            operand = self._variable(reference._replace(fields=reference.fields[:-1]))
        else:
            operand = self.encode(node.operand)
        made: list[Alternative] = []
        for when, value in self._optionally(operand, node.field):
            made.append(Alternative(when, v.Bool(value.present)))
        return joined(made)

    # Conditions.

    def _logic(self, node: ast.Logic) -> Outcome:
        truths = [truth(self.encode(operand)) for operand in node.operands]
        holds = [true for true, _ in truths]
        fails = [false for _, false in truths]
        if node.conjunction:
            return decided(all_of(holds), any_of(fails))
        return decided(any_of(holds), all_of(fails))

    def _conditional(self, node: ast.Conditional) -> Outcome:
        true, false = truth(self.encode(node.condition))
        then = only_if(true, self.encode(node.then)) if not is_false(true) else ()
        if is_false(false):
            return then
        return joined([*then, *only_if(false, self.encode(node.otherwise))])

    # Literals of several values.

    def _listliteral(self, node: ast.ListLiteral) -> Outcome:
        elements: list[tuple[Any, Outcome]] = []
        succeeded = []
        dense = True
        for index, part in enumerate(node.elements):
            outcome = self.encode(part)
            succeeded.append(succeeds(outcome))
            if index in node.optionals:
                there, inner = unwrapped(outcome)
                elements.append((there, inner))
                dense = False
            else:
                elements.append((TRUE, outcome))
        return only_if(all_of(succeeded), sure(v.Listing(tuple(elements), dense)))

    def _mapliteral(self, node: ast.MapLiteral) -> Outcome:
        entries, succeeded = [], []
        names: set[str] = set()
        for entry in node.entries:
            key, outcome = self.encode(entry.key), self.encode(entry.value)
            if len(key) != 1 or not isinstance(key[0].value, v.Text):
                raise UnencodableError("a map with keys that are not strings")
            term = key[0].value.term
            if not z3.is_string_value(term) or text_of_term(term) in names:
                raise UnencodableError("a map with computed or repeated keys")
            names.add(text_of_term(term))
            succeeded += [succeeds(key), succeeds(outcome)]
            there, inner = unwrapped(outcome) if entry.optional else (TRUE, outcome)
            entries.append((there, term, inner))
        return only_if(all_of(succeeded), sure(v.Mapping(tuple(entries))))

    # Macros.

    def _comprehension(self, node: ast.Comprehension) -> Outcome:
        made: list[Alternative] = []
        for when, value in opened(self.encode(node.range)):
            if not isinstance(value, v.Listing | v.Mapping | UnknownValue):
                continue
            made.extend(only_if(when, self._looped(node, value)))
        return joined(made)

    def _looped(self, node: ast.Comprehension, value: Any) -> Outcome:  # noqa: ANN401
        rounds = []
        for there, names in rounds_of(node, value):
            with self._binding(names):
                kept, dropped = TRUE, FALSE
                if node.condition is not None:
                    kept, dropped = truth(self.encode(node.condition))
                result = () if is_false(kept) else self.encode(node.result)
            rounds.append((there, kept, dropped, result, names))
        return FOLDS[node.kind](node, value, rounds)

    def _bind(self, node: ast.Bind) -> Outcome:
        outcome = self.encode(node.value)
        with self._binding({node.name: outcome}):
            return self.encode(node.body)

    def _optionalmap(self, node: ast.OptionalMap) -> Outcome:
        made: list[Alternative] = []
        for when, value in self.encode(node.operand):
            if not isinstance(value, v.OptionalValue):
                continue
            with self._binding({node.name: value.value}):
                body = self.encode(node.body)
            there = all_of([when, value.present])
            if node.flat:
                made.extend(only_if(there, body))
            else:
                inner = v.OptionalValue(TRUE, body)
                made.append(Alternative(all_of([there, succeeds(body)]), inner))
            nothing = v.OptionalValue(FALSE, ())
            made.append(Alternative(all_of([when, negation(value.present)]), nothing))
        return joined(made)

    def _sortby(self, _node: ast.SortBy) -> Outcome:
        raise UnencodableError("sortBy()")

    def _structliteral(self, node: ast.StructLiteral) -> Outcome:
        raise UnencodableError(f"the object {node.name}{{}}")

    # Functions.

    def _call(self, node: ast.Call) -> Outcome:
        reference = self._references.get(node)
        parts: Sequence[ast.ExpressionNode] = node.arguments
        if node.target is not None and (reference is None or reference.has_receiver):
            parts = (node.target, *parts)
        name = node.function
        if isinstance(reference, FunctionReference) and reference.overloads:
            name = reference.overloads[0].name
            if name in _OF_PODS and self._references.get(parts[0]) == VariableReference("pod"):
                return self.encode(_OF_PODS[name])
        arguments = [self.encode(part) for part in parts]
        return functions.call(self.world, name, arguments)


_OF_PODS: Final = {
    "gpus": parse(gpus_of(".pod", functions.WHOLE_AMOUNT)),
    "claims": parse(claims_of(".pod")),
    "devices": parse(devices_of(".pod", functions.WHOLE_AMOUNT)),
}
"""Methods of one pod in plain CEL, but for how an amount is read."""


def _resolved(node: ast.ExpressionNode, reference: Any) -> tuple[Any, ...]:  # noqa: ANN401
    """Return what a reference of an expression says, as far as its outcome depends on it."""
    if isinstance(reference, FunctionReference):
        reference = reference.has_receiver, *(each.name for each in reference.overloads[:1])
    return node.position, type(node).__name__, type(reference).__name__, reference

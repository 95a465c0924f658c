"""A plain evaluator of CEL that walks the tree: slow, obvious, and the oracle of the compiler.

It shares the runtime and the libraries with the compiler, not a line of how control flows.
"""

import re

from policyd.cel import arithmetic, comparison, containers, values
from policyd.cel.check.checked import FunctionReference, TypeReference, VariableReference
from policyd.cel.check.checker import check_leniently
from policyd.cel.cost import Budget
from policyd.cel.errors import CelError
from policyd.cel.functions import call_dynamically
from policyd.cel.syntax.parser import parse
from policyd.cel.values import NONE, Optional, Struct, TypeValue, no_such_overload


def evaluate(source, environment, variables):
    """Evaluate an expression, whatever its types."""
    tree = parse(source, macros=environment.macros)
    checked = check_leniently(tree, source, environment)
    return _Walker(checked, environment, variables).walk(tree, {})


class _Walker:
    def __init__(self, checked, environment, variables):
        self.checked = checked
        self.environment = environment
        self.variables = variables

    def walk(self, node, scope):
        name = re.sub("(?<!^)([A-Z])", r"_\1", type(node).__name__).lower()
        return getattr(self, f"walk_{name}")(node, scope)

    # --- names

    def walk_literal(self, node, scope):
        return node.value

    def walk_identifier(self, node, scope):
        if not node.absolute and node.name in scope:
            value = scope[node.name]
            if isinstance(value, CelError):
                raise value
            return value
        return self.referenced(node)

    def referenced(self, node):
        reference = self.checked.references.get(node)
        if isinstance(reference, VariableReference):
            if reference.name not in self.variables:
                raise CelError(f"no such key: {reference.name}")
            value = self.variables[reference.name]
        elif isinstance(reference, TypeReference):
            value = TypeValue(reference.name)
        else:
            raise CelError(self.checked.unknown.get(node, "undeclared reference"))
        for name in reference.fields:
            value = self.field(value, name)
        return value

    def field(self, value, name):
        if type(value) is Optional:
            return values.optional_index(value, name)
        if not isinstance(value, dict):
            raise values.unselectable(value, name)
        return containers.index(value, name)

    def walk_select(self, node, scope):
        if node in self.checked.references:
            return self.referenced(node)
        value = self.walk(node.operand, scope)
        if node.optional:
            return values.optional_index(value, node.field)
        return self.field(value, node.field)

    def walk_has(self, node, scope):
        reference = self.checked.references.get(node)
        if isinstance(reference, VariableReference) and not reference.fields:
            return True
        return containers.has(self.walk(node.operand, scope), node.field)

    def walk_index(self, node, scope):
        value, key = self.walk(node.operand, scope), self.walk(node.index, scope)
        if node.optional or type(value) is Optional:
            return values.optional_index(value, key)
        return containers.index(value, key)

    # --- control

    def bool(self, node, scope):
        value = self.walk(node, scope)
        comparison.need_bool(value)
        return value

    def walk_conditional(self, node, scope):
        branch = node.then if self.bool(node.condition, scope) else node.otherwise
        return self.walk(branch, scope)

    def walk_logic(self, node, scope):
        return decide((lambda n=n: self.bool(n, scope) for n in node.operands), node.conjunction)

    def walk_comprehension(self, node, scope):
        items = self.items(node, scope)
        if node.kind in ("all", "exists"):
            tests = (lambda s=s: self.bool(node.result, s) for s in items)
            return decide(tests, node.kind == "all")
        if node.kind == "exists_one":
            return len(self.kept(items, node.result, lambda _: None)) == 1
        if node.kind == "filter":
            name = node.variables[0]
            return self.kept(items, node.result, lambda s: s[name])
        if node.kind in ("map", "transformList"):
            return self.kept(items, node.condition, lambda s: self.walk(node.result, s))
        made = {}

        def insert(s):
            value = self.walk(node.result, s)
            if node.kind == "transformMapEntry":
                containers.merge(made, value)
            else:
                containers.insert(made, s[node.variables[0]], value)

        self.kept(items, node.condition, insert)
        return containers.finish_map(made)

    def kept(self, items, condition, step):
        """Step through the elements of which a condition is true; the last that fails counts."""
        done, wrong = [], None
        for s in items:
            try:
                if condition is not None and not self.bool(condition, s):
                    continue
            except CelError as error:
                wrong = error
                continue
            try:
                done.append(step(s))
            except CelError as error:
                wrong = wrong or error
        if wrong is not None:
            raise wrong
        return done

    def items(self, node, scope):
        container = self.walk(node.range, scope)
        if len(node.variables) == 1:
            elements = containers.elements(container)
            return ({**scope, node.variables[0]: element} for element in elements)
        pairs = containers.pairs(container)
        return ({**scope, **dict(zip(node.variables, pair, strict=True))} for pair in pairs)

    def walk_bind(self, node, scope):
        try:
            value = self.walk(node.value, scope)
        except CelError as error:
            value = error
        return self.walk(node.body, {**scope, node.name: value})

    def walk_optional_map(self, node, scope):
        optional = containers.need_optional(self.walk(node.operand, scope))
        if not optional.present:
            return NONE
        value = self.walk(node.body, {**scope, node.name: optional.value})
        return containers.need_optional(value) if node.flat else Optional(value)

    def walk_sort_by(self, node, scope):
        elements = containers.elements(self.walk(node.operand, scope))
        keyed = [(self.walk(node.key, {**scope, node.name: e}), e) for e in elements]
        return comparison.sort_pairs(keyed)

    # --- literals

    def walk_list_literal(self, node, scope):
        made = []
        for place, element in enumerate(node.elements):
            value = self.walk(element, scope)
            made.append((value, place in node.optionals))
        return [part for value, optional in made for part in present(value, optional)]

    def walk_map_literal(self, node, scope):
        entries = [
            (self.walk(e.key, scope), self.walk(e.value, scope), e.optional) for e in node.entries
        ]
        return containers.make_map(
            [(key, part) for key, value, optional in entries for part in present(value, optional)]
        )

    def walk_struct_literal(self, node, scope):
        if node not in self.checked.references:
            raise CelError(self.checked.unknown[node])
        fields = [(f.name, self.walk(f.value, scope), f.optional) for f in node.fields]
        return Struct(
            self.checked.references[node].name,
            {name: part for name, value, opt in fields for part in present(value, opt)},
        )

    # --- calls

    def walk_call(self, node, scope):
        reference = self.checked.references.get(node)
        if not isinstance(reference, FunctionReference):
            raise CelError(self.checked.unknown.get(node, f"no such overload: {node.function}"))
        name = reference.overloads[0].name
        if name in ("or", "orValue") and node.target is not None and len(node.arguments) == 1:
            return self.alternative(node, scope)
        parts = ((node.target,) if node.target and reference.has_receiver else ()) + node.arguments
        values = [self.walk(part, scope) for part in parts]
        style = (name, reference.has_receiver, len(parts))
        fitting = tuple(o for o in reference.overloads if o.style == style)
        if name in OPERATORS:
            return OPERATORS[name](*values)
        if not fitting:
            raise no_such_overload(name, *values)
        return call_dynamically(fitting)(*values)

    def alternative(self, node, scope):
        optional = containers.need_optional(self.walk(node.target, scope))
        if optional.present:
            return optional if node.function == "or" else optional.value
        other = self.walk(node.arguments[0], scope)
        return containers.need_optional(other) if node.function == "or" else other


def decide(tests, conjunction):
    """Evaluate until one decides; an error counts only if none does."""
    first = None
    for test in tests:
        try:
            if test() is not conjunction:
                return not conjunction
        except CelError as error:
            first = first or error
    if first is not None:
        raise first
    return conjunction


def present(value, optional):
    if not optional:
        return (value,)
    value = containers.need_optional(value)
    return (value.value,) if value.present else ()


def negated(value):
    comparison.need_bool(value)
    return not value


OPERATORS = {
    "!_": negated,
    "-_": arithmetic.negate,
    "_==_": comparison.equal,
    "_!=_": lambda a, b: not comparison.equal(a, b),
    "_+_": arithmetic.add,
    "_-_": arithmetic.subtract,
    "_*_": arithmetic.multiply,
    "_/_": arithmetic.divide,
    "_%_": arithmetic.modulo,
    "_<_": comparison.less,
    "_<=_": comparison.less_or_equal,
    "_>_": comparison.greater,
    "_>=_": comparison.greater_or_equal,
    "@in": comparison.contains,
}


def unlimited():
    """Return a budget no test uses up."""
    return Budget(10**12)

"""Generate calls: of the one matching overload if types are known, else by the actual types."""

from typing import Final

from policyd.cel.check.checked import FunctionReference
from policyd.cel.compile.emit_operators import OPERATORS
from policyd.cel.compile.emit_values import emit_held, is_optional_element
from policyd.cel.compile.generator import Atom, Generator
from policyd.cel.cost import LengthWork, traversal, traverse
from policyd.cel.errors import CelError
from policyd.cel.functions import (
    Overload,
    amount,
    call_dynamically,
    parts_dynamically,
)
from policyd.cel.lib.regex import STEPS_WORK, matcher, steps
from policyd.cel.syntax import ast
from policyd.cel.types import STRING, is_dyn

_CONVERSIONS: Final = frozenset(
    ("int", "uint", "double", "bool", "string", "bytes", "duration", "timestamp", "dyn", "type")
)
# Choosing an overload, for the cost, the work and the call, takes as long as so many elements.
_CHOOSING_WORK: Final = 8
# Cost of a call that is still made while compiling, when its arguments are constants.
_FOLDED_COST: Final = 1_000
_PYTHON_TYPES: Final = {
    "bool": "bool",
    "bytes": "bytes",
    "double": "float",
    "int": "int",
    "list": "list",
    "string": "str",
}
_STRING_TESTS: Final = {
    "startsWith": "{}.startswith({})",
    "endsWith": "{}.endswith({})",
    "contains": "{}.__contains__({})",
}


def emit_call(generator: Generator, node: ast.Call) -> Atom:
    """Write a call of a function, a method or an operator."""
    emit_operator = OPERATORS.get(node.function)
    if emit_operator is not None and node.target is None:
        return emit_operator(generator, node)
    reference = generator.checked.references.get(node)
    if not isinstance(reference, FunctionReference):
        return _emit_unknown(generator, node)
    name = reference.overloads[0].name
    if name in ("or", "orValue") and node.target is not None and len(node.arguments) == 1:
        return _emit_or(generator, node, node.target)
    parts = ((node.target,) if node.target and reference.has_receiver else ()) + node.arguments
    atoms = [generator.emit(part) for part in parts]
    style = (name, reference.has_receiver, len(parts))
    fitting = tuple(overload for overload in reference.overloads if overload.style == style)
    if not fitting:
        return generator.assign(
            f"R_no_overload({', '.join((repr(name), *_codes(atoms)))})", position=node.position
        )
    return _emit_fitting(generator, node, fitting, atoms)


def _emit_unknown(generator: Generator, node: ast.Call) -> Atom:
    message = generator.checked.unknown.get(node, f"no such overload: {node.function}")
    return generator.assign(f"R_fail({message!r})", position=node.position)


def _codes(atoms: list[Atom]) -> list[str]:
    return [atom.code for atom in atoms]


def _emit_fitting(
    generator: Generator, node: ast.Call, fitting: tuple[Overload, ...], atoms: list[Atom]
) -> Atom:
    name = fitting[0].name
    if name == "dyn":
        generator.charge(0 if atoms[0].value and generator.environment.free_constants else 1)
        return Atom(generator.named(atoms[0]).code)
    unsure = [
        (kind.name, atom)
        for kind, atom in zip(fitting[0].parameters, atoms, strict=True)
        if not (kind.variable or is_dyn(kind) or kind.name == atom.kind)
    ]
    sure = len(fitting) == 1 and not unsure
    if sure and all(atom.value for atom in atoms):
        folded = _fold(generator, fitting[0], atoms)
        if folded is not None:
            return folded
    special = _emit_special(generator, node, fitting, atoms)
    if special is not None:
        return special
    if len(fitting) == 1 and not sure and all(kind in _PYTHON_TYPES for kind, _ in unsure):
        atoms = _emit_guards(generator, node, fitting[0], atoms)
        sure = True
    return _emit_general(generator, node, fitting, (atoms, sure))


def _emit_special(
    generator: Generator, node: ast.Call, fitting: tuple[Overload, ...], atoms: list[Atom]
) -> Atom | None:
    """Write functions that plain Python has; None if it has not."""
    name = fitting[0].name
    if fitting[0].parameters == (STRING, STRING) and fitting[0].member:
        if name in _STRING_TESTS:
            return _emit_string_test(generator, node, name, atoms)
        if name == "matches" and atoms[1].value and atoms[1].kind == "string":
            return _emit_matches(generator, node, atoms)
    if name == "size" and len(fitting[0].parameters) == 1:
        return _emit_size(generator, node, fitting, atoms)
    return None


def _emit_guards(
    generator: Generator, node: ast.Call, overload: Overload, atoms: list[Atom]
) -> list[Atom]:
    """Write tests of the types of arguments, where there is but one overload to choose."""
    atoms = [generator.named(atom) for atom in atoms]
    wrong = f"R_no_overload({', '.join((repr(overload.name), *_codes(atoms)))})"
    for kind, atom in zip(overload.parameters, atoms, strict=True):
        if kind.name in _PYTHON_TYPES and kind.name != atom.kind:
            test = f"type({atom.code}) is not {_PYTHON_TYPES[kind.name]}"
            generator.line(f"if {test}: {wrong}", node.position)
    return atoms


def _fold(generator: Generator, overload: Overload, atoms: list[Atom]) -> Atom | None:
    """Call a function of constants now; None if that fails or costs much."""
    values = [atom.value[0] for atom in atoms if atom.value]
    cost, work = (amount(size, tuple(values)) for size in (overload.cost, overload.work))
    if not overload.constant or max(cost, work) > _FOLDED_COST:
        return None
    try:
        result = overload.run(*values)
    except CelError:
        return None
    if not (generator.environment.free_constants and overload.name in _CONVERSIONS):
        generator.charge(cost)
    return generator.literal(result)


def _emit_general(
    generator: Generator,
    node: ast.Call,
    fitting: tuple[Overload, ...],
    arguments: tuple[list[Atom], bool],
) -> Atom:
    atoms, sure = arguments
    counted = any(overload.counted for overload in fitting)
    codes = ", ".join((*_codes(atoms), "B") if counted else _codes(atoms))
    cost, work = _fixed_cost(fitting), _fixed_work(fitting)
    if sure:
        price, effort, run = (
            _part(generator, fitting[0], each) for each in ("cost", "work", "run")
        )
    elif cost is None or work is None:
        chosen = f"{generator.constant(parts_dynamically(fitting))}({codes})"
        chosen = generator.assign(chosen, position=node.position).code
        price, effort, run = (f"{chosen}[{number}]({{}})" for number in range(3))
    else:
        price, effort, run = "", "", f"{generator.constant(call_dynamically(fitting))}({{}})"
    if cost is None:
        generator.charge_counted(price.format(codes), node.position)
    generator.charge(cost or 0, work=(work or 0) + (0 if sure else _CHOOSING_WORK))
    if work is None:
        generator.charge_work(effort.format(codes), node.position)
    results = {overload.result.name if overload.sure else "dyn" for overload in fitting}
    kind = results.pop() if len(results) == 1 else "dyn"
    return generator.assign(run.format(codes), kind, node.position)


def _part(generator: Generator, overload: Overload, name: str) -> str:
    """Write the call of a part of an overload, with a place for the arguments."""
    part = getattr(overload, name)
    if part is traverse and overload.parameters == (STRING,):
        return "(len({}) + 9) // 10"
    if isinstance(part, LengthWork):
        return part.expression("{}")
    return f"{generator.constant(part)}({{}})" if callable(part) else ""


def _fixed_cost(fitting: tuple[Overload, ...]) -> int | None:
    """Return the cost of a call if it depends on no argument."""
    first = fitting[0].cost
    return first if isinstance(first, int) and {each.cost for each in fitting} == {first} else None


def _fixed_work(fitting: tuple[Overload, ...]) -> int | None:
    """Return the work of a call, at most, if it depends on no argument."""
    works = [overload.work or 0 for overload in fitting]
    fixed = [work for work in works if isinstance(work, int)]
    return max(fixed) if len(fixed) == len(works) else None


def _emit_string_test(generator: Generator, node: ast.Call, name: str, atoms: list[Atom]) -> Atom:
    text, part = generator.named(atoms[0]), atoms[1]
    if part.kind != "string":
        part = generator.named(part)
        wrong = f"R_no_overload({name!r}, {text.code}, {part.code})"
        generator.line(f"if type({part.code}) is not str: {wrong}", node.position)
    code = _STRING_TESTS[name].format(text.code, part.code)
    price = f"(len({text.code}) + 9) // 10"
    if name == "contains":
        known = traversal(len(part.value[0])) if part.value and part.kind == "string" else ""
        price = f"({price}) * {known or f'((len({part.code}) + 9) // 10)'}"
    return _emit_on_string(generator, node, text, (code, price, name, ""))


def _emit_matches(generator: Generator, node: ast.Call, atoms: list[Atom]) -> Atom | None:
    """Write a match with a constant pattern; None if that is not a pattern."""
    pattern = str(atoms[1].value and atoms[1].value[0])
    try:
        match = generator.constant(matcher(pattern))
    except CelError:
        return None
    text = generator.named(atoms[0])
    price = f"((len({text.code}) + 10) // 10) * {(len(pattern) + 3) // 4}"
    work = f"len({text.code}) * {steps(pattern)} // {STEPS_WORK}"
    return _emit_on_string(generator, node, text, (f"{match}({text.code})", price, "matches", work))


def _emit_on_string(
    generator: Generator, node: ast.Call, text: Atom, code: tuple[str, str, str, str]
) -> Atom:
    test, price, name, work = code
    if text.kind != "string":
        wrong = f"R_no_overload({name!r}, {text.code}, '')"
        generator.line(f"if type({text.code}) is not str: {wrong}", node.position)
    generator.charge_counted(price, check=bool(work))
    if work:
        generator.charge_work(work, node.position)
    return generator.assign(test, "bool")


def _emit_size(
    generator: Generator, node: ast.Call, fitting: tuple[Overload, ...], atoms: list[Atom]
) -> Atom:
    generator.charge(1)
    code = generator.named(atoms[0]).code
    slow = f"{generator.constant(call_dynamically(fitting))}({code})"
    fast = f"len({code}) if type({code}) in SIZED else {slow}"
    return generator.assign(fast, "int", node.position)


def _emit_or(generator: Generator, node: ast.Call, target: ast.ExpressionNode) -> Atom:
    """Write `or` or `orValue`: the alternative is evaluated only if it is needed.

    It costs nothing itself. Before version 0.28, cel-go returns a receiver that is not an optional,
    of any type.
    """
    flat = node.function == "or"
    if not flat and is_optional_element(generator, target):
        held = emit_held(generator, target)
        with generator.block(f"if {held.code} is R_MISSING:"):
            generator.line(f"{held.code} = {generator.emit(node.arguments[0]).code}")
        return held
    operand = generator.emit_named(target)
    strict = generator.environment.strict_optionals
    result = generator.temporary()
    if strict:
        generator.line(f"R_need_optional({operand.code})", node.position)
        present = f"if {operand.code}.present:"
    else:
        with generator.block(f"if type({operand.code}) is not R_Optional:"):
            generator.line(f"{result} = {operand.code}")
        present = f"elif {operand.code}.present:"
    with generator.block(present):
        generator.line(f"{result} = {operand.code if flat else f'{operand.code}.value'}")
    with generator.block("else:"):
        atom = generator.emit(node.arguments[0])
        code = f"R_need_optional({atom.code})" if flat and strict else atom.code
        generator.line(f"{result} = {code}", node.position)
    return Atom(result, "optional_type" if flat and strict else "dyn")

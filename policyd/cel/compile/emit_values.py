"""Generate names, selections, literals, conditions and logic."""

from policyd.cel import cost
from policyd.cel.check.checked import FunctionReference, TypeReference, VariableReference
from policyd.cel.compile.generator import Atom, Generator
from policyd.cel.compile.lines import Probe
from policyd.cel.syntax import ast
from policyd.cel.types import Type
from policyd.cel.values import TypeValue

_CANNOT_SELECT = frozenset(
    ("bool", "int", "uint", "double", "string", "bytes", "null_type", "list")
)


def emit_literal(generator: Generator, node: ast.Literal) -> Atom:
    """Write a constant."""
    return generator.literal(node.value)


def emit_identifier(generator: Generator, node: ast.Identifier) -> Atom:
    """Write a variable, a type, or an error for an unknown name."""
    generator.charge(cost.IDENTIFIER)
    if not node.absolute and node.name in generator.scope:
        return generator.read(node.name)
    return _referenced(generator, node)


def _referenced(generator: Generator, node: ast.ExpressionNode) -> Atom:
    match generator.checked.references.get(node):
        case VariableReference(name, fields):
            atom = generator.root(name)
        case TypeReference(name, fields):
            atom = generator.literal(TypeValue(name))
        case _:
            message = generator.checked.unknown.get(node, "undeclared reference")
            return generator.assign(f"R_fail({message!r})", position=node.position)
    for name in fields:
        generator.charge(cost.SELECT)
        atom = select_field(generator, atom, name, node.position)
    return atom


def emit_select(generator: Generator, node: ast.Select) -> Atom:
    """Write the selection of a field, or a qualified name."""
    if node in generator.checked.references:
        generator.charge(cost.IDENTIFIER)
        return _referenced(generator, node)
    atom = generator.emit_named(node.operand)
    generator.charge(cost.SELECT)
    if node.optional or generator.kind_of(node.operand).name == "optional_type":
        generator.charge(0, work=2)
        code = _optional_field(generator, atom, node.field)
        return generator.assign(code, "optional_type", node.position)
    return select_field(generator, atom, node.field, node.position)


def _optional_index(generator: Generator) -> str:
    strict = generator.environment.strict_selection
    return "R_strict_optional_index" if strict else "R_optional_index"


def _optional_field(generator: Generator, atom: Atom, name: str) -> str:
    """Return the code for a field as an optional; an existing field is found without a call."""
    holder, test = atom.code, ""
    if atom.kind == "optional_type":
        # One that is none holds None.
        holder, test = f"{atom.code}.value", f"type({atom.code}) is R_Optional and "
    found = f"R_Optional({holder}[{name!r}])"
    there = f"{test}type({holder}) is dict and {name!r} in {holder}"
    return f"{found} if {there} else {_optional_index(generator)}({atom.code}, {name!r})"


def is_optional_element(generator: Generator, node: ast.ExpressionNode) -> bool:
    """Tell whether an expression is an element as an optional, or the first of several."""
    if isinstance(node, ast.Call):
        known = isinstance(generator.checked.references.get(node), FunctionReference)
        if not known or node.function != "or" or node.target is None:
            return False
        parts = (node.target, *node.arguments)
        return len(parts) == 2 and all(is_optional_element(generator, part) for part in parts)
    if not isinstance(node, ast.Select | ast.Index) or node in generator.checked.references:
        return False
    return node.optional or is_optional_element(generator, node.operand)


def emit_held(generator: Generator, node: ast.ExpressionNode) -> Atom:
    """Write what an optional element holds, or R_MISSING: an optional is never made.

    INVARIANT: the node `is_optional_element`.
    """
    if isinstance(node, ast.Call) and node.target is not None:
        held = emit_held(generator, node.target)
        with generator.block(f"if {held.code} is R_MISSING:"):
            other = emit_held(generator, node.arguments[0])
            generator.line(f"{held.code} = {other.code}")
        return held
    assert isinstance(node, ast.Select | ast.Index)
    look = "R_strict_held" if generator.environment.strict_selection else "R_held"
    if is_optional_element(generator, node.operand):
        holder = emit_held(generator, node.operand).code
        wrapped = f"R_NONE if {holder} is R_MISSING else R_Optional({holder})"
    else:
        holder = wrapped = generator.emit_named(node.operand).code
    fits = f"type({holder}) is dict"
    if isinstance(node, ast.Select):
        key = repr(node.field)
    else:
        atom = generator.emit(node.index)
        key, is_text = atom.code, atom.kind == "string"
        fits = fits if is_text else f"{fits} and type({key}) is str"
    generator.charge(cost.SELECT, work=2)
    code = f"{holder}.get({key}, R_MISSING) if {fits} else {look}({wrapped}, {key})"
    return generator.assign(code, position=node.position)


def select_field(generator: Generator, atom: Atom, name: str, position: int) -> Atom:
    """Write the selection of one field."""
    atom = generator.named(atom)
    if atom.kind == "optional_type":
        generator.charge(0, work=2)
        code = _optional_field(generator, atom, name)
        return generator.assign(code, "optional_type", position)
    if atom.kind in _CANNOT_SELECT:
        return generator.assign(f"R_index({atom.code}, {name!r})", position=position)
    result = Atom(generator.temporary())
    probe = Probe(atom.code, name)
    generator.line(f"{result.code} = {atom.code}[{name!r}]", position, probe)
    return result


def emit_has(generator: Generator, node: ast.Has) -> Atom:
    """Generate the test for a field; it costs as much as its operand."""
    reference = generator.checked.references.get(node)
    if isinstance(reference, VariableReference) and not reference.fields:
        return Atom("True", "bool", (True,))
    atom = generator.emit_named(node.operand)
    fast = f"({node.field!r} in {atom.code}) if type({atom.code}) is dict"
    return generator.assign(
        f"{fast} else R_has({atom.code}, {node.field!r})", "bool", node.position
    )


def emit_index(generator: Generator, node: ast.Index) -> Atom:
    """Write the access to an element."""
    atom = generator.emit_named(node.operand)
    key = generator.emit(node.index)
    generator.charge(cost.SELECT)
    if node.optional or "optional_type" in (atom.kind, generator.kind_of(node.operand).name):
        generator.charge(0, work=2)
        code = f"{_optional_index(generator)}({atom.code}, {key.code})"
        return generator.assign(code, "optional_type", node.position)
    if key.kind == "string" and atom.kind not in _CANNOT_SELECT:
        return _index_by_string(generator, atom, key, node.position)
    slow = f"R_index({atom.code}, {key.code})"
    if key.kind == "int" and key.value is not None and key.value[0] >= 0:
        test = f"type({atom.code}) is list and len({atom.code}) > {key.code}"
        slow = f"{atom.code}[{key.code}] if {test} else {slow}"
    return generator.assign(slow, position=node.position)


def _index_by_string(generator: Generator, atom: Atom, key: Atom, position: int) -> Atom:
    if key.value is not None:
        return select_field(generator, atom, key.value[0], position)
    result = Atom(generator.temporary())
    probe = Probe(atom.code, key.code, key_is_variable=True)
    generator.line(f"{result.code} = {atom.code}[{key.code}]", position, probe)
    return result


def emit_conditional(generator: Generator, node: ast.Conditional) -> Atom:
    """Write `? :`; only one branch is evaluated."""
    condition = generator.emit_bool(node.condition)
    result = generator.temporary()
    with generator.block(f"if {condition.code}:"):
        then = generator.emit(node.then)
        generator.line(f"{result} = {then.code}")
    with generator.block("else:"):
        otherwise = generator.emit(node.otherwise)
        generator.line(f"{result} = {otherwise.code}")
    return Atom(result, then.kind if then.kind == otherwise.kind else "dyn")


def emit_logic(generator: Generator, node: ast.Logic) -> Atom:
    """Write a chain of `&&` or `||`: an operand that decides absorbs errors of the others."""
    neutral, undecided = ("True", "{}") if node.conjunction else ("False", "not {}")
    result, error = generator.temporary(), generator.temporary()
    generator.line(f"{error} = None")
    declared = generator.lines[-1]
    before, generator.raising = generator.raising, False
    for place, operand in enumerate(node.operands):
        if place:
            with generator.block(f"if {undecided.format(result)}:"):
                _emit_operand(generator, operand, Guarded(result, error, neutral))
        else:
            _emit_operand(generator, operand, Guarded(result, error, neutral))
    if generator.raising:
        raised = f"if {error} is not None and {undecided.format(result)}: raise {error}"
        generator.line(raised)
    else:
        declared.text = ""
    generator.raising = generator.raising or before
    return Atom(result, "bool")


class Guarded:
    """The names an operand that may fail writes to, and its result if it does."""

    __slots__ = ("error", "neutral", "result")

    def __init__(self, result: str, error: str, neutral: str) -> None:
        self.result = result
        self.error = error
        self.neutral = neutral


def _emit_operand(generator: Generator, operand: ast.ExpressionNode, names: Guarded) -> None:
    with generator.guard(names.result, names.error, names.neutral):
        atom = generator.emit_bool(operand)
        generator.line(f"{names.result} = {atom.code}")


def emit_list(generator: Generator, node: ast.ListLiteral) -> Atom:
    """Write a list; one of constants is made once, and never changed."""
    atoms = [
        generator.emit_named(part) if place in node.optionals else generator.emit(part)
        for place, part in enumerate(node.elements)
    ]
    if not node.optionals and all(atom.value is not None for atom in atoms):
        if not generator.environment.free_constants:
            generator.charge(cost.LIST)
        return generator.literal([atom.value[0] for atom in atoms if atom.value])
    generator.charge(cost.LIST)
    parts = [
        f"*R_present({atom.code})" if place in node.optionals else atom.code
        for place, atom in enumerate(atoms)
    ]
    position = node.position if node.optionals else None
    return generator.assign(f"[{', '.join(parts)}]", "list", position)


def emit_map(generator: Generator, node: ast.MapLiteral) -> Atom:
    """Write a map; keys that are different strings need no checks."""
    atoms = [(generator.emit(e.key), generator.emit(e.value), e.optional) for e in node.entries]
    keys = [key.value[0] if key.value else None for key, _, _ in atoms]
    simple = all(type(key) is str for key in keys) and len(set(keys)) == len(keys)
    constant = simple and all(v.value is not None and not optional for _, v, optional in atoms)
    if not (constant and generator.environment.free_constants):
        generator.charge(cost.MAP)
    if constant:
        values = [value.value[0] for _, value, _ in atoms if value.value]
        return generator.literal(dict(zip(keys, values, strict=True)))
    if simple and not any(optional for _, _, optional in atoms):
        parts = (f"{key.code}: {value.code}" for key, value, _ in atoms)
        return generator.assign(f"{{{', '.join(parts)}}}", "map")
    pairs = (
        f"*R_present_pair({key.code}, {value.code})" if optional else f"({key.code}, {value.code})"
        for key, value, optional in atoms
    )
    return generator.assign(f"R_make_map([{', '.join(pairs)}])", "map", node.position)


def emit_struct(generator: Generator, node: ast.StructLiteral) -> Atom:
    """Write a struct; optional fields that are none are left out."""
    generator.charge(cost.STRUCT)
    reference = generator.checked.references.get(node)
    if not isinstance(reference, TypeReference):
        message = generator.checked.unknown.get(node, "undeclared reference")
        return generator.assign(f"R_fail({message!r})", position=node.position)
    parts = []
    for entry in node.fields:
        code = generator.emit(entry.value).code
        if reference.name.startswith("Object") and _is_nested(generator.kind_of(entry.value)):
            code = f"R_with_made({code})"
        if entry.optional:
            parts.append(f"**dict(R_present_pair({entry.name!r}, {code}))")
        else:
            parts.append(f"{entry.name!r}: {code}")
    code = f"R_Struct({reference.name!r}, {{{', '.join(parts)}}})"
    return generator.assign(code, reference.name, node.position)


def _is_nested(kind: Type) -> bool:
    """Tell whether a list or map holds such: an expression made it, as others' types are dyn."""
    if kind.name == "optional_type":
        return _is_nested(kind.parameters[0])
    return kind.name in _CONTAINERS and kind.parameters[-1].name in _CONTAINERS


_CONTAINERS = frozenset(("list", "map"))

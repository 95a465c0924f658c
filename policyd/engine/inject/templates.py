"""Compile JSON values in which CEL expressions compute some parts.

Parts without an expression become JSON once, when the policy is loaded. A computed value that
is null, or an optional without a value, omits its place: the field, or the item of a list.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from policyd.api.inject import Expression
from policyd.api.meta import Json
from policyd.cel import Budget, Program
from policyd.cel.lib.quantity import CelQuantity
from policyd.cel.types import Type, is_dyn
from policyd.cel.values import Optional
from policyd.engine.documents.findings import field_path
from policyd.engine.inject.merging import InjectError

Path = tuple[str | int, ...]
Kind = Literal["text", "number", "amount", "flag", "texts", "objects"]
Compile = Callable[[Expression, Path, Kind], Program | None]
"""Compiles an expression at a path; None if it cannot be, which is reported elsewhere."""

Evaluate = Callable[[Mapping[str, object], Budget], Json]

ABSENT: Final = object()
"""Stands for a value that is left out."""

VALUE_KINDS: Mapping[str, Kind] = {
    "tolerationSeconds": "number",
    "maxSkew": "number",
    "minDomains": "number",
    "minMember": "number",
    "unconstrained": "flag",
    "values": "texts",
    "tolerations": "objects",
    "topologySpreadConstraints": "objects",
    "requests": "amount",
    "limits": "amount",
}
"""The result types of expressions by field, of the field or its entries; text for all others."""


@dataclass(frozen=True, slots=True)
class ValueTemplate:
    """A value with holes; `evaluate` is None if it has none and `constant` is all of it."""

    constant: Json
    evaluate: Evaluate | None = None

    def value(self, variables: Mapping[str, object], budget: Budget) -> Json:
        """Return the value with its holes filled, or ABSENT.

        Raises:
            CelError: If an expression fails.
            InjectError: If one gives a value of the wrong type.
        """
        return self.constant if self.evaluate is None else self.evaluate(variables, budget)


def build_template(value: object, path: Path, compile_: Compile) -> ValueTemplate:
    """Turn a literal, a Struct with expressions in it, or an expression into a template."""
    if isinstance(value, Expression):
        return _hole(value, path, compile_)
    if isinstance(value, msgspec.Struct):
        return _object(set_fields(value), path, compile_)
    if isinstance(value, Mapping):
        return _object(value, path, compile_)
    if isinstance(value, tuple | list):
        return _list(list(value), path, compile_)
    return ValueTemplate(value)


def set_fields(struct: msgspec.Struct) -> dict[str, Any]:
    """Return the fields of a Struct that are not at their default, by their name on the wire."""
    return {
        field.encode_name: value
        for field in msgspec.structs.fields(struct)
        if (value := getattr(struct, field.name)) != _default(field)
    }


def fields_of_type(struct: type[msgspec.Struct], type_: object) -> dict[str, str]:
    """Return the fields of a Struct that have a type: their names in Python, by those on the wire.

    Args:
        struct: The Struct.
        type_: The type, as the field is annotated.
    """
    fields = msgspec.structs.fields(struct)
    return {field.encode_name: field.name for field in fields if field.type == type_}


def _default(field: msgspec.structs.FieldInfo) -> object:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


def _hole(expression: Expression, path: Path, compile_: Compile) -> ValueTemplate:
    kind = _kind(path)
    program = compile_(expression, (*path, "expression"), kind)
    if program is None:
        return ValueTemplate(ABSENT)
    convert, what = _CONVERSIONS[kind], KIND_NAMES[kind]
    place = field_path(path[1:])
    evaluate = program.evaluate

    def fill(variables: Mapping[str, object], budget: Budget) -> Json:
        value = evaluate(variables, budget)
        if type(value) is Optional:
            value = value.value if value.present else None
        if value is None:
            return ABSENT
        if isinstance(value, dict | list):
            budget.charge_walk(value)
        converted = convert(value)
        if converted is ABSENT:
            raise InjectError(f"`{place}` evaluates to {_shown(value)}, which is not {what}")
        return converted

    return ValueTemplate(None, fill)


def _object(fields: Mapping[str, object], path: Path, compile_: Compile) -> ValueTemplate:
    templates = {k: build_template(v, (*path, k), compile_) for k, v in fields.items()}
    constant = {k: t.constant for k, t in templates.items() if t.evaluate is None}
    holes = [(k, t.evaluate) for k, t in templates.items() if t.evaluate is not None]
    if not holes:
        return ValueTemplate(constant)

    def fill(variables: Mapping[str, object], budget: Budget) -> Json:
        filled = dict(constant)
        for key, evaluate in holes:
            value = evaluate(variables, budget)
            if value is not ABSENT:
                filled[key] = value
        return filled

    return ValueTemplate(None, fill)


def _list(items: list[object], path: Path, compile_: Compile) -> ValueTemplate:
    templates = [build_template(v, (*path, i), compile_) for i, v in enumerate(items)]
    if all(template.evaluate is None for template in templates):
        return ValueTemplate([template.constant for template in templates])

    def fill(variables: Mapping[str, object], budget: Budget) -> Json:
        values = [template.value(variables, budget) for template in templates]
        return [value for value in values if value is not ABSENT]

    return ValueTemplate(None, fill)


def _kind(path: Path) -> Kind:
    """Return the result type at a path, by the nearest field that has one."""
    names = [step for step in path if isinstance(step, str)]
    if names[-1] in VALUE_KINDS:
        kind = VALUE_KINDS[names[-1]]
        # An item of `values` is one text; the field as a whole is a list of them.
        return "text" if kind == "texts" and isinstance(path[-1], int) else kind
    return "amount" if names[-2] in ("requests", "limits") else "text"


def plain(value: object) -> Json:
    """Turn a value of CEL into JSON; ABSENT if JSON has no such value."""
    match value:
        case bool() | str() | float() | None:
            return value
        case int():
            return int(value)
        case list():
            items = [plain(item) for item in value]
            return ABSENT if ABSENT in items else items
        case dict():
            fields = {key: plain(item) for key, item in value.items()}
            bad = any(v is ABSENT or not isinstance(k, str) for k, v in fields.items())
            return ABSENT if bad else fields
        case _:
            return ABSENT


def _text(value: object) -> Json:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int) else ABSENT


def _whole_number(value: object) -> Json:
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else ABSENT


def _amount(value: object) -> Json:
    if isinstance(value, CelQuantity):
        return str(value.quantity)
    return value if isinstance(value, str) else _whole_number(value)


def _flag(value: object) -> Json:
    return value if isinstance(value, bool) else ABSENT


def _texts(value: object) -> Json:
    if not isinstance(value, list):
        return ABSENT
    texts = [_text(item) for item in value]
    return ABSENT if ABSENT in texts else texts


def _objects(value: object) -> Json:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        return ABSENT
    return plain(value)


KIND_NAMES: Mapping[Kind, str] = {
    "text": "a string",
    "number": "an integer",
    "amount": "a quantity",
    "flag": "true or false",
    "texts": "a list of strings",
    "objects": "a list of objects",
}

_CONVERSIONS: Mapping[Kind, Callable[[object], Json]] = {
    "text": _text,
    "number": _whole_number,
    "amount": _amount,
    "flag": _flag,
    "texts": _texts,
    "objects": _objects,
}

_TYPES: Mapping[Kind, frozenset[str]] = {
    "text": frozenset({"string", "int", "uint", "bool"}),
    "number": frozenset({"int", "uint"}),
    "amount": frozenset({"string", "int", "uint", "kubernetes.Quantity"}),
    "flag": frozenset({"bool"}),
    "texts": frozenset({"list"}),
    "objects": frozenset({"list"}),
}


def type_fits(type_: Type, kind: Kind) -> bool:
    """Tell whether a value of a type may do, as far as is known; an optional one may."""
    if type_.name == "optional_type":
        type_ = type_.parameters[0]
    return is_dyn(type_) or type_.name in _TYPES[kind] or type_.name == "null_type"


def _shown(value: object) -> str:
    text = repr(value)
    return f"`{text[:60]}…`" if len(text) > 60 else f"`{text}`"

"""The limits of the full schema on single fields, checked where the slim one is installed.

A check is made once for each wire type, from the same annotations as the schemas.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import inspect

from policyd.api.kueue.validation import FieldError
from policyd.api.meta import Json
from policyd.api.names import (
    KEY_NAME,
    LABEL,
    LABEL_RULE,
    SUBDOMAIN,
    SUBDOMAIN_RULE,
)
from policyd.api.quantity import QuantityError, parse_quantity
from policyd.api.schema import FULL

Check = Callable[[Any, Any, str], Iterator[FieldError]]
"""Yields the errors in a value at a path, given its old value."""

_RULES: Final[Mapping[str, str]] = {
    f"^{LABEL}$": LABEL_RULE,
    f"^{SUBDOMAIN}$": SUBDOMAIN_RULE,
    rf"^({SUBDOMAIN}/)?({KEY_NAME})$": "must be a label key, as `example.com/name`",
}
"""The description of a pattern."""

_BITS: Final = {"int32": 31, "int64": 63}


def limit_errors(new: msgspec.Struct, old: msgspec.Struct | None = None) -> Iterator[FieldError]:
    """Yield the fields of an object that are out of bounds; those that are as they were pass."""
    return _type_check(type(new))(new, old, "")


class _Field(NamedTuple):
    name: str
    path: str
    default: Json
    required: bool
    check: Check | None


def _is_absent(value: Json, default: Json) -> bool:
    """Tell whether a field may have been left out; the fields of an object are checked anyhow."""
    return value == default and not isinstance(value, msgspec.Struct)


@cache
def _type_check(cls: type[msgspec.Struct]) -> Check:
    info = inspect.type_info(cls)
    assert isinstance(info, inspect.StructType), "a wire type is a Struct"
    return _struct_check(info)


def _struct_check(info: inspect.StructType) -> Check:
    fields = [field for field in map(_field, info.fields) if field.required or field.check]

    def check(new: msgspec.Struct, old: msgspec.Struct | None, path: str) -> Iterator[FieldError]:
        for field in fields:
            value = getattr(new, field.name)
            before = None if old is None else getattr(old, field.name)
            if old is not None and value == before:
                continue
            where = f"{path}.{field.path}" if path else field.path
            if field.required and value == field.default:
                yield FieldError(where, "", "", "Required", schema=True)
            elif field.check is not None and not _is_absent(value, field.default):
                yield from field.check(value, before, where)

    return check


def _field(field: inspect.Field) -> _Field:
    default = field.default
    if field.default_factory is not msgspec.NODEFAULT:
        default = field.default_factory()
    marks = field.type.extra_json_schema if isinstance(field.type, inspect.Metadata) else None
    required = "x-policyd-required" in (marks or {})
    return _Field(field.name, field.encode_name, default, required, _check(field.type))


def _check(info: inspect.Type) -> Check | None:
    """Return the check of a type; None if there is nothing to check."""
    match info:
        case inspect.Metadata(extra_json_schema=marks):
            return _bounded(marks or {}, info.type)
        case inspect.StructType():
            return _struct_check(info)
        case inspect.UnionType():
            return _optional(info)
        case inspect.VarTupleType():
            return _each(_check(info.item_type))
        case inspect.DictType():
            return _values(_check(info.value_type))
        case _:
            return None


def _optional(info: inspect.UnionType) -> Check | None:
    options = [option for option in info.types if not isinstance(option, inspect.NoneType)]
    if len(options) == 1:
        return _check(options[0])
    if all(isinstance(option, inspect.StrType | inspect.IntType) for option in options):
        return _quantity
    return None


def _quantity(value: str | int, _old: Json, path: str) -> Iterator[FieldError]:
    try:
        parse_quantity(value)
    except QuantityError as error:
        yield FieldError(path, str(value), str(error), schema=True)


def _each(check: Check | None) -> Check | None:
    if check is None:
        return None

    def check_items(new: tuple[Json, ...], old: Json, path: str) -> Iterator[FieldError]:
        for index, item in enumerate(new):
            if not old or item not in old:
                yield from check(item, None, f"{path}[{index}]")

    return check_items


def _values(check: Check | None) -> Check | None:
    if check is None:
        return None

    def check_values(new: dict[str, Json], old: Json, path: str) -> Iterator[FieldError]:
        for name, value in new.items():
            if not old or old.get(name) != value:
                yield from check(value, None, f"{path}[{name}]")

    return check_values


def _bounded(marks: Mapping[str, Any], inner: inspect.Type) -> Check | None:
    if marks.get("x-policyd-opaque"):
        return None
    checks = [*_bounds(marks.get(FULL, {})), *filter(None, (_check(inner),))]
    if len(checks) <= 1:
        return checks[0] if checks else None

    def check_all(new: Json, old: Json, path: str) -> Iterator[FieldError]:
        for check in checks:
            yield from check(new, old, path)

    return check_all


def _bounds(limits: Mapping[str, Any]) -> Iterator[Check]:
    for name, limit in limits.items():
        wrong = _BOUNDS[name](limit)
        yield _bound(*wrong)


def _bound(is_wrong: Callable[[Any], bool], message: str) -> Check:
    def check(new: Json, _old: Json, path: str) -> Iterator[FieldError]:
        if new is not None and is_wrong(new):
            value = new if isinstance(new, str | int) else len(new)
            yield FieldError(path, value, message, schema=True)

    return check


Bound = tuple[Callable[[Any], bool], str]


def _longest(most: int) -> Bound:
    return lambda text: len(text) > most, f"may not be longer than {most} letters"


def _shortest(least: int) -> Bound:
    return lambda text: len(text) < least, f"must have at least {least} letters"


def _fewest(least: int) -> Bound:
    return lambda items: len(items) < least, f"must have at least {least} items"


def _least(least: int) -> Bound:
    return lambda number: number < least, f"must be {least} or more"


def _pattern(pattern: str) -> Bound:
    shape = re.compile(pattern[1:-1])
    rule = _RULES.get(pattern, f"must match `{pattern}`")
    return lambda text: shape.fullmatch(text) is None, rule


def _format(name: str) -> Bound:
    most = 2 ** _BITS[name]
    return lambda number: not -most <= number < most, f"is more than an {name} can hold"


_BOUNDS: Final[Mapping[str, Callable[[Any], Bound]]] = {
    "format": _format,
    "maxLength": _longest,
    "minItems": _fewest,
    "minLength": _shortest,
    "minimum": _least,
    "pattern": _pattern,
}
"""By the names that OpenAPI has for bounds."""

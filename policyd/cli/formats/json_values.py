"""Values of ours as JSON: names of fields in one case, and numbers as numbers."""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final, cast

import msgspec

from policyd.status.naming import PLAIN, Naming

_KEYS: Final = frozenset({"workload", "workloads", "victims"})
"""Fields that have keys of workloads."""


def as_json(value: object, naming: Naming = PLAIN) -> Any:  # noqa: ANN401 - JSON
    """Return a value as JSON has it; names of fields begin small, keys of maps stay as they are."""
    match value:
        case msgspec.Struct():
            fields = msgspec.structs.fields(value)
            values = ((each.name, getattr(value, each.name)) for each in fields)
            return {_camel(name): as_json(_named(name, v, naming), naming) for name, v in values}
        case Fraction():
            return as_number(value)
        case str() | int() | float() | None:
            return value
        case Mapping():
            return {str(key): as_json(each, naming) for key, each in value.items()}
        case Sequence():
            return [as_json(each, naming) for each in value]
        case _:
            return msgspec.to_builtins(value)


def _named(field: str, value: object, naming: Naming) -> object:
    """Return the names of workloads if a field has their keys, and other values unchanged."""
    if field not in _KEYS:
        return value
    if isinstance(value, str):
        return naming.one(value) if value else value
    return [naming.one(str(key)) for key in cast("Iterable[object]", value)]


def as_number(value: Fraction) -> int | float:
    """Return a share as a number of JSON."""
    return value.numerator if value.denominator == 1 else float(value)


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(each.capitalize() for each in others)

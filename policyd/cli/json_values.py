"""Values of ours as JSON: names of fields in one case, and numbers as numbers."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import msgspec


def as_json(value: object) -> Any:  # noqa: ANN401 - JSON
    """Return a value as JSON has it; names of fields begin small, keys of maps stay as they are."""
    match value:
        case msgspec.Struct():
            fields = msgspec.structs.fields(value)
            return {_camel(each.name): as_json(getattr(value, each.name)) for each in fields}
        case Fraction():
            return as_number(value)
        case str() | int() | float() | None:
            return value
        case Mapping():
            return {str(key): as_json(each) for key, each in value.items()}
        case Sequence():
            return [as_json(each) for each in value]
        case _:
            return msgspec.to_builtins(value)


def as_number(value: Fraction) -> int | float:
    """Return a share as a number of JSON."""
    return value.numerator if value.denominator == 1 else float(value)


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(each.capitalize() for each in others)

"""Tell quickly of an object that its type can read it, as most objects of many.

`decode_typed` reads a value at a time, and names what is wrong. Of kinds with many objects, types
that msgspec checks at once are made of the table of kinds: they are narrower, so that an object
that they take is sound, and any other is to be read by `decode_typed`.
"""

from collections import Counter
from functools import cache
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from policyd.api import kinds
from policyd.api.kinds import FieldType
from policyd.api.meta import Json
from policyd.patch.builtin_types import decode_typed

FEW: Final = 50
"""Objects of a type that are read before a type to check them is made: that takes as long."""

_DAY: Final = r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])T([01]\d|2[0-3]):[0-5]\d:[0-5]\d"
_INT32: Final = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
_SCALARS: Final[dict[str, Any]] = {
    "string": str,
    "int32": _INT32,
    "int64": Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)],
    "bool": bool,
    "double": float,
    "bytes": Annotated[str, Meta(pattern="^([A-Za-z0-9+/]{4})*$")],
    "time": Annotated[str, Meta(pattern=f"^{_DAY}Z$")],
    "microtime": Annotated[str, Meta(pattern=rf"^{_DAY}\.\d{{6}}Z$")],
    "quantity": Annotated[str, Meta(pattern=r"^[0-9]{1,12}(\.[0-9]{1,3})?([mkMGTPE]|[KMGTPE]i)?$")]
    | Annotated[int, Meta(ge=0, le=2**53)],
    "intstr": _INT32 | str,
    "any": Any,
}


class Readability:
    """Checks objects, many of one type as a rule."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    def check(self, obj: Json, struct: str) -> None:
        """Check that an object can be read as a type.

        Raises:
            MistypedError: If it cannot; the text is the API server's.
        """
        self._seen[struct] += 1
        if self._seen[struct] > FEW and _is_sound(obj, struct):
            return
        decode_typed(obj, struct)


def _is_sound(obj: Json, struct: str) -> bool:
    try:
        checked = _type_of(struct)
        msgspec.convert(obj, checked)
    except (_RecursiveError, msgspec.ValidationError):
        return False
    return True


class _RecursiveError(Exception):
    """A type holds itself."""


@cache
def _type_of(struct: str) -> Any:  # noqa: ANN401 - a type that is made here
    return _made(struct, ())


def _made(struct: str, above: tuple[str, ...]) -> Any:  # noqa: ANN401 - likewise
    if struct in above:
        raise _RecursiveError
    if struct in _MADE:
        return _MADE[struct]
    inner = (*above, struct)
    fields = [
        (f"f{number}", _of_field(field, inner) | None, msgspec.field(default=None, name=name))
        for number, (name, field) in enumerate(kinds.fields(struct).items())
    ]
    made = _MADE[struct] = msgspec.defstruct(struct.rpartition(".")[2], fields, gc=False)
    return made


_MADE: Final[dict[str, Any]] = {}


def _of_field(field: FieldType, above: tuple[str, ...]) -> Any:  # noqa: ANN401 - likewise
    if field.scalar is not None:
        return _SCALARS[field.scalar]
    if field.struct is not None:
        return _made(field.struct, above)
    assert field.element is not None
    element = _of_field(field.element, above) | None
    return (
        list.__class_getitem__(element)
        if field.shape == "list"
        else dict.__class_getitem__((str, element))
    )

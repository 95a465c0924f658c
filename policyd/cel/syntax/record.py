"""Define classes with fields without `dataclasses`, which are slow to import."""

from typing import Any, ClassVar, dataclass_transform


@dataclass_transform(eq_default=False)
class Record:
    """A value with the fields its class is annotated with, given by place or by name.

    Compares by identity. Defaults are shared, so they must not be changed.
    """

    _fields: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        own = [name for name in cls.__annotations__ if not name.startswith("__")]
        inherited = cls._fields
        cls._fields = (*inherited, *(name for name in own if name not in inherited))

    def __init__(self, *values: Any, **named: Any) -> None:  # noqa: ANN401 - the types of the fields
        fields = self.__dict__
        fields.update(zip(self._fields, values, strict=False))
        fields.update(named)

    def __repr__(self) -> str:
        shown = (f"{name}={getattr(self, name)!r}" for name in self._fields)
        return f"{type(self).__name__}({', '.join(shown)})"

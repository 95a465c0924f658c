"""Write JSON values as literals of CEL."""

import json
from collections.abc import Iterable
from typing import Any, Final

_LAST_SHORT: Final = 0xFFFF
_SHORT: Final = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}


class CelText(str):
    """A value that is written in CEL already, among those that are JSON."""

    __slots__ = ()


def json_literal(value: Any) -> str:  # noqa: ANN401 - any JSON
    """Return a JSON value in CEL's syntax; values of several types in a list or map are `dyn`."""
    match value:
        case CelText():
            return str(value)
        case None | bool():
            return json.dumps(value)
        case str():
            return text_literal(value)
        case int() | float():
            return repr(int(value)) if value == int(value) else repr(value)
        case list():
            return f"[{', '.join(_parts(value))}]"
        case dict():
            pairs = zip(value, _parts(list(value.values())), strict=True)
            return f"{{{', '.join(f'{text_literal(name)}: {text}' for name, text in pairs)}}}"
        case _:
            raise AssertionError(type(value))


def _parts(values: list[Any]) -> list[str]:
    """Write the parts of a literal, which CEL wants to be of one type."""
    texts = [json_literal(value) for value in values]
    return texts if _are_alike(values) else [f"dyn({text})" for text in texts]


def _are_alike(values: Iterable[Any]) -> bool:
    return len({_type_of(value) for value in values}) <= 1


def _type_of(value: Any) -> object:  # noqa: ANN401 - any JSON
    """Return the type that CEL infers for a literal, or what differs from any other type."""
    match value:
        case list() | dict():
            parts = list(value.values()) if isinstance(value, dict) else value
            part = "dyn" if not _are_alike(parts) else [_type_of(each) for each in parts[:1]]
            return type(value), str(part)
        case float() if value == int(value):
            return int
        case CelText():
            return object()
        case _:
            return type(value)


def text_literal(text: str) -> str:
    """Return a string literal of CEL; regular expressions keep their backslashes in a raw one."""
    plain = text.isprintable()
    if plain and "\\" not in text:
        if "'" not in text:
            return f"'{text}'"
        if '"' not in text:
            return f'"{text}"'
    if plain and "'" not in text and not text.endswith("\\"):
        return f"r'{text}'"
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{''.join(map(_written, escaped))}'"


def _written(character: str) -> str:
    """Return a character as it stands in a literal."""
    if character.isprintable():
        return character
    number = ord(character)
    code = f"\\u{number:04x}" if number <= _LAST_SHORT else f"\\U{number:08x}"
    return _SHORT.get(character, code)

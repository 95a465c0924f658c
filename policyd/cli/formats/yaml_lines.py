"""Values as YAML, for answers of many lines: PyYAML takes three times as long.

The layout is PyYAML's, except that long strings are not wrapped. Scalars that may need more than
simple quotes are left to PyYAML.
"""

import re
from functools import lru_cache
from typing import Final

import yaml

_PLAIN: Final = re.compile(r"[A-Za-z](?:[\w./-]| (?=[A-Za-z0-9]))*", re.ASCII)
"""Strings that need no quotes, but for those in `_WORDS`."""
_WORDS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
"""Words that are read as something else than a string, in any case of letters."""
_QUOTED: Final = re.compile(r"[ -&(-~]*")
"""Strings that single quotes are enough for: printable ASCII without such a quote."""
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?")
_UNWRAPPED: Final = 2**30
"""Characters that a line of PyYAML may have."""


def yaml_text(value: object) -> str:
    """Return a value as a YAML document in block style.

    Args:
        value: Dicts with string keys, lists and tuples, strings, numbers, booleans and None.
    """
    lines: list[str] = []
    _add(lines, value, "", "")
    lines.append("")
    return "\n".join(lines)


def _add(lines: list[str], value: object, first: str, indent: str) -> None:
    """Add the lines of a value: the first begins with `first`, the others with `indent`."""
    if value and isinstance(value, dict):
        for key, each in value.items():
            if not isinstance(each, (dict, list, tuple)):
                lines.append(f"{first}{_scalar(key)}: {_scalar(each)}")
            elif each:
                lines.append(f"{first}{_scalar(key)}:")
                # As PyYAML has it, a list in a mapping is not indented.
                deeper = indent + "  " if isinstance(each, dict) else indent
                _add(lines, each, deeper, deeper)
            else:
                lines.append(f"{first}{_scalar(key)}: {_empty(each)}")
            first = indent
    elif value and isinstance(value, (list, tuple)):
        for each in value:
            _add(lines, each, first + "- ", indent + "  ")
            first = indent
    else:
        lines.append(
            first + (_empty(value) if isinstance(value, (dict, list, tuple)) else _scalar(value))
        )


def _empty(value: object) -> str:
    return "{}" if isinstance(value, dict) else "[]"


@lru_cache(maxsize=50_000, typed=True)
def _scalar(value: object) -> str:
    if isinstance(value, str):
        if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
            return value
        return f"'{value}'" if _QUOTED.fullmatch(value) else _by_pyyaml(value, default_style='"')
    # Exponents are left to PyYAML: YAML 1.1 reads `1e-07` as a string.
    text = repr(value)
    return text if _NUMBER.fullmatch(text) else _by_pyyaml(value)


def _by_pyyaml(value: object, default_style: str | None = None) -> str:
    text: str = yaml.dump(
        value,
        Dumper=yaml.CSafeDumper,
        default_style=default_style,
        width=_UNWRAPPED,
        allow_unicode=True,
    )
    return text.removesuffix("\n").removesuffix("\n...")

"""The descriptions of the fields of a class, from its source: the string below each field.

Reads the source, and so belongs to the shell.
"""

import ast
import inspect
import sys
from collections.abc import Mapping
from functools import cache
from itertools import pairwise


@cache
def field_descriptions(owner: type) -> Mapping[str, str]:
    """Return the description of each field of a class, on one line; none if there is no source."""
    definition = _classes(owner.__module__).get(owner.__qualname__)
    notes = {}
    for field, note in pairwise(definition.body if definition else ()):
        text = _text(note)
        if text and isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            notes[field.target.id] = " ".join(text.split())
    return notes


@cache
def _classes(module: str) -> Mapping[str, ast.ClassDef]:
    """Return the classes of a module; each module is parsed once."""
    try:
        source = inspect.getsource(sys.modules[module])
    except (KeyError, OSError, TypeError):
        return {}
    return {each.name: each for each in ast.parse(source).body if isinstance(each, ast.ClassDef)}


def _text(statement: ast.stmt) -> str:
    """Return the string that stands by itself; empty if it is anything else."""
    value = statement.value if isinstance(statement, ast.Expr) else None
    text = value.value if isinstance(value, ast.Constant) else None
    return text if isinstance(text, str) else ""

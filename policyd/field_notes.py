"""What the fields of a class mean, in the words of its source: the string below each field.

Reads the source, and so belongs to the shell.
"""

import ast
import inspect
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from textwrap import dedent


@cache
def field_notes(owner: type) -> Mapping[str, str]:
    """Return the string below each field of a class, on one line; none where there is no source."""
    try:
        source = inspect.getsource(owner)
    except (OSError, TypeError):
        return {}
    (definition,) = ast.parse(dedent(source)).body
    assert isinstance(definition, ast.ClassDef), "the source of a class is its definition"
    notes = {}
    for field, note in pairwise(definition.body):
        text = _text(note)
        if text and isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            notes[field.target.id] = " ".join(text.split())
    return notes


def _text(statement: ast.stmt) -> str:
    """Return the string that stands by itself; empty if it is anything else."""
    value = statement.value if isinstance(statement, ast.Expr) else None
    text = value.value if isinstance(value, ast.Constant) else None
    return text if isinstance(text, str) else ""

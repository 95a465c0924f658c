"""Write JSON patches as CEL expressions that evaluate to the operations."""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from policyd.cel.syntax.literals import text_literal
from policyd.engine.export.places import both
from policyd.patch.operations import APPEND, pointer

Steps = tuple[str, ...]


def as_json(value: msgspec.Struct) -> Any:  # noqa: ANN401 - plain JSON
    """Return a part of a policy as it is written."""
    return msgspec.json.decode(msgspec.json.encode(value))


def at(base: str, *steps: str) -> str:
    """Return the optional value at a path, in CEL."""
    named = (f".?{s}" if s.isidentifier() else f"[?{text_literal(s)}]" for s in steps)
    return base + "".join(named)


@dataclass(slots=True)
class PatchText:
    """Operations on one object; `base` is the object in CEL, `path` gives its JSON pointer."""

    base: str
    path: str
    _parents: dict[Steps, list[str]] = field(default_factory=dict)
    _lists: set[Steps] = field(default_factory=set)
    _operations: list[str] = field(default_factory=list)

    def put(self, value: str, *steps: str, when: str = "", absent: str = "") -> None:
        """Set a value, with the objects that it is in.

        Args:
            value: The value, in CEL.
            steps: Where it goes.
            when: A condition.
            absent: A condition that already holds if the object lacks the value's parent.
        """
        self._make(steps[:-1], when)
        self.replace(value, *steps, when=both(when, absent))

    def replace(self, value: str, *steps: str, when: str) -> None:
        """Set a value in an object that exists."""
        self._add(f"op: 'add', path: {self._pointer(steps)}, value: {value}", when)

    def append(self, value: str, *steps: str, when: str = "", absent: str = "") -> None:
        """Append to a list, with the list and the objects that it is in; see `put`."""
        self._lists.add(steps)
        self._make(steps, when)
        self.replace(value, *steps, APPEND, when=both(when, absent))

    def remove(self, *steps: str, when: str = "") -> None:
        """Remove a value, if it exists."""
        there = f"{at(self.base, *steps)}.hasValue()"
        self._add(f"op: 'remove', path: {self._pointer(steps)}", both(when, there))

    def include(self, operations: str) -> None:
        """Add an expression that gives a list of operations itself."""
        self._operations.append(operations)

    def text(self) -> str:
        """Return the expression; empty if there is nothing to do."""
        if not self._operations:
            return ""
        parents = sorted(self._parents.items(), key=lambda item: len(item[0]))
        made = [self._made(steps, whens) for steps, whens in parents]
        return " + ".join([*made, *self._operations])

    def _make(self, steps: Steps, when: str) -> None:
        """Note the parents of a value; a pod, or its template, always has `spec`."""
        for length in range(1 if steps[0] != "spec" else 2, len(steps) + 1):
            self._parents.setdefault(steps[:length], []).append(when)

    def _made(self, steps: Steps, whens: list[str]) -> str:
        missing = f"!{at(self.base, *steps)}.hasValue()"
        wanted = "" if "" in whens else " || ".join(f"({w})" for w in dict.fromkeys(whens))
        value = "[]" if steps in self._lists else "{}"
        operation = f"op: 'add', path: {self._pointer(steps)}, value: {value}"
        return _guarded(both(missing, wanted), operation)

    def _add(self, operation: str, when: str) -> None:
        self._operations.append(_guarded(when, operation))

    def _pointer(self, steps: Steps) -> str:
        written = pointer(steps)
        if self.path.endswith("'"):
            return f"{self.path[:-1]}{text_literal(written)[1:]}"
        return f"{self.path} + {text_literal(written)}"


def _guarded(when: str, operation: str) -> str:
    made = f"[JSONPatch{{{operation}}}]"
    return f"({when} ? {made} : [])" if when else made

"""Objects that are known, as facts about the unknown ones of a proof."""

from typing import Any

import z3

from policyd.prove.schemas import KINDS
from policyd.prove.values import text_term
from policyd.prove.world import UnknownValue


class TooLargeError(Exception):
    """An object has more elements than the bound of a proof."""


def pinned(node: UnknownValue, value: Any, *, there: bool = True) -> list[Any]:
    """Return the facts that say what a node is."""
    if not there:
        return [node.kind == KINDS.index("absent")]
    if isinstance(value, dict):
        return _pinned_map(node, value)
    if isinstance(value, list):
        return _pinned_list(node, value)
    names = {bool: "bool", int: "int", float: "double", str: "string", type(None): "null"}
    kind: Any = names[type(value)]
    facts = [node.kind == KINDS.index(kind)]
    return facts if value is None else [*facts, node.of(kind) == _term(value)]


def _term(value: Any) -> Any:
    if isinstance(value, float):
        return z3.RealVal(repr(value))
    return text_term(value) if isinstance(value, str) else value


def _pinned_list(node: UnknownValue, value: list[Any]) -> list[Any]:
    facts = [node.kind == KINDS.index("list")]
    if node._items is not None:
        if len(value) > node.world.bound:
            raise TooLargeError
        facts.append(node.of("length") == len(value))
        for item, each in zip(node._items, value, strict=False):
            facts += pinned(item, each)
    return facts


def _pinned_map(node: UnknownValue, value: dict[str, Any]) -> list[Any]:
    facts = [node.kind == KINDS.index("map")]
    for name, child in node.children.items():
        facts += pinned(child, value.get(name), there=name in value)
    if node._extras is not None:
        others = [name for name in value if name not in node.children]
        if len(others) > node.world.bound:
            raise TooLargeError
        facts.append(node.of("size") == len(others))
        for (key, child), name in zip(node._extras, others, strict=False):
            facts += [key == text_term(name), *pinned(child, value[name])]
    return facts

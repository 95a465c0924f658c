"""Objects that are known, as facts about the unknown ones of a proof."""

from typing import Any

import z3

from policyd.prove.world import KINDS, Node


class TooLargeError(Exception):
    """An object has more elements than the bound of a proof."""


def pinned(node: Node, value: Any, *, there: bool = True) -> list[Any]:
    """Return the facts that say what a node is."""
    if not there:
        return [node.kind == KINDS.index("absent")]
    match value:
        case None:
            return [node.kind == KINDS.index("null")]
        case bool():
            return [node.kind == KINDS.index("bool"), node.of("bool") == value]
        case int():
            return [node.kind == KINDS.index("int"), node.of("int") == value]
        case float():
            return [
                node.kind == KINDS.index("double"),
                node.of("double") == z3.RealVal(repr(value)),
            ]
        case str():
            return [node.kind == KINDS.index("string"), node.of("string") == z3.StringVal(value)]
        case list():
            return _pinned_list(node, value)
    return _pinned_map(node, value)


def _pinned_list(node: Node, value: list[Any]) -> list[Any]:
    facts = [node.kind == KINDS.index("list")]
    if node._items is not None:
        if len(value) > node.world.bound:
            raise TooLargeError
        facts.append(node.of("length") == len(value))
        for item, each in zip(node._items, value, strict=False):
            facts += pinned(item, each)
    return facts


def _pinned_map(node: Node, value: dict[str, Any]) -> list[Any]:
    facts = [node.kind == KINDS.index("map")]
    for name, child in node.children.items():
        facts += pinned(child, value.get(name), there=name in value)
    if node._extras is not None:
        others = [name for name in value if name not in node.children]
        if len(others) > node.world.bound:
            raise TooLargeError
        facts.append(node.of("size") == len(others))
        for (key, child), name in zip(node._extras, others, strict=False):
            facts += [key == z3.StringVal(name), *pinned(child, value[name])]
    return facts

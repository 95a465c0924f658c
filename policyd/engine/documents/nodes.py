"""Convert YAML to JSON values, within bounds that make hostile text harmless."""

import math
from collections.abc import Callable
from itertools import chain
from typing import Any, Protocol

import yaml
from yaml.composer import Composer

from policyd.api.meta import Json

MAXIMUM_DEPTH = 200
"""The depth of a document, at most; no Kubernetes object comes near."""

MAXIMUM_ALIASES = 1000
"""The number of aliases in a document, at most: more are a bomb."""

MAXIMUM_ALIASED = 100_000
"""The number of values and characters that aliases represent, at most."""

LARGEST_NUMBER_BITS = 1024
"""The size of a whole number in bits, at most: JSON's readers accept no more."""

MERGE = "tag:yaml.org,2002:merge"
"""The tag of the key `<<`."""

_TAG = "tag:yaml.org,2002:"
_CONTAINERS = (_TAG + "map", _TAG + "seq")
_SCALARS = yaml.constructor.SafeConstructor()


class Mark(Protocol):
    """A place in a chunk; both count from 0."""

    @property
    def line(self) -> int:
        """The line."""
        ...

    @property
    def column(self) -> int:
        """The place in the line."""
        ...


class UnreadableError(Exception):
    """A document cannot be turned into JSON; tells where and why."""

    def __init__(self, message: str, mark: Mark | None, hint: str | None = None) -> None:
        super().__init__(message)
        self.mark = mark
        self.hint = hint


def compose(text: str, most: int) -> tuple[yaml.Node | None, frozenset[int]]:
    """Return the node of a text of one document, None if it is empty, and which aliases stand for.

    Keys are returned by identity; `most` limits the values of the document.

    Raises:
        UnreadableError: If it is nested too deep, or has more values.
        yaml.YAMLError: If it is not YAML.
    """
    nodes = _Nodes(text, most)
    return nodes.get_single_node(), frozenset(nodes.shared)


def build(node: yaml.Node, shared: frozenset[int]) -> Json:
    """Return the value of a node, of which aliases stand for some parts.

    Raises:
        UnreadableError: If it has no counterpart in JSON, uses too many aliases, or ones that
            stand for too much.
    """
    return _Builder(shared).build(node)


def is_deeper(value: Json, most: int) -> bool:
    """Tell whether a value is nested deeper than so many lists and objects."""
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(most + 1):
        level = _next(level)
        if not level:
            return False
    return True


def is_larger(value: Json, most: int) -> bool:
    """Tell whether a value has more fields and items than so many, at any depth up to the most."""
    count = 0
    level = [value] if isinstance(value, (dict, list)) else []
    while level and count <= most:
        count += sum(map(len, level))
        level = _next(level)
    return count > most


def _next(level: list[Any]) -> list[Any]:
    """Return the lists and objects in some lists and objects."""
    parts = chain.from_iterable(each.values() if isinstance(each, dict) else each for each in level)
    return [part for part in parts if isinstance(part, (dict, list))]


class _Nodes(Composer, yaml.CSafeLoader):
    """Composes the nodes of one document, down to a depth that is safe to walk.

    The events are libyaml's, which all wheels of PyYAML carry. Its composer is not used: it
    recurses on the C stack, and a deep document ends the process.
    """

    def __init__(self, text: str, most: int) -> None:
        yaml.CSafeLoader.__init__(self, text)
        Composer.__init__(self)
        self._depth = 0
        self._most = most
        self.shared: set[int] = set()

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._depth += 1
        self._most -= 1
        if self._depth > MAXIMUM_DEPTH or self._most < 0:
            event = self.peek_event()
            wrong = "too many values" if self._most < 0 else "nested too deep"
            raise UnreadableError(wrong, event.start_mark if event else None)
        is_alias = self.check_event(yaml.AliasEvent)
        node = super().compose_node(parent, index)
        self._depth -= 1
        if is_alias:
            self.shared.add(id(node))
        return node


class _Builder:
    """Converts nodes to values; aliases share the value that they refer to.

    Readers of the values do not see that they are shared, so the size they appear to have is
    counted: values, and the characters of their texts.
    """

    def __init__(self, shared: frozenset[int]) -> None:
        self._shared = shared
        self._built: dict[int, tuple[Json, int]] = {}
        self._texts: set[int] = set()
        self._open: set[int] = set()
        self._aliases = 0
        self._aliased = 0
        self._size = 0

    def build(self, node: yaml.Node) -> Json:
        if isinstance(node, yaml.ScalarNode):
            self._count(node)
            return scalar(node)
        if node.tag not in _CONTAINERS:
            raise UnreadableError(f"unknown tag `{node.tag}`", node.start_mark)
        if id(node) in self._open:
            raise UnreadableError("an alias contains itself", node.start_mark)
        if id(node) in self._built:
            value, size = self._built[id(node)]
            self._note_alias(node, size)
            return value
        self._open.add(id(node))
        before = self._size
        value = self._mapping(node) if isinstance(node, yaml.MappingNode) else self._sequence(node)
        self._open.remove(id(node))
        self._size += 1
        if id(node) in self._shared:
            self._built[id(node)] = value, self._size - before
        return value

    def _count(self, node: yaml.ScalarNode) -> None:
        """Count a text, which an alias may also refer to."""
        size = len(node.value) + 1
        if id(node) in self._texts:
            self._note_alias(node, size)
            return
        self._size += size
        if id(node) in self._shared:
            self._texts.add(id(node))

    def _note_alias(self, node: yaml.Node, size: int) -> None:
        self._aliases += 1
        self._aliased += size
        self._size += size
        if self._aliases > MAXIMUM_ALIASES or self._aliased > MAXIMUM_ALIASED:
            most = f"{MAXIMUM_ALIASES:,} may stand for {MAXIMUM_ALIASED:,} values and characters"
            raise UnreadableError("too many aliases", node.start_mark, f"{most}: write them out")

    def _sequence(self, node: yaml.Node) -> list[Json]:
        return [self.build(item) for item in node.value]

    def _mapping(self, node: yaml.Node) -> dict[str, Json]:
        own: dict[str, Json] = {}
        merged: dict[str, Json] = {}
        for key, value in node.value:
            if key.tag == MERGE:
                self._merge(value, into=merged)
                continue
            name = _key(key)
            if name in own:
                raise UnreadableError(f"field `{name}` is given twice", key.start_mark)
            own[name] = self.build(value)
        return {**merged, **own} if merged else own

    def _merge(self, node: yaml.Node, *, into: dict[str, Json]) -> None:
        for source in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            value = self.build(source)
            if not isinstance(value, dict):
                raise UnreadableError("`<<` merges objects only", source.start_mark)
            for name, item in value.items():
                into.setdefault(name, item)


def _key(node: yaml.Node) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise UnreadableError("a field's name must be a string", node.start_mark)
    return str(node.value)


def scalar(node: yaml.ScalarNode) -> Json:
    """Return the value of a scalar, by its tag.

    Raises:
        UnreadableError: If it has none in JSON.
    """
    kind = node.tag.removeprefix(_TAG)
    text = node.value
    match kind:
        case "null":
            return None
        case "bool":
            return _constructed(node, _SCALARS.construct_yaml_bool)
        case "int" if ":" not in text:  # 1:30 is text to the API server's tools
            return _number(node, _SCALARS.construct_yaml_int)
        case "float" if ":" not in text:
            return _number(node, _SCALARS.construct_yaml_float)
        case "str" | "int" | "float" | "timestamp" | "binary" | "value":
            return text
        case _:
            raise UnreadableError(f"unknown tag `{node.tag}`", node.start_mark)


def _constructed(node: yaml.ScalarNode, construct: Callable[[yaml.ScalarNode], Json]) -> Json:
    """Return the value of a scalar whose tag may be written out, and not true of its text."""
    try:
        return construct(node)
    except (ValueError, LookupError):
        kind = "a number" if "bool" not in node.tag else "`true` or `false`"
        raise UnreadableError(
            f"`{node.value[:100]}` is not {kind}", node.start_mark, "quote it"
        ) from None


def _number(node: yaml.ScalarNode, construct: Callable[[yaml.ScalarNode], Json]) -> Json:
    number = _constructed(node, construct)
    if isinstance(number, float) and not math.isfinite(number):
        raise UnreadableError(f"JSON has no `{node.value}`", node.start_mark, "quote it")
    if isinstance(number, int) and number.bit_length() > LARGEST_NUMBER_BITS:
        raise UnreadableError("the number is too large", node.start_mark, "quote it")
    return number

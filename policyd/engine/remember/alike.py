"""Objects that policies cannot distinguish: a scan decides once on all that differ elsewhere.

The reads of some policies are cut into parts, each a field and its projection. The parts of an
object are written out once for all readers; each policy sees a selection of them.
An object that has pod templates has the same parts again for each template, as expressions may mean
either by a path, and besides how many pods come of each.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from policyd.api.admission import Operation
from policyd.api.meta import Json
from policyd.engine.model.compiled import CompiledPolicy
from policyd.engine.objects.match import labels_of
from policyd.engine.objects.pods import ORDINARY
from policyd.engine.objects.workloads import EACH, WorkloadKind, pod_templates, value_at
from policyd.engine.remember.footprint import reads_of
from policyd.engine.remember.footprint_tree import BEGINNING, Footprint
from policyd.patch.operations import Path

LONGEST: Final = 8 * 1024
"""Bytes of one part that is compared: objects with larger ones are decided on one by one."""

_LONGEST_KNOWN: Final = 8192
_MOST_KNOWN: Final = 2000
"""Bytes of a value, and values of a field, whose parts are remembered."""

MOST_ITEMS: Final = 64
"""Items of a list, and pod templates, that are compared."""

_OF_ONE: Final = frozenset(
    ("name", "generateName", "uid", "resourceVersion", "creationTimestamp", "generation", EACH)
)
"""Fields of the metadata that are another object's in each object."""

_NAMESPACE: Final = "namespace"
_OF_REQUESTS: Final = frozenset(
    (
        *("kind", "resource", "subResource", "operation", _NAMESPACE, "userInfo", "dryRun"),
        *("requestKind", "requestResource", "requestSubResource", "options"),
    )
)
"""The common attributes of requests of a scan, for objects of a kind and namespace."""

_DEEPEST: Final = 4
"""Fields within each other that are parts of their own."""

_encode: Final = msgspec.json.Encoder().encode

Part = str | bytes | int | tuple[object, ...]
"""A part that is read of an object: a text, another value as JSON, the depth of the first missing
field, or such of each item of a list."""

Project = Callable[[Json], Json]
"""Returns the part of a value that is read."""

Write = Callable[[Json], bytes] | None
"""Writes out the part of a value that is read; None if that is all of it."""


class PolicyReads(NamedTuple):
    """The reads of a policy: those that decide whether it matches an object, and its verdict."""

    before: Footprint
    validations: tuple[Footprint, ...]
    namespace: bool
    """Whether it looks at the namespace, or could."""


def comparable_reads(policy: CompiledPolicy, operation: Operation) -> PolicyReads | None:
    """Return the reads of a policy in an object; None if they may differ for each object.

    Args:
        policy: The policy.
        operation: The operation; on UPDATE, the object is unchanged.

    INVARIANT: its verdict on an existing object follows from its conditions, validations, the
    variables of these, and selectors. Its changes are not evaluated.
    """
    if operation == "UPDATE" and "oldObject" in policy.uses:
        return None
    if policy.annotations:
        return None
    try:
        before, request = reads_of(policy, operation, [program for _, program in policy.conditions])
        found = [reads_of(policy, operation, [each.program]) for each in policy.validations]
    except Exception:  # noqa: BLE001 - any policy can be evaluated for each object
        return None
    for name in ("apiVersion", "kind"):
        before.at(name).take()
    requests = [request, *(asked for _, asked in found)]
    trees = tuple(tree for tree, _ in found)
    if any(map(_is_of_one, (before, *trees))) or any(map(_asks, requests)):
        return None
    by_namespace = (
        any(_NAMESPACE in each.fields for each in requests)
        or "namespaceObject" in policy.uses
        or policy.policy.spec.param_kind is not None
        or policy.counts_claims  # which are those of the namespace
        or bool(policy.namespace)
        or any(binding.constraints is not None for binding in policy.bindings)
    )
    return PolicyReads(before, trees, by_namespace)


def _is_of_one(tree: Footprint) -> bool:
    """Tell whether the reads differ for each object."""
    metadata = tree.fields.get("metadata")
    named = metadata is not None and (
        metadata.whole or not metadata.fields or not _OF_ONE.isdisjoint(metadata.fields)
    )
    return tree.whole or named or EACH in tree.fields


def _asks(request: Footprint) -> bool:
    """Tell whether the reads differ for each request."""
    return request.whole or not request.fields.keys() <= _OF_REQUESTS


@dataclass(slots=True)
class _Branch:
    """A field, and its reads: parts, and fields within it."""

    first: int = 0
    """The number of the first of its parts; the others come next, up to `begin`."""
    writes: list[Write] = field(default_factory=list)
    """What is read of its value: a part each."""
    known: dict[bytes, list[bytes]] = field(default_factory=dict)
    """The parts of values that were written out before."""
    within: dict[str, "_Branch"] = field(default_factory=dict)
    items: "_Branch | None" = None
    """The reads of its items."""
    others: range = range(0)
    """The numbers of its parts but the first."""
    begin: int = 0
    end: int = 0
    """The parts within it are those from `begin` to before `end`; how many items it has is the
    first of them."""
    depth: int = 0
    """How many fields and items it is within."""
    empty: list[Part] = field(default_factory=list)
    """The parts within it of a value that has no fields."""


class _TooMuchError(Exception):
    """An object has more to compare than it is worth."""


class Parts:
    """The parts of objects that policies look at."""

    def __init__(self, reads: Iterable[Footprint]) -> None:
        """Take the reads of each policy."""
        leaves: dict[Path, dict[str, Write]] = {}
        self._counts: dict[Path, int] = {}
        """The numbers of the parts that say how many items lists have."""
        for each in reads:
            for path, node in _leaves(each, ()):
                leaves.setdefault(path, {}).setdefault(_text(node), _writer(node))
        self._numbers: dict[tuple[Path, str], int] = {}
        self._size = 0
        self._root = _Branch()
        self._grow(self._root, (), leaves)
        self._root.empty = [0] * self._size
        self.locations = 2 * self._size
        """Which part says where pod templates are, how many pods come of each, and which
        containers are added to them."""
        self.namespace = self.locations + 1
        """Which part is the namespace."""
        self.labelled = self.namespace + 1
        """Which part says whether its labels are all texts: if one is not, selectors see none."""
        self.count = self.labelled + 1
        """How many parts there are."""
        self._without_templates = [*[None] * self._size, (), "", False]

    def _grow(
        self, branch: _Branch, path: Path, leaves: Mapping[Path, Mapping[str, Write]]
    ) -> None:
        depth = len(path)
        names = dict.fromkeys(
            str(other[depth]) for other in leaves if other[:depth] == path and len(other) > depth
        )
        for name in names:
            inner = _Branch()
            if name == EACH:
                branch.items = inner
                self._counts[path] = self._size
                self._size += 1
            else:
                branch.within[name] = inner
            inner.first = self._size
            for text, write in leaves.get((*path, name), {}).items():
                self._numbers[(*path, name), text] = self._size
                inner.writes.append(write)
                self._size += 1
            inner.begin = self._size
            inner.others = range(inner.first + 1, inner.begin)
            self._grow(inner, (*path, name), leaves)
            inner.end = self._size
            inner.depth = depth + 1
            inner.empty = [inner.depth] * (inner.end - inner.begin)

    def numbers(self, reads: Footprint, kind: WorkloadKind | None) -> tuple[int, ...]:
        """Return the numbers of the parts that make up the reads in objects of a kind."""
        own: dict[int, None] = {}
        for path, node in _leaves(reads, ()):
            own[self._numbers[path, _text(node)]] = None
            for depth, name in enumerate(path):
                if name == EACH:
                    own[self._counts[path[:depth]]] = None
        if kind is None or _is_pod(kind):
            return tuple(own)
        of_templates = (self._size + number for number in own)
        return (*own, *of_templates, self.locations)

    def of(self, value: Json, kind: WorkloadKind | None, namespace: str) -> list[Any] | None:
        """Return the parts of an object; None if they are too much to compare."""
        try:
            parts = self._of(value)
            parts += self._without_templates
            if kind is not None and not _is_pod(kind):
                locations = tuple((each.path, each.pods) for each in pod_templates(value, kind))
                if locations:
                    templates = self._of_templates([value_at(value, path) for path, _ in locations])
                    parts[self._size : self.locations] = templates
                parts[self.locations] = *locations, *_added(value, kind)
        except _TooMuchError:
            return None
        parts[self.namespace] = namespace
        parts[self.labelled] = _are_texts(value)
        return parts

    def _of_templates(self, pods: Sequence[Json]) -> list[Any]:
        if len(pods) > MOST_ITEMS or any("kind" in pod or "apiVersion" in pod for pod in pods):
            raise _TooMuchError  # a template with a kind counts as of that kind
        found = [self._of(pod) for pod in pods]
        return found[0] if len(found) == 1 else list(zip(*found, strict=True))

    def _of(self, value: Json) -> list[Any]:
        parts: list[Any] = self._root.empty.copy()
        _fill(parts, value, self._root)
        return parts


def _added(value: Json, kind: WorkloadKind) -> Iterable[bytes]:
    """Yield the containers that a controller adds to the pods of an object."""
    for path in kind.besides:
        text = _encode(value_at(value, path))
        if len(text) > LONGEST:
            raise _TooMuchError
        yield text


def _are_texts(value: Json) -> bool:
    metadata = value.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    return isinstance(labels, dict) and bool(labels_of(value)) == bool(labels)


def _fill(parts: list[Any], value: Any, branch: _Branch) -> None:  # noqa: ANN401 - JSON
    """Write out a value, for which the parts of an object without fields were added."""
    within = branch.within
    for name, found in value.items():
        inner = within.get(name)
        if inner is None:
            continue
        if inner.writes:
            if type(found) is str and len(found) <= LONGEST:  # all that is read of it is itself
                parts[inner.first] = found
                for number in inner.others:
                    parts[number] = found
            else:
                text = _encode(found)
                known = inner.known.get(text) or _projected(inner, found, text)
                parts[inner.first : inner.begin] = known
        if inner.empty:
            parts[inner.begin : inner.end] = inner.empty
            _fill_within(parts, found, inner)


def _projected(branch: _Branch, value: Json, text: bytes) -> list[bytes]:
    """Return the parts of a field's value, and remember them: most values occur again."""
    found = [text if each is None else each(value) for each in branch.writes]
    if max(map(len, found)) > LONGEST:
        raise _TooMuchError
    if len(text) <= _LONGEST_KNOWN and len(branch.known) < _MOST_KNOWN:
        branch.known[text] = found
    return found


def _fill_within(parts: list[Any], value: Any, branch: _Branch) -> None:  # noqa: ANN401 - JSON
    """Write out a field's value, which may be anything."""
    if type(value) is dict and branch.items is None:
        _fill(parts, value, branch)
    elif type(value) is list and branch.items is not None and not branch.within:
        _fill_items(parts, value, branch, branch.items)
    else:
        _fill_with(parts, value, branch, branch.depth)


def _fill_items(parts: list[Any], items: list[Any], branch: _Branch, inner: _Branch) -> None:
    """Write out the items of a list, side by side."""
    begin, end = branch.begin, branch.end
    if len(items) > MOST_ITEMS:
        raise _TooMuchError
    found = []
    for item in items:
        if type(item) is dict:
            parts[inner.begin : inner.end] = inner.empty
            _fill(parts, item, inner)
        else:
            _fill_with(parts, item, branch, inner.depth)
        if len(items) > 1:
            found.append(parts[begin:end])
    if found:
        parts[begin:end] = zip(*found, strict=True)
    parts[begin] = -1 - len(items)


def _fill_with(parts: list[Any], value: Json, branch: _Branch, depth: int) -> None:
    """Write out a value of another shape than its reads: it counts as a whole."""
    odd = depth, _encode(value)
    if len(odd[1]) > LONGEST:
        raise _TooMuchError
    parts[branch.begin : branch.end] = [odd] * (branch.end - branch.begin)


def _is_pod(kind: WorkloadKind) -> bool:
    return bool(kind.places) and not kind.places[0].path


def _leaves(node: Footprint, path: Path) -> Iterable[tuple[Path, Footprint]]:
    """Yield the parts of reads: fields with a projection of their own."""
    for name, inner in node.fields.items():
        at = (*path, name)
        splits = inner.fields and not (inner.whole or inner.devices)
        depth = len(at)
        if EACH in inner.fields:
            items = inner.fields[EACH]
            splits = splits and len(inner.fields) == 1 and _has_fields(items)
            depth += 1  # the parts of a list are those of its items
        if splits and depth < _DEEPEST:
            yield from _leaves(inner, at)
        else:
            yield at, inner


def _has_fields(node: Footprint) -> bool:
    return bool(node.fields) and EACH not in node.fields and not (node.whole or node.devices)


def _text(node: Footprint) -> str:
    """Return the reads of a part, as a text that is equal for equal parts."""
    return "*" if _is_whole(node) else node.text


def _is_whole(node: Footprint) -> bool:
    """Tell whether all of a value is read, or as good as all."""
    return node.whole or bool(node.fields) == node.devices


def _writer(node: Footprint) -> Write:
    """Return a function that writes out the part of a value that is read.

    It is cut out of a value of the expected shape by a type, which is faster.
    """
    if _is_whole(node):
        return None
    project, shape = _projector(node), _shape(node)
    if shape is None:
        return lambda value: _encode(project(value))
    cut: Project = partial(msgspec.convert, type=shape)
    if not isinstance(shape, type):  # of a list: msgspec would make its type anew each time
        held: Any = msgspec.defstruct("Held", [("value", shape)], gc=False)
        cut = lambda value: msgspec.convert({"value": value}, held).value  # noqa: E731

    def write(value: Json) -> bytes:
        try:
            return _encode(cut(value))
        except msgspec.ValidationError:
            return _encode(project(value))

    return write


def _shape(node: Footprint) -> Any:  # noqa: ANN401 - a type that is made here
    """Return the type of the expected values, with what is read of them; None if there is none."""
    if _is_whole(node):
        return Any
    shapes = {name: _shape(each) for name, each in node.fields.items()}
    if node.devices or None in shapes.values():
        return None
    if EACH in shapes:
        # Whose items are read whole may be a list or a map: of that, names are read.
        is_list = len(shapes) == 1 and shapes[EACH] is not Any
        return list.__class_getitem__(shapes[EACH]) if is_list else None
    fields = [
        (f"f{number}", shape, msgspec.field(name=name, default=msgspec.UNSET))
        for number, (name, shape) in enumerate(shapes.items())
        if not name.startswith(BEGINNING)
    ]
    try:
        return msgspec.defstruct("Fields", fields, gc=False)
    except ValueError:  # a name that no field of a type may have
        return None


def _projector(node: Footprint) -> Project:
    """Return a function that returns the part of a value that is read."""
    fields = node.fields
    if _is_whole(node):
        return _itself
    if node.devices:
        return _devices
    projects = [
        (name, _projector(each))
        for name, each in fields.items()
        if name != EACH and not name.startswith(BEGINNING)
    ]
    if EACH not in fields:
        return lambda value: _fields(value, projects)
    item, alone = _projector(fields[EACH]), len(fields) == 1
    begin = tuple(name[len(BEGINNING) :] for name in fields if name.startswith(BEGINNING))

    def project(value: Json) -> Json:
        if isinstance(value, list) and alone:
            return value if item is _itself else [item(each) for each in value]
        if isinstance(value, dict) and not node.valued:
            begun = {name: value[name] for name in value if name.startswith(begin)} if begin else {}
            return [list(value), _fields(value, projects) if projects else {}, begun]
        return value

    return project


def _itself(value: Json) -> Json:
    return value


def _fields(value: Json, projects: Iterable[tuple[str, Project]]) -> Json:
    if not isinstance(value, dict):
        return value
    return {name: project(value[name]) for name, project in projects if name in value}


def _devices(resources: Json) -> Json:
    """Return a container's resources, without the amounts of those that are not devices."""
    if not isinstance(resources, dict):
        return resources
    return {side: _without_ordinary(amounts) for side, amounts in resources.items()}


def _without_ordinary(amounts: Json) -> Json:
    if not isinstance(amounts, dict):
        return amounts
    return {name: amounts[name] for name in amounts if name not in ORDINARY}

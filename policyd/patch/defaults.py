"""Fill in the defaults of an object of a built-in kind, as the API server does when it reads one.

`defaults.json` in `policyd.api.data` has them: `make generate` renews it from the answers of a real
API server. What is computed from another field, which no example tells, is here.
"""

import base64
import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Final

import msgspec

from policyd.api import data
from policyd.api.meta import Json
from policyd.api.names import NAME_LABEL
from policyd.patch.builtin_types import MistypedError, Object, copied
from policyd.patch.builtin_views import type_of, typed_view
from policyd.patch.operations import same_json


class _Defaults(msgspec.Struct, frozen=True, kw_only=True):
    """The defaults of the fields of a struct, where it stands."""

    set: dict[str, Json] = {}
    """The value of each field that is not given."""
    copy: dict[str, str] = {}
    """The field whose value a field has that is not given."""
    cases: dict[str, dict[str, dict[str, Json]]] = {}
    """Other values of fields, null for none, where a field is given: by its value, `*` for any."""
    computed: list[str] = []
    """Fields from which others are computed."""
    zero: list[str] = []
    """Fields that are not given, too, where they have the zero value of their type."""
    within: dict[str, int] = {}
    """The defaults of structs in fields, be they in a list, by their numbers."""


class _File(msgspec.Struct, frozen=True):
    roots: dict[str, int]
    """The number of the defaults of each kind, by `apiVersion/kind`."""
    nodes: list[_Defaults]


@cache
def _file() -> _File:
    return msgspec.json.decode(data.packaged(data.__name__, data.DEFAULTS), type=_File)


def as_sent(obj: Json) -> Json:
    """Return an object as the API server sends it to webhooks and policies that are for new ones.

    An object of a custom kind, and one that cannot be read by its type, stays as it is.
    """
    struct = type_of(obj)
    if struct is None:
        return obj
    try:
        sent = typed_view(obj, struct)[0]
    except MistypedError:
        return obj
    fill_in(sent)
    return sent


def fill_in(obj: Object) -> None:
    """Set the defaults of an object that was read by its type, in place.

    Args:
        obj: The object as `typed_view` returns it; one of a custom kind stays as it is.
    """
    file = _file()
    root = file.roots.get(f"{obj.get('apiVersion')}/{obj.get('kind')}")
    if root is not None:
        _fill_in(obj, file.nodes[root], file.nodes)
        if obj["kind"] in _WHOLE:
            _WHOLE[obj["kind"]](obj)


def _fill_in(value: Object, defaults: _Defaults, nodes: list[_Defaults]) -> None:
    _set_fields(value, defaults)
    for name, number in defaults.within.items():
        part = value.get(name)
        for each in part if isinstance(part, list) else (part,):
            if isinstance(each, dict):
                _fill_in(each, nodes[number], nodes)


def _set_fields(value: Object, defaults: _Defaults) -> None:
    for name in defaults.computed:
        if value.get(name):
            _COMPUTED[name](value)
    for name, source in defaults.copy.items():
        if _is_unset(value, name, defaults) and value.get(source) is not None:
            value[name] = value[source]
    for name, default in (defaults.set | _of_cases(value, defaults)).items():
        if default is not None and _is_unset(value, name, defaults):
            value[name] = copied(default)


def _of_cases(value: Object, defaults: _Defaults) -> dict[str, Json]:
    """Return the defaults that other fields decide on, as they were given."""
    changed: dict[str, Json] = {}
    for name, cases in defaults.cases.items():
        given = value.get(name)
        if given is not None:
            key = "true" if given is True else given
            known = cases.get(key) if isinstance(key, str) else None
            changed |= cases.get("*", {}) if known is None else known
    return changed


def _is_unset(value: Object, name: str, defaults: _Defaults) -> bool:
    given = value.get(name)
    return given is None or (name in defaults.zero and given in ("", 0))


_NAME: Final = r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*"
_PART: Final = "[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
_IMAGE: Final = re.compile(
    rf"({_PART}(\.{_PART})*(:[0-9]+)?/)?{_NAME}(/{_NAME})*(:(?P<tag>\w[\w.-]{{0,127}}))?(@[\w:+.-]+)?",
    re.ASCII,
)


def _pull(value: Object, source: str, policy: str) -> None:
    image = _IMAGE.fullmatch(value[source])
    if image and "@" not in value[source] and image["tag"] in {None, "latest"}:
        value.setdefault(policy, "Always")


def _requests(value: Object) -> None:
    """Request what is limited."""
    value["requests"] = value["limits"] | (value.get("requests") or {})


def _encode(value: Object) -> None:
    """Keep the texts of a secret encoded."""
    texts = value["stringData"].items()
    encoded = {key: base64.b64encode(str(text).encode()).decode() for key, text in texts}
    value["data"] = (value.get("data") or {}) | encoded
    del value["stringData"]


def _name_kind(value: Object) -> None:
    kind = str(value["kind"])
    for name, default in (("singular", kind.lower()), ("listKind", f"{kind}List")):
        if not value.get(name):
            value[name] = default


def _first_range(value: Object) -> None:
    """Keep the address range of a node also as the first of all."""
    ranges = value.get("podCIDRs") or [value["podCIDR"]]
    if not value.get("podCIDR"):
        value["podCIDR"] = ranges[0]
    value["podCIDRs"] = ranges


_COMPUTED: Final[Mapping[str, Callable[[Object], None]]] = {
    "image": lambda value: _pull(value, "image", "imagePullPolicy"),
    "kind": _name_kind,
    "limits": _requests,
    "podCIDR": _first_range,
    "podCIDRs": _first_range,
    "reference": lambda value: _pull(value, "reference", "pullPolicy"),
    "stringData": _encode,
}
"""Computes fields from the one of the name."""


def _label_namespace(obj: Object) -> None:
    metadata = obj["metadata"]
    if metadata.get("name"):
        metadata["labels"] = (metadata.get("labels") or {}) | {NAME_LABEL: metadata["name"]}


def _label_as_template(obj: Object) -> None:
    spec = obj.get("spec") or {}
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if labels and not obj["metadata"].get("labels"):
        obj["metadata"]["labels"] = labels
    if labels and obj["kind"] == "ReplicationController" and not spec.get("selector"):
        spec["selector"] = labels


def _note_generation(obj: Object) -> None:
    metadata = obj["metadata"]
    given = {"deprecated.daemonset.template.generation": "0"}
    metadata["annotations"] = given | (metadata.get("annotations") or {})


def _complete_pod(obj: Object) -> None:
    """Publish the ports of a pod in the network of its node; request what the pod is limited to."""
    spec = obj["spec"]
    resources = spec.get("resources") or {}
    limits = {n: v for n, v in (resources.get("limits") or {}).items() if _OF_PODS.match(n)}
    if limits:
        resources["requests"] = limits | (resources.get("requests") or {})
    for name in ("containers", "initContainers") if spec.get("hostNetwork") else ():
        for container in spec.get(name) or ():
            for port in container.get("ports") or ():
                if port.get("containerPort"):
                    port.setdefault("hostPort", port["containerPort"])


_OF_PODS: Final = re.compile("cpu$|memory$|hugepages-")


def _forget_affinity(obj: Object) -> None:
    if obj["spec"].get("sessionAffinity") == "None":
        obj["spec"].pop("sessionAffinityConfig", None)


_WHOLE: Final[Mapping[str, Callable[[Object], None]]] = {
    "DaemonSet": _note_generation,
    "Job": _label_as_template,
    "Namespace": _label_namespace,
    "Pod": _complete_pod,
    "ReplicationController": _label_as_template,
    "Service": _forget_affinity,
}
"""Computes fields of an object from fields elsewhere in it, by kind."""


def as_written(given: Json, before: Json, after: Json) -> Json:
    """Return what was written with the changes that were made to it as it was sent.

    Args:
        given: An object as written.
        before: The same with the defaults of its type.
        after: That with changes.

    Returns:
        The object as written with the changes, and without the defaults that none concerns.
    """
    if same_json(before, after):
        return given
    if isinstance(given, dict) and isinstance(before, dict) and isinstance(after, dict):
        return _fields_as_written(given, before, after)
    if isinstance(given, list) and isinstance(before, list) and isinstance(after, list):
        return _items_as_written(given, before, after)
    return after


def _fields_as_written(given: Object, before: Object, after: Object) -> Object:
    result: Object = {}
    for name, value in given.items():
        if name in after:
            result[name] = as_written(value, before.get(name), after[name])
        elif name not in before:
            result[name] = value
    for name, value in after.items():
        if name not in given and not (name in before and same_json(before[name], value)):
            empty: Json = {} if isinstance(value, dict) else None
            result[name] = as_written(empty, before.get(name), value)
    return result


def _items_as_written(given: list[Json], before: list[Json], after: list[Json]) -> list[Json]:
    if len(given) != len(before):
        return after
    if len(after) == len(before):
        return [as_written(*items) for items in zip(given, before, after, strict=True)]
    kept: dict[str, Json] = {}
    for written, sent in zip(given, before, strict=True):
        kept.setdefault(json.dumps(sent, sort_keys=True), written)
    return [kept.get(json.dumps(item, sort_keys=True), item) for item in after]

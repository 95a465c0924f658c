"""The names of Go's types that the API server's messages have: asked of a real one.

Each field of each struct is given a value that it cannot have. The message names the type of the
field and, if the struct is embedded in another in Go, its name within the path.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from policyd.patch.builtin_types import GO_TYPES
from tests.controlplane.server import ControlPlane
from tests.live.server import Live

_WRONG = re.compile(r"into Go struct field \w+\.(\S+) of type (\S+)$")

Record = dict[str, Any]
Types = Mapping[str, dict[str, Record]]


def add_names(control_plane: ControlPlane, resources: Sequence[Record], types: Types) -> None:
    """Complete the records of fields with the names that the API server has for their types.

    Args:
        control_plane: Has the API server.
        resources: The records of all resources.
        types: The records of the fields of each struct; those of which `go_type` and `embedded`
            are not what their shape tells get these.
    """
    running = Live(control_plane)
    try:
        seen: set[str] = set()
        for resource in resources:
            if {"create", "get"} <= set(resource["verbs"]):
                _ask_about(running, resource, types, seen)
    finally:
        running.close()


def _ask_about(running: Live, resource: Record, types: Types, seen: set[str]) -> None:
    group, version = resource["group"], resource["version"]
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    where = "/namespaces/default" if resource.get("namespaced") else ""
    path = f"{root}{where}/{resource['plural']}"
    identity = {
        "apiVersion": f"{group}/{version}" if group else version,
        "kind": resource["kind"],
    }
    waiting: list[tuple[str, tuple[tuple[str, bool], ...], str]] = [(resource["type_name"], (), "")]
    while waiting:
        struct, steps, place = waiting.pop()
        if struct in seen:
            continue
        seen.add(struct)
        asked = [
            one
            for name, record in types[struct].items()
            if steps or name not in identity
            for one in _wrong(name, record)
        ]
        answers = running.all(
            lambda one, steps=steps: (
                running.ask(
                    "POST",
                    path,
                    {**_within(steps, {one[0]: one[2]}), **identity},
                    query={"dryRun": "All"},
                ).message
            ),
            asked,
        )
        for (name, record, _), message in zip(asked, answers, strict=True):
            _note(name, record, place, message)
        for name, record in types[struct].items():
            is_list = record["shape"] == "list"
            inner = record["element"].get("struct") if is_list else record.get("struct")
            if inner is not None:
                embedded = record.get("embedded")
                parts = (place, embedded, name)
                waiting.append((inner, (*steps, (name, is_list)), ".".join(filter(None, parts))))


def _wrong(name: str, record: Record) -> Iterator[tuple[str, Record, Any]]:
    """Yield values that a field and its elements cannot have."""
    if record.get("scalar") not in {"any", "quantity"}:
        yield name, record, [] if record["shape"] == "scalar" else 1
    element = record.get("element")
    if element is not None and element["shape"] == "scalar":
        for _, inner, value in _wrong(name, element):
            yield name, inner, [value] if record["shape"] == "list" else {"k": value}


def _within(steps: Sequence[tuple[str, bool]], content: Any) -> Any:
    for name, is_list in reversed(steps):
        content = {name: [content] if is_list else content}
    return content


def _note(name: str, record: Record, place: str, message: str) -> None:
    found = _WRONG.search(message)
    if found is None:
        return
    path, go_type = found.groups()
    prefix = f"{place}." if place else ""
    if path.startswith(prefix):
        middle = path.removeprefix(prefix).removesuffix(name).strip(".")
        if middle:
            record["embedded"] = middle
    if go_type != _plain(record):
        record["go_type"] = go_type


def _plain(record: Record) -> str:
    """Return the name of a type whose record has no other."""
    if "scalar" in record:
        return GO_TYPES.get(record["scalar"], record["scalar"])
    if "struct" in record:
        return str(record["struct"]).rpartition("/")[2]
    inner = record["element"].get("go_type") or _plain(record["element"])
    return f"[]{inner}" if record["shape"] == "list" else f"map[string]{inner}"

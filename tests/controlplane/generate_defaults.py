"""Write the defaults of Kubernetes' own kinds, `policyd/api/data/defaults.json`.

Run `python -m tests.controlplane.generate_defaults` after a change of the Kubernetes version. A
real API server says in its audit log how it reads an object, with its defaults and before it looks
for errors. So each struct of each kind is sent empty, and once with each of its fields, and what
comes back besides is a default. `policyd.patch.defaults` says what the file means; it also has the
few defaults that are copied from another field, which no example tells from a constant.
"""

import itertools
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from policyd.api import data, kinds
from policyd.api.kinds import BuiltinResource, FieldType
from policyd.patch.builtin_views import typed_view
from tests.controlplane.generate_kinds import layout
from tests.live.server import Live, live, path_of

TARGET = Path(data.__file__).with_name(data.DEFAULTS)

COMPUTED = {
    ("apiextensions/v1.CustomResourceDefinitionNames", "kind"),
    ("core/v1.Container", "image"),
    ("core/v1.EphemeralContainer", "image"),
    ("core/v1.ImageVolumeSource", "reference"),
    ("core/v1.NodeSpec", "podCIDR"),
    ("core/v1.NodeSpec", "podCIDRs"),
    ("core/v1.ResourceRequirements", "limits"),
    ("core/v1.Secret", "stringData"),
    ("resource/v1.DeviceTaint", "timeAdded"),
}
"""Fields from which others are computed, each by a function of `policyd.patch.defaults`, or that
are themselves."""

VALUES = {("rbac/v1.Subject", "kind"): ("Group", "ServiceAccount", "User")}
"""The values of fields on which others depend, where OpenAPI does not list them."""

UNLISTED = "Unlisted"
"""A value that no field has."""

SAMPLES = {
    "string": "x",
    "int32": 1,
    "int64": 1,
    "bool": True,
    "double": 1,
    "bytes": "YQ==",
    "time": "2020-01-01T00:00:00Z",
    "microtime": "2020-01-01T00:00:00.000000Z",
    "quantity": "1",
    "intstr": 1,
    "any": {},
}

_Read = tuple[dict[str, Any], dict[str, Any]]
"""A struct as the API server reads it, and as its type alone has it."""

Steps = tuple[tuple[str, bool], ...]
"""A path: fields, and whether each is a list."""


class Auditor:
    """Asks an API server how it reads objects."""

    def __init__(self, running: Live, log: Path) -> None:
        self._running = running
        self._log = log
        self._read = 0
        self._numbers = itertools.count()

    def read(self, objects: Sequence[Any]) -> list[Any]:
        """Return objects as the API server has read them; None for one that it cannot read."""
        names = [f"probe-{next(self._numbers)}" for _ in objects]
        named = [
            {**obj, "metadata": {**(obj.get("metadata") or {}), "name": name}}
            for obj, name in zip(objects, names, strict=True)
        ]
        self._running.all(
            lambda obj: self._running.ask("POST", path_of(obj), obj, query={"dryRun": "All"}), named
        )
        with self._log.open("rb") as log:
            log.seek(self._read)
            text = log.read()
            self._read = log.tell()
        found = {}
        for line in text.splitlines():
            obj = json.loads(line).get("requestObject")
            if obj:
                found[obj.get("metadata", {}).get("name", "")] = obj
        return [found.get(name) for name in names]


@contextmanager
def auditor() -> Iterator[Auditor]:
    """Run an API server that writes down how it reads objects."""
    with tempfile.TemporaryDirectory() as folder:
        log, policy = Path(folder, "audit.log"), Path(folder, "audit.json")
        rule = {"level": "Request", "verbs": ["create"]}
        policy.write_text(
            json.dumps(
                {
                    "apiVersion": "audit.k8s.io/v1",
                    "kind": "Policy",
                    "omitStages": ["RequestReceived"],
                    "rules": [rule],
                }
            )
        )
        flags = [f"--audit-policy-file={policy}", f"--audit-log-path={log}"]
        with live(flags=flags) as running:
            yield Auditor(running, log)


def main() -> None:
    """Start an API server, and renew the file from it."""
    with auditor() as asked:
        TARGET.write_text(generate(asked))
    print(f"wrote {TARGET.relative_to(Path.cwd())}")


def generate(asked: Auditor) -> str:
    """Return the file's text, as the API server has it now."""
    nodes = _Nodes()
    roots = {}
    for resource in creatable():
        number = _Tree(asked, resource, nodes).node((), resource.type_name, ())
        if number is not None:
            roots[f"{resource.api_version}/{resource.kind}"] = number
    version = data.tables().version
    sources = {"defaults": f"audit log of kube-apiserver {version}", "made by": "make generate"}
    return f"{layout({'sources': sources, 'roots': roots, 'nodes': nodes.all}, 2)}\n"


def creatable() -> list[BuiltinResource]:
    """Return the resources whose objects are stored."""
    return [found for found in kinds.resources() if {"create", "get"} <= set(found.verbs)]


class _Nodes:
    """The structs that have defaults; equal ones are kept once."""

    def __init__(self) -> None:
        self.all: list[Any] = []
        self._known: dict[str, int] = {}

    def add(self, node: Any) -> int:
        text = json.dumps(node, sort_keys=True)
        if text not in self._known:
            self._known[text] = len(self.all)
            self.all.append(node)
        return self._known[text]


class _Tree:
    """The structs of a kind."""

    def __init__(self, asked: Auditor, resource: BuiltinResource, nodes: _Nodes) -> None:
        self._asked = asked
        self._resource = resource
        self._nodes = nodes

    def node(self, steps: Steps, type_name: str, above: tuple[str, ...]) -> int | None:
        """Return the number of a struct's defaults; None if there are none at any depth."""
        fields = kinds.fields(type_name)
        variants = [("", None), *_variants(type_name, fields, root=not steps)]
        read = self._contents(steps, [{name: value} if name else {} for name, value in variants])
        learnt = _Learnt(type_name, fields, read[0])
        for (name, value), found in zip(variants[1:], read[1:], strict=True):
            if found is not None:
                learnt.see_whole(name, value, found)
        for (name, value), found in zip(variants[1:], read[1:], strict=True):
            if found is not None:
                learnt.see(name, value, found)
        within = {}
        for name, field in fields.items():
            number = self._inside(steps, name, field, (*above, type_name))
            if number is not None:
                within[name] = number
        node = {key: part for key, part in {**learnt.parts(), "within": within}.items() if part}
        return self._nodes.add(node) if node else None

    def _inside(
        self, steps: Steps, name: str, field: FieldType, above: tuple[str, ...]
    ) -> int | None:
        if not steps and name == "metadata":
            return None
        is_list = field.shape == "list"
        struct = field.element.struct if is_list and field.element else field.struct
        if struct is None or struct in above or struct.startswith("meta/v1."):
            return None
        return self.node((*steps, (name, is_list)), struct, above)

    def _contents(self, steps: Steps, contents: list[Any]) -> list[Any]:
        """Send a struct with each content; return it as it was read, and as its type reads it."""
        packed = any(is_list for _, is_list in steps)
        sent = (
            [self._object(steps, contents)]
            if packed
            else [self._object(steps, [content]) for content in contents]
        )
        read = self._asked.read(sent)
        if packed and read[0] is None and len(contents) > 1:  # one of them cannot be read
            return [self._contents(steps, [content])[0] for content in contents]
        found: list[Any] = []
        for obj, as_read in zip(sent, read, strict=True):
            if as_read is None:
                found.append(None)
                continue
            typed, _ = typed_view(obj, self._resource.type_name)
            found += zip(_at(as_read, steps), _at(typed, steps), strict=True)
        return found

    def _object(self, steps: Steps, contents: list[Any]) -> Any:
        """Make an object with a struct once for each content."""
        last = max((i for i, (_, is_list) in enumerate(steps) if is_list), default=-1)
        values = list(contents)
        for index in range(len(steps) - 1, -1, -1):
            name, is_list = steps[index]
            if index > last:
                values = [{name: value} for value in values]
            elif index == last:
                values = [{name: values}]
            else:
                values = [{name: [values[0]] if is_list else values[0]}]
        identity = {"apiVersion": self._resource.api_version, "kind": self._resource.kind}
        return {**values[0], **identity}


class _Learnt:
    """The defaults of a struct, as the API server's answers show them one by one."""

    def __init__(self, type_name: str, fields: Mapping[str, FieldType], read: _Read | None) -> None:
        self._type_name = type_name
        self._fields = fields
        self._unset = read[1] if read else {}
        self._base = self._added(read)
        self._whole: dict[str, Any] = {}
        self._cases: dict[str, Any] = {}
        self._copies: dict[str, str] = {}
        self._computed: list[str] = []

    def see_whole(self, name: str, value: Any, found: _Read) -> None:
        """Note what a struct is that is given empty: the defaults within it make it so."""
        if value == {}:
            self._whole[name] = found[0].get(name)

    def see(self, name: str, value: Any, found: _Read) -> None:
        """Note what becomes of the other fields if one has a value."""
        added = {n: v for n, v in self._added(found).items() if n != name}
        if (self._type_name, name) in COMPUTED:
            if any(self._base.get(n) != v for n, v in added.items()):
                self._computed.append(name)
            return
        changed = {
            n: self._short(n, added.get(n))
            for n in {**self._base, **added}
            if n != name and self._base.get(n) != added.get(n)
        }
        field = self._fields[name]
        if type(value) in {str, int} and not field.enum:
            copied = [n for n, v in changed.items() if v == value and type(v) is type(value)]
            self._copies |= dict.fromkeys(copied, name)
            changed = {n: v for n, v in changed.items() if n not in copied}
        if changed:
            listed = field.enum or (self._type_name, name) in VALUES
            key = value if listed and value != UNLISTED else "*"
            self._cases.setdefault(name, {})["true" if value is True else key] = changed

    def parts(self) -> dict[str, Any]:
        """Return what the file says of the struct."""
        for name, known in self._cases.items():
            if "*" in known:
                known |= {value: {} for value in self._fields[name].enum if value not in known}
        given = {
            name: self._short(name, value)
            for name, value in self._base.items()
            if (self._type_name, name) not in COMPUTED
        }
        cases = [case for known in self._cases.values() for case in known.values()]
        ruled = {*given, *self._copies, *(name for case in cases for name in case)}
        zeros = [name for name in ruled if type(self._unset.get(name)) in {str, int}]
        return {
            "set": given,
            "copy": self._copies,
            "cases": self._cases,
            "computed": self._computed,
            "zero": sorted(name for name in zeros if not self._unset[name]),
        }

    def _short(self, name: str, value: Any) -> Any:
        """Return a default; an empty struct if the defaults within make it what it is."""
        return {} if value is not None and self._whole.get(name) == value else value

    def _added(self, found: _Read | None) -> dict[str, Any]:
        """Return what the API server has added to a struct."""
        as_read, typed = found or ({}, {})
        return {
            name: value
            for name, value in as_read.items()
            if name in self._fields and name != "metadata" and typed.get(name) != value
        }


def _at(obj: Any, steps: Steps) -> list[Any]:
    """Return the structs of the last list on a path, one for each content that was sent."""
    if not steps:
        return [obj]
    (name, is_list), rest = steps[0], steps[1:]
    if not is_list:
        return _at(obj.get(name) or {}, rest)
    return [found for item in obj.get(name) or () for found in _at(item, rest)]


def _variants(type_name: str, fields: Any, *, root: bool) -> Iterator[tuple[str, Any]]:
    for name, field in fields.items():
        if root and name in {"apiVersion", "kind", "metadata"}:
            continue
        if (type_name, name) in VALUES:
            yield from ((name, value) for value in VALUES[type_name, name])
        elif field.enum:
            yield from ((name, value) for value in (*field.enum, UNLISTED) if value)
        else:
            yield name, _sample(field)


def _sample(field: FieldType) -> Any:
    if field.shape == "struct":
        return {}
    if field.element is not None:
        inner = _sample(field.element)
        return [inner] if field.shape == "list" else {"k": inner}
    return SAMPLES[str(field.scalar)]


if __name__ == "__main__":
    main()

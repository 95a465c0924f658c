"""CustomResourceDefinitions, which add kinds to those that are served."""

from collections.abc import Iterator, Mapping, Sequence

from policyd.local.apiserver.custom.rules import check_expressions
from policyd.local.apiserver.custom.version import CustomVersion
from policyd.local.apiserver.registry import Registry, Served
from policyd.local.apiserver.status import Cause, Object, not_supported, required, wrong
from policyd.local.apiserver.store import ChangedError, Store, StoreEvent

DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"

NEEDED: Mapping[str, Sequence[str]] = {
    "additionalPrinterColumns": ("name", "type", "jsonPath"),
    "selectableFields": ("jsonPath",),
}
"""The required fields of each entry of a version's lists."""

SCALE_FIELDS = ("specReplicasPath", "statusReplicasPath")

ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
"""The schema of a version that states none."""


def default_definition(definition: Object) -> None:
    """Fill in the names that follow from the kind."""
    spec = definition.setdefault("spec", {})
    names = spec.setdefault("names", {})
    kind = names.get("kind", "")
    names.setdefault("singular", kind.lower())
    names.setdefault("listKind", f"{kind}List")
    spec.setdefault("conversion", {"strategy": "None"})


def establish(definition: Object) -> None:
    """Begin a definition's life: its names are accepted, and its kind is served at once."""
    now = definition["metadata"]["creationTimestamp"]
    conditions = [
        ("NamesAccepted", "NoConflicts", "no conflicts found"),
        ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    ]
    definition["status"] = {
        "acceptedNames": dict(definition["spec"]["names"]),
        "storedVersions": [_storage_version(definition)],
        "conditions": [
            {
                "type": kind,
                "status": "True",
                "reason": reason,
                "message": message,
                "lastTransitionTime": now,
            }
            for kind, reason, message in conditions
        ],
    }


def _storage_version(definition: Object) -> str:
    versions = definition["spec"].get("versions", ())
    return next((v.get("name", "") for v in versions if v.get("storage")), "")


def check_definition(definition: Object) -> Iterator[Cause]:
    """Check a definition that is created or changed."""
    spec = definition["spec"]
    yield from _check_names(definition["metadata"]["name"], spec)
    if spec.get("scope") not in {"Cluster", "Namespaced"}:
        yield not_supported("spec.scope", spec.get("scope", ""), ("Cluster", "Namespaced"))
    versions = spec.get("versions", ())
    if sum(bool(version.get("storage")) for version in versions) != 1:
        why = "must have exactly one version marked as storage version"
        yield wrong("spec.versions", [v.get("name") for v in versions], why)
    for index, version in enumerate(versions):
        yield from _check_version(version, f"spec.versions[{index}]")


def _check_version(version: Object, path: str) -> Iterator[Cause]:
    if not version.get("name"):
        yield required(f"{path}.name")
    schema = version.get("schema", {}).get("openAPIV3Schema")
    if schema:
        yield from check_expressions(schema, f"{path}.schema.openAPIV3Schema")
    else:
        yield required(f"{path}.schema.openAPIV3Schema", "schemas are required")
    for part, fields in NEEDED.items():
        for index, given in enumerate(version.get(part, ())):
            yield from _check_fields(given, fields, f"{path}.{part}[{index}]")
    scale = version.get("subresources", {}).get("scale")
    if scale is not None:
        yield from _check_fields(scale, SCALE_FIELDS, f"{path}.subresources.scale")


def _check_fields(given: Object, fields: Sequence[str], path: str) -> Iterator[Cause]:
    for field in fields:
        if not given.get(field):
            yield required(f"{path}.{field}")


def check_definition_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check a change of a definition, whose names objects are kept under."""
    spec, before = new["spec"], old["spec"]
    for path in ("group", "scope", "names.kind", "names.plural"):
        parent, _, field = path.rpartition(".")
        here, was = (part.get(parent, {}) if parent else part for part in (spec, before))
        if here.get(field) != was.get(field):
            yield wrong(f"spec.{path}", here.get(field), "field is immutable")


def _check_names(name: str, spec: Object) -> Iterator[Cause]:
    names, group = spec["names"], spec.get("group", "")
    for field in ("plural", "kind"):
        if not names.get(field):
            yield required(f"spec.names.{field}")
    if not group:
        yield required("spec.group")
    if name != f"{names.get('plural')}.{group}":
        yield wrong("metadata.name", name, 'must be spec.names.plural+"."+spec.group')


def served_versions(definition: Object) -> Iterator[Served]:
    """Yield the kind in each version that a definition serves."""
    spec = definition["spec"]
    names, group = spec["names"], spec["group"]
    for version in spec["versions"]:
        if not version.get("served"):
            continue
        subresources = version.get("subresources", {})
        yield Served(
            group=group,
            version=version["name"],
            kind=names["kind"],
            plural=names["plural"],
            singular=names["singular"],
            list_kind=names["listKind"],
            namespaced=spec["scope"] == "Namespaced",
            short_names=tuple(names.get("shortNames", ())),
            categories=tuple(names.get("categories", ())),
            subresources=tuple(name for name in ("status", "scale") if name in subresources),
            stored_as=f"{group}/{_storage_version(definition)}",
            custom=CustomVersion(
                schema=version.get("schema", {}).get("openAPIV3Schema", ANYTHING),
                columns=tuple(version.get("additionalPrinterColumns", ())),
                scale=subresources.get("scale"),
                selectable=tuple(
                    field["jsonPath"].lstrip(".") for field in version.get("selectableFields", ())
                ),
            ),
        )


class Definitions:
    """Keeps the registry in step with the definitions in the store."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self._store = store
        self._registry = registry
        for _, definition in store.items(DEFINITIONS):
            registry.add(served_versions(definition))
        store.listen(self._follow, DEFINITIONS)

    def _follow(self, event: StoreEvent) -> None:
        spec = event.object["spec"]
        old = event.previous
        if old is not None and event.type == "MODIFIED" and old["spec"] == spec:
            return
        self._registry.remove(spec["group"], spec["names"]["plural"])
        if event.type == "DELETED":
            self._drop_objects(f"{spec['names']['plural']}.{spec['group']}")
        else:
            self._registry.add(served_versions(event.object))

    def _drop_objects(self, resource: str) -> None:
        """Without its definition, no object can be reached: not even by its finalizers' owners."""
        for _, value in self._store.items(resource):
            try:
                self._store.remove(resource, value)
            except ChangedError:  # a listener was faster
                continue

"""Changes that are tried on the objects of a cluster: submitted, changed and deleted ones."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from policyd.api.meta import Json
from policyd.cli.formats.fields import mistyped_fields
from policyd.engine.objects.workloads import value_at
from policyd.errors import PolicydError, did_you_mean
from policyd.jobs.kinds.registry import KINDS
from policyd.patch.merge_patch import apply_merge_patch

_OF_CLUSTER: Final = frozenset(
    {
        "AdmissionCheck", "ClusterQueue", "Cohort", "Configuration", "DeviceClass", "Namespace",
        "Node", "PriorityClass", "ResourceFlavor", "ResourceSlice", "Topology",
        "WorkloadPriorityClass",
    }
)  # fmt: skip
_COUNTED: Final = _OF_CLUSTER | {
    "LocalQueue", "Pod", "ResourceClaim", "ResourceClaimTemplate", "Workload",
}  # fmt: skip
"""What queues are decided by, apart from jobs."""
_POLICIES: Final = frozenset(
    {
        "CleanupPolicy", "ClusterCleanupPolicy", "ClusterPolicy", "DeletingPolicy",
        "GeneratingPolicy", "ImageValidatingPolicy",
        "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "MutatingPolicy",
        "NamespacedDeletingPolicy", "NamespacedGeneratingPolicy",
        "NamespacedImageValidatingPolicy", "NamespacedMutatingPolicy",
        "NamespacedValidatingPolicy", "Policy", "PolicyBinding", "PolicyException",
        "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ValidatingPolicy",
    }
)  # fmt: skip
"""The kinds of policies, bindings and exceptions: other kinds may be named alike."""
_GIVEN_BY_SERVER: Final = (
    "creationTimestamp", "generation", "managedFields", "ownerReferences", "resourceVersion", "uid",
)  # fmt: skip

Objects = Sequence[dict[str, Json]]


class ChangeError(PolicydError):
    """A change does not fit the objects that are there."""


class _Name(NamedTuple):
    """What an object is called; objects of the cluster have no namespace."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}{'/' if self.namespace else ''}{self.name}"


class ChangedObjects(NamedTuple):
    """The objects after a change.

    Attributes:
        objects: All of them.
        lost: Names of the nodes that were deleted.
        mistyped: Sentences about new objects that are named almost as one that is there.
    """

    objects: Objects
    lost: tuple[str, ...]
    mistyped: tuple[str, ...] = ()


def changed(
    objects: Objects,
    *,
    submitted: Objects = (),
    applied: Objects = (),
    deleted: Iterable[str] = (),
    namespace: str = "default",
) -> ChangedObjects:
    """Return what the objects of a cluster are after a change; they stay as they were.

    Args:
        objects: What there is.
        submitted: Jobs or Workloads that come.
        applied: New objects, and fields of those that are there: lists are replaced as a whole,
            and null removes a field.
        deleted: What goes: `KIND/NAME`, or `KIND/NAMESPACE/NAME`. A job goes with its Workload.
        namespace: Of names without one.

    Raises:
        ChangeError: If what is submitted is there, what is deleted is not, or what is applied
            has a kind that decides nothing, or fields that its kind does not have.
    """
    found = {_name(each, namespace): each for each in objects}
    lost: list[str] = []
    mistyped: list[str] = []
    for word in deleted:
        for name in _resolve(word, found, namespace):
            del found[name]
            lost += [name.name] if name.kind == "Node" else []
    for each in applied:
        _refuse_uncounted(each)
        name = _name(each, namespace)
        if name not in found:
            others = [other.name for other in found if other[:2] == name[:2]]
            near = did_you_mean(name.name, others)
            mistyped += [f"{name} is new: {near}"] if near else []
            each = _ready(each)  # noqa: PLW2901 - only a kubelet writes that
        _refuse_queued(name, found, "change")
        _refuse_mistyped(name, each, found.get(name, {}))
        found[name] = _placed(apply_merge_patch(found.get(name, {}), each), name)
    for each in submitted:
        new = as_new(each)
        name = _name(new, namespace)
        if name in found:
            raise ChangeError(
                f"{name} exists already", hint="submit it under another name, or change it"
            )
        _refuse_queued(name, found, "submit")
        found[name] = _placed(new, name)
    return ChangedObjects(list(found.values()), tuple(lost), tuple(mistyped))


def _ready(each: dict[str, Json]) -> dict[str, Json]:
    """Return a node as it is once its kubelet has started; other objects as they are."""
    if each["kind"] != "Node" or value_at(each, ("status", "conditions")):
        return each
    status = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    ready: dict[str, Json] = apply_merge_patch(each, status)
    return ready


def _refuse_uncounted(each: Mapping[str, Json]) -> None:
    """Refuse an object that no queue depends on.

    Raises:
        ChangeError: If it is one.
    """
    kind, version = str(each["kind"]), str(each.get("apiVersion", ""))
    if kind in _COUNTED or any(kind == known.kind for known in KINDS):
        return
    if kind in _POLICIES:
        raise ChangeError(
            f"what-if does not evaluate policies: {kind} of {version or 'no apiVersion'}",
            hint="ask `policyd apply` or `policyd replay` about it",
        )
    raise ChangeError(
        f"no queue depends on a {kind}",
        hint=did_you_mean(kind, _COUNTED) or f"jobs, and: {', '.join(sorted(_COUNTED))}",
    )


def _refuse_mistyped(name: _Name, each: Json, present: Mapping[str, Json]) -> None:
    """Refuse fields that a kind does not have; a cluster of a later version may have stored some.

    Raises:
        ChangeError: If there are such fields.
    """
    stored = {field.path for field in mistyped_fields(present)}
    for field in mistyped_fields(each):
        if field.path not in stored:
            path = ".".join(map(str, field.path))
            raise ChangeError(f"{name}: {field.sentence(name.kind)}: `{path}`", hint=field.hint)


def _name(each: Mapping[str, Json], namespace: str) -> _Name:
    kind = str(each["kind"])
    metadata = value_at(each, ("metadata",))
    given: Mapping[str, Any] = metadata if isinstance(metadata, dict) else {}
    within = "" if kind in _OF_CLUSTER else str(given.get("namespace") or namespace)
    return _Name(kind, within, str(given.get("name") or ""))


def _placed(each: dict[str, Json], name: _Name) -> dict[str, Json]:
    """Return an object with its namespace written down."""
    if not name.namespace:
        return each
    metadata = each.get("metadata")
    about = metadata if isinstance(metadata, dict) else {}
    return {**each, "metadata": {**about, "namespace": name.namespace}}


def as_new(each: dict[str, Json]) -> dict[str, Json]:
    """Return an object without what the API server gives it, and with a name."""
    metadata = each.get("metadata")
    given = metadata if isinstance(metadata, dict) else {}
    about = {field: value for field, value in given.items() if field not in _GIVEN_BY_SERVER}
    if not about.get("name"):
        about["name"] = f"{about.get('generateName') or each['kind']}new".lower()
    new = {field: value for field, value in each.items() if field != "status"}
    return {**new, "metadata": about}


def _refuse_queued(name: _Name, found: Mapping[_Name, Mapping[str, Json]], verb: str) -> None:
    """Refuse a job that has a Workload: only that counts.

    Raises:
        ChangeError: If it has.
    """
    for other in _workloads_of(name, found):
        raise ChangeError(
            f"cannot {verb} {name}: it is queued as {other} already",
            hint="change that Workload, or submit the job under another name",
        )


def _workloads_of(name: _Name, found: Mapping[_Name, Mapping[str, Json]]) -> Iterator[_Name]:
    """Yield the Workloads of a job."""
    for other, each in found.items():
        if other.kind != "Workload" or other.namespace != name.namespace:
            continue
        owners = value_at(each, ("metadata", "ownerReferences"))
        for owner in owners if isinstance(owners, list) else ():
            if (owner.get("kind"), owner.get("name")) == (name.kind, name.name):
                yield other


def _resolve(word: str, found: Mapping[_Name, Mapping[str, Json]], namespace: str) -> list[_Name]:
    """Return the objects that a word means, a job's Workload with it.

    Raises:
        ChangeError: If it means none.
    """
    kind, *rest = word.split("/")
    if not (kind and all(rest) and len(rest) in {1, 2}):
        raise ChangeError(
            f"`{word}` is not the name of an object",
            hint="write KIND/NAME or KIND/NAMESPACE/NAME, such as job/team-a/train",
        )
    within = rest[0] if len(rest) == 2 else namespace
    wanted, owned = kind.lower(), set[_Name]()
    for name, each in found.items():
        if name.kind == "Workload":
            owned.update(_owners(name, each))
    matching = [
        name
        for name in {*found, *owned}
        if wanted in {name.kind.lower(), f"{name.kind.lower()}s"} and name.namespace in {"", within}
    ]
    for name in matching:
        if name.name == rest[-1]:
            also = list(_workloads_of(name, found))
            return [each for each in (name, *also) if each in found]
    kinds = {name.kind.lower() for name in {*found, *owned}}
    near = did_you_mean(rest[-1], [name.name for name in matching])
    if not matching and wanted not in kinds:
        near = did_you_mean(wanted, kinds)
    raise ChangeError(f"`{word}` not found", hint=near or "name what is there; `-n` its namespace")


def _owners(name: _Name, each: Mapping[str, Json]) -> Iterator[_Name]:
    owners = value_at(each, ("metadata", "ownerReferences"))
    for owner in owners if isinstance(owners, list) else ():
        yield _Name(str(owner.get("kind")), name.namespace, str(owner.get("name")))

"""The options for the requests that commands make: operation, namespace, labels, user."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, TypedDict

import click

from policyd.api.admission import AdmissionRequest, Operation, UserInfo
from policyd.api.meta import Json
from policyd.cli.options import (
    AS_WRITTEN,
    GROUPS,
    SNAPSHOT,
    USER,
    ClusterOptions,
    from_cluster,
    together,
)
from policyd.engine.compile.load import Loaded
from policyd.engine.documents.findings import Finding
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.evaluate.why_not import undecided
from policyd.engine.model.queue_facts import NOT_GIVEN, QueueFacts
from policyd.engine.objects.match import NamespaceLookup
from policyd.engine.objects.workloads import value_at
from policyd.engine.offline.requests import (
    CustomKinds,
    ObjectError,
    RequestCircumstances,
    as_it_was,
    check_readable,
    namespace_lookup,
    namespaces_among,
    request_for,
)

if TYPE_CHECKING:
    from policyd.admission.in_turn import HeldJobs


class RequestOptions(ClusterOptions):
    """The options for the requests of objects."""

    operation: Operation
    namespace: str
    namespace_labels: Mapping[str, str] | None
    assume_labels: bool
    user: str
    groups: tuple[str, ...]
    snapshot: str | None
    as_written: bool


class ObjectKey(NamedTuple):
    """The names of an object; the namespace is empty if it does not say one."""

    api_version: str
    kind: str
    namespace: str
    name: str


def key_of(obj: Json) -> ObjectKey | None:
    """Return the names of an object; None if it is none."""
    names = (("apiVersion",), ("kind",), ("metadata", "namespace"), ("metadata", "name"))
    values = [value_at(obj, path) for path in names]
    found = ObjectKey(*(each if isinstance(each, str) else "" for each in values))
    return found if found.api_version and found.kind else None


@dataclass(slots=True)
class ObjectSurroundings:
    """The surroundings of objects that policies decide on.

    Attributes:
        namespace: Of objects that name none.
        objects: Namespaces, params, and definitions of kinds.
        kinds: The kinds that are not built in.
        stored: Objects as they are, which updates change; or why that is not known.
        queues: The queues that policies read.
        held: Which jobs are held for their queue; None if it was not read.
        findings: What could not be read.
        left_out: Policies that cannot be evaluated therefore, by id.
    """

    namespace: str = ""
    objects: list[Json] = field(default_factory=list)
    kinds: dict[tuple[Json, Json], tuple[str, bool]] = field(default_factory=dict)
    stored: dict[ObjectKey, Json] = field(default_factory=dict)
    queues: QueueFacts = NOT_GIVEN
    held: "HeldJobs | None" = None
    findings: list[Finding] = field(default_factory=list)
    left_out: set[str] = field(default_factory=set)

    def kept(self, loaded: Loaded) -> Loaded:
        """Return policies without those that cannot be evaluated."""
        policies = (policy for policy in loaded.policies if policy.id not in self.left_out)
        return replace(loaded, policies=tuple(policies)) if self.left_out else loaded


def request_of(
    obj: Json,
    given: RequestOptions,
    kinds: CustomKinds,
    surroundings: ObjectSurroundings | None = None,
) -> AdmissionRequest:
    """Return the request that sends an object; one that is updated was as it is.

    Args:
        obj: The object.
        given: The options.
        kinds: The kinds that are not built in.
        surroundings: Where the objects are as they were; the same as sent if left out.

    Raises:
        ObjectError: If it is not an object of Kubernetes, or it is not known what is updated.
    """
    circumstances = RequestCircumstances(
        operation=given["operation"],
        user=UserInfo(username=given["user"], groups=given["groups"]),
        namespace=given["namespace"],
        kinds=kinds,
    )
    key = key_of(obj)
    stored = surroundings.stored.get(key) if surroundings is not None and key is not None else None
    if isinstance(stored, str):
        raise ObjectError(stored)
    old = as_it_was(obj, given["operation"], stored)
    request = request_for(obj, circumstances, old_object=old)
    check_readable(obj)
    return request


class NamespaceOptions(TypedDict):
    """The options for namespaces."""

    namespace_labels: Mapping[str, str] | None
    assume_labels: bool


class Labels:
    """The labels of namespaces: the known ones, and those that policies use but are unknown."""

    def __init__(
        self,
        objects: Iterable[Json],
        given: "NamespaceOptions | RequestOptions",
        *,
        of_cluster: bool = False,
    ) -> None:
        objects = list(objects)
        self._assumed = given["namespace_labels"] is not None or given["assume_labels"]
        self._known = namespaces_among(objects)
        self._noted: set[object] = set()
        self._unknown: dict[tuple[str, str, str], None] = {}
        find = namespace_lookup(objects, given["namespace_labels"] or {})
        self.lookup: NamespaceLookup = find
        """Finds namespaces; of a cluster, only those that it has."""
        if of_cluster and not self._assumed:
            self.lookup = lambda name: find(name) if name in self._known else None

    def note(self, policies: PolicySet, request: AdmissionRequest) -> None:
        """Take note of policies that a request cannot be decided by."""
        about = request.resource, request.sub_resource, request.operation, request.namespace
        if self._assumed or about in self._noted:
            return
        self._noted.add(about)
        for policy, label in undecided(policies, request, is_known=self._known.__contains__):
            self._unknown[policy, label, request.namespace] = None

    @property
    def findings(self) -> Iterator[Finding]:
        """A finding for each policy and namespace that could not be decided."""
        for policy, label, namespace in self._unknown:
            yield Finding(
                source=f"namespace {namespace}",
                message=f"whether `{policy}` applies is unknown: it selects by label `{label}`",
                hint="add the Namespace to the objects, or give --namespace-labels;"
                " --assume-labels takes it to have none",
                rule="namespace-labels",
            )


def _labels(
    _context: click.Context, _option: click.Parameter, value: str | None
) -> Mapping[str, str] | None:
    """Read `key=value,key=value`."""
    if value is None:
        return None
    pairs = [part.partition("=") for part in value.split(",") if part]
    for key, equals, _ in pairs:
        if not key or not equals:
            raise click.BadParameter(f"`{value}` is not of the form key=value,key=value")
    return {key: text for key, _, text in pairs}


_NAMESPACE_LABELS = click.option(
    "--namespace-labels",
    callback=_labels,
    metavar="KEY=VALUE,…",
    help="Labels of the namespaces that are not among the objects.",
)
_ASSUME_LABELS = click.option(
    "--assume-labels",
    is_flag=True,
    help="Assume that unknown namespaces have no labels.",
)
NAMESPACE_LABELS = together(_NAMESPACE_LABELS, _ASSUME_LABELS)
"""The options for the labels of namespaces."""

with_request_options = together(
    click.option(
        "--operation",
        type=click.Choice(["CREATE", "UPDATE", "DELETE"]),
        default="CREATE",
        help="Operation on the objects.",
    ),
    click.option(
        "-n", "--namespace", default="default", help="Namespace of objects that have none."
    ),
    NAMESPACE_LABELS,
    AS_WRITTEN,
    USER,
    GROUPS,
    SNAPSHOT,
    from_cluster("namespaces, params, stored objects and the queues"),
)
"""Give a command the options for the requests of objects."""

"""The options for the requests that commands make: operation, namespace, labels, user."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypedDict

import click

from policyd.api.admission import AdmissionRequest, Operation, UserInfo
from policyd.api.meta import Json
from policyd.cli.options import GROUPS, USER, together
from policyd.engine.documents.findings import Finding
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.evaluate.why_not import undecided
from policyd.engine.offline.requests import (
    CustomKinds,
    RequestCircumstances,
    as_it_was,
    namespace_lookup,
    namespaces_among,
    request_for,
)


class RequestOptions(TypedDict):
    """The options for the requests of objects."""

    operation: Operation
    namespace: str
    namespace_labels: Mapping[str, str] | None
    assume_labels: bool
    user: str
    groups: tuple[str, ...]


def request_of(obj: Json, given: RequestOptions, kinds: CustomKinds) -> AdmissionRequest:
    """Return the request that sends an object; one that is updated was as it is.

    Args:
        obj: The object.
        given: The options.
        kinds: The kinds that are not built in.

    Raises:
        ObjectError: If it is no object of Kubernetes.
    """
    circumstances = RequestCircumstances(
        operation=given["operation"],
        user=UserInfo(username=given["user"], groups=given["groups"]),
        namespace=given["namespace"],
        kinds=kinds,
    )
    old = as_it_was(obj, given["operation"])
    return request_for(obj, circumstances, old_object=old)


class NamespaceOptions(TypedDict):
    """The options for namespaces."""

    namespace_labels: Mapping[str, str] | None
    assume_labels: bool


class Labels:
    """The labels of namespaces: the known ones, and those that policies use but are unknown."""

    def __init__(self, objects: Iterable[Json], given: NamespaceOptions | RequestOptions) -> None:
        objects = list(objects)
        self._assumed = given["namespace_labels"] is not None or given["assume_labels"]
        self._known = namespaces_among(objects)
        self._noted: set[object] = set()
        self._unknown: dict[tuple[str, str, str], None] = {}
        self.lookup = namespace_lookup(objects, given["namespace_labels"] or {})
        """Finds namespaces."""

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
    USER,
    GROUPS,
)
"""Give a command the options for the requests of objects."""

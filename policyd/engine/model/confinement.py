"""What belongs to a namespace sees that namespace: its objects, its params, permissions in it.

Whoever may write a policy in one namespace need not be trusted with any other, nor with what the
webhooks may read and reach. So whatever such a policy asks is answered for its own namespace, by
whichever words it asks, and what belongs to the cluster is not answered at all.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from policyd.api.kinds import resource_for_kind
from policyd.api.meta import Json
from policyd.api.policy import ParamKind, ParamRef
from policyd.cel import CelError
from policyd.cel.kyverno import ClusterReads
from policyd.cel.lib.authorizer import (
    Authorization,
    Authorize,
    AuthorizedAction,
    Authorizer,
    ResourceCheck,
)
from policyd.cel.lib.kyverno.outside import RESOURCE, Provider
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import Document
from policyd.engine.evaluate.patch_values import to_json
from policyd.engine.model.params import ParamError, ParamSource
from policyd.engine.objects.workloads import value_at
from policyd.errors import PolicydError
from policyd.patch.operations import Path

WITHHELD: Final[Mapping[str, str]] = {
    "http": "it would be sent from where the webhooks are, which reach more than the namespace",
    "globalContext": "its entries hold what the cluster has",
    "image": "registries are called with the cluster administrator's passwords",
}
"""What is not there for what belongs to a namespace, and why."""

_GROUP: Final = "authorization.k8s.io/v1"
_REVIEW: Final = "localsubjectaccessreviews"


class ElsewhereError(PolicydError):
    """Something asks for what is not of its namespace."""

    def __init__(self, namespace: str, asked: str) -> None:
        super().__init__(
            f"what belongs to namespace `{namespace}` sees that alone, and not {asked}"
        )


class OwnObjects:
    """The objects of one namespace."""

    def __init__(self, resources: ClusterReads, namespace: str) -> None:
        """Read the objects of a namespace from those of the cluster."""
        self._resources = resources
        self.namespace = namespace

    def get(self, api_version: str, resource: str, name: str) -> Json | None:
        """Return an object; None if it is not there.

        Raises:
            PolicydError: If objects of the kind belong to the cluster, or cannot be read.
        """
        self._check(api_version, resource)
        return self._resources.get(api_version, resource, self.namespace, name)

    def list(self, api_version: str, resource: str, labels: Mapping[str, str]) -> Json:
        """Return a list object.

        Raises:
            PolicydError: If objects of the kind belong to the cluster, or cannot be read.
        """
        self._check(api_version, resource)
        return self._resources.list(api_version, resource, self.namespace, labels)

    def post(self, api_version: str, resource: str, body: Json) -> Json:
        """Answer what somebody may do in the namespace: a LocalSubjectAccessReview.

        Raises:
            PolicydError: If it asks anything else, or there is no answer.
        """
        if (api_version, resource) != (_GROUP, _REVIEW):
            asked = f"`{api_version}/{resource}`: it asks by `{_GROUP}/{_REVIEW}`"
            raise ElsewhereError(self.namespace, asked)
        spec = value_at(to_json(body), ("spec",))
        about = value_at(spec, ("resourceAttributes", "namespace"))
        if about != self.namespace or value_at(spec, ("nonResourceAttributes",)) is not None:
            asked = "permissions elsewhere: give `resourceAttributes.namespace`"
            raise ElsewhereError(self.namespace, asked)
        found = self._resources.post(_GROUP, "subjectaccessreviews", "", {"spec": spec})
        named = {"kind": "LocalSubjectAccessReview", "metadata": {"namespace": self.namespace}}
        return {**found, **named}

    def _check(self, api_version: str, resource: str) -> None:
        if not self._resources.namespaced(api_version, resource):
            asked = f"`{api_version}/{resource}`, which belongs to the cluster"
            raise ElsewhereError(self.namespace, asked)


def confined(variables: Mapping[str, object], namespace: str) -> dict[str, object]:
    """Return what stands for the world outside as something of a namespace sees it."""
    found: dict[str, object] = {}
    for name, value in variables.items():
        if isinstance(value, Provider):
            found[name] = Provider(name, RESOURCE, _own(value, namespace))
        elif isinstance(value, (Authorizer, ResourceCheck)):
            found[name] = replace(value, authorize=_within(value.authorize, namespace))
    return found


def _own(outside: Provider, namespace: str) -> OwnObjects | None:
    """Return the objects of a namespace; None for what is not there for it."""
    given = outside.provider
    if outside.name != "resource" or given is None:
        return None
    if isinstance(given, OwnObjects):  # an exception of one namespace, from a policy of one
        return given if given.namespace == namespace else None
    resources: ClusterReads = given  # type: ignore[assignment]
    return OwnObjects(resources, namespace)


def _within(authorize: Authorize, namespace: str) -> Authorize:
    """Answer what users may do in a namespace, and what its own service accounts may."""

    def decide(asked: AuthorizedAction) -> Authorization:
        account = asked.service_account
        if asked.path or asked.namespace != namespace:
            said = f"permissions elsewhere: write `.namespace('{namespace}')`"
            raise CelError(str(ElsewhereError(namespace, said)))
        if account and not account.startswith(f"{namespace}/"):
            raise CelError(str(ElsewhereError(namespace, f"service account `{account}`")))
        return authorize(asked)

    return decide


def check_params(
    kind: ParamKind, ref: ParamRef | None, source: ParamSource, namespace: str
) -> None:
    """Check that params are of a namespace.

    Raises:
        ParamError: If they are not, or that cannot be told.
    """
    if source.namespaced(kind) is False:
        raise ParamError(str(ElsewhereError(namespace, _of_the_cluster(kind))))
    if ref is not None and ref.namespace not in ("", namespace):
        raise ParamError(str(ElsewhereError(namespace, f"params of `{ref.namespace}`")))


def _of_the_cluster(kind: ParamKind) -> str:
    return f"params of kind `{kind.kind}`, which belong to the cluster"


def elsewhere(uses: frozenset[str], document: Document, namespace: str) -> list[Finding]:
    """Say which variables are used that are not there for what belongs to a namespace."""
    return [
        document.finding(
            f"`{name}` is not available to policies of namespace `{namespace}`: {why}",
            ("kind",),
            hint="use a cluster-wide policy",
        )
        for name, why in WITHHELD.items()
        if name in uses
    ]


def params_elsewhere(
    kind: ParamKind | None, ref: ParamRef | None, document: Document, at: Path, namespace: str
) -> list[Finding]:
    """Say that params are not of the namespace that their policy belongs to, if that is known."""
    if kind is None:
        return []
    group, _, version = kind.api_version.rpartition("/")
    built_in = resource_for_kind(group, version, kind.kind)
    if built_in is not None and not built_in.namespaced:
        said = str(ElsewhereError(namespace, _of_the_cluster(kind)))
        return [document.finding(said, (*at, "paramKind"))]
    if ref is not None and ref.namespace not in ("", namespace):
        said = str(ElsewhereError(namespace, f"params of `{ref.namespace}`"))
        return [document.finding(said, (*at, "paramRef", "namespace"), hint="leave it out")]
    return []


def with_own_words(findings: list[Finding]) -> list[Finding]:
    """Say of calls of `resource` that name a namespace how they are written."""
    return [
        replace(finding, hint="in a policy of a namespace, `resource` takes none: it is its own")
        if "applied to 'resource.Context." in finding.message and finding.hint is None
        else finding
        for finding in findings
    ]

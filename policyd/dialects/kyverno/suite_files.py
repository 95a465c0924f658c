"""Define the files of Kyverno's tests: the suite, values, users and clusters."""

from dataclasses import replace
from functools import cache
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec

from policyd.api.admission import Operation, UserInfo
from policyd.api.inject import Closed
from policyd.api.meta import Json
from policyd.engine.compile.schema import ForeignShape, schema_of
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import Document
from policyd.engine.objects.workloads import value_at

T = TypeVar("T", bound=msgspec.Struct)

GROUP: Final = "cli.kyverno.io/"
"""The prefix of `apiVersion` in these files."""

Word = Literal["pass", "fail", "skip", "warn", "error"]
Texts = tuple[str, ...]


class ResourceSpec(Closed, frozen=True):
    """Names one object."""

    name: str
    namespace: str = ""
    kind: str = ""
    group: str = ""
    version: str = ""
    subresource: str = ""


class ExpectedResult(Closed, frozen=True):
    """The expected result for some resources."""

    policy: str
    result: Word
    rule: str = ""
    kind: str = ""
    resources: Texts = ()
    resource_specs: tuple[ResourceSpec, ...] = ()
    operation: Operation | None = None
    resource_operation: Operation | None = None
    patched_resources: str = ""
    generated_resource: str = ""
    is_generating_policy: bool = False
    is_deleting_policy: bool = False


class ResourceValues(Closed, frozen=True):
    """Values for one object."""

    name: str
    values: dict[str, Any] = {}


class PolicyValues(Closed, frozen=True):
    """Values for the objects that one policy is asked about."""

    name: str
    resources: tuple[ResourceValues, ...] = ()
    rules: Json = None


class NamespaceLabels(Closed, frozen=True):
    """The labels of a namespace."""

    name: str
    labels: dict[str, str] = {}


class Values(Closed, frozen=True):
    """The known values of requests: their operations, and the labels of their namespaces."""

    global_values: dict[str, Any] = {}
    policies: tuple[PolicyValues, ...] = ()
    namespace_selector: tuple[NamespaceLabels, ...] = ()
    namespaces: tuple[dict[str, Any], ...] = ()
    subresources: Json = None


class SuiteUser(Closed, frozen=True):
    """The user of requests; roles are not read."""

    user_info: UserInfo = UserInfo(username="someone")
    roles: Texts = ()
    cluster_roles: Texts = ()


class ClusterSpec(Closed, frozen=True):
    """Objects and images that policies may ask for."""

    resources: tuple[dict[str, Any], ...] = ()
    images: tuple[dict[str, Any], ...] = ()
    crds: Texts = ()


class SuiteCluster(Closed, frozen=True):
    """The external data."""

    spec: ClusterSpec = ClusterSpec()


class KyvernoTest(Closed, frozen=True):
    """A file of tests; the files it names are relative to it."""

    policies: Texts
    results: Annotated[tuple[ExpectedResult, ...], msgspec.Meta(min_length=1)]
    resources: Texts = ()
    old_resources: Texts = ()
    target_resources: Texts = ()
    exceptions: Texts = ()
    param_resources: Texts = ()
    userinfo: str = ""
    variables: str = ""
    values: Values = Values()
    context: str = ""
    cluster_resources: Texts = ()
    api_call_responses: tuple[dict[str, Any], ...] = ()
    global_context_entries: tuple[dict[str, Any], ...] = ()


_NOT_REQUESTS: Final = ("checks", "jsonPayload", "jsonPayloads", "httpPayloads", "envoyPayloads")
"""Fields of tests that are not about objects which are written to a cluster."""

_NEEDLESS: Final = frozenset(
    f"unknown field `{name}`"
    for names in (
        "apiVersion kind metadata name attestations failOnMissingResources",
        "generatedResources cloneSourceResource isValidatingPolicy isMutatingPolicy",
        "isImageValidatingPolicy",
        "isValidatingAdmissionPolicy isMutatingAdmissionPolicy",
    )
    for name in names.split()
)
"""The fields that are ignored silently: labels for reports, or fields of other kinds."""


@cache
def _shape(struct: type[msgspec.Struct]) -> ForeignShape:
    return ForeignShape(schema_of(struct))


def read_suite(document: Document) -> tuple[KyvernoTest | None, list[Finding]]:
    """Read a file of tests, and return the findings; unknown fields are warnings.

    A test by other means than requests prevents a run of the file, as does an unknown field
    of a row: their expectations would pass unchecked.
    """
    unread = [name for name in _NOT_REQUESTS if value_at(document.value, (name,))]
    if unread:
        message = f"`{unread[0]}` is not read: policyd tests the decisions on requests"
        return None, [document.finding(message, (unread[0],), of_key=True)]
    suite, found = read_as(KyvernoTest, document)
    findings = [
        replace(finding, severity="error") if finding.field.startswith("results") else finding
        for finding in found
    ]
    wrong = any(finding.severity == "error" for finding in findings)
    return (None if wrong else suite), findings


def read_as(struct: type[T], document: Document) -> tuple[T | None, list[Finding]]:
    """Read a document, and return the findings."""
    value, found = _shape(struct).read(document)
    findings = [finding for finding in found if finding.message not in _NEEDLESS]
    return (None if value is None else msgspec.convert(value, struct)), findings

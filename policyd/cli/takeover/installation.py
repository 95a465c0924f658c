"""What a cluster has of Kueue and of policyd, as far as a takeover concerns it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Final

from policyd.admission.conversion import PATH as CONVERT
from policyd.api.kueue.names import GROUP
from policyd.kube.client import Reader
from policyd.kube.errors import NotFoundError
from policyd.kube.kueue_lease import HOLDER, KUEUE_PODS, NAME, is_given
from policyd.kube.leader import Lease
from policyd.kube.pages import pages
from policyd.kube.resources import (
    API_SERVICES,
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    LEASES,
    MUTATING_WEBHOOK_CONFIGURATIONS,
    PODS,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
    Resource,
)
from policyd.registration.configurations import FORMER_NAME
from policyd.registration.configurations import NAME as OWN_CONFIGURATION

RECORD: Final = "policyd-takeover"
"""The ConfigMap in Kueue's namespace that says what was before, and which way the takeover goes."""
SKIP: Final = {"name": "policyd.io/taken-over", "expression": "false"}
"""The match condition by which the API server calls a webhook for nothing."""
PLURALS: Final = (
    "admissionchecks",
    "clusterqueues",
    "cohorts",
    "localqueues",
    "multikueueclusters",
    "multikueueconfigs",
    "provisioningrequestconfigs",
    "resourceflavors",
    "topologies",
    "workloadpriorityclasses",
    "workloads",
)
"""Kueue's kinds."""
VISIBILITY: Final = ("v1beta1.visibility.kueue.x-k8s.io", "v1beta2.visibility.kueue.x-k8s.io")
OWN_VISIBILITY: Final = "v1alpha1.visibility.policyd.io"

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Installation:
    """What there is.

    Attributes:
        namespace: Of Kueue.
        deployment: Kueue's Deployment; None if there is none.
        pods: The names of its pods.
        lease: Kueue's Lease; None if there is none.
        configurations: Kueue's webhook configurations, each with its resource.
        definitions: The definitions of Kueue's kinds.
        visibility: The APIServices of Kueue's visibility API.
        own: policyd's configuration of mutating webhooks; None if there is none.
        own_visibility: The APIService of policyd's snapshots; None if there is none.
        record: The record of a takeover; None if none is under way.
    """

    namespace: str
    deployment: Object | None = None
    pods: tuple[str, ...] = ()
    lease: Lease | None = None
    configurations: tuple[tuple[Resource, Object], ...] = ()
    definitions: tuple[Object, ...] = ()
    visibility: tuple[Object, ...] = ()
    own: Object | None = None
    own_visibility: Object | None = None
    record: Object | None = None
    called: dict[str, Any] = field(default_factory=dict)
    """How the API server calls policyd's webhooks to convert; empty if it does not."""

    @property
    def replicas(self) -> int:
        """The pods that Kueue is to have."""
        return int((self.deployment or {}).get("spec", {}).get("replicas", 1))

    @property
    def ready(self) -> bool:
        """Whether a pod of Kueue is ready."""
        return bool((self.deployment or {}).get("status", {}).get("readyReplicas"))

    @property
    def given(self) -> bool:
        """Whether Kueue's Lease is given to policyd."""
        return self.lease is not None and is_given(self.lease)

    @property
    def holder(self) -> str:
        """The holder of Kueue's Lease; "" for none."""
        return (self.lease.spec.holder_identity or "") if self.lease else ""

    @property
    def policyd_leads(self) -> bool:
        """Whether policyd holds Kueue's Lease."""
        return self.holder == HOLDER


async def find(reader: Reader, namespace: str) -> Installation:
    """Read what there is of Kueue and of policyd.

    Raises:
        ApiError: If something may not be read, or the API server does not answer.
    """
    own = await _get(reader, MUTATING_WEBHOOK_CONFIGURATIONS, OWN_CONFIGURATION)
    return Installation(
        namespace,
        deployment=await _deployment(reader, namespace),
        pods=tuple([each async for each in _pods(reader, namespace)]),
        lease=await _lease(reader, namespace),
        configurations=tuple([each async for each in _configurations(reader, namespace)]),
        definitions=await _all(
            reader, CUSTOM_RESOURCE_DEFINITIONS, [f"{plural}.{GROUP}" for plural in PLURALS]
        ),
        visibility=await _all(reader, API_SERVICES, VISIBILITY),
        own=own,
        own_visibility=await _get(reader, API_SERVICES, OWN_VISIBILITY),
        record=await _get(reader, CONFIG_MAPS, RECORD, namespace),
        called=_converting(own),
    )


async def _get(reader: Reader, resource: Resource, name: str, namespace: str = "") -> Object | None:
    try:
        return await reader.get(resource, name, namespace=namespace, into=dict)
    except NotFoundError:
        return None


async def _all(reader: Reader, resource: Resource, names: Any) -> tuple[Object, ...]:  # noqa: ANN401
    found = [await _get(reader, resource, name) for name in names]
    return tuple(each for each in found if each is not None)


async def _lease(reader: Reader, namespace: str) -> Lease | None:
    try:
        return await reader.get(LEASES, NAME, namespace=namespace, into=Lease)
    except NotFoundError:
        return None


async def _deployment(reader: Reader, namespace: str) -> Object | None:
    page = await reader.page(
        DEPLOYMENTS, into=dict, namespace=namespace, label_selector=KUEUE_PODS, limit=1
    )
    return page.items[0] if page.items else None


async def _pods(reader: Reader, namespace: str) -> AsyncIterator[str]:
    selected = pages(reader, PODS, into=dict, namespace=namespace, label_selector=KUEUE_PODS)
    async for page in selected:
        for pod in page.items:
            if pod.get("status", {}).get("phase") not in {"Succeeded", "Failed"}:
                yield str(pod["metadata"]["name"])


async def _configurations(reader: Reader, namespace: str) -> AsyncIterator[tuple[Resource, Object]]:
    for resource in (MUTATING_WEBHOOK_CONFIGURATIONS, VALIDATING_WEBHOOK_CONFIGURATIONS):
        async for page in pages(reader, resource, into=dict):
            for each in page.items:
                if is_kueues(each, namespace):
                    yield resource, each


def is_kueues(configuration: Object, namespace: str) -> bool:
    """Tell whether a webhook configuration is Kueue's: it calls a Service in Kueue's namespace."""
    name = str(configuration["metadata"]["name"])
    if name in {OWN_CONFIGURATION, FORMER_NAME}:
        return False
    services = (
        webhook.get("clientConfig", {}).get("service") or {}
        for webhook in configuration.get("webhooks") or ()
    )
    called = {str(service.get("namespace")) for service in services}
    return called == {namespace} and "kueue" in name


def skips(webhook: Object) -> bool:
    """Tell whether the API server calls a webhook for nothing."""
    return SKIP in (webhook.get("matchConditions") or ())


def _converting(own: Object | None) -> dict[str, Any]:
    """Return policyd's `clientConfig` for conversions; empty if it is not registered."""
    for webhook in (own or {}).get("webhooks") or ():
        config = dict(webhook["clientConfig"])
        if "service" in config:
            config["service"] = {**config["service"], "path": CONVERT}
        else:
            config["url"] = config["url"].rpartition("/")[0] + CONVERT
        return config
    return {}

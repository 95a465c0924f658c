"""A small controller of claims: makes the ResourceClaims of pods from their templates.

As on a real cluster, pods that scheduling gates hold have their claims made, too: the queue lets
such a pod go once it knows what it claims. Nothing allocates devices to the claims.
"""

from contextlib import suppress

import msgspec

from policyd.api.meta import Json, ObjectMeta, Wire
from policyd.api.names import LONGEST_SUBDOMAIN
from policyd.kube.client import Client, PartialObject
from policyd.kube.errors import AlreadyExistsError, ConflictError, NotFoundError
from policyd.kube.resources import PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from policyd.local.objects import LocalPod
from policyd.local.steps import RETRY_SECONDS, DueObjects

POD_CLAIM = "resource.kubernetes.io/pod-claim-name"
"""Annotation of a claim that was made for a pod: its name in the pod."""
LONGEST = LONGEST_SUBDOMAIN - 6


class _Template(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Json] = {}


class ClaimController:
    """Makes the claims that pods name by a template, and writes their names into the pods."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.pods: DueObjects[LocalPod] = DueObjects()

    async def step(self, now: float) -> float | None:
        """Act on every pod that is due; return the seconds until the next is."""
        return await self.pods.step(self._reconcile, now)

    async def _reconcile(self, pod: LocalPod, now: float) -> float | None:
        """Make the claims that a pod misses; return when it is due again."""
        if pod.over or pod.metadata.deletion_timestamp is not None:
            return None
        made = {each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses}
        missing = {
            each.name: each.resource_claim_template_name
            for each in pod.spec.resource_claims
            if each.resource_claim_template_name and each.name not in made
        }
        if not missing:
            return None
        try:
            new = {name: await self._make(pod, name, of) for name, of in missing.items()}
        except NotFoundError:  # the template may come
            return now + RETRY_SECONDS
        with suppress(NotFoundError, ConflictError):  # its change brings us back
            await self._write(pod, made | new)
        return None

    async def _make(self, pod: LocalPod, name: str, template: str) -> str:
        """Make a claim from a template; return its name.

        It follows from the pod: the one of an attempt that failed before its end is found.
        """
        namespace, owner = pod.metadata.namespace, PODS.reference(pod.metadata)
        found = await self._client.get(
            RESOURCE_CLAIM_TEMPLATES, template, namespace=namespace, into=_Template
        )
        given = found.spec.get("metadata")
        metadata = dict(given) if isinstance(given, dict) else {}
        annotations = metadata.get("annotations")
        metadata["annotations"] = {
            **(annotations if isinstance(annotations, dict) else {}),
            POD_CLAIM: name,
        }
        claim = f"{f'{pod.metadata.name}-{name}'[:LONGEST].rstrip('.-')}-{pod.metadata.uid[:5]}"
        owners = {"apiVersion": "v1", "kind": "Pod", "name": owner.name, "uid": owner.uid}
        metadata |= {
            "name": claim,
            "namespace": namespace,
            "ownerReferences": [owners | {"controller": True, "blockOwnerDeletion": True}],
        }
        body = {
            "apiVersion": RESOURCE_CLAIMS.api_version,
            "kind": RESOURCE_CLAIMS.kind,
            "metadata": metadata,
            "spec": found.spec.get("spec"),
        }
        with suppress(AlreadyExistsError):
            await self._client.create(
                RESOURCE_CLAIMS, body, namespace=namespace, into=PartialObject
            )
        return claim

    async def _write(self, pod: LocalPod, claims: dict[str, str]) -> None:
        statuses = [{"name": name, "resourceClaimName": claim} for name, claim in claims.items()]
        await self._client.patch(
            PODS,
            pod.metadata.name,
            {
                "metadata": {"uid": pod.metadata.uid},
                "status": {"resourceClaimStatuses": statuses},
            },
            namespace=pod.metadata.namespace,
            subresource="status",
            field_manager="kube-controller-manager",
            into=msgspec.Raw,
        )

"""A cluster with Kueue and policyd, in memory: what controllers and kubelets do is done in turn."""

import copy

from policyd.cli.takeover.command import carry_out
from policyd.cli.takeover.installation import find
from policyd.kube import resources as r
from policyd.kube.kueue_lease import HOLDER, NAME, TAKEN_OVER
from policyd.testing import FakeClient

NAMESPACE = "kueue-system"
LABELS = {"app.kubernetes.io/name": "kueue", "control-plane": "controller-manager"}
KUEUE = {"namespace": NAMESPACE, "name": "kueue-webhook-service"}
OURS = {"namespace": "policyd-system", "name": "policyd-webhooks", "port": 443}
CRD = "workloads.kueue.x-k8s.io"
VISIBILITY = "v1beta2.visibility.kueue.x-k8s.io"
OTHERS = {"name": "not-kube-system", "expression": "true"}


def webhook(name, **more):
    return {"name": name, "clientConfig": {"service": {**KUEUE, "path": "/a"}}, **more}


class Cluster:
    """A cluster with Kueue and policyd; what controllers and kubelets do is done at each look."""

    def __init__(self, stored="v1beta2"):
        self.client = FakeClient()
        self.put(
            r.DEPLOYMENTS,
            {"name": "kueue-controller-manager", "namespace": NAMESPACE, "labels": LABELS},
            spec={"replicas": 2},
        )
        self.put(
            r.MUTATING_WEBHOOK_CONFIGURATIONS,
            {"name": "kueue-mutating-webhook-configuration"},
            webhooks=[webhook("mjob.kb.io"), webhook("mpod.kb.io", matchConditions=[OTHERS])],
        )
        own = {"name": "a.policyd.io", "clientConfig": {"service": {**OURS, "path": "/mutate"}}}
        own["clientConfig"]["caBundle"] = "b3Vycw=="
        self.put(
            r.MUTATING_WEBHOOK_CONFIGURATIONS, {"name": "admission.policyd.io"}, webhooks=[own]
        )
        config = {"service": {**KUEUE, "path": "/convert"}, "caBundle": "dGhlaXJz"}
        self.put(
            r.CUSTOM_RESOURCE_DEFINITIONS,
            {"name": CRD},
            spec={
                "group": "kueue.x-k8s.io",
                "scope": "Namespaced",
                "names": {"plural": "workloads", "kind": "Workload"},
                "versions": [
                    {"name": name, "served": True, "storage": name == stored}
                    for name in ("v1beta1", "v1beta2")
                ],
                "conversion": {
                    "strategy": "Webhook",
                    "webhook": {"clientConfig": config, "conversionReviewVersions": ["v1"]},
                },
            },
            status={"storedVersions": ["v1beta1", "v1beta2"]},
        )
        visibility = {"namespace": NAMESPACE, "name": "kueue-visibility-server"}
        spec = {"service": visibility, "insecureSkipTLSVerify": True}
        self.put(r.API_SERVICES, {"name": VISIBILITY}, spec=spec)
        service = {"namespace": "policyd-system", "name": "policyd-controller-visibility"}
        spec = {"service": service, "insecureSkipTLSVerify": True}
        self.put(r.API_SERVICES, {"name": "v1alpha1.visibility.policyd.io"}, spec=spec)
        self.put(
            r.LEASES,
            {"name": NAME, "namespace": NAMESPACE},
            spec={"holderIdentity": "kueue-1", "leaseDurationSeconds": 15},
        )
        self.put(r.WORKLOADS, {"name": "w", "namespace": "team-a", "uid": "w"}, spec={})

    def put(self, resource, metadata, **body):
        self.client.store.put(resource, {"metadata": metadata, **body})

    def get(self, resource, name, namespace=""):
        return self.client.store.get(resource, namespace, name)

    async def look(self):
        self.live()
        return await find(self.client, NAMESPACE)

    def live(self):
        deployment = copy.deepcopy(self.get(r.DEPLOYMENTS, "kueue-controller-manager", NAMESPACE))
        replicas = deployment["spec"]["replicas"]
        deployment["status"] = {"readyReplicas": replicas} if replicas else {}
        self.client.store.put(r.DEPLOYMENTS, deployment)
        lease = copy.deepcopy(self.get(r.LEASES, NAME, NAMESPACE))
        given = lease["metadata"].get("annotations", {}).get(TAKEN_OVER) == "true"
        holder = lease["spec"]["holderIdentity"]
        if holder != HOLDER and not replicas:
            holder = ""
        holder = HOLDER if given and not holder else holder
        holder = "kueue-2" if not given and replicas and holder in ("", HOLDER) else holder
        lease["spec"]["holderIdentity"] = holder
        self.client.store.put(r.LEASES, lease)

    async def go(self, steps):
        for step in steps:
            assert not await carry_out(self.client, step, self.look, 5), step.name

    def settings(self):
        """What the way back must restore."""
        made = {}
        for resource, name, namespace in (
            (r.DEPLOYMENTS, "kueue-controller-manager", NAMESPACE),
            (r.MUTATING_WEBHOOK_CONFIGURATIONS, "kueue-mutating-webhook-configuration", ""),
            (r.CUSTOM_RESOURCE_DEFINITIONS, CRD, ""),
            (r.API_SERVICES, VISIBILITY, ""),
        ):
            found = self.get(resource, name, namespace)
            made[name] = {part: found.get(part) for part in ("spec", "webhooks")}
        return without_nulls(made)


def without_nulls(value):
    if isinstance(value, dict):
        return {name: without_nulls(each) for name, each in value.items() if each is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value

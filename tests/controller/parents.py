"""Objects whose pods are held for them, and their pods as their controllers make them."""

from policyd.controller.watch.mirrors import job_resource
from policyd.jobs.rules.defaults import default_on_create
from policyd.jobs.rules.surroundings import JobContext
from policyd.kube import resources as r
from policyd.patch.draft import Draft
from tests.controller.world import QUEUE


def submit(world, kind, spec, name="serve", **labels):
    body = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, "labels": {QUEUE: "lq-cq", **labels}},
        "spec": spec,
    }
    draft = Draft(body)
    default_on_create(draft, group=kind.group, kind=kind.kind)
    return world.create(job_resource(kind), draft.object)


def make_pod(world, parent, index, template, *, kind="StatefulSet", **metadata):
    """Make a pod as the parent's controller does, past the webhook."""
    owner = {
        "apiVersion": "apps/v1",
        "kind": kind,
        "name": parent["metadata"]["name"],
        "uid": parent["metadata"]["uid"],
        "controller": True,
    }
    name = f"{parent['metadata']['name']}-{index}"
    given = template.get("metadata", {})
    made = {
        "name": name,
        "ownerReferences": [owner],
        "labels": {**given.get("labels", {}), **metadata.pop("labels", {})},
        "annotations": {**given.get("annotations", {}), **metadata.pop("annotations", {})},
    }
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": made, "spec": template["spec"]}
    draft = Draft(body)
    surroundings = JobContext(account="system:serviceaccount:kube-system:statefulset-controller")
    default_on_create(draft, group="", kind="Pod", surroundings=surroundings)
    return world.create(r.PODS, draft.object)

"""Builders: policies from a few lines of YAML, and requests from objects."""

import json
from textwrap import dedent, indent

import msgspec

from policyd.api.admission import UserInfo
from policyd.engine.compile.load import load_policies
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.offline.requests import RequestCircumstances, namespace_lookup, request_for
from policyd.patch.json_patch import apply_json_patch

HEAD = """\
apiVersion: policyd.io/v1alpha1
kind: Policy
metadata: {{name: {name}}}
spec:
  matchConstraints:
    resourceRules:
    - {{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*"]}}
"""


def policy(spec, name="p"):
    """A policy that concerns everything, with the fields of `spec` (YAML) besides."""
    return HEAD.format(name=name) + indent(dedent(spec).strip("\n"), "  ") + "\n"


def policies(*texts, labels=None, namespaces=None):
    """A set of policies; every namespace has `labels`, or is looked up by `namespaces`."""
    loaded = load_policies("---\n".join(texts), "policy.yaml")
    assert not loaded.findings, "\n".join(map(str, loaded.findings))
    return PolicySet(loaded.policies, namespaces=namespaces or namespace_lookup((), labels or {}))


def request(obj, operation="CREATE", *, old=None, user="someone", groups=(), **more):
    circumstances = RequestCircumstances(
        operation=operation, user=UserInfo(username=user, groups=tuple(groups))
    )
    made = request_for(obj, circumstances, old_object=old)
    return msgspec.structs.replace(made, **more)


def raw_request(text, **more):
    """A request whose object is any bytes at all."""
    text = text if isinstance(text, bytes) else json.dumps(text).encode()
    return request(pod(), object=msgspec.Raw(text), **more)


def pod(*, name="a", gpus=0, **metadata):
    container = {"name": "main"}
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team-a", **metadata},
        "spec": {"containers": [container]},
    }


def template(gpus=0):
    return {"spec": pod(gpus=gpus)["spec"]}


def job(*, parallelism=1, gpus=0):
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "team-a"},
        "spec": {"parallelism": parallelism, "template": template(gpus)},
    }


def job_set(*gpus):
    """A JobSet with one replicated job for each number of GPUs."""
    jobs = [
        {"name": f"job-{index}", "template": {"spec": {"template": template(each)}}}
        for index, each in enumerate(gpus)
    ]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "train", "namespace": "team-a"},
        "spec": {"replicatedJobs": jobs},
    }


def mutated(policy_set, obj, operation="CREATE", **more):
    """What mutation makes of an object; it must be allowed."""
    decision = policy_set.mutate(request(obj, operation, **more))
    assert decision.denials == ()
    return apply_json_patch(obj, decision.operations)

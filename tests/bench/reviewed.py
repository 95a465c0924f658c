"""What the webhook and the engine are measured with: policies, and a review of a 10 KB pod."""

import json

POLICIES = 20

RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}

EXPRESSIONS = [
    "object.spec.containers.all(c, c.image.startsWith('registry.example/'))",
    "object.spec.containers.all(c, has(c.resources) && has(c.resources.limits))",
    "object.spec.containers.all(c, !(has(c.securityContext) &&"
    " has(c.securityContext.privileged) && c.securityContext.privileged))",
    "has(object.metadata.labels) && 'team' in object.metadata.labels",
    "!has(object.spec.hostNetwork) || !object.spec.hostNetwork",
    "object.spec.containers.all(c, c.env.size() < 100)",
    "!has(object.spec.volumes) || object.spec.volumes.all(v, !has(v.hostPath))",
    "request.userInfo.username != 'nobody'",
    "object.spec.containers.exists(c, c.name.matches('^[a-z0-9-]+$'))",
    "!('nvidia.com/gpu' in object.spec.containers[0].resources.limits) ||"
    " object.spec.tolerations.exists(t, t.key == 'nvidia.com/gpu')",
]

INJECTIONS = [
    {"queueName": {"expression": "object.metadata.labels['team'] + '-gpu'"}},
    {"priorityClassName": "training"},
    {"tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}]},
    {"nodeSelector": {"pool": "gpu"}},
    {"annotations": {"example.com/checked": "yes"}},
]


def policies(resource, count=POLICIES):
    """Policies that all demand something; a quarter of twenty change something, too."""
    for number in range(count):
        validation = {"expression": EXPRESSIONS[number % len(EXPRESSIONS)], "message": "no"}
        spec = {
            "matchConstraints": {"resourceRules": [RULE | {"resources": [resource]}]},
            "validations": [validation],
        }
        if number < len(INJECTIONS):
            spec["inject"] = INJECTIONS[number]
        yield {
            "apiVersion": "policyd.io/v1alpha1",
            "kind": "Policy",
            "metadata": {"name": f"policy-{number:04}"},
            "spec": spec,
        }


def injecting_policies(resource, count=POLICIES):
    """Policies that all change the pod, behind a condition that looks at all its containers."""
    for number, policy in enumerate(policies(resource, count)):
        inject = {"annotations": {f"example.com/checked-{number}": "yes"}}
        spec = policy["spec"]
        del spec["validations"]
        spec["matchConditions"] = [{"name": "gpus", "expression": "pod.gpus() > 0"}]
        spec["inject"] = [*INJECTIONS[:-1], inject][number % len(INJECTIONS)]
        yield policy


VERSION = "1000000-rc"
"""What stands for the version of an image that no other pod has: policies look at it."""


def pod(size=10_000, version="1.0"):
    """Make a pod of two containers that pads itself to about `size` bytes of JSON."""
    limits = {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "8"}
    obj = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "train-0",
            "namespace": "team-a",
            "labels": {"team": "vision", "app": "train", "batch.kubernetes.io/job-name": "train"},
            "annotations": {},
        },
        "spec": {
            "containers": [
                {
                    "name": name,
                    "image": f"registry.example/{name}:{version}",
                    "command": ["python", "train.py"],
                    "env": [],
                    "resources": {"requests": limits, "limits": limits},
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }
                for name in ("main", "side")
            ],
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        },
    }
    env = obj["spec"]["containers"][0]["env"]
    while len(json.dumps(obj)) < size:
        env.append({"name": f"SETTING_{len(env):03}", "value": "x" * 40})
        obj["metadata"]["annotations"][f"example.com/note-{len(env)}"] = "y" * 30
    return obj


def request(path, *, alike=False):
    """The call of a webhook, with a pod that is to be made unlike all others, unless `alike`."""
    body = json.dumps(
        {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
                "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "resource": {"group": "", "version": "v1", "resource": "pods"},
                "name": "train-0",
                "namespace": "team-a",
                "operation": "CREATE",
                "userInfo": {"username": "alice", "groups": ["system:authenticated"]},
                "object": pod() if alike else pod(version=VERSION),
                "oldObject": None,
                "dryRun": False,
            },
        }
    ).encode()
    head = (
        f"POST {path}?timeout=5s HTTP/1.1\r\nHost: webhook\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nAccept-Encoding: gzip\r\nUser-Agent: bench\r\n\r\n"
    )
    return head.encode() + body

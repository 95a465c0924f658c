"""Pods and Jobs as a cluster stores them, of a few shapes: names, labels, images, amounts, owners
and devices differ."""

import hashlib
import random

TEAMS = [f"team-{letter}" for letter in "abcdefgh"]
IMAGES = [f"registry.example/{team}/{name}" for team in TEAMS for name in ("api", "train", "etl")]
AT = "2026-11-20T08:15:00Z"
PENALTY = {"effect": "NoExecute", "operator": "Exists", "tolerationSeconds": 300}
REPAIRED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def namespaces():
    """The namespaces of the objects, and what the library's policies have for parameters."""
    for team in TEAMS:
        labels = {"policyd.io/team": team, "kubernetes.io/metadata.name": team}
        labels["policyd.io/pod-security"] = "restricted" if team > "team-d" else "baseline"
        yield {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": team, "labels": labels},
        }
    registries = {"name": "image-registries", "namespace": "policyd-system"}
    data = {"registries": "registry.example/"}
    yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": registries, "data": data}


def stored(count, *, violations, releases=0, seed=1):
    """So many pods and Jobs, one of five a Job.

    Args:
        count: How many.
        violations: The part of them that breaks a policy.
        releases: How many images and amounts an application has; 0 for others in each object.
        seed: What else is by chance.
    """
    rng = random.Random(seed)
    for number in range(count):
        faulty = rng.random() < violations
        own = rng.randrange(releases) if releases else number
        yield (job if number % 5 == 0 else pod)(number, own, rng, faulty=faulty)


def pod(number, release, rng, *, faulty):
    """A pod of a Deployment, a StatefulSet, a Job or nobody."""
    team = rng.choice(TEAMS)
    maker = rng.choice(["ReplicaSet", "ReplicaSet", "StatefulSet", "Job", ""])
    app, name = f"app-{rng.randrange(400)}", f"app-{number}-{rng.randrange(1 << 40):x}"
    metadata = _metadata(name, team, app, rng)
    if maker:
        api = "batch/v1" if maker == "Job" else "apps/v1"
        metadata["ownerReferences"] = [
            {
                "apiVersion": api,
                "blockOwnerDeletion": True,
                "controller": True,
                "kind": maker,
                "name": f"{app}-{rng.randrange(1 << 30):x}",
                "uid": _uid(rng),
            }
        ]
    if maker == "ReplicaSet":
        metadata["labels"]["pod-template-hash"] = f"{rng.randrange(1 << 40):x}"
    if maker == "StatefulSet":
        metadata["labels"]["apps.kubernetes.io/pod-index"] = str(number % 7)
    token = f"kube-api-access-{rng.randrange(1 << 25):05x}"
    spec = _spec((team, app, release), rng, faulty=faulty, token=token)
    node = f"node-{rng.randrange(2000)}"
    spec |= {"nodeName": node, "tolerations": [PENALTY | {"key": "node.kubernetes.io/not-ready"}]}
    if rng.random() < 0.1 or maker == "Job":
        _train(metadata, spec, rng, faulty=faulty)
    ready = {"lastProbeTime": None, "lastTransitionTime": AT, "status": "True"}
    types = ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    status = {
        "conditions": [ready | {"type": kind} for kind in types],
        "containerStatuses": [
            {
                "containerID": f"containerd://{rng.randrange(1 << 250):064x}",
                "image": container["image"],
                "imageID": f"{container['image']}@sha256:{rng.randrange(1 << 250):064x}",
                "name": container["name"],
                "ready": True,
                "restartCount": rng.randrange(3),
                "state": {"running": {"startedAt": AT}},
            }
            for container in spec["containers"]
        ],
        "hostIP": f"10.0.{number % 250}.7",
        "phase": "Running",
        "podIP": f"10.{number % 200}.{number % 250}.9",
        "qosClass": "Burstable",
        "startTime": AT,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }


def job(number, release, rng, *, faulty):
    """A Job of a CronJob, or nobody's; its template has pods like the others."""
    team, app = rng.choice(TEAMS), f"job-{rng.randrange(400)}"
    metadata = _metadata(f"{app}-{number}", team, app, rng)
    uid = _uid(rng)
    owned = {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": metadata["name"],
        "app": app,
    }
    if rng.random() < 0.3:
        metadata["ownerReferences"] = [
            {
                "apiVersion": "batch/v1",
                "controller": True,
                "kind": "CronJob",
                "name": app,
                "uid": _uid(rng),
            }
        ]
    template = _spec((team, app, release), rng, faulty=faulty, token=None) | {
        "restartPolicy": "Never"
    }
    if rng.random() < 0.5:
        _train(metadata, template, rng, faulty=faulty)
    pods = rng.choice([1, 1, 2, 4, 8])
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata | {"uid": uid},
        "spec": {
            "backoffLimit": rng.randrange(6),
            "completionMode": "Indexed",
            "completions": pods,
            "parallelism": pods,
            "manualSelector": False,
            "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}},
            "suspend": False,
            "template": {"metadata": {"labels": owned}, "spec": template},
            "ttlSecondsAfterFinished": 600,
        },
        "status": {"active": 1, "ready": 1, "startTime": AT, "uncountedTerminatedPods": {}},
    }


def _metadata(name, team, app, rng):
    return {
        "annotations": {
            "checksum/config": hashlib.sha256(f"{team}/{app}".encode()).hexdigest(),
            "prometheus.io/port": "8080",
        },
        "creationTimestamp": AT,
        "labels": {
            "app.kubernetes.io/name": app,
            "app.kubernetes.io/version": f"1.{rng.randrange(50)}.{rng.randrange(50)}",
            "team": team,
            "policyd.io/owner": f"user-{rng.randrange(300)}",
            "policyd.io/cost-centre": f"c-{rng.randrange(40)}",
        },
        "name": name,
        "namespace": team,
        "resourceVersion": str(rng.randrange(1 << 30)),
        "uid": _uid(rng),
    }


def _spec(release, rng, *, faulty, token):
    names = ("main", "proxy")[: random.Random(str(release)).choice([1, 1, 2])]
    containers = [_container(name, release, token) for name in names]
    spec = {
        "automountServiceAccountToken": token is not None,
        "containers": containers,
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        "priority": 0,
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "serviceAccountName": f"runner-{rng.randrange(20)}",
        "terminationGracePeriodSeconds": 30,
        "volumes": [
            {"configMap": {"defaultMode": 420, "name": f"config-{release[1]}"}, "name": "c"}
        ],
    }
    if token is not None:
        source = {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}
        spec["volumes"].append(
            {"name": token, "projected": {"defaultMode": 420, "sources": [source]}}
        )
    if faulty:
        broken = rng.choice(containers)
        rng.choice(
            [
                lambda: broken["securityContext"].update(privileged=True),
                lambda: spec.update(hostNetwork=True),
                lambda: broken.update(image=broken["image"].partition("@")[0].rpartition(":")[0]),
                lambda: broken["resources"].pop("limits"),
                lambda: spec["volumes"].append({"name": "h", "hostPath": {"path": "/var/run"}}),
                lambda: broken.pop("securityContext"),
            ]
        )()
    return spec


def _container(name, release, token):
    rng = random.Random(f"{name} {release}")
    memory, cpu = f"{rng.randrange(64, 4096)}Mi", f"{rng.randrange(50, 4000)}m"
    tag = f"{rng.randrange(4)}.{rng.randrange(30)}.{rng.randrange(30)}"
    mounts = [{"mountPath": "/etc/config", "name": "c"}]
    if token is not None:
        path = "/var/run/secrets/kubernetes.io/serviceaccount"
        mounts.append({"mountPath": path, "name": token, "readOnly": True})
    return {
        "args": [f"--shard={rng.randrange(100)}"],
        "env": [{"name": f"SETTING_{n}", "value": f"{release[1]}-{n}"} for n in range(6)],
        "image": f"{rng.choice(IMAGES)}:{tag}",
        "imagePullPolicy": "IfNotPresent",
        "livenessProbe": {"httpGet": {"path": "/live", "port": 8080}, "periodSeconds": 10},
        "name": name,
        "ports": [{"containerPort": 8080, "protocol": "TCP"}],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}, "periodSeconds": 10},
        "resources": {
            "limits": {"cpu": cpu, "memory": memory},
            "requests": {"cpu": cpu, "memory": memory},
        },
        "securityContext": dict(REPAIRED),
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "volumeMounts": mounts,
    }


def _train(metadata, spec, rng, *, faulty):
    """Have it ask for GPUs, with a queue unless it is faulty."""
    gpus = str(rng.choice([1, 2, 4, 8]))
    for side in ("limits", "requests"):
        spec["containers"][0]["resources"].setdefault(side, {})["nvidia.com/gpu"] = gpus
    tolerations = [*spec.get("tolerations", ()), {"key": "nvidia.com/gpu", "operator": "Exists"}]
    spec |= {"tolerations": tolerations, "priorityClassName": "training"}
    if not faulty:
        metadata["labels"]["kueue.x-k8s.io/queue-name"] = f"queue-{rng.randrange(4)}"


def _uid(rng):
    text = f"{rng.randrange(1 << 127):032x}"
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))

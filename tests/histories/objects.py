"""The objects of a history."""

from policyd.api.kueue.names import (
    MIN_PARALLELISM,
    POD_GROUP_NAME,
    POD_GROUP_TOTAL_COUNT,
    PODSET_PREFERRED_TOPOLOGY,
    PODSET_REQUIRED_TOPOLOGY,
    PRIORITY_CLASS,
    QUEUE_NAME,
    RESOURCE_IN_USE_FINALIZER,
)
from policyd.api.meta import rfc3339
from policyd.api.names import RUN_FOR
from policyd.kube import resources as r
from tests.histories.plan import GPUS, VALUES
from tests.scenarios import foreign

FOREIGN = ("AppWrapper", "MPIJob", "PyTorchJob", "RayJob", "TFJob")
"""Kinds of other operators, beside JobSets."""
RESOURCES = {
    kind: r.Resource(*foreign.GROUPS[kind], foreign.plural(kind), kind) for kind in FOREIGN
}
INVALID = "ValidationFailed"
"""Of a RayJob: its operator does nothing until that changes."""
CHECK = "checked"
"""The name of the admission check."""
JOB_SETS = r.Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")
GPU = "nvidia.com/gpu"
RACK = "example.com/rack"
HOST = "kubernetes.io/hostname"
TEAM = "team"
TOPOLOGY_OF = {"required": PODSET_REQUIRED_TOPOLOGY, "preferred": PODSET_PREFERRED_TOPOLOGY}


def setting_objects(setting):
    """Yield what an administrator creates first: resources and objects."""
    yield r.NAMESPACES, {"metadata": {"name": TEAM}}
    for name, value in VALUES.items():
        yield r.WORKLOAD_PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value}
    flavor = {"metadata": {"name": "gpus"}, "spec": {"nodeLabels": {"gpu": "h100"}}}
    if setting["topology"]:
        levels = [{"nodeLabel": RACK}, {"nodeLabel": HOST}]
        yield r.TOPOLOGIES, {"metadata": {"name": "racks"}, "spec": {"levels": levels}}
        flavor["spec"]["topologyName"] = "racks"
    yield r.RESOURCE_FLAVORS, flavor
    if any(queue["checked"] for queue in setting["queues"].values()):
        check = {"metadata": {"name": CHECK}, "spec": {"controllerName": "example.com/checks"}}
        yield r.ADMISSION_CHECKS, check
    for number in range(setting["nodes"]):
        yield r.NODES, node(number)
    for name, cohort in setting["cohorts"].items():
        yield r.COHORTS, {"metadata": {"name": name}, "spec": _cohort(cohort)}
    for name, queue in setting["queues"].items():
        yield r.CLUSTER_QUEUES, cluster_queue(name, queue)
        yield r.LOCAL_QUEUES, local_queue(name)


def local_queue(name):
    """Return the LocalQueue of a ClusterQueue, which has its name."""
    return {"metadata": {"name": name, "namespace": TEAM}, "spec": {"clusterQueue": name}}


def active(now):
    """Return the patch by which the controller of the admission check says that it is there."""
    state = {"type": "Active", "status": "True", "reason": "Here", "message": "it answers"}
    return {"status": {"conditions": [{**state, "lastTransitionTime": rfc3339(now)}]}}


def node(number):
    """Return a node of eight GPUs; two of them share a rack."""
    labels = {"gpu": "h100", RACK: f"rack-{number // 2}", HOST: f"node-{number}"}
    room = {GPU: str(GPUS), "cpu": "64", "memory": "512Gi", "pods": "110"}
    return {
        "metadata": {"name": f"node-{number}", "labels": labels},
        "status": {"allocatable": room, "capacity": room},
    }


def cluster_queue(name, queue):
    spec = {
        "namespaceSelector": {},
        "queueingStrategy": queue["strategy"],
        "resourceGroups": quota(queue, queue["gpus"]),
        "preemption": {
            "reclaimWithinCohort": queue["reclaim"],
            "withinClusterQueue": queue["within"],
        },
    }
    if queue["cohort"]:
        spec["cohortName"] = queue["cohort"]
    if queue["weight"] != 1:
        spec["fairSharing"] = {"weight": str(queue["weight"])}
    if queue["checked"]:
        spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": CHECK}]}
    finalizers = [RESOURCE_IN_USE_FINALIZER]
    return {"metadata": {"name": name, "finalizers": finalizers}, "spec": spec}


def _cohort(cohort):
    resource = {"name": GPU, "nominalQuota": str(cohort["gpus"])}
    limits = {"borrowingLimit": cohort["borrowing"], "lendingLimit": cohort["lending"]}
    resource |= {name: str(limit) for name, limit in limits.items() if limit is not None}
    parent = {"parentName": cohort["parent"]} if cohort["parent"] else {}
    return parent | {"resourceGroups": groups(resource)}


def quota(queue, gpus):
    """Return the resource groups of a queue that has so many GPUs."""
    resource = {"name": GPU, "nominalQuota": str(gpus)}
    if queue["cohort"]:
        for limit in ("borrowing", "lending"):
            if queue[limit] is not None:
                resource[f"{limit}Limit"] = str(min(queue[limit], gpus))
    return groups(resource)


def groups(resource):
    return [{"coveredResources": [GPU], "flavors": [{"name": "gpus", "resources": [resource]}]}]


def job_objects(about):
    """Return the objects of a job that a user submits: resources and bodies."""
    name, kind = about["name"], about["kind"]
    labels = {QUEUE_NAME: about["queue"]}
    if about["class"]:
        labels[PRIORITY_CLASS] = about["class"]
    metadata = {"name": name, "namespace": TEAM, "labels": labels}
    if kind in RESOURCES:
        spec = _lighter(foreign.SPECS[kind](about["gpus"]), about)
        return [(RESOURCES[kind], {"metadata": metadata, "spec": spec})]
    if about["least"]:
        metadata["annotations"] = {MIN_PARALLELISM: str(about["least"])}
    template = _template(about)
    if kind == "Job":
        return [(r.JOBS, {"metadata": metadata, "spec": _job(template, **_counts(about))})]
    if kind == "JobSet":
        jobs = [{"name": "main", "replicas": about["pods"],
                 "template": {"spec": _job(template, 1, 1)}}]  # fmt: skip
        return [(JOB_SETS, {"metadata": metadata, "spec": {"replicatedJobs": jobs}})]
    return [(r.PODS, each) for each in pods(about, metadata, template)]


def pods(about, metadata, template):
    """Yield the pods of a group, or the one pod."""
    for number in range(about["pods"]):
        labels, annotations = dict(metadata["labels"]), dict(template["metadata"]["annotations"])
        name = metadata["name"]
        if about["kind"] == "PodGroup":
            # They end one after the other, and give back what they held.
            annotations[RUN_FOR] = f"{about['seconds'] * (2 + number) // 2}s"
            labels[POD_GROUP_NAME] = name
            annotations[POD_GROUP_TOTAL_COUNT] = str(about["pods"])
            name = f"{name}-{about.get('round', 0)}-{number}"
        about_pod = {"name": name, "namespace": TEAM, "labels": labels, "annotations": annotations}
        yield {"metadata": about_pod, "spec": template["spec"]}


def _template(about):
    annotations = {RUN_FOR: f"{about['seconds']}s"}
    if about["fails"]:
        annotations["policyd.io/exit-code"] = "1"
    if about["topology"]:
        annotations[TOPOLOGY_OF[about["topology"]]] = RACK
    limits = {GPU: str(about["gpus"])}
    container = {"name": "main", "image": "train:1", "resources": {"limits": limits}}
    return {
        "metadata": {"annotations": annotations},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }


def _lighter(part, about):
    """Return a spec whose pods ask for GPUs alone, and run as long as the job."""
    if isinstance(part, list):
        return [_lighter(each, about) for each in part]
    if not isinstance(part, dict):
        return part
    found = {name: _lighter(each, about) for name, each in part.items()}
    if GPU in found:
        return {GPU: found[GPU]}
    return found | ({RUN_FOR: f"{about['seconds']}s"} if RUN_FOR in found else {})


def _counts(about):
    """Return how many pods of a Job run at a time at most, and how many are to succeed.

    Some have more places than pods are to succeed, and others pods that follow the first.
    """
    pods, more = about["pods"], about.get("more", 0)
    return {"parallelism": 2 * pods if more < 0 else pods, "completions": pods + max(0, more)}


def _job(template, parallelism, completions):
    return {
        "parallelism": parallelism,
        "completions": completions,
        "backoffLimit": 0,
        "template": template,
    }

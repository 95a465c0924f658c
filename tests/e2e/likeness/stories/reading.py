"""Reading: lists, pages, selectors, tables, metadata alone, versions that are gone."""

from tests.e2e.likeness.asking import create, find, patch, read
from tests.e2e.likeness.objects import config_map, deployment, job, make, pod

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
TABLE_ONLY = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"

RUNNING = {
    "phase": "Running",
    "podIP": "10.0.0.1",
    "startTime": "2026-01-01T00:00:00Z",
    "conditions": [
        {"type": "Ready", "status": "True"},
        {"type": "PodScheduled", "status": "True"},
    ],
    "containerStatuses": [
        {
            "name": "main",
            "ready": True,
            "restartCount": 2,
            "image": "busybox",
            "imageID": "",
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            "lastState": {
                "terminated": {"exitCode": 1, "finishedAt": "2026-01-01T00:00:00Z"},
            },
        }
    ],
}


def ended(reason, code, phase):
    state = {"terminated": {"exitCode": code, "reason": reason}}
    status = {"name": "main", "ready": False, "restartCount": 0, "image": "", "imageID": ""}
    return {"phase": phase, "containerStatuses": [{**status, "state": state}]}


def status(name, value, kind="Pod"):
    return patch(kind, name, {"status": value}, part="status")


LABELLED = [
    create(config_map(f"c{number}", metadata={"labels": {"n": str(number), **more}}))
    for number, more in enumerate([{"a": "x"}, {"a": "y"}, {}, {"a": "x", "b": ""}])
]

LABEL_SELECTORS = ["a=x", "a==x", "a!=x", "a", "!a", "a in (x,y)", "a notin (x)", "n>1", "a=x,!b",
                   "a in x", "=", "a=x y", "a b=c", "a=x,,b", "n<3", "n>x", "a=b=c", "a in ()",
                   "a in (x,)", "a in (,x)", "a in (x y)", "a=", "a=,b", "@=x", "a=@", ",a", "!",
                   "!a=x", "a in (x", "in in (in)", " a = x ", "a,"]  # fmt: skip
FIELD_SELECTORS = ["metadata.name=c1", "metadata.name!=c1", "metadata.name==c1", "data.a=b",
                   "metadata.name", "metadata.namespace=elsewhere", "="]  # fmt: skip

STORIES = {
    "selectors": [
        *LABELLED,
        *(find("ConfigMap", labelSelector=selector) for selector in LABEL_SELECTORS),
        *(find("ConfigMap", fieldSelector=selector) for selector in FIELD_SELECTORS),
    ],
    "selectors-of-pods": [
        create(pod("one", nodeName="n1")),
        create(pod("two", metadata={"labels": {"a": "b"}})),
        find("Pod", fieldSelector="spec.nodeName=n1"),
        find("Pod", fieldSelector="spec.nodeName=", labelSelector="a=b"),
        find("Pod", fieldSelector="status.phase=Pending,metadata.name!=one"),
        find("Pod", fieldSelector="spec.restartPolicy=Never"),
        find("Pod", fieldSelector="spec.schedulerName=default-scheduler"),
        find("Pod", fieldSelector="status.podIP=1.2.3.4"),
        find("Pod", fieldSelector="spec.serviceAccountName=default"),
        find("Pod", fieldSelector="spec.priority=5"),
    ],
    "pages": [
        *LABELLED,
        find("ConfigMap", limit="2"),
        find("ConfigMap", limit="10"),
        find("ConfigMap", limit="2", labelSelector="a"),
        find("ConfigMap", limit="x"),
        find("ConfigMap", limit="-1"),
        find("ConfigMap", **{"continue": "broken"}),
        find("ConfigMap", limit="0"),
    ],
    "versions-of-lists": [
        *LABELLED[:1],
        find("ConfigMap", resourceVersion="0"),
        find("ConfigMap", resourceVersion="1"),
        find("ConfigMap", resourceVersion="x"),
        find("ConfigMap", resourceVersion="999999999"),
        find("ConfigMap", resourceVersion="1", resourceVersionMatch="NotOlderThan"),
        find("ConfigMap", resourceVersionMatch="NotOlderThan"),
        find("ConfigMap", resourceVersion="1", resourceVersionMatch="Nonsense"),
        find("ConfigMap", resourceVersion="0", resourceVersionMatch="Exact"),
        read("ConfigMap", "c0", resourceVersion="0"),
        read("ConfigMap", "c0", resourceVersion="x"),
        find(
            "ConfigMap",
            everywhere=True,
            fieldSelector="metadata.name=c0,metadata.namespace={namespace}",
        ),
        find("ConfigMap", timeoutSeconds="x"),
    ],
    "forms": [
        *LABELLED[:2],
        find("ConfigMap", accept=PARTIAL_LIST),
        read("ConfigMap", "c0", accept=PARTIAL),
        read("ConfigMap", "c0", accept=TABLE),
        find("ConfigMap", accept=TABLE),
        find("ConfigMap", accept=TABLE, includeObject="None"),
        find("ConfigMap", accept=TABLE, includeObject="Object"),
        find("ConfigMap", accept=TABLE, includeObject="Nothing"),
        read("ConfigMap", "nobody", accept=TABLE_ONLY),
        find("ConfigMap", accept="application/xml"),
        find("ConfigMap", accept="text/html,*/*"),
        read("ConfigMap", "c0", accept="application/yaml"),
        find("ConfigMap", accept=TABLE, limit="1"),
    ],
    "table-of-pods": [
        *(create(pod(name)) for name in ("pending", "running", "done", "failed", "killed", "gone")),
        create(pod("scheduled", nodeName="n1", metadata={"finalizers": ["example.com/x"]})),
        create(
            pod(
                "started",
                initContainers=[{"name": "i", "image": "x"}],
                readinessGates=[{"conditionType": "example.com/a"}],
            )
        ),
        status("running", RUNNING),
        status("done", ended("Completed", 0, "Succeeded")),
        status("failed", ended("Error", 1, "Failed")),
        status("killed", ended("", 137, "Failed")),
        status("gone", {"phase": "Failed", "reason": "Evicted"}),
        status("scheduled", {"nominatedNodeName": "n2", "phase": "Running"}),
        find("Pod", accept=TABLE),
        find("Pod", accept=TABLE, everywhere=True, labelSelector="nothing=here"),
        patch("Pod", "scheduled", {"metadata": {"finalizers": None}}),
    ],
    "table-of-jobs": [
        create(job("one")),
        create(job("many", completions=5, parallelism=2)),
        create(job("endless", parallelism=3, suspend=True)),
        status("many", {"succeeded": 2, "active": 1, "startTime": "2026-01-01T00:00:00Z"}, "Job"),
        find("Job", accept=TABLE),
    ],
    "table-of-the-rest": [
        create(deployment()),
        create(make("Secret", "s", data={"a": "eA=="})),
        create(make("Lease", "l", spec={"holderIdentity": "me"})),
        create(make("ServiceAccount", "sa")),
        *(
            find(kind, accept=TABLE)
            for kind in (
                "Deployment",
                "Secret",
                "Lease",
                "StatefulSet",
                "Service",
            )
        ),
        find("ServiceAccount", accept=TABLE, fieldSelector="metadata.name=sa"),
        find("PriorityClass", accept=TABLE, fieldSelector="metadata.name=system-node-critical"),
        find("Namespace", accept=TABLE, fieldSelector="metadata.name=default"),
        find("CustomResourceDefinition", accept=TABLE),
        find("MutatingWebhookConfiguration", accept=TABLE),
        find("ValidatingWebhookConfiguration", accept=TABLE),
    ],
    "table-of-nodes": [
        create(
            make(
                "Node",
                "table-node",
                metadata={"labels": {"node-role.kubernetes.io/gpu": ""}},
                spec={"unschedulable": True},
                status={
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "nodeInfo": {
                        "machineID": "",
                        "systemUUID": "",
                        "bootID": "",
                        "kernelVersion": "6",
                        "osImage": "any",
                        "containerRuntimeVersion": "none",
                        "kubeletVersion": "v1.36.0",
                        "kubeProxyVersion": "",
                        "operatingSystem": "linux",
                        "architecture": "amd64",
                    },
                    "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                },
            )
        ),
        create(make("Node", "table-node-2")),
        find("Node", accept=TABLE),
    ],
    "table-of-events": [
        create(
            make(
                "Event",
                "web.1",
                involvedObject={"kind": "Pod", "name": "web", "namespace": "{namespace}"},
                reason="Because",
                message="several words\nand lines",
                type="Warning",
                count=3,
                source={"component": "c", "host": "h"},
                firstTimestamp="2026-01-01T00:00:00Z",
                lastTimestamp="2026-01-01T00:00:00Z",
            )
        ),
        find("Event", accept=TABLE),
        find("NewEvent", accept=TABLE),
    ],
}

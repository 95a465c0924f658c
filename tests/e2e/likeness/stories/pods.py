"""Pods: what they have by default, what may be wrong with them, and what of them may change."""

from tests.e2e.likeness.asking import (
    JSON_PATCH,
    STRATEGIC,
    create,
    find,
    patch,
    read,
    remove,
    replace,
)
from tests.e2e.likeness.objects import CONTAINER, GATE, gated, make, pod

AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]
        }
    }
}

EVERYTHING = pod(
    "full",
    container={
        "ports": [{"containerPort": 80}],
        "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "livenessProbe": {"httpGet": {"path": "/", "port": 80}},
        "readinessProbe": {"exec": {"command": ["true"]}},
        "resources": {"limits": {"cpu": "1.5", "memory": "1024Mi", "nvidia.com/gpu": 1}},
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
    },
    initContainers=[{"name": "init", "image": "busybox:1.36", "restartPolicy": "Always"}],
    volumes=[
        {"name": "scratch", "emptyDir": {}},
        {"name": "config", "configMap": {"name": "x"}},
        {"name": "secret", "secret": {"secretName": "x"}},
        {"name": "host", "hostPath": {"path": "/x"}},
        {"name": "all", "projected": {"sources": [{"configMap": {"name": "x"}}]}},
    ],
    tolerations=[{"key": "a", "operator": "Exists"}],
    affinity=AFFINITY,
    topologySpreadConstraints=[
        {
            "maxSkew": 1,
            "topologyKey": "x",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }
    ],
    serviceAccountName="runner",
    hostNetwork=True,
    schedulingGates=[GATE],
)


def container(**more):
    return create(pod("bad", container=more), dryRun="All")


def spec(**more):
    return create(pod("bad", **more), dryRun="All")


def about(metadata):
    return create(pod("bad", metadata=metadata), dryRun="All")


MISTAKES = {
    "names": [
        create(pod("Bad_name")),
        create(pod("a" * 254)),
        create(pod("")),
        create(make("Pod", "web", metadata={"name": None})),
        create(pod("-a")),
        # One mistake at a time: the real server tells of several labels in any order.
        create(pod("x", metadata={"labels": {"a" * 64: ""}})),
        create(pod("x", metadata={"labels": {"a" * 254 + "/b": ""}})),
        create(pod("gen", metadata={"name": "", "generateName": "Gen-"})),
    ],
    "metadata": [
        about({"labels": {"a b": "c"}}),
        about({"labels": {"a": "b c"}}),
        about({"labels": {"a": "x" * 64}}),
        about({"labels": {"/a": "x"}}),
        about({"labels": {"UP.er/a": "x"}}),
        about({"annotations": {"a b": "x"}}),
        about({"finalizers": ["x"]}),
        about({"finalizers": ["a b/x"]}),
        about({"ownerReferences": [{"name": "x"}]}),
        about({"resourceVersion": "5"}),
        about({"namespace": "elsewhere"}),
        about({"labels": ["a"]}),
        about({"labels": {"a": 1}}),
        about({"labels": {"a": None}}),
        about({"generation": 7, "uid": "mine", "selfLink": "x"}),
    ],
    "containers": [
        create(make("Pod", "bad", spec={})),
        create(make("Pod", "bad")),
        create(make("Pod", "bad", spec={"containers": []})),
        create(make("Pod", "bad", spec={"containers": [{}]})),
        create(make("Pod", "bad", spec={"containers": [CONTAINER, CONTAINER]})),
        spec(initContainers=[CONTAINER]),
        container(name="Bad_"),
        container(name="a" * 64),
        container(image=None),
        container(image=" x"),
        container(imagePullPolicy="Sometimes"),
        container(ports=[{"containerPort": 0}]),
        container(ports=[{"containerPort": 70000, "name": "Toolongtobeavalidname"}]),
        container(ports=[{"containerPort": 80, "protocol": "X"}]),
        container(env=[{"name": ""}]),
        container(env=[{"name": "a=b"}]),
        container(env=[{"name": "A", "value": "x", "valueFrom": {}}]),
        container(volumeMounts=[{"name": "x", "mountPath": "/x"}]),
        container(volumeMounts=[{"name": "x"}]),
        container(livenessProbe={}),
        container(terminationMessagePolicy="X"),
    ],
    "resources": [
        container(resources={"limits": {"cpu": "1x"}}),
        container(resources={"limits": {"cpu": "-1"}}),
        container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
        container(resources={"requests": {"cpu": 2}, "limits": {"cpu": 1500, "memory": "64M"}}),
        container(resources={"requests": {"nvidia.com/gpu": 1}}),
        container(resources={"requests": {"nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": 2}}),
        container(resources={"limits": {"nvidia.com/gpu": "0.5"}}),
        container(resources={"limits": {"gpu": "1"}}),
        container(resources={"limits": {"a b/gpu": "1"}}),
        container(resources={"limits": {"cpu": True}}),
        container(resources={"limits": {"cpu": None}}),
        container(resources={"limits": {"memory": "0.5"}}),
        container(resources={"limits": {"memory": "100m"}}),
        container(resources={"claims": [{"name": "x"}]}),
    ],
    "placing": [
        spec(nodeSelector={"a b": "c"}),
        spec(nodeSelector={"a": "b c"}),
        spec(tolerations=[{"operator": "Equal"}]),
        spec(tolerations=[{"key": "a", "operator": "Is"}]),
        spec(tolerations=[{"key": "a", "operator": "Exists", "value": "b"}]),
        spec(tolerations=[{"key": "a", "effect": "Never"}]),
        spec(tolerations=[{"key": "a", "effect": "NoSchedule", "tolerationSeconds": 5}]),
        spec(tolerations=[{"key": "a b", "operator": "Exists"}]),
        spec(schedulingGates=[{"name": "a b"}]),
        spec(schedulingGates=[GATE, GATE]),
        spec(schedulingGates=[GATE], nodeName="x"),
        spec(schedulingGates=[{}]),
        spec(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}),
        spec(
            affinity={
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "a", "operator": "In"}]},
                            {"matchExpressions": [{"key": "a", "operator": "Has"}]},
                            {"matchExpressions": [{"key": "a b", "operator": "Exists"}]},
                        ]
                    }
                }
            }
        ),
        spec(
            affinity={
                "nodeAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 101, "preference": {}}
                    ]
                }
            }
        ),
        spec(
            affinity={
                "podAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": ""}]
                }
            }
        ),
        spec(topologySpreadConstraints=[{}]),
        spec(
            topologySpreadConstraints=[
                {"maxSkew": 0, "topologyKey": "a", "whenUnsatisfiable": "Never"}
            ]
        ),
    ],
    "spec": [
        spec(restartPolicy="Sometimes"),
        spec(dnsPolicy="X"),
        spec(terminationGracePeriodSeconds=-1),
        spec(activeDeadlineSeconds=0),
        spec(priorityClassName="nowhere"),
        spec(priorityClassName="Bad_"),
        spec(priority=5),
        spec(preemptionPolicy="X"),
        spec(serviceAccountName="Bad_"),
        spec(hostname="Bad_"),
        spec(nodeName="Bad_"),
        spec(schedulerName=""),
        spec(volumes=[{"name": "x"}, {"name": "x"}]),
        spec(volumes=[{"name": "Bad_"}]),
        spec(volumes=[{}]),
        spec(volumes=[{"name": "x", "emptyDir": {}, "hostPath": {"path": "/"}}]),
        spec(imagePullSecrets=[{}]),
        spec(overhead={"cpu": "1"}),
        spec(runtimeClassName="nowhere"),
        spec(hostNetwork="yes"),
        spec(os={"name": "beos"}),
        spec(restartPolicy=None),
    ],
}

CHANGES = [
    create(pod()),
    patch("Pod", "web", {"spec": {"nodeSelector": {"a": "b"}}}),
    patch("Pod", "web", {"spec": {"schedulingGates": [GATE]}}),
    patch("Pod", "web", {"spec": {"tolerations": []}}),
    patch("Pod", "web", {"spec": {"tolerations": [{"key": "x", "operator": "Exists"}]}}),
    patch("Pod", "web", {"spec": {"containers": [{"name": "main", "image": "other"}]}}, STRATEGIC),
    patch("Pod", "web", {"spec": {"activeDeadlineSeconds": 5}}),
    patch("Pod", "web", {"spec": {"activeDeadlineSeconds": 9}}),
    patch("Pod", "web", {"spec": {"terminationGracePeriodSeconds": 5}}),
    patch("Pod", "web", {"spec": {"priority": 5}}),
    patch("Pod", "web", {"spec": {"nodeName": "there"}}),
    patch("Pod", "web", {"spec": {"containers": [{"name": "b", "image": "x"}]}}, STRATEGIC),
    patch(
        "Pod",
        "web",
        {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": 1}}}]}},
        STRATEGIC,
    ),
    patch("Pod", "web", {"metadata": {"labels": {"a": "b c"}}}),
    patch("Pod", "web", {"metadata": {"name": "other"}}),
    patch("Pod", "web", {"metadata": {"uid": "other"}}),
    patch("Pod", "web", {"metadata": {"resourceVersion": "1"}}),
    patch("Pod", "web", {"metadata": {"namespace": "other"}}),
    patch("Pod", "web", {"metadata": {"generation": 9, "creationTimestamp": None}}),
    patch("Pod", "web", {"kind": "Job"}),
    patch("Pod", "web", {"apiVersion": "v2"}),
    patch("Pod", "web", {"status": {"phase": "Failed"}}),
    patch("Pod", "web", {"status": {"phase": "Running", "podIP": "10.0.0.1"}}, part="status"),
    patch("Pod", "web", {"status": {"phase": "Walking"}}, part="status"),
    patch(
        "Pod",
        "web",
        {"metadata": {"labels": {"by": "status"}}, "spec": {"nodeName": "x"}},
        part="status",
    ),
    read("Pod", "web"),
    read("Pod", "web", "status"),
]

GATED = [
    create(gated(nodeSelector={"a": "b"}, affinity=AFFINITY)),
    patch("Pod", "web", {"spec": {"nodeSelector": {"c": "d"}}}),
    patch("Pod", "web", {"spec": {"nodeSelector": {"a": "c"}}}),
    patch("Pod", "web", {"spec": {"nodeSelector": {"a": None}}}),
    patch("Pod", "web", {"spec": {"schedulingGates": [{"name": "x.io/y"}]}}, STRATEGIC),
    patch("Pod", "web", {"spec": {"schedulingGates": [{"name": "x.io/y"}]}}),
    patch("Pod", "web", {"spec": {"affinity": None}}),
    patch(
        "Pod",
        "web",
        [
            {
                "op": "add",
                "path": "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution"
                "/nodeSelectorTerms/0/matchExpressions/-",
                "value": {"key": "b", "operator": "Exists"},
            }
        ],
        JSON_PATCH,
    ),
    patch(
        "Pod",
        "web",
        [
            {
                "op": "add",
                "path": "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution"
                "/nodeSelectorTerms/-",
                "value": {"matchExpressions": [{"key": "b", "operator": "Exists"}]},
            }
        ],
        JSON_PATCH,
    ),
    create({"target": {"kind": "Node", "name": "n"}}, part="binding", name="web"),
    patch("Pod", "web", {"spec": {"schedulingGates": None, "nodeSelector": {"e": "f"}}}),
    patch("Pod", "web", [{"op": "remove", "path": "/spec/schedulingGates"}], JSON_PATCH),
    patch("Pod", "web", {"spec": {"nodeSelector": {"g": "h"}}}),
    read("Pod", "web"),
]

PARTS = [
    create(pod()),
    create(pod("other")),
    create({"target": {"kind": "Node", "name": "n1"}}, part="binding", name="nobody"),
    create({"target": {"kind": "Node", "name": ""}}, part="binding", name="web"),
    create(
        {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": "web"},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
        },
        part="binding",
        name="web",
    ),
    create({"target": {"kind": "Node", "name": "n2"}}, part="binding", name="web"),
    read("Pod", "web"),
    read("Pod", "web", "log"),
    read("Pod", "nobody", "log"),
    read("Pod", "other", "log"),
    read("Pod", "other", "log", container="nothing"),
    read("Pod", "web", "nothing"),
    create(
        {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "other"}},
        part="eviction",
        name="other",
    ),
    create(
        {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "nobody"}},
        part="eviction",
        name="nobody",
    ),
    find("Pod"),
    remove("Pod", "web"),
    read("Pod", "web"),
    remove("Pod", "web", {"gracePeriodSeconds": 0}),
    read("Pod", "web"),
]

REPLACING = [
    create(pod()),
    replace("Pod", "web", pod()),
    replace("Pod", "web", pod("other")),
    replace("Pod", "nobody", pod("nobody")),
    replace("Pod", "web", pod(metadata={"labels": {"a": "b"}, "resourceVersion": "1"})),
    replace("Pod", "web", pod(metadata={"uid": "x"})),
    read("Pod", "web"),
    replace("Pod", "web", lambda pod: pod),
    replace("Pod", "web", lambda pod: pod | {"metadata": pod["metadata"] | {"labels": {"a": "b"}}}),
    replace("Pod", "web", lambda pod: pod | {"spec": {**pod["spec"], "nodeName": "x"}}),
]

STORIES = {
    "defaults": [create(pod()), read("Pod", "web"), remove("Pod", "web"), read("Pod", "web")],
    "all-defaults": [create(EVERYTHING)],
    "generated-name": [create(pod("gen", metadata={"name": "", "generateName": "gen-"}))],
    **{f"mistakes-in-{what}": asks for what, asks in MISTAKES.items()},
    "changes": CHANGES,
    "gated": GATED,
    "subresources": PARTS,
    "replacing": REPLACING,
}

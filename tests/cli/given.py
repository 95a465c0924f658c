"""The arguments and valid files of each command, from which files with errors are generated."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import yaml

from tests.alloc.builders import cohort, group, pod_set, queue, workload
from tests.alloc.preemption.test_preemption import running
from tests.docs.pages import PROJECT
from tests.snapshot.taking import body_for, taken
from tests.status.test_pending_reasons import settled

GPU = "nvidia.com/gpu"

LIBRARY = PROJECT / "policies"
POLICY = LIBRARY / "gpu" / "cap-gpus-per-pod" / "policy.yaml"
CASES = LIBRARY / "gpu" / "cap-gpus-per-pod" / "cases.yaml"

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: team-a, labels: {kueue.x-k8s.io/queue-name: lq}}
spec:
  containers:
  - name: main
    image: registry.example/train:1
    resources: {limits: {nvidia.com/gpu: 9, cpu: 500m}, requests: {memory: 1Gi}}
  tolerations: [{key: a, operator: Exists, effect: NoSchedule}]
"""
JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: j, namespace: team-a, labels: {kueue.x-k8s.io/queue-name: lq}}
spec:
  parallelism: 2
  template:
    metadata: {annotations: {policyd.io/run-for: 1m}}
    spec: {restartPolicy: Never, containers: [{name: c, resources: {requests: {gpu: 2}}}]}
"""
PROVED = """\
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: a}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  validations:
  - expression: "!has(object.spec) || has(object.spec)"
"""

KUEUE = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: kueue-controller-manager
  namespace: kueue-system
  labels: {app.kubernetes.io/name: kueue, control-plane: controller-manager}
spec:
  replicas: 1
  template:
    spec:
      serviceAccountName: kueue-controller-manager
      containers:
      - name: manager
        image: registry.example/kueue:v0.19.2
        args: [--feature-gates=PriorityBoost=true]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: kueue-manager-config, namespace: kueue-system}
data:
  controller_manager_config.yaml: |
    apiVersion: config.kueue.x-k8s.io/v1beta2
    kind: Configuration
    leaderElection: {leaderElect: true}
    integrations: {frameworks: [batch/job, pod]}
    resources: {excludeResourcePrefixes: [a.example/]}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: workloads.kueue.x-k8s.io}
spec:
  group: kueue.x-k8s.io
  versions: [{name: v1beta1, served: true}, {name: v1beta2, served: true}]
status: {storedVersions: [v1beta2]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: other}
spec: {controllerName: example.com/approval}
"""
CONSTRAINT = """\
apiVersion: constraints.gatekeeper.sh/v1beta1
kind: Own
metadata: {name: a}
spec:
  enforcementAction: warn
  match:
    kinds: [{apiGroups: ["", apps], kinds: [Pod, Deployment]}]
    namespaces: ["a*"]
    labelSelector: {matchExpressions: [{key: a, operator: In, values: [b]}]}
  parameters: {names: [a], most: 3}
---
apiVersion: templates.gatekeeper.sh/v1
kind: ConstraintTemplate
metadata: {name: own}
spec:
  crd: {spec: {names: {kind: Own}, validation: {openAPIV3Schema: {type: object}}}}
  targets:
  - target: admission.k8s.gatekeeper.sh
    code:
    - engine: K8sNativeValidation
      source: {validations: [{expression: "variables.anyObject.metadata.name != 'a'"}]}
---
apiVersion: constraints.gatekeeper.sh/v1beta1
kind: K8sAllowedRepos
metadata: {name: b}
spec: {parameters: {repos: [r/], exemptImages: ["q/*"]}}
"""

LEGACY = """\
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: a, annotations: {pod-policies.kyverno.io/autogen-controllers: Job}}
spec:
  validationFailureAction: Enforce
  rules:
  - name: r
    match: {any: [{resources: {kinds: [Pod], namespaces: ["a*"]}}]}
    exclude: {any: [{subjects: [{kind: User, name: b}]}]}
    context: [{name: v, variable: {jmesPath: "request.object.metadata.labels.a || 'b'"}}]
    preconditions: {all: [{key: "{{ request.operation }}", operator: NotEquals, value: DELETE}]}
    validate: {message: "not {{ v }}", pattern: {spec: {=(nodeName): "!a* | >1"}}}
"""
QUEUES = """\
apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata: {name: h100}
spec: {nodeLabels: {gpu: h100}, tolerations: [{key: a, operator: Exists}]}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: Cohort
metadata: {name: all}
spec: {parentName: root}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: q}
spec:
  cohort: all
  namespaceSelector: {matchLabels: {a: b}}
  preemption: {withinClusterQueue: LowerPriority, reclaimWithinCohort: Any}
  flavorFungibility: {whenCanBorrow: Borrow}
  admissionChecks: [prov]
  resourceGroups:
  - coveredResources: [gpu]
    flavors: [{name: h100, resources: [{name: gpu, nominalQuota: 4, borrowingLimit: 2}]}]
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: AdmissionCheck
metadata: {name: prov}
spec: {controllerName: c, retryDelayMinutes: 1, parameters: {apiGroup: a, kind: b, name: c}}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {name: lq, namespace: team-a}
spec: {clusterQueue: q}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: Workload
metadata: {name: w, namespace: team-a, annotations: {policyd.io/run-for: 1m}}
spec:
  queueName: lq
  priority: 3
  priorityClassName: high
  priorityClassSource: kueue.x-k8s.io/workloadpriorityclass
  maximumExecutionTimeSeconds: 60
  podSets:
  - name: main
    count: 2
    minCount: 1
    topologyRequest: {required: rack}
    template: {spec: {containers: [{name: c, resources: {requests: {gpu: 1}}}]}}
status:
  admission:
    clusterQueue: q
    podSetAssignments:
    - name: main
      count: 2
      flavors: {gpu: h100}
      resourceUsage: {gpu: 2}
      topologyAssignment: {levels: [host], domains: [{values: [n1], count: 2}]}
  conditions:
  - {type: QuotaReserved, status: "True", lastTransitionTime: "2026-01-01T00:00:00Z", reason: a}
  - {type: Admitted, status: "True", lastTransitionTime: "2026-01-01T00:00:00Z", reason: a}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: Topology
metadata: {name: t}
spec: {levels: [{nodeLabel: rack}, {nodeLabel: kubernetes.io/hostname}]}
---
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
fairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare]}
waitForPodsReady: {timeout: 5m, requeuingStrategy: {backoffLimitCount: 3}}
featureGates: {PartialAdmission: true}
"""
NODES = """\
apiVersion: v1
kind: Node
metadata:
  name: n1
  labels: {nvidia.com/gpu.product: H100, nvidia.com/gpu.count: "8", nvidia.com/gpu.replicas: "2"}
spec: {taints: [{key: a, value: b, effect: NoSchedule}]}
status:
  allocatable: {nvidia.com/gpu: "8", cpu: "4", pods: "110", nvidia.com/mig-1g.10gb: "7"}
  conditions: [{type: Ready, status: "True"}]
"""
REVIEW = """\
{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u",
 "kind": {"group": "", "version": "v1", "kind": "Pod"},
 "resource": {"group": "", "version": "v1", "resource": "pods"},
 "name": "a", "namespace": "team-a", "operation": "CREATE", "userInfo": {"username": "u"},
 "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "team-a"},
 "spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 9}}}]}}},
 "response": {"uid": "u", "allowed": true, "patchType": "JSONPatch", "patch": "W10="}}
"""
SNAPSHOT = body_for(
    taken(
        settled(
            cohort("c"),
            queue("q", "c", groups=[group(default={GPU: 8})]),
            running("team-a/runs", "q", local_queue="team-a/lq", **{GPU: 8}),
            workload("team-a/job-j", "q", pod_set(**{GPU: 4}), at=1, local_queue="team-a/lq"),
            workload("team-b/job-j", "q", pod_set(**{GPU: 4}), at=2, local_queue="team-b/lq"),
        )
    )
).decode()
"""A queue snapshot in which Job team-a/j waits."""
EXPRESSION = (
    "object.spec.containers.map(c, c.name + 'x')[0].size() > 2 && [1, 2].exists(i, i in [2])"
)
FACTS = (
    "[string(cluster.takenAt)] + cluster.cohorts.map(c, string(cluster.cohorts[c].idle.size()))"
    " + cluster.clusterQueues.map(q, string(cluster.clusterQueues[q].waiting.map(w,"
    " w.requests.size() + w.priority).size() + cluster.clusterQueues[q].flavors.size()))"
)


@dataclass(frozen=True)
class CommandInput:
    """What a command is given: its arguments, the name of the file, and what may be in it."""

    arguments: Callable[[Path], list[str]]
    texts: list[str]
    file: str = "given.yaml"

    @cached_property
    def documents(self) -> list[object]:
        """The objects, each by itself, and all of a text together."""
        read = [list(yaml.safe_load_all(text)) for text in self.texts]
        lists = [{"apiVersion": "v1", "kind": "List", "items": each} for each in read]
        return [*(document for each in read for document in each), *lists * 5]


def on(*words: str) -> Callable[[Path], list[str]]:
    """Arguments, in which `FILE` stands for the file."""
    return lambda file: [str(file) if word == "FILE" else word for word in words]


def changes_tried(file: Path) -> list[str]:
    """Arguments to try the changes of the file on queues that are valid."""
    dump = file.with_name("dump.yaml")
    dump.write_text(QUEUES)
    return ["what-if", "--dump", str(dump), "--apply", str(file), "--assume", "1h", "-a"]


OBJECTS = [POD, JOB, QUEUES]
POLICIES = [path.read_text() for path in sorted(LIBRARY.glob("*/*/policy.yaml"))[:12]]

GIVEN: dict[str, CommandInput] = {
    "check": CommandInput(on("check", "FILE"), POLICIES),
    "apply": CommandInput(on("apply", "-p", str(LIBRARY / "gpu"), "-f", "FILE"), OBJECTS),
    "apply-policy": CommandInput(
        on("apply", "-p", "FILE", "-f", str(PROJECT / "docs/examples/pod.yaml")), POLICIES
    ),
    "explain": CommandInput(on("explain", "-p", str(POLICY), "-f", "FILE"), OBJECTS),
    "report": CommandInput(on("report", "-p", str(LIBRARY / "gpu"), "-f", "FILE"), OBJECTS),
    "test": CommandInput(lambda file: ["test", str(file)], [CASES.read_text()], file="cases.yaml"),
    "replay": CommandInput(on("replay", "FILE", "-p", str(POLICY)), [REVIEW]),
    "cel": CommandInput(on("cel", "eval", EXPRESSION, "-f", "FILE"), OBJECTS),
    "cel-queues": CommandInput(
        on("cel", "eval", FACTS, "--env", "policy", "--snapshot", "FILE"), [SNAPSHOT]
    ),
    "simulate": CommandInput(
        on("simulate", "FILE", "--explain", "--until", "1h"),
        [QUEUES + "---\n" + JOB + "---\n" + NODES],
    ),
    "simulate-moves": CommandInput(
        on("simulate", "FILE", "--map", "--defragment", "1", "--until", "1h"),
        [QUEUES + "---\n" + JOB + "---\n" + NODES],
    ),
    "devices": CommandInput(on("devices", "FILE"), [NODES]),
    "why": CommandInput(on("why", "job/j", "-n", "team-a", "--snapshot", "FILE"), [SNAPSHOT]),
    "queue": CommandInput(on("queue", "-o", "wide", "--snapshot", "FILE"), [SNAPSHOT]),
    "priority": CommandInput(on("priority", "-o", "wide", "--snapshot", "FILE"), [SNAPSHOT]),
    "nodes": CommandInput(on("nodes", "-o", "wide", "--snapshot", "FILE"), [SNAPSHOT]),
    "job": CommandInput(on("job", "job/j", "-n", "team-a", "--snapshot", "FILE"), [SNAPSHOT]),
    "quota": CommandInput(on("quota", "-o", "wide", "--snapshot", "FILE"), [SNAPSHOT]),
    "what-if": CommandInput(
        on("what-if", "--dump", "FILE", "--delete", "cohort/all", "-a", "--until", "1h"),
        [QUEUES + "---\n" + JOB + "---\n" + NODES],
    ),
    "what-if-changes": CommandInput(changes_tried, [QUEUES + "---\n" + JOB]),
    "convert": CommandInput(on("convert", "FILE"), [QUEUES]),
    "migrate gatekeeper": CommandInput(on("migrate", "gatekeeper", "FILE"), [CONSTRAINT]),
    "migrate kyverno": CommandInput(on("migrate", "kyverno", "FILE"), [LEGACY]),
    "migrate kueue": CommandInput(on("migrate", "kueue", "--from", "FILE"), [KUEUE]),
    "export": CommandInput(on("export", "FILE"), POLICIES),
    "prove": CommandInput(on("prove", "never-denies", "FILE"), [PROVED]),
}

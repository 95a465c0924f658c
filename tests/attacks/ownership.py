"""Objects that say they belong to a job that has its quota: forged in every way that fits.

An owner is written into pods and jobs of eight GPUs by somebody who is not that owner's controller.
One that is admitted and neither gated, suspended nor marked has got round the queue. The same is
tried by changes of objects that wait, and by annotations that only controllers write. Last, what
the controllers themselves make has to pass.
"""

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

from policyd.admission.handler import AdmissionHandler
from policyd.admission.jobs import JobAdmission, nowhere
from policyd.api.admission import AdmissionRequest, parse_review
from policyd.api.kueue import names as kueue_names
from policyd.api.makers import DEFAULT_MAKERS
from policyd.cli.bootstrap import default_policies
from policyd.engine.compile.load import gather, load_policies
from policyd.engine.evaluate.policy_set import Phase, PolicySet
from policyd.engine.model.surroundings import PolicyContext
from policyd.engine.offline.requests import namespace_lookup
from policyd.jobs.integrations import Integrations
from policyd.jobs.kinds.registry import KINDS, PARENTS
from policyd.patch.json_patch import apply_json_patch
from tests.attacks.figures import Figures
from tests.scenarios import foreign
from tests.scenarios.clusters import PROJECT

Object = dict[str, Any]

SERVING = frozenset({"Deployment", "ReplicaSet", "StatefulSet"})
QUEUE = "kueue.x-k8s.io/queue-name"
HELD_FOR = "kueue.x-k8s.io/pod-suspending-parent"
GATE = "kueue.x-k8s.io/admission"
GPUS = 8

OTHERS = (
    ("apps", "v1", "ReplicaSet"),
    ("apps", "v1", "DaemonSet"),
    ("", "v1", "ReplicationController"),
    ("batch", "v1", "CronJob"),
    ("", "v1", "Pod"),
    ("sparkoperator.k8s.io", "v1beta2", "SparkApplication"),
    ("workload.codeflare.dev", "v1beta2", "AppWrapper"),
    ("batch.volcano.sh", "v1alpha1", "Job"),
    ("example.com", "v1", "Anything"),
)
OWNERS = (*((k.group, k.version, k.kind) for k in (*KINDS, *PARENTS)), *OTHERS)
"""All kinds that are known, and what else makes pods."""

ACCOUNTS = (
    "alice",
    "",
    "system:serviceaccount:team-a:default",
    "system:serviceaccount:team-a:job-controller",
    "system:serviceaccount:team-a:kuberay-operator",
    "system:serviceaccount:kube-system:default",
    "system:serviceaccount:kube-system:job-controller ",
    "System:ServiceAccount:kube-system:job-controller",
    "job-controller",
)
"""Who is no controller, whatever the name is like."""


def owned_by(group: str, version: str, kind: str, **changes: Any) -> Object:
    named = {"apiVersion": f"{group}/{version}".lstrip("/"), "kind": kind, "name": "admitted"}
    return {**named, "uid": "u-1", "controller": True, "blockOwnerDeletion": True, **changes}


def lists_of(group: str, version: str, kind: str) -> Iterator[list[Object]]:
    """Yield the ways in which an object may say that it belongs to one of a kind."""
    true = owned_by(group, version, kind)
    yield [true]
    yield [{**true, "controller": False}]
    yield [{key: value for key, value in true.items() if key != "controller"}]
    yield [{**true, "uid": "another"}]
    yield [{**true, "uid": ""}]
    yield [owned_by(group, "v9", kind)]
    yield [owned_by(group, version, kind.lower())]
    yield [owned_by(group.upper(), version, kind)]
    yield [owned_by("example.com", version, kind)]
    yield [owned_by("example.com", "v1", "Anything"), true]
    yield [true, owned_by("apps", "v1", "ReplicaSet", name="serve")]


def pod(**metadata: Any) -> Object:
    spec = foreign.template(GPUS)["spec"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def job(**metadata: Any) -> Object:
    spec = {"parallelism": 1, "template": foreign.template(GPUS)}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def of_kind(kind: str, **metadata: Any) -> Object:
    version = "/".join(foreign.GROUPS[kind])
    spec = foreign.SPECS[kind](GPUS)
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def parent(kind: str, **metadata: Any) -> Object:
    spec = {"replicas": 1, "template": foreign.template(GPUS)}
    if kind == "LeaderWorkerSet":
        made = {"size": 1, "workerTemplate": foreign.template(GPUS)}
        spec = {"replicas": 1, "leaderWorkerTemplate": made}
    found = next(each for each in PARENTS if each.key == kind)
    if found.group == "batch.volcano.sh":
        spec = {"tasks": [{"name": "a", **spec}]}
    version = f"{found.group}/{found.version}"
    return {"apiVersion": version, "kind": found.kind, "metadata": metadata, "spec": spec}


MADE: dict[str, Callable[..., Object]] = {
    "Pod": pod,
    "Job": job,
    **{kind: partial(of_kind, kind) for kind in foreign.SPECS},
    **{each.key: partial(parent, each.key) for each in PARENTS},
}
"""What asks for eight GPUs, by kind."""


@dataclass(frozen=True)
class Webhooks:
    """The webhooks in process, where a queue is required in one of the ways there are."""

    named: bool = False
    integrations: Integrations = Integrations()  # noqa: RUF009 - frozen
    gives: Callable[[str], bool] = nowhere
    policies: PolicySet | None = None

    def admit(self, obj: Object, account: str, old: Object | None = None) -> tuple[bool, Object]:
        """Return whether an object is admitted, and as what."""
        asked = review(obj, account, old)
        jobs = JobAdmission(integrations=self.integrations, gives_queue=self.gives)
        decision = self._handler("mutate", jobs).mutate(asked)
        if not decision.allowed:
            return False, obj
        made = apply_json_patch(obj, decision.operations)
        asked = review(made, account, old)
        return self._handler("validate", jobs).validate(asked).allowed, made

    def _handler(self, phase: Phase, jobs: JobAdmission) -> AdmissionHandler:
        policies = self.policies or PolicySet(namespaces=lambda _name: None)
        ask = policies.mutate if phase == "mutate" else policies.validate
        return AdmissionHandler(phase=phase, policies=ask, jobs=jobs)


def library(labels: dict[str, str]) -> PolicySet:
    """Return what is installed unless told otherwise, in a namespace with these labels."""
    files = (json.dumps(each).encode() for each in default_policies(PROJECT / "policies"))
    loaded = gather(load_policies(text, "library") for text in files)
    return PolicySet(
        loaded.policies, surroundings=PolicyContext(namespaces=namespace_lookup((), labels))
    )


SCENES = {
    "a queue is named": Webhooks(named=True),
    "the namespace has a default queue": Webhooks(gives=lambda _namespace: True),
    "all jobs queue": Webhooks(integrations=Integrations(manages_all=True)),
    "policies give and require queues": Webhooks(policies=library({"policyd.io/queue": "team-a"})),
}


def unqueued() -> dict[str, Webhooks]:
    """Return the webhooks in a namespace that has no queue, by the policy that requires one."""
    text = (PROJECT / "policies/queueing/multi-gpu-needs-queue/policy.yaml").read_bytes()
    several = PolicySet(
        load_policies(text, "library").policies,
        surroundings=PolicyContext(namespaces=namespace_lookup((), {})),
    )
    return {
        "forbid-gpu-without-queue": Webhooks(policies=library({})),
        "multi-gpu-needs-queue": Webhooks(policies=several),
    }


def review(obj: Object, account: str, old: Object | None = None) -> AdmissionRequest:
    group, _, version = obj["apiVersion"].rpartition("/")
    kind = {"group": group, "version": version, "kind": obj["kind"]}
    where = {"group": group, "version": version, "resource": f"{obj['kind'].lower()}s"}
    user = {"username": account, "groups": ["system:authenticated"]}
    asked = {"uid": "u", "kind": kind, "resource": where, "name": "x", "namespace": "team-a"}
    asked |= {"operation": "UPDATE" if old else "CREATE", "userInfo": user}
    body = {**asked, "object": obj, "oldObject": old}
    named = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    return parse_review(json.dumps({**named, "request": body}).encode())


def held(obj: Object) -> bool:
    """Tell whether an object waits: a pod by its gate, a job suspended, or the pods of it will."""
    kind = obj["kind"]
    if kind == "Pod":
        return any(gate["name"] == GATE for gate in obj["spec"].get("schedulingGates", ()))
    named = obj["apiVersion"].rpartition("/")[0], kind
    word = next((each.word for each in PARENTS if (each.group, each.kind) == named), None)
    if word is not None:
        (spec,) = obj["spec"].get("tasks", [obj["spec"]])
        made = spec.get("leaderWorkerTemplate", spec)
        template = made.get("template", made.get("workerTemplate"))
        return bool(template["metadata"].get("annotations", {}).get(HELD_FOR) == word)
    return bool(obj["spec"].get("suspend")) if kind == "Job" else foreign.suspended(obj)


def metadata(scene: Webhooks, **more: Any) -> Object:
    labels = {QUEUE: "team-a"} if scene.named else {}
    return {"name": "x", "namespace": "team-a", "labels": labels, **more}


def creations() -> Figures:
    """Try every kind of object with every owner in every form, by everybody who is not it."""
    tried, through = 0, []
    forged = [(kind, form) for kind in OWNERS for form in lists_of(*kind)]
    for (name, scene), (made, make) in product(SCENES.items(), MADE.items()):
        accounts = ACCOUNTS if made in {"Pod", "Job"} else ACCOUNTS[:2]
        for (owner, owners), account in product(forged, accounts):
            tried += 1
            obj = make(**metadata(scene, ownerReferences=copy.deepcopy(owners)))
            admitted, stored = scene.admit(obj, account)
            if admitted and not held(stored):
                through.append(f"{name}: {made} of {owner} by `{account}`: {owners}")
    return Figures(tried=tried, bypasses=len(through), faults=tuple(through))


def without_owners() -> Figures:
    """Have everything queue that has no owner: else refusals above might have other reasons.

    What serves names its queue itself, where policies require one.
    """
    faults = []
    for (name, scene), (made, make) in product(SCENES.items(), MADE.items()):
        given = metadata(replace(scene, named=scene.named or made in SERVING))
        admitted, stored = scene.admit(make(**given), "alice")
        if not (admitted and held(stored)):
            faults.append(f"{name}: {made} {'runs' if admitted else 'is refused'}")
    return Figures(tried=len(SCENES) * len(MADE), faults=tuple(faults))


def controllers() -> Figures:
    """Have what controllers make pass as it is: it runs in the quota of its owner."""
    tried, faults = 0, []
    for (name, scene), kind in product(SCENES.items(), KINDS):
        for account, made in product(sorted(DEFAULT_MAKERS[kind.group]), ("Pod", "Job")):
            tried += 1
            owner = owned_by(kind.group, kind.version, kind.kind)
            obj = MADE[made](**metadata(scene, ownerReferences=[owner]))
            admitted, stored = scene.admit(obj, account)
            if not admitted or held(stored):
                faults.append(f"{name}: {made} of a {kind.kind} by `{account}` does not run")
    return Figures(tried=tried, faults=tuple(faults))


def changes() -> Figures:
    """Give what waits an owner, another owner, or none once it runs; by a change of it."""
    tried, through = 0, []
    for scene_name in ("a queue is named", "all jobs queue"):
        scene = SCENES[scene_name]
        for kind, account, made in product(KINDS, ACCOUNTS, ("Pod", "Job", "RayCluster")):
            owner = owned_by(kind.group, kind.version, kind.kind)
            _, waits = scene.admit(MADE[made](**metadata(scene)), "alice")
            other = {**owner, "uid": "another"}
            runs = MADE[made](**metadata(scene, ownerReferences=[owner]))
            pairs = {
                "an owner": (waits, with_owners(waits, [owner])),
                "an owner, and goes": (waits, let_go(with_owners(waits, [owner]))),
                "another owner": (runs, with_owners(runs, [other])),
                "no owner": (runs, with_owners(runs, [])),
                "no controller": (runs, with_owners(runs, [{**owner, "controller": False}])),
            }
            for what, (old, new) in pairs.items():
                tried += 1
                if scene.admit(new, account, old)[0]:
                    through.append(f"{scene_name}: {made} gets {what} ({kind.kind}), `{account}`")
    return Figures(tried=tried, bypasses=len(through), faults=tuple(through))


def with_owners(obj: Object, owners: list[Object]) -> Object:
    return {**obj, "metadata": {**obj["metadata"], "ownerReferences": owners}}


def let_go(obj: Object) -> Object:
    spec = {key: value for key, value in obj["spec"].items() if key != "schedulingGates"}
    return {**obj, "spec": {**spec, "suspend": False} if "suspend" in spec else spec}


def words() -> Figures:
    """Write what only controllers write: that a pod, or those of a template, are held for a set."""
    tried, through = 0, []
    found = (*(each.word for each in PARENTS), "job", "anything", "")
    groups = {each.word for each in PARENTS if each.in_groups}
    replica_set = owned_by("apps", "v1", "ReplicaSet")
    makers = {"alice": [], "system:serviceaccount:kube-system:replicaset-controller": [replica_set]}
    for (name, scene), word in product(SCENES.items(), found):
        for account, owners in makers.items():
            if owners and scene.gives is not nowhere:
                continue  # whether a set is a Deployment's, which queues, its pods do not tell
            tried += 1
            noted = {"annotations": {HELD_FOR: word}, "ownerReferences": owners}
            admitted, stored = scene.admit(pod(**metadata(scene, **noted)), account)
            if admitted and (not held(stored) or word in groups):
                through.append(f"{name}: a pod that is held for `{word}`, by `{account}`")
        for kind, of in product(("Deployment", "StatefulSet", "LeaderWorkerSet"), ("new", "old")):
            tried += 1
            given = metadata(replace(scene, named=True))
            _, marked = scene.admit(parent(kind, **given), "alice")
            obj = copy.deepcopy(marked if of == "old" else parent(kind, **given))
            made = obj["spec"].get("leaderWorkerTemplate", obj["spec"])
            template = made.get("template", made.get("workerTemplate"))
            template["metadata"].setdefault("annotations", {})[HELD_FOR] = word
            admitted, stored = scene.admit(obj, "alice", marked if of == "old" else None)
            if admitted and not held(stored):
                through.append(f"{name}: the template of a {of} {kind} is held for `{word}`")
    return Figures(tried=tried, bypasses=len(through), faults=tuple(through))


def names() -> Figures:
    """Write every name that the queue knows into labels and annotations of what is new."""
    known = sorted(
        {value for value in vars(kueue_names).values() if isinstance(value, str) and "/" in value}
        - {QUEUE}
    )
    known += [HELD_FOR, "batch.kubernetes.io/job-name", "jobset.sigs.k8s.io/jobset-name"]
    known += ["leaderworkerset.sigs.k8s.io/name", "statefulset.kubernetes.io/pod-name"]
    tried, through = 0, []
    values = ("true", "false", "x", "")
    for (scene_name, scene), name, value in product(SCENES.items(), known, values):
        for section, made in product(("labels", "annotations"), ("Pod", "Job", "RayCluster")):
            tried += 1
            given = metadata(scene)
            given[section] = {**given.get(section, {}), name: value}
            admitted, stored = scene.admit(MADE[made](**given), "alice")
            if admitted and not held(stored):
                through.append(f"{scene_name}: {made} with {section} `{name}: {value}`")
    return Figures(tried=tried, bypasses=len(through), faults=tuple(through))


ATTACKS = {
    "names that the queue knows": names,
    "owners of new objects": creations,
    "owners by a change": changes,
    "words of controllers": words,
    "what has no owner queues": without_owners,
    "what controllers make runs": controllers,
}

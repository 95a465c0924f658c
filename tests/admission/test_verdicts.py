"""Verdicts on new jobs of each kind, when they are created."""

import copy
from math import inf

import msgspec
import pytest

from policyd.admission.jobs import JobAdmission
from policyd.admission.submissions import submission_of
from policyd.admission.verdicts import (
    LONGEST,
    ordinal,
    result_text,
    verdict,
)
from policyd.alloc.queue import FlavorSpec
from policyd.alloc.reasons import MissingQuota
from policyd.api.admission import parse_review
from policyd.api.configuration.kinds import DeviceClassMapping, ResourcesConfiguration
from policyd.api.gpus import SharedGpus
from policyd.api.kueue.names import PREBUILT_WORKLOAD
from policyd.api.selectors import LabelSelector
from policyd.engine.model.decision import ALLOWED, Decision, Denial
from policyd.forecast.correction import Interval
from policyd.jobs.kinds.registry import BUILT_IN, PARENTS
from policyd.jobs.kinds.train_job import TRAIN_JOB
from policyd.jobs.rules.defaults import default_on_create
from policyd.jobs.rules.surroundings import JobContext
from policyd.patch.draft import Draft
from policyd.snapshot.dry_run import AdmissionDryRun, TakenQuota, WouldStart, WouldWait
from policyd.snapshot.rules import ClusterQueueRule, LocalQueueRule, QueueRules
from policyd.snapshot.values import FORMAT, ClusterQueueUse, QueueSnapshot
from tests.alloc.builders import group, queue
from tests.matrix.kinds import templates_in
from tests.scenarios import foreign
from tests.scenarios.objects import job, pod
from tests.scenarios.test_parents import leader_worker_set, stateful_set
from tests.webhooks.reviews import review

QUEUE = "kueue.x-k8s.io/queue-name"
GROUP, TOTAL = "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count"


def queued(obj):
    obj["metadata"].setdefault("labels", {})[QUEUE] = "lq"
    return obj


def group_of(obj):
    return obj["apiVersion"].rpartition("/")[0]


MAKER = JobContext(account="system:serviceaccount:kube-system:job-controller")


def submitted(obj, *, held=True):
    draft = Draft(obj)
    if held:
        default_on_create(draft, group=group_of(obj), kind=obj["kind"], surroundings=MAKER)
    return submission_of(draft.object, group_of(obj), obj["kind"], MAKER, "team-a")


def deployment(replicas):
    template = pod("unused")
    spec = {"replicas": replicas, "template": {"metadata": {}, "spec": template["spec"]}}
    metadata = {"name": "d", "namespace": "team-a"}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


def named(obj):
    return {**obj, "metadata": {"name": "n", "namespace": "team-a"}}


def grouped(**annotations):
    annotations = {TOTAL: "4", **annotations}
    return pod("p", labels={GROUP: "g"}, annotations=annotations)


OBJECTS = {
    "Job": (job("j", gpus=8, pods=2), [2], ""),
    **{
        kind: (foreign.foreign(kind, "j", make(8)), None, "")
        for kind, make in foreign.SPECS.items()
        if kind != "TrainJob"
    },
    "StatefulSet": (named(stateful_set()), None, ""),
    "LeaderWorkerSet": (named(leader_worker_set()), None, None),
    "Deployment": (deployment(3), [1], "each of its pods queues by itself; the first "),
    "ReplicaSet": (
        {**deployment(3), "kind": "ReplicaSet"},
        [1],
        "each of its pods queues by itself; the first ",
    ),
}


@pytest.mark.parametrize("kind", OBJECTS)
def test_jobs_of_each_kind_are_submitted_with_their_pods(kind):
    obj, counts, about = OBJECTS[kind]

    found = submitted(queued(obj))

    assert found.metadata.namespace == "team-a"
    assert sum(each.count for each in found.pod_sets) > 0
    if counts is not None:
        assert [each.count for each in found.pod_sets] == counts
    if about is not None:
        assert found.about == about


@pytest.mark.parametrize("kind", sorted(OBJECTS.keys() - {"TrainJob"}))
def test_pods_of_each_kind_have_the_parts_of_gpus_of_their_templates(kind):
    obj = copy.deepcopy(OBJECTS[kind][0])
    for template in templates_in(obj):
        template["metadata"]["annotations"]["gpu-fraction"] = "0.5"

    found = submitted(queued(obj))

    parts = [each.template.metadata.annotations.get("gpu-fraction") for each in found.pod_sets]
    assert set(parts) == {"0.5"}


def test_every_kind_is_looked_at():
    known = {kind.kind for kind in (*BUILT_IN, *PARENTS)}

    assert known == OBJECTS.keys() | {"TrainJob"}


@pytest.mark.parametrize(
    ("obj", "count", "about"),
    [
        pytest.param(pod("p"), 1, "", id="one-pod"),
        pytest.param(
            grouped(),
            4,
            "if all 4 pods of the group are like this one, it ",
            id="of-a-group",
        ),
        pytest.param(
            grouped(**{"kueue.x-k8s.io/pod-group-fast-admission": "true"}),
            4,
            "",
            id="of-a-group-whose-pods-are-alike",
        ),
    ],
)
def test_pods_are_submitted_alone_or_as_their_group(obj, count, about):
    found = submitted(queued(obj))

    assert [each.count for each in found.pod_sets] == [count]
    assert found.about == about


def owned(obj):
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "1", "controller": True}
    obj["metadata"]["ownerReferences"] = [owner]
    return obj


def annotated(obj, **annotations):
    obj["metadata"]["annotations"] = annotations
    return obj


@pytest.mark.parametrize(
    "obj",
    [
        pytest.param(job("j"), id="in-no-queue"),
        pytest.param(queued(owned(pod("p"))), id="of-a-job"),
        pytest.param(
            queued(annotated(job("j"), **{"kueue.x-k8s.io/admission-gated-by": "example.com/g"})),
            id="gated",
        ),
        pytest.param(queued(annotated(job("j"), **{PREBUILT_WORKLOAD: "w"})), id="prebuilt"),
        pytest.param(queued(grouped(**{TOTAL: "none"})), id="a-group-without-a-size"),
        pytest.param(queued(deployment(0)), id="without-pods"),
    ],
)
def test_nothing_is_reported_for_jobs_whose_pods_or_start_are_not_known(obj):
    assert submitted(obj) is None


@pytest.mark.parametrize("spec", [None, [], {"template": 3}, {"parallelism": "x"}])
def test_nothing_is_reported_for_objects_that_are_not_of_their_kind(spec):
    assert submitted({**queued(job("j")), "spec": spec}, held=False) is None


# What the webhooks do with it.


def answer(message="would start now: all", *, operation="CREATE", policies=ALLOWED, **more):
    seen = []

    def foresee(read, *, dry_run):
        seen.append(read())
        return message

    obj = Draft(queued(job("j")))
    default_on_create(obj, group="batch", kind="Job")
    request = parse_review(review(obj.object, resource="jobs", operation=operation, **more))
    return JobAdmission(foresee=foresee).check(request, policies).warnings, seen


def test_a_new_job_gets_a_warning():
    warnings, (submission,) = answer()

    assert warnings == ("queue: would start now: all",)
    assert submission.metadata.name == "j"


def test_a_job_that_is_changed_or_refused_gets_no_message():
    refused = Decision(denials=(Denial(policy="p", message="no"),))
    changed, _ = answer(operation="UPDATE", old=queued(job("j")))

    assert changed == ()
    assert answer(policies=refused) == ((), [])
    assert answer(message="") == ((), answer(message="")[1])


def test_a_pod_that_is_not_held_gets_no_message():
    assert submitted(queued(pod("p")), held=False) is None


# Sentences.


def test_a_start_names_devices_the_lender_and_conditions():
    quota = (TakenQuota("cpu-nodes", "cpu", 4000, 0), TakenQuota("h100", "nvidia.com/gpu", 8, 4))
    placed = WouldStart(quota, "research", victims=0, placed=True, checks=())
    checked = WouldStart(quota, "research", victims=2, placed=False, checks=("budget",))
    plain = WouldStart(quota[:1], "", victims=0, placed=False, checks=())

    assert result_text(placed, "team-a") == (
        "would start now if its nodes have room: 8 nvidia.com/gpu of h100 from team-a, 4 of them"
        " borrowed from research"
    )
    assert result_text(checked, "team-a") == (
        "would get quota now once 2 workloads are preempted: 8 nvidia.com/gpu of h100 from team-a,"
        " 4 of them borrowed from research; then it has to pass check budget"
    )
    assert result_text(plain, "team-a") == ("would start now: 4 cpu of cpu-nodes from team-a")


@pytest.mark.parametrize(
    ("forecast", "clause"),
    [
        (None, ""),
        (Interval(low=600, median=1500, high=4200), "; start in 25 min (10–70 min)"),  # noqa: RUF001
        (Interval(low=1490, median=1500, high=1510), "; start in 25 min"),
        (Interval(low=600, median=1500, high=inf), ""),
    ],
)
def test_a_wait_names_the_place_and_what_is_missing(forecast, clause):
    shortfall = MissingQuota(
        flavor="h100", resource="nvidia.com/gpu", missing=16, requested=16, available=0
    )

    assert result_text(WouldWait(2, (shortfall,)), "team-a", forecast) == (
        f"would wait: 3rd in team-a, 16 more nvidia.com/gpu needed{clause}"
    )
    assert result_text(WouldWait(None, (shortfall,)), "team-a") == (
        "would wait: 16 more nvidia.com/gpu needed"
    )


def test_places_are_counted_as_people_do():
    places = [ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 102, 111, 113)]

    assert places[:5] == ["1st", "2nd", "3rd", "4th", "11th"]
    assert places[5:] == ["12th", "13th", "21st", "102nd", "111th", "113th"]


def verdict_text(*local_queues, name="lq", **more):
    rules = QueueRules(local_queues=local_queues, **more)
    dry_run = AdmissionDryRun(QueueSnapshot(format=FORMAT, taken_at=0.0), rules)
    obj = job("j")
    obj["metadata"]["labels"] = {QUEUE: name}
    return verdict(dry_run, submitted(obj), namespace_labels={}, now=0.0)


def patch_of(spec):
    pods = {"template": {"spec": {"template": {"spec": spec}}}}
    jobs = {"replicatedJobs": [{"name": "node", **pods}]}
    return {"manager": "me", "trainingRuntimeSpec": {"template": {"spec": jobs}}}


def train_job(**spec):
    return queued(foreign.foreign("TrainJob", "j", {**foreign.train_job(8), **spec}))


TORCH = {"ClusterTrainingRuntime//torch": TRAIN_JOB.made(foreign.runtime())}
CLAIMS = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]}


@pytest.mark.parametrize(
    ("bases", "spec", "expected_text"),
    [
        pytest.param(TORCH, {}, "would start now: 8 nvidia.com/gpu of h100 from cq", id="known"),
        pytest.param({}, {}, "", id="no-runtime"),
        pytest.param(TORCH, {"runtimeRef": {"name": "jax"}}, "", id="another-runtime"),
        pytest.param({**TORCH, "ClusterTrainingRuntime//torch": {}}, {}, "", id="without-pods"),
        pytest.param(
            {"ClusterTrainingRuntime//torch": {"spec": {"template": 3}}}, {}, "", id="odd-runtime"
        ),
        pytest.param(TORCH, {"runtimePatches": [patch_of(CLAIMS)]}, "", id="claims-devices"),
    ],
)
def test_the_verdict_on_a_job_reads_the_object_it_is_made_from(bases, spec, expected_text):
    quotas = group(h100={"nvidia.com/gpu": 8, "cpu": 10**6, "memory": 2**50})
    rule = ClusterQueueRule(spec=queue("cq", groups=[quotas]), namespaces=LabelSelector())
    rules = QueueRules(
        flavors=(FlavorSpec(name="h100"),),
        queues=(rule,),
        local_queues=(LocalQueueRule("team-a", "lq", "cq"),),
        bases=bases,
    )
    snapshot = QueueSnapshot(
        format=FORMAT, taken_at=0.0, cluster_queues=(ClusterQueueUse(name="cq"),)
    )
    of = AdmissionDryRun(snapshot, rules)

    assert verdict(of, submitted(train_job(**spec)), namespace_labels={}, now=0.0) == expected_text


def job_set(count, **requests):
    container = {"name": "main", "resources": {"requests": requests}}
    template = {"metadata": {}, "spec": {"containers": [container]}}
    jobs = [
        {"name": f"r{number}", "replicas": 1, "template": {"spec": {"template": template}}}
        for number in range(count)
    ]
    return queued(foreign.foreign("JobSet", "j", {"suspend": True, "replicatedJobs": jobs}))


@pytest.mark.parametrize(
    ("obj", "expected_text"),
    [
        (job_set(2, **{"nvidia.com/gpu": "4"}), "would start now: 8 nvidia.com/gpu of h100"),
        (job_set(19), "can never start: it has 19 pod sets, and workloads have 18 at most"),
        (job_set(2, **{f"x/r{number}": "1" for number in range(101)}), ""),
    ],
    ids=["few", "many-pod-sets", "many-resources"],
)
def test_a_job_that_takes_long_to_plan_is_not_planned(obj, expected_text):
    quotas = group(h100={"nvidia.com/gpu": 8})
    rule = ClusterQueueRule(spec=queue("cq", groups=[quotas]), namespaces=LabelSelector())
    local = LocalQueueRule("team-a", "lq", "cq")
    flavors = (FlavorSpec(name="h100"),)
    rules = QueueRules(flavors=flavors, queues=(rule,), local_queues=(local,))
    queues = (ClusterQueueUse(name="cq"),)
    dry_run = AdmissionDryRun(
        QueueSnapshot(format=FORMAT, taken_at=0.0, cluster_queues=queues), rules
    )

    found = verdict(dry_run, submitted(obj), namespace_labels={}, now=0.0)

    assert found.startswith(expected_text)
    assert bool(found) is bool(expected_text)


@pytest.mark.parametrize(
    ("mapped", "known"), [(False, True), (True, False)], ids=["unmapped", "mapped"]
)
def test_a_resource_that_device_classes_may_back_is_left_to_the_controller(mapped, known):
    mapping = DeviceClassMapping(name="gpus", device_class_names=("gpu.example.com",))
    rules = QueueRules(
        flavors=(FlavorSpec(name="h100"),),
        queues=(
            ClusterQueueRule(
                spec=queue("cq", groups=[group(h100={"gpus": 8})]), namespaces=LabelSelector()
            ),
        ),
        local_queues=(LocalQueueRule("team-a", "lq", "cq"),),
        resources=ResourcesConfiguration(device_class_mappings=(mapping,) if mapped else ()),
    )
    queues = (ClusterQueueUse(name="cq"),)
    dry_run = AdmissionDryRun(
        QueueSnapshot(format=FORMAT, taken_at=0.0, cluster_queues=queues), rules
    )
    asked = job_set(1, **{"example.com/gpu": "1"})

    assert bool(verdict(dry_run, submitted(asked), namespace_labels={}, now=0.0)) is known


def test_a_queue_that_is_not_there_is_named_with_those_that_are():
    others = [LocalQueueRule("team-a", f"q{n}", "cq") for n in range(5)]

    assert verdict_text() == "would wait: there is no LocalQueue lq yet; team-a has none"
    assert verdict_text(*others, LocalQueueRule("team-b", "secret", "cq")) == (
        "would wait: there is no LocalQueue lq yet; namespace team-a has q0, q1, q2 and 2 more"
    )
    assert verdict_text(LocalQueueRule("team-a", "lq", "cq")) == (
        "would wait: ClusterQueue cq of LocalQueue lq does not exist"
    )


def test_a_warning_is_short_whatever_is_in_it():
    assert len(verdict_text(name="q" * 1_000)) == LONGEST


@pytest.mark.parametrize(
    ("fraction", "expected_text"),
    [
        pytest.param(
            "0.5", "would start now: 1500 policyd.io/gpu-thousandths of t4 from", id="fits"
        ),
        pytest.param(
            "0.9", "can never start in cq: 2700 policyd.io/gpu-thousandths", id="too-many"
        ),
        pytest.param("7", "would wait: pod set r0: metadata.annotations[gpu-fraction]", id="wrong"),
    ],
)
def test_parts_of_gpus_are_judged_by_the_flavors_that_share_them(fraction, expected_text):
    amounts = group(t4={"policyd.io/gpu-thousandths": 2_000, "cpu": 9_000})
    rules = QueueRules(
        flavors=(FlavorSpec(name="t4"),),
        queues=(ClusterQueueRule(spec=queue("cq", groups=[amounts]), namespaces=LabelSelector()),),
        local_queues=(LocalQueueRule("team-a", "lq", "cq"),),
        shared_gpus={"t4": SharedGpus(limited=False, replicas=4, memory=16_000)},
    )
    queues = (ClusterQueueUse(name="cq"),)
    dry_run = AdmissionDryRun(
        QueueSnapshot(format=FORMAT, taken_at=0.0, cluster_queues=queues),
        msgspec.json.decode(msgspec.json.encode(rules), type=QueueRules),
    )
    asked = job_set(3)
    for template in templates_in(asked):
        template["metadata"]["annotations"]["gpu-fraction"] = fraction

    found = verdict(dry_run, submitted(asked), namespace_labels={}, now=0.0)

    assert expected_text in found

"""The webhooks believe an owner only if who makes what such owners own wrote it."""

import copy
from dataclasses import replace

import pytest

from policyd.admission.jobs import JobAdmission, warn_of_hidden
from policyd.api.admission import parse_review
from policyd.api.makers import DEFAULT_MAKERS, Makers, makers_of
from policyd.engine.model.decision import ALLOWED
from policyd.errors import ConfigurationError
from policyd.jobs.integrations import EVERYTHING, Integrations
from policyd.jobs.kinds.registry import KINDS, PARENTS
from policyd.patch.draft import Draft
from tests.attacks import growth, ownership
from tests.webhooks.reviews import review

QUEUE, GATE = "kueue.x-k8s.io/queue-name", {"name": "kueue.x-k8s.io/admission"}
OF = "system:serviceaccount:kube-system:"
JOBS, COLLECTOR = f"{OF}job-controller", f"{OF}generic-garbage-collector"
HELD_FOR = "kueue.x-k8s.io/pod-suspending-parent"


def owner(kind="Job", version="batch/v1", uid="u-1", **more):
    named = {"apiVersion": version, "kind": kind, "name": "train", "uid": uid}
    return {**named, "controller": True, **more}


def pod(*owners, gated=False, labels=None, **metadata):
    spec = {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": 8}}}]}
    if gated:
        spec["schedulingGates"] = [GATE]
    metadata = {"name": "a", "namespace": "team-a", "ownerReferences": list(owners), **metadata}
    metadata["labels"] = {QUEUE: "gpus"} if labels is None else labels
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def job(*owners, suspend=True):
    metadata = {"name": "a", "namespace": "team-a", "ownerReferences": list(owners)}
    metadata["labels"] = {QUEUE: "gpus"}
    spec = {"suspend": suspend, "template": {"spec": {"containers": []}}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def asked(obj, user, old=None):
    resource = f"{obj['kind'].lower()}s"
    operation = "CREATE" if old is None else "UPDATE"
    return parse_review(review(obj, user=user, old=old, operation=operation, resource=resource))


def refusals(obj, user, old=None, integrations=EVERYTHING):
    decision = JobAdmission(integrations=integrations).check(asked(obj, user, old), ALLOWED)
    return [denial.path for denial in decision.denials]


def gates(obj, user, integrations=EVERYTHING, **options):
    draft = Draft(obj)
    JobAdmission(integrations=integrations, **options).default(asked(obj, user), draft)
    return draft.get(("spec", "schedulingGates"))


def test_a_pod_that_says_it_is_of_a_job_is_held_and_refused_with_what_to_do():
    forged = pod(owner())

    (denial,) = JobAdmission().check(asked(forged, "alice"), ALLOWED).denials

    assert GATE in gates(forged, "alice")
    assert denial.path == "metadata.ownerReferences[0]"
    for word in ("`alice`", "Job `train`", "--makers batch=alice"):
        assert word in denial.message


def test_the_pods_that_the_job_controller_makes_pass_as_they_are():
    made = pod(owner())

    assert gates(made, JOBS) is None
    assert refusals(made, JOBS) == []


def test_kueues_behavior_can_be_chosen():
    believing = Integrations(makers=Makers(trusted=True))

    assert gates(pod(owner()), "alice", believing) is None
    assert refusals(pod(owner()), "alice", integrations=believing) == []


def test_every_kind_that_queues_has_an_account_that_makes_what_it_owns():
    assert {kind.group for kind in (*KINDS, *PARENTS)} <= DEFAULT_MAKERS.keys()


def test_an_account_is_named_for_a_group_instead_of_the_usual_ones():
    cluster = owner("RayCluster", "ray.io/v1")
    elsewhere = "system:serviceaccount:ray:operator"
    named = Integrations(makers=makers_of([f"ray.io={elsewhere}", f"core={elsewhere}"]))

    assert refusals(pod(cluster), elsewhere) != []
    assert refusals(pod(cluster), elsewhere, integrations=named) == []
    assert refusals(pod(cluster), *DEFAULT_MAKERS["ray.io"], integrations=named) != []
    assert refusals(pod(owner()), JOBS, integrations=named) == []


@pytest.mark.parametrize("entry", ["ray.io", "=a:b", "ray.io=operator", "ray.io=a:b,operator"])
def test_an_entry_that_names_no_account_is_refused(entry):
    with pytest.raises(ConfigurationError, match="does not say who makes"):
        makers_of([entry])


def test_nobody_makes_what_a_group_owns_if_that_is_configured():
    without_makers = Integrations(makers=makers_of(["batch="]))

    assert refusals(pod(owner()), JOBS, integrations=without_makers) != []


@pytest.mark.parametrize(
    ("old", "new", "user", "refused"),
    [
        pytest.param(pod(gated=True), pod(owner(), gated=True), "alice", True, id="gets-an-owner"),
        pytest.param(pod(gated=True), pod(owner(), gated=True), JOBS, False, id="is-adopted"),
        pytest.param(pod(owner()), pod(owner(uid="2")), "alice", True, id="gets-another"),
        pytest.param(pod(owner()), pod(), "alice", True, id="runs-and-loses-it"),
        pytest.param(
            pod(owner()), pod(owner(controller=False)), "alice", True, id="or-its-control"
        ),
        pytest.param(pod(owner()), pod(), JOBS, False, id="is-let-go-by-its-controller"),
        pytest.param(pod(owner()), pod(), COLLECTOR, False, id="outlives-it"),
        pytest.param(
            pod(owner(), gated=True), pod(gated=True), "alice", True, id="waits-and-loses-it"
        ),
        pytest.param(pod(owner()), pod(owner(), name="b"), "alice", False, id="keeps-it"),
        pytest.param(pod(owner(), labels={}), pod(owner()), "alice", True, id="queues-from-now-on"),
        pytest.param(
            job(), job(owner("JobSet", "jobset.x-k8s.io/v1alpha2")), "alice", True, id="job"
        ),
    ],
)
def test_an_owner_is_changed_by_who_makes_such_objects(old, new, user, refused):
    assert bool(refusals(new, user, old)) is refused


@pytest.mark.parametrize("word", ["statefulset", "leaderworkerset.x-k8s.io/leaderworkerset"])
def test_only_sets_say_that_a_pod_is_held_for_them(word):
    noted = {"annotations": {HELD_FOR: word}}
    of_a_set = owner("StatefulSet", "apps/v1")
    where = f"metadata.annotations[{HELD_FOR}]"

    assert refusals(pod(**noted), "alice") == [where]
    assert refusals(pod(owner("ReplicaSet", "apps/v1"), **noted), f"{OF}replicaset-controller") == [
        where
    ]
    assert refusals(pod(of_a_set, **noted), f"{OF}statefulset-controller") == []
    assert where in refusals(pod(gated=True, **noted), "alice", pod(gated=True))
    assert where in refusals(pod(gated=True), "alice", pod(gated=True, **noted))


def test_a_set_cannot_say_that_its_pods_are_held_for_another():
    template = {"metadata": {"annotations": {HELD_FOR: "leaderworkerset.x-k8s.io/leaderworkerset"}}}
    template["spec"] = {"containers": []}
    metadata = {"name": "a", "namespace": "team-a", "labels": {QUEUE: "gpus"}}
    made = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata}
    made["spec"] = {"template": template}
    path = ("spec", "template", "metadata", "annotations", HELD_FOR)
    words = {}
    for user in ("alice", "system:serviceaccount:lws-system:lws-controller-manager"):
        draft = Draft(made)
        JobAdmission().default(asked(made, user), draft)
        words[user] = draft.get(path).partition(".")[0]

    assert list(words.values()) == ["statefulset", "leaderworkerset"]


def test_an_attack_finds_what_gets_round_the_queue_if_owners_are_believed(monkeypatch):
    believing = Integrations(makers=Makers(trusted=True))
    scene = replace(ownership.SCENES["a queue is named"], integrations=believing)
    monkeypatch.setattr(ownership, "SCENES", {"believing": scene})
    monkeypatch.setattr(ownership, "MADE", {"Pod": ownership.pod, "Job": ownership.job})
    monkeypatch.setattr(ownership, "ACCOUNTS", ("alice",))

    assert ownership.creations().bypasses > len(KINDS)


def test_no_pod_nor_job_of_a_user_gets_round_the_queue_by_an_owner(monkeypatch):
    monkeypatch.setattr(ownership, "MADE", {"Pod": ownership.pod, "Job": ownership.job})
    monkeypatch.setattr(ownership, "ACCOUNTS", ("alice",))

    found = ownership.creations()

    assert found.harmless
    assert found.tried > 1000


@pytest.mark.parametrize("attack", ["changes", "words", "without_owners", "controllers"])
def test_no_attack_gets_round_the_queue(attack):
    assert getattr(ownership, attack)().harmless


TEMPLATE = {"spec": {"containers": [{"name": "main"}]}}
NAMED = {"metadata": {"labels": {QUEUE: "gpus"}}, **TEMPLATE}


def whole(kind, version, spec, **metadata):
    labels = {QUEUE: "gpus"}
    named = {"name": "a", "namespace": "team-a", "labels": labels, **metadata}
    return {"apiVersion": version, "kind": kind, "metadata": named, "spec": spec}


@pytest.mark.parametrize(
    ("obj", "place"),
    [
        pytest.param(
            whole("DaemonSet", "apps/v1", {"template": TEMPLATE}), "spec.template", id="set"
        ),
        pytest.param(whole("DaemonSet", "apps/v1", {"template": NAMED}), "", id="says-it-there"),
        pytest.param(
            whole("CronJob", "batch/v1", {"jobTemplate": {"spec": {"template": NAMED}}}),
            "",
            id="cron-job-passes-it-on",
        ),
        pytest.param(
            whole("CronJob", "batch/v1", {"jobTemplate": {**NAMED, "spec": {}}}), "", id="its-jobs"
        ),
        pytest.param(
            whole("Heap", "example.org/v1", {"tasks": [{"template": TEMPLATE}]}),
            "spec.tasks[0].template",
            id="kind-that-nobody-knows",
        ),
        pytest.param(
            whole("ScheduledSparkApplication", "sparkoperator.k8s.io/v1beta2", {"template": {}}),
            "spec.template.driver.labels, spec.template.executor.labels",
            id="without-templates",
        ),
        pytest.param(
            whole(
                "AppWrapper",
                "workload.codeflare.dev/v1beta2",
                {"components": [{"template": whole("Job", "batch/v1", {"template": TEMPLATE})}]},
            ),
            "",
            id="wraps-a-job-that-queues",
        ),
        pytest.param(
            whole("PodTemplate", "v1", {}) | {"template": TEMPLATE}, "template", id="pod-template"
        ),
        pytest.param(
            whole("Notebook", "kubeflow.org/v1", {"template": TEMPLATE}), "", id="labels-are-copied"
        ),
        pytest.param(whole("Service", "v1", {"selector": {}}), "", id="has-no-pods"),
        pytest.param(
            whole(
                "Workflow", "argoproj.io/v1alpha1", {"templates": [{"container": {"image": "a"}}]}
            ),
            "labels that its pods get",
            id="container",
        ),
        pytest.param(
            whole(
                "Model",
                "example.org/v1",
                {"model": {"resources": {"limits": {"nvidia.com/gpu": 8}}}},
            ),
            "labels that its pods get",
            id="resources-alone",
        ),
        pytest.param(
            whole("Heap", "example.org/v1", {"template": NAMED, "tools": {"image": "a"}}),
            "",
            id="image-beside-a-template",
        ),
        pytest.param(job(), "", id="is-held"),
    ],
)
def test_a_user_who_names_a_queue_without_effect_gets_the_right_place(obj, place):
    decision = warn_of_hidden(asked(obj, "alice"), ALLOWED)

    assert decision.allowed
    assert bool(decision.warnings) is bool(place)
    assert place in "".join(decision.warnings)


def test_a_kind_that_is_off_is_warned_of_and_its_pods_queue_by_themselves():
    off = Integrations(kinds=frozenset({("", "Pod")}))
    sent = whole("Job", "batch/v1", {"template": TEMPLATE})

    assert warn_of_hidden(asked(sent, "alice"), ALLOWED, integrations=off).warnings
    assert GATE in gates(pod(owner()), JOBS, off)


def test_an_object_that_is_all_templates_is_looked_into_as_far_as_time_allows():
    many = whole("Many", "example.com/v1", {"pods": [[{"a": {}}] * 200] * 200})

    assert warn_of_hidden(asked(many, "alice"), ALLOWED).warnings == ()


def test_a_warning_repeats_no_long_name_for_each_part():
    templates = {f"a{number}": TEMPLATE for number in range(1_000)}
    many = whole("Many", "example.com/v1", {"k" * 100_000: templates})
    (warning,) = warn_of_hidden(asked(many, "alice"), ALLOWED).warnings

    assert len(warning) < 3_000
    assert "a999.metadata.labels" in warning
    assert "other places" in warning


def claiming(obj):
    spec = obj["spec"]["template"]["spec"] if obj["kind"] == "Job" else obj["spec"]
    spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpus"}]
    return obj


@pytest.mark.parametrize("obj", [job(), pod(gated=True)], ids=["job", "pod"])
def test_a_pod_that_gets_no_part_of_a_gpu_by_its_annotation_is_reported(obj):
    asks = copy.deepcopy(obj)
    of_pod = asks["spec"]["template"] if asks["kind"] == "Job" else asks
    of_pod.setdefault("metadata", {}).setdefault("annotations", {})["gpu-fraction"] = "0.5"
    counting = JobAdmission(integrations=Integrations(gpu_fractions=True))

    (reported,) = JobAdmission().check(asked(asks, "alice"), ALLOWED).warnings

    assert "unless the administrator sets `resources.gpuFractions`" in reported
    assert counting.check(asked(asks, "alice"), ALLOWED).warnings == ()
    assert JobAdmission().check(asked(obj, "alice"), ALLOWED).warnings == ()


@pytest.mark.parametrize("obj", [job(), pod(gated=True)], ids=["job", "pod"])
@pytest.mark.gate("KueueDRARejectWorkloadsWhenDRADisabled")
def test_a_workload_that_would_wait_forever_for_claimed_devices_is_reported_at_once(obj):
    asks = asked(claiming(copy.deepcopy(obj)), "alice")
    gates = {"KueueDRAIntegration", "KueueDRARejectWorkloadsWhenDRADisabled"}
    off = Integrations(off=frozenset(gates))
    counting = Integrations(counts_devices=True)

    (reported,) = JobAdmission().check(asks, ALLOWED).warnings

    assert "no quota counts the devices of `resourceClaims`" in reported
    assert "ask for them by resource" in reported
    assert JobAdmission(integrations=off).check(asks, ALLOWED).warnings == ()
    assert JobAdmission(integrations=counting).check(asks, ALLOWED).warnings == ()
    assert JobAdmission().check(asked(obj, "alice"), ALLOWED).warnings == ()


@pytest.mark.parametrize("attack", growth.ATTACKS.values(), ids=growth.ATTACKS)
def test_nothing_gets_gpus_by_growing(attack):
    assert attack().faults == ()

"""What a pod asks for is counted as the scheduler counts it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyd.api.quantity import parse_quantity
from policyd.engine.objects.pods import (
    PodError,
    claimed_devices,
    claims,
    count_pods,
    gpus,
    is_gpu,
    total,
)
from policyd.engine.objects.workloads import KINDS, find_kind, pod_templates
from tests.engine.reviews import job, job_set, mutated, pod, policies, policy, request, template


def asking(**amounts):
    return {"resources": {"requests": amounts}}


def spec(*containers, init=(), **fields):
    return {"spec": {"containers": list(containers), "initContainers": list(init), **fields}}


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        pytest.param(spec(asking(cpu="1"), asking(cpu="500m")), "1500m", id="containers-add-up"),
        pytest.param(spec(asking(cpu="1"), init=[asking(cpu="3")]), "3", id="largest-init"),
        pytest.param(
            spec(asking(cpu="1"), init=[{**asking(cpu="1"), "restartPolicy": "Always"}]),
            "2",
            id="sidecars-add-up",
        ),
        pytest.param(
            spec(
                asking(cpu="1"),
                init=[{**asking(cpu="1"), "restartPolicy": "Always"}, asking(cpu="2")],
            ),
            "3",
            id="init-beside-a-sidecar",
        ),
        pytest.param(spec(asking(cpu="1"), overhead={"cpu": "250m"}), "1250m", id="overhead"),
        pytest.param(
            spec(asking(cpu="1"), asking(cpu="-1"), overhead={"cpu": "-1"}), "1", id="negative"
        ),
        pytest.param(
            spec(init=[asking(cpu="3")], overhead={"cpu": "1"}), "4", id="overhead-on-the-largest"
        ),
        pytest.param(spec({"resources": {"limits": {"cpu": "2"}}}), "2", id="a-limit-is-a-request"),
        pytest.param(
            spec({"resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}}),
            "1",
            id="a-request-is-not-its-limit",
        ),
        pytest.param(
            spec(asking(cpu="1"), resources={"requests": {"cpu": "4"}}), "4", id="pod-as-a-whole"
        ),
        pytest.param(
            spec(asking(cpu="1"), resources={"limits": {"cpu": "4"}}),
            "4",
            id="a-limit-of-the-whole",
        ),
        pytest.param(
            spec(asking(cpu="1"), resources={"requests": {"cpu": "4"}}, overhead={"cpu": "250m"}),
            "4250m",
            id="overhead-on-the-whole",
        ),
        pytest.param(spec(), "0", id="nothing"),
        pytest.param({}, "0", id="no-spec"),
    ],
)
def test_requests(made, expected):
    assert total(made, "cpu", "requests") == parse_quantity(expected)


def test_limits_are_counted_by_themselves():
    made = spec({"resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}})

    assert str(total(made, "cpu", "limits")) == "2"


@pytest.mark.parametrize(
    ("resource", "counts"),
    [
        pytest.param("nvidia.com/gpu", True, id="nvidia"),
        pytest.param("nvidia.com/mig-3g.20gb", True, id="slice"),
        pytest.param("nvidia.com/gpu.shared", True, id="time-slice"),
        pytest.param("amd.com/gpu", True, id="amd"),
        pytest.param("amd.com/cpx_nps4", True, id="amd-partition"),
        pytest.param("amd.com/nic", False, id="amd-network"),
        pytest.param("nvidia.com/vgpu", True, id="vgpu"),
        pytest.param("nvidia.com/GRID_T4-1Q", True, id="vgpu-type"),
        pytest.param("deviceclass.resource.kubernetes.io/h100", True, id="device-of-a-class"),
        pytest.param("gpu.intel.com/xe", True, id="intel"),
        pytest.param("gpu.intel.com/millicores", False, id="share-of-an-intel"),
        pytest.param("cpu", False, id="cpu"),
        pytest.param("example.com/gpu", False, id="someone-elses"),
    ],
)
def test_resources_that_count_as_a_gpu(resource, counts):
    assert is_gpu(resource) is counts


def test_nothing_takes_gpus_away_from_what_containers_ask_for():
    gpu = {"nvidia.com/gpu": "8"}
    less = {"nvidia.com/gpu": "-8"}
    none = {"requests": {"nvidia.com/gpu": "0"}}
    made = spec(asking(**gpu), asking(**less), overhead=less, resources=none)

    assert gpus(made) == 8
    assert total(made, "nvidia.com/gpu", "requests") == parse_quantity("8")


def test_gpus_of_different_kinds_count_together():
    assert gpus(spec(asking(**{"nvidia.com/gpu": 2}), asking(**{"amd.com/gpu": "1"}))) == 3


@pytest.mark.parametrize(
    ("obj", "pods", "devices"),
    [
        pytest.param(pod(gpus=2), 1, 2, id="pod"),
        pytest.param(job(parallelism=4, gpus=2), 4, 8, id="job"),
        pytest.param(job_set(0, 8), 2, 8, id="job-set"),
        pytest.param({"apiVersion": "v1", "kind": "Service"}, 0, 0, id="service"),
        pytest.param({}, 0, 0, id="nothing"),
    ],
)
def test_a_workload_is_all_its_pods(obj, pods, devices):
    assert (count_pods(obj), gpus(obj)) == (pods, devices)


def claiming(kind, *path):
    """An object of a kind with a pod template, or a pod, that has two claims."""
    held = {"spec": {"resourceClaims": [{"name": "a"}, {"name": "b"}]}}
    for step in reversed(path):
        held = [held] if step == 0 else {step: held}
    return {"apiVersion": kind.rpartition("/")[0], "kind": kind.rpartition("/")[2], **held}


RAY_SPEC = ("spec", "rayClusterSpec", "headGroupSpec", "template")


@pytest.mark.parametrize(
    ("obj", "count"),
    [
        pytest.param(claiming("v1/Pod"), 2, id="pod"),
        pytest.param(claiming("batch/v1/Job", "spec", "template"), 2, id="job"),
        pytest.param(claiming("apps/v1/Deployment", "spec", "template"), 2, id="deployment"),
        pytest.param(claiming("ray.io/v1/RayJob", *RAY_SPEC), 2, id="ray-job"),
        pytest.param(claiming("ray.io/v1alpha1/RayJob", *RAY_SPEC), 2, id="an-older-version"),
        pytest.param(
            claiming("kubeflow.org/v1/PyTorchJob", "spec", "pytorchReplicaSpecs", "A", "template"),
            2,
            id="pytorch-job",
        ),
        pytest.param(
            claiming(
                "jobset.x-k8s.io/v1alpha2/JobSet",
                *("spec", "replicatedJobs", 0, "template", "spec", "template"),
            ),
            2,
            id="job-set",
        ),
        pytest.param(pod(gpus=2), 0, id="none"),
        pytest.param({"apiVersion": "v1", "kind": "Service"}, 0, id="service"),
    ],
)
def test_claims_are_those_of_all_pods(obj, count):
    assert claims(obj) == count


def workload(api_version, kind, made):
    return {"apiVersion": api_version, "kind": kind, "spec": made}


T = template()


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        pytest.param(
            workload("batch/v1", "Job", {"parallelism": 8, "completions": 3, "template": T}),
            [("spec/template", 3)],
            id="job-with-fewer-completions",
        ),
        pytest.param(
            workload("batch/v1", "CronJob", {"jobTemplate": {"spec": {"template": T}}}),
            [("spec/jobTemplate/spec/template", 1)],
            id="cron-job",
        ),
        pytest.param(
            workload("apps/v1", "Deployment", {"replicas": 3, "template": T}),
            [("spec/template", 3)],
            id="deployment",
        ),
        pytest.param(
            workload(
                "jobset.x-k8s.io/v1alpha2",
                "JobSet",
                {
                    "replicatedJobs": [
                        {"replicas": 2, "template": {"spec": {"parallelism": 4, "template": T}}}
                    ]
                },
            ),
            [("spec/replicatedJobs/0/template/spec/template", 8)],
            id="job-set",
        ),
        pytest.param(
            workload(
                "kubeflow.org/v1",
                "PyTorchJob",
                {
                    "pytorchReplicaSpecs": {
                        "Master": {"template": T},
                        "Worker": {"replicas": 3, "template": T},
                    }
                },
            ),
            [
                ("spec/pytorchReplicaSpecs/Master/template", 1),
                ("spec/pytorchReplicaSpecs/Worker/template", 3),
            ],
            id="training-job",
        ),
        pytest.param(
            workload(
                "ray.io/v1",
                "RayCluster",
                {
                    "headGroupSpec": {"template": T},
                    "workerGroupSpecs": [{"replicas": 2, "numOfHosts": 4, "template": T}],
                },
            ),
            [("spec/headGroupSpec/template", 1), ("spec/workerGroupSpecs/0/template", 8)],
            id="ray-cluster",
        ),
        pytest.param(
            workload(
                "ray.io/v1",
                "RayCluster",
                {"workerGroupSpecs": [{"replicas": 0, "minReplicas": 8, "template": T}]},
            ),
            [("spec/workerGroupSpecs/0/template", 8)],
            id="ray-cluster-of-no-fewer-than-the-least",
        ),
        pytest.param(
            workload(
                "leaderworkerset.x-k8s.io/v1",
                "LeaderWorkerSet",
                {"replicas": 2, "leaderWorkerTemplate": {"size": 4, "workerTemplate": T}},
            ),
            [("spec/leaderWorkerTemplate/workerTemplate", 8)],
            id="leader-worker-set-without-a-leader-template",
        ),
        pytest.param(
            workload(
                "leaderworkerset.x-k8s.io/v1",
                "LeaderWorkerSet",
                {
                    "replicas": 2,
                    "leaderWorkerTemplate": {"size": 4, "leaderTemplate": T, "workerTemplate": T},
                },
            ),
            [
                ("spec/leaderWorkerTemplate/leaderTemplate", 2),
                ("spec/leaderWorkerTemplate/workerTemplate", 6),
            ],
            id="leader-worker-set",
        ),
        pytest.param(workload("batch/v1", "Job", {"parallelism": -1}), [], id="no-template"),
        pytest.param(workload("batch/v1", "Job", None), [], id="no-spec"),
    ],
)
def test_where_the_pods_are_and_how_many(obj, expected):
    found = pod_templates(obj, find_kind(obj))

    assert [("/".join(map(str, t.path)), t.pods) for t in found] == expected


def test_kinds_are_known_in_all_their_versions_and_in_their_group_only():
    assert find_kind({"apiVersion": "ray.io/v1alpha1", "kind": "RayJob"})
    assert find_kind({"apiVersion": "example.com/v1", "kind": "Job"}) is None
    assert len({(kind.group, kind.kind) for kind in KINDS}) == len(KINDS)


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(spec("x"), id="container-text"),
        pytest.param({"spec": {"containers": {}}}, id="containers-object"),
        pytest.param({"spec": 3}, id="spec-number"),
        pytest.param(spec({"resources": []}, {"resources": 3}), id="resources-number"),
        pytest.param(spec({"resources": {"limits": [1]}}), id="limits-list"),
        pytest.param(spec(asking(**{"nvidia.com/gpu": "many"})), id="no-quantity"),
    ],
)
def test_a_misshapen_pod_is_an_error(made):
    with pytest.raises(PodError):
        gpus(made)


@pytest.mark.parametrize("made", [{"spec": 3}, {"spec": {"resourceClaims": ["a"]}}])
def test_misshapen_claims_are_an_error(made):
    with pytest.raises(PodError):
        claims(made)


counts = st.integers(0, 8)
containers = st.lists(counts.map(lambda n: asking(**{"nvidia.com/gpu": n})), max_size=4)


@given(containers, containers)
def test_a_pod_needs_the_most_of_any_moment(running, starting):
    def amounts(listed):
        return [each["resources"]["requests"]["nvidia.com/gpu"] for each in listed]

    assert gpus(spec(*running, init=starting)) == max([sum(amounts(running)), *amounts(starting)])


def test_policies_see_the_gpus_that_policies_before_them_gave():
    first = policy(
        """
        priority: 2
        matchConditions: [{name: none, expression: pod.gpus() == 0}]
        inject: {resources: {limits: {nvidia.com/gpu: 2}}}
        """,
        name="first",
    )
    second = policy(
        """
        priority: 1
        matchConditions: [{name: some, expression: pod.gpus() > 0}]
        inject: {labels: {gpus: {expression: string(pod.gpus())}}}
        """,
        name="second",
    )

    changed = mutated(policies(first, second), pod())

    assert changed["metadata"]["labels"] == {"gpus": "2"}


def test_each_template_and_each_request_has_gpus_of_its_own():
    text = policy(
        "validations: [{expression: pod.gpus() < 4, messageExpression: string(pod.gpus())}]"
    )
    policy_set = policies(text)

    for asked in ((8, 2, 4), (0,), (4, 4)):
        denials = policy_set.validate(request(job_set(*asked))).denials
        assert [int(denial.message) for denial in denials] == [n for n in asked if n >= 4]


def test_amounts_are_compared_and_injected_as_quantities():
    text = policy(
        """
        validations:
        - expression: pod.requests('cpu').compareTo(quantity('1500m')) <= 0
          message: too much
        inject: {resources: {limits: {cpu: {expression: pod.requests('cpu')}}}}
        """
    )
    policy_set = policies(text)

    for asked, denied in (("1500m", False), ("2", True)):
        made = pod()
        made["spec"]["containers"] = [{"name": "main", **asking(cpu=asked)}]
        assert bool(policy_set.validate(request(made)).denials) is denied
        assert mutated(policy_set, made)["spec"]["containers"][0]["resources"]["limits"] == {
            "cpu": asked
        }


@pytest.mark.parametrize("name", ["gpu-fraction", "gpu-memory"])
def test_a_part_of_a_gpu_counts_as_one(name):
    spec = {"containers": [{"resources": {"limits": {"nvidia.com/gpu.shared": 1}}}]}
    metadata = {"annotations": {name: "anything"}}
    job = {"template": {"metadata": metadata, "spec": {"containers": [{}]}}, "parallelism": 3}

    assert gpus({"kind": "Pod", "metadata": metadata, "spec": {"containers": [{}]}}) == 1
    assert gpus({"kind": "Pod", "metadata": metadata, "spec": spec}) == 1
    assert gpus({"apiVersion": "batch/v1", "kind": "Job", "spec": job}) == 3


def claim_of(*requests):
    return {"devices": {"requests": [{"name": f"r{n}", **r} for n, r in enumerate(requests)]}}


def exactly(**fields):
    return {"exactly": {"deviceClassName": "gpu", **fields}}


CLAIMS = {
    ("ResourceClaimTemplate", "two"): claim_of(exactly(count=2)),
    ("ResourceClaim", "two"): claim_of(exactly(), exactly(count=1)),
    ("ResourceClaimTemplate", "most"): claim_of(
        {"firstAvailable": [{"count": 3}, {}, {"count": 2}]}
    ),
    ("ResourceClaimTemplate", "admin"): claim_of(exactly(count=9, adminAccess=True), exactly()),
    ("ResourceClaimTemplate", "admin-of-all"): claim_of(
        exactly(allocationMode="All", adminAccess=True)
    ),
    ("ResourceClaimTemplate", "beta"): claim_of({"deviceClassName": "gpu", "count": 2}),
    ("ResourceClaimTemplate", "none"): {},
    ("ResourceClaimTemplate", "all"): claim_of(exactly(allocationMode="All")),
    ("ResourceClaimTemplate", "newer"): claim_of(exactly(allocationMode="Newer")),
    ("ResourceClaimTemplate", "below-zero"): claim_of(exactly(count=-1)),
    ("ResourceClaimTemplate", "text"): claim_of(exactly(count="8")),
}


def with_claims(*names, shared=()):
    claims = [{"resourceClaimTemplateName": each} for each in names]
    claims += [{"resourceClaimName": each} for each in shared]
    named = [{"name": f"c{n}", **each} for n, each in enumerate(claims)]
    return {"spec": {"containers": [{"name": "main"}], "resourceClaims": named}}


def job_of(pods, *names, shared=()):
    made = job(parallelism=pods)
    made["spec"]["template"] = with_claims(*names, shared=shared)
    return made


def claimed(obj):
    return claimed_devices(obj, lambda kind, name: CLAIMS[kind, name])


@pytest.mark.parametrize(
    ("obj", "count"),
    [
        pytest.param(with_claims(), 0, id="no-claims"),
        pytest.param(with_claims("two"), 2, id="exact"),
        pytest.param(with_claims("two", "two"), 4, id="two-from-one-template"),
        pytest.param(with_claims("most"), 3, id="alternatives"),
        pytest.param(with_claims("admin", "admin-of-all"), 1, id="admin-access"),
        pytest.param(with_claims("beta"), 2, id="as-in-v1beta1"),
        pytest.param(with_claims("none"), 0, id="no-requests"),
        pytest.param(with_claims(shared=["two", "two"]), 2, id="one-claim-twice"),
        pytest.param(job_of(3, "two", shared=["two"]), 8, id="of-all-pods"),
        pytest.param(job_of(0, "two"), 0, id="no-pods"),
    ],
)
def test_devices_of_claims_count(obj, count):
    assert claimed(obj) == count


@pytest.mark.parametrize(
    ("obj", "words"),
    [
        pytest.param(with_claims("all"), "requests all devices that match", id="all"),
        pytest.param(with_claims("newer"), "requests all devices that match", id="unknown-mode"),
        pytest.param(
            with_claims("below-zero"), "a number of devices that is none", id="below-zero"
        ),
        pytest.param(with_claims("text"), "a number of devices that is none", id="text"),
        pytest.param(with_claims(""), "names no ResourceClaim", id="no-name"),
    ],
)
def test_devices_of_claims_that_say_no_number_are_an_error(obj, words):
    with pytest.raises(PodError, match=words):
        claimed(obj)


def test_claims_that_are_not_known_are_an_error_and_not_zero():
    counting = policies(policy("validations: [{expression: pod.claimedDevices() < 9}]"))

    assert counting.validate(request(pod())).allowed
    (denial,) = counting.validate(request(pod() | with_claims("two"))).denials
    assert "how many devices ResourceClaimTemplate `two` is for is not known" in denial.message

"""What the webhook refuses of jobs and pods."""

import pytest

from policyd.api.meta import ObjectMeta
from policyd.jobs.base import prebuilt_name
from policyd.jobs.integrations import Integrations
from policyd.jobs.rules.surroundings import JobContext
from policyd.jobs.rules.validation import validate_job

P = "kueue.x-k8s.io/"
QUEUE, WPC, LIMIT = f"{P}queue-name", f"{P}priority-class", f"{P}max-exec-time-seconds"
ELASTIC, PREBUILT = f"{P}elastic-job", f"{P}prebuilt-workload-name"
LEAST = f"{P}job-min-parallelism"

SLICES = {
    "annotations": {
        f"{P}podset-required-topology": "block",
        f"{P}podset-slice-required-topology": "rack",
        f"{P}podset-slice-size": "3",
    }
}
SYNC, INDEXED = f"{P}job-completions-equal-parallelism", {"completionMode": "Indexed"}


def job(labels=None, annotations=None, template=None, **spec):
    metadata = {"name": "j", "labels": labels or {}, "annotations": annotations or {}}
    return {"metadata": metadata, "spec": {"template": {"metadata": template or {}}, **spec}}


GROUPS = {"Job": "batch", "JobSet": "jobset.x-k8s.io", "JAXJob": "kubeflow.org"}


RUNS = (
    "field is immutable while the job runs: set `spec.suspend` to true in the same change, which"
    " stops its pods, and the queue starts it again"
)
STOP_FIRST = (
    "field is immutable while the job runs: stop it with `policyd stop job/j`, name the other"
    " queue, and continue with `policyd resume job/j`"
)
IMPORT = "; an administrator can bring it into a queue while it runs: `policyd import`"


def wrong(new, old=None, kind="Job", **options):
    group = GROUPS.get(kind, "")
    return [(e.path, e.message) for e in validate_job(new, old, group=group, kind=kind, **options)]


@pytest.mark.parametrize(
    ("obj", "field"),
    [
        pytest.param(job({QUEUE: "lq"}), None, id="fine"),
        pytest.param(job({QUEUE: "my queue"}), f"metadata.labels[{QUEUE}]", id="queue-name"),
        pytest.param(job({QUEUE: ""}), f"metadata.labels[{QUEUE}]", id="queue-of-no-name"),
        pytest.param(job({LIMIT: "NaN"}), f"metadata.labels[{LIMIT}]", id="limit-no-number"),
        pytest.param(job({LIMIT: "0"}), f"metadata.labels[{LIMIT}]", id="limit-zero"),
        pytest.param(job({LIMIT: "10"}), None, id="limit"),
        pytest.param(
            job(annotations={LEAST: "5"}, parallelism=3),
            f"metadata.annotations[{LEAST}]",
            id="least-above-parallelism",
        ),
        pytest.param(job(annotations={LEAST: "2"}, parallelism=3), None, id="least"),
        pytest.param(
            job(annotations={LEAST: "9" * 5000}, parallelism=3),
            f"metadata.annotations[{LEAST}]",
            id="least-beyond-reading",
        ),
        pytest.param(
            job(
                template={
                    "annotations": {
                        f"{P}podset-required-topology": "a",
                        f"{P}podset-preferred-topology": "b",
                    }
                }
            ),
            "spec.template.metadata.annotations",
            id="two-topologies",
        ),
        pytest.param({"metadata": {}, "spec": {"parallelism": "many"}}, None, id="not-a-job"),
    ],
)
def test_new_jobs(obj, field):
    assert [found for found, _ in wrong(obj)] == ([field] if field else [])


@pytest.mark.parametrize(
    ("old", "new", "detail"),
    [
        pytest.param(job({QUEUE: "a"}), job({QUEUE: "b"}), STOP_FIRST, id="queue-of-a-running-job"),
        pytest.param(job(), job({QUEUE: "b"}), RUNS + IMPORT, id="a-queue-for-a-running-job"),
        pytest.param(
            job(),
            job({QUEUE: "b"}, suspend=True),
            None,
            id="a-queue-for-a-job-that-is-stopped-by-it",
        ),
        pytest.param(
            job({QUEUE: "a"}, suspend=True),
            job({QUEUE: "b"}, suspend=True),
            None,
            id="queue-of-a-suspended-job",
        ),
        pytest.param(
            job({QUEUE: "a"}, suspend=True),
            job({QUEUE: ""}, suspend=True),
            None,
            id="out-of-its-queue",
        ),
        pytest.param(
            job({WPC: "a"}, suspend=True),
            job(suspend=True),
            "WorkloadPriorityClass cannot be removed from a workload",
            id="priority-removed",
        ),
        pytest.param(
            job(),
            job({WPC: "a"}),
            "WorkloadPriorityClass cannot be added to a running workload",
            id="priority-added-while-running",
        ),
        pytest.param(job({WPC: "a"}), job({WPC: "b"}), None, id="priority-changed"),
        pytest.param(
            job({LIMIT: "9"}), job({LIMIT: "8"}), "field is immutable", id="limit-while-running"
        ),
        pytest.param(
            job(annotations={LEAST: "1"}, parallelism=3),
            job(annotations={LEAST: "1"}, parallelism=2, suspend=True),
            "cannot change when partial admission is enabled and the job is not suspended",
            id="parallelism-as-it-is-suspended",
        ),
        pytest.param(
            job(annotations={LEAST: "1"}, parallelism=3, suspend=True),
            job(annotations={LEAST: "1"}, parallelism=2),
            None,
            id="parallelism-as-it-is-started",
        ),
        pytest.param(
            job(annotations={LEAST: "3"}, parallelism=4, suspend=True),
            job(annotations={LEAST: "3"}, parallelism=3),
            None,
            id="started-with-the-least",
        ),
        pytest.param(
            job(annotations={LEAST: "3"}, parallelism=3),
            job({"team": "a"}, annotations={LEAST: "3"}, parallelism=3),
            None,
            id="labelled-while-it-runs-with-the-least",
        ),
        pytest.param(
            job(annotations={LEAST: "3"}, parallelism=3),
            job(annotations={LEAST: "4"}, parallelism=3),
            "should be between 0 and 3",
            id="another-least-while-it-runs-with-the-least",
        ),
        pytest.param(
            job(annotations={LEAST: "1"}, template=SLICES, parallelism=4, suspend=True),
            job(annotations={LEAST: "1"}, template=SLICES, parallelism=2),
            None,
            id="started-with-less-than-a-slice",
        ),
        pytest.param(
            job({"team": "a"}, annotations={LEAST: "9"}, parallelism=4),
            job({"team": "b"}, annotations={LEAST: "9"}, parallelism=4),
            None,
            id="nothing-worse-than-before",
        ),
        pytest.param(
            job(annotations={SYNC: "true"}, parallelism=4, completions=4, suspend=True),
            job(annotations={SYNC: "true"}, parallelism=3, completions=3),
            None,
            id="started-though-it-was-wrong-before",
        ),
        pytest.param(
            job(annotations={SYNC: "true"}, suspend=True, parallelism=1, **INDEXED),
            job(annotations={SYNC: "false"}, parallelism=1, **INDEXED),
            None,
            id="as-many-completions-until-it-starts",
        ),
        pytest.param(
            job(annotations={SYNC: "false"}, **INDEXED),
            job(annotations={SYNC: "true"}, parallelism=1, **INDEXED),
            "field is immutable while the job is not suspended",
            id="as-many-completions-from-now-on",
        ),
        pytest.param(
            job(annotations={f"{P}admission-gated-by": "a/b"}),
            job(annotations={f"{P}admission-gated-by": "a/b,c/d"}),
            "can only remove gates, not add new ones",
            id="gate-added",
        ),
        pytest.param(
            job(annotations={f"{P}admission-gated-by": "a/b,c/d"}),
            job(annotations={f"{P}admission-gated-by": "c/d"}),
            None,
            id="gate-removed",
        ),
    ],
)
def test_changed_jobs(old, new, detail):
    assert [found for _, found in wrong(new, old)] == ([detail] if detail else [])


def test_a_job_does_not_leave_its_queue_where_there_is_a_default_one():
    old, new = job({QUEUE: "a"}, suspend=True), job(suspend=True)

    assert wrong(new, old) == []
    assert [field for field, _ in wrong(new, old, surroundings=JobContext(default_queue=True))] == [
        f"metadata.labels[{QUEUE}]"
    ]


REQUIRED, PREFERRED = f"{P}podset-required-topology", f"{P}podset-preferred-topology"
LAYERS = {f"{P}podset-slice-required-topology-constraints": '[{"topology": "rack", "size": 1}]'}
TWO_LEVELS = job(template={"annotations": {REQUIRED: "a", PREFERRED: "b"}})
GROWS = job(annotations={ELASTIC: "true"})
GATED = job(annotations={f"{P}admission-gated-by": "a/b"})


def without(*gates):
    return JobContext(integrations=Integrations(off=frozenset(gates)))


@pytest.mark.parametrize(
    ("new", "old", "gate", "refused"),
    [
        pytest.param(TWO_LEVELS, None, "TopologyAwareScheduling", (True, False), id="topology"),
        pytest.param(GATED, job(), "AdmissionGatedBy", (True, False), id="gated-later"),
        pytest.param(GROWS, job(), "ElasticJobsViaWorkloadSlices", (True, False), id="elastic"),
        pytest.param(
            job(annotations={ELASTIC: "true"}, template={"annotations": {REQUIRED: "rack"}}),
            None,
            "ElasticJobsViaWorkloadSlices",
            (True, False),
            id="place-of-what-may-grow",
        ),
        pytest.param(
            job(template={"annotations": LAYERS}),
            None,
            "TASMultiLayerTopology",
            (False, True),
            id="layers",
        ),
    ],
)
@pytest.mark.gate("AdmissionGatedBy", "ElasticJobsViaWorkloadSlices", "TASMultiLayerTopology")
def test_a_disabled_feature_gate_disables_its_checks_and_fields(new, old, gate, refused):
    assert (bool(wrong(new, old)), bool(wrong(new, old, surroundings=without(gate)))) == refused


@pytest.mark.parametrize(
    ("kind", "name", "refused"),
    [
        pytest.param("Job", ELASTIC, False, id="job-that-may-grow"),
        pytest.param("JobSet", ELASTIC, True, id="set-that-may-grow"),
        pytest.param("JobSet", PREBUILT, False, id="set-with-a-workload"),
        pytest.param("JAXJob", PREBUILT, True, id="training-with-a-workload"),
    ],
)
def test_annotations_that_jobs_of_a_kind_cannot_have(kind, name, refused):
    obj = {"metadata": {"annotations": {name: "true"}}, "spec": {}}

    assert [field for field, _ in wrong(obj, kind=kind)] == (
        [f"metadata.annotations[{name}]"] if refused else []
    )


def test_only_an_elastic_job_changes_its_workload_while_it_runs():
    named, other = {PREBUILT: "a"}, {PREBUILT: "b"}

    assert wrong(job(annotations=other), job(annotations=named))
    assert not wrong(
        job(annotations={**other, ELASTIC: "true"}), job(annotations={**named, ELASTIC: "true"})
    )


@pytest.mark.parametrize(
    ("labels", "annotations", "name"),
    [
        pytest.param({PREBUILT: "a"}, {}, "a", id="label"),
        pytest.param({PREBUILT: "a"}, {PREBUILT: "b"}, "b", id="annotation"),
        pytest.param({PREBUILT: "a"}, {PREBUILT: ""}, "a", id="annotation-that-says-nothing"),
        pytest.param({}, {}, "", id="none"),
    ],
)
def test_the_annotation_says_whose_workload_if_it_says_anything(labels, annotations, name):
    named = job(labels, annotations)

    assert prebuilt_name(ObjectMeta(labels=labels, annotations=annotations)) == name
    assert bool(wrong(job(), named)) == bool(name)


@pytest.mark.parametrize(
    ("topology", "fine"),
    [
        pytest.param(REQUIRED, False, id="required"),
        pytest.param(PREFERRED, False, id="preferred"),
        pytest.param(f"{P}podset-unconstrained-topology", True, id="unconstrained"),
    ],
)
def test_an_elastic_job_is_placed_anywhere_only(topology, fine):
    obj = job(annotations={ELASTIC: "true"}, template={"annotations": {topology: "true"}})

    assert [field for field, _ in wrong(obj)] == (
        [] if fine else [f"spec.template.metadata.annotations[{topology}]"]
    )


def test_a_running_job_of_a_namespace_with_a_default_queue_keeps_its_own_for_two_reasons():
    surroundings = JobContext(default_queue=True)

    found = wrong(job(), job({QUEUE: "a"}), surroundings=surroundings)

    assert [field for field, _ in found] == [f"metadata.labels[{QUEUE}]"] * 2


def test_errors_in_a_job_do_not_prevent_its_deletion():
    going = job({QUEUE: "my queue"})
    going["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"

    assert wrong(going, job({QUEUE: "my queue"})) == []


def test_kinds_that_are_not_known_are_not_checked():
    assert validate_job({"metadata": {}}, group="", kind="Service") == ()


def of_kind(labels, annotations, **spec):
    made = job({**labels, "team": spec.pop("team")}, annotations)
    made["spec"] |= spec
    return made


@pytest.mark.parametrize(
    ("group", "kind", "labels", "annotations", "spec"),
    [
        pytest.param("kubeflow.org", "JAXJob", {}, {PREBUILT: "w"}, {}, id="kind-of-no-prebuilt"),
        pytest.param("apps", "Deployment", {QUEUE: "a"}, {ELASTIC: "true"}, {}, id="elastic-set"),
        pytest.param(
            "leaderworkerset.x-k8s.io",
            "LeaderWorkerSet",
            {QUEUE: "a"},
            {},
            {"replicas": 1_000_001},
            id="too-many-groups",
        ),
    ],
)
def test_existing_errors_do_not_prevent_other_changes(group, kind, labels, annotations, spec):
    old, new = (of_kind(labels, annotations, team=team, **spec) for team in "ab")

    assert validate_job(new, group=group, kind=kind)
    assert validate_job(new, old, group=group, kind=kind) == ()


COUNTING = JobContext(integrations=Integrations(gpu_fractions=True))


def part_of(kind, annotations, **amounts):
    template = {
        "metadata": {"annotations": annotations},
        "spec": {"containers": [{"name": "c", "resources": {"limits": amounts}}]},
    }
    metadata = {"name": "j", "labels": {QUEUE: "lq"}}
    spec = {
        "Job": {"template": template},
        "JobSet": {"replicatedJobs": [{"name": "w", "template": {"spec": {"template": template}}}]},
        "JAXJob": {"jaxReplicaSpecs": {"Worker": {"template": template}}},
    }
    if kind == "Pod":
        return {"metadata": {**metadata, "annotations": annotations}, "spec": template["spec"]}
    return {"metadata": metadata, "spec": spec[kind]}


PART_PATHS = {
    "Pod": "metadata.annotations",
    "Job": "spec.template.metadata.annotations",
    "JobSet": "spec.replicatedJobs[0].template.spec.template.metadata.annotations",
    "JAXJob": "spec.jaxReplicaSpecs[Worker].template.metadata.annotations",
}


@pytest.mark.parametrize("kind", PART_PATHS)
def test_parts_of_gpus_are_checked_and_stay_as_they_are_in_a_queue(kind):
    path = f"{PART_PATHS[kind]}[gpu-fraction]"
    half, bad = part_of(kind, {"gpu-fraction": "0.5"}), part_of(kind, {"gpu-fraction": "1.5"})
    whole = part_of(kind, {"gpu-fraction": "0.5"}, **{"nvidia.com/gpu": "1"})
    more = part_of(kind, {"gpu-fraction": "0.9"})

    def paths(new, old=None):
        return [where for where, _ in wrong(new, old, kind, surroundings=COUNTING)]

    assert paths(half) == []
    assert paths(half, half) == []
    assert paths(bad) == [path]
    assert paths(whole) == [path]
    assert paths(more, half) == [path]
    assert paths(part_of(kind, {}), half) == [path]
    assert paths(bad, bad) == []  # from before parts were counted: it must not prevent a stop
    assert wrong(bad, None, kind) == []

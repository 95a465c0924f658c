"""Jobs at admission: default queues, default priority classes, and warnings."""

import pytest

from policyd.admission.jobs import DefaultClass, JobAdmission
from policyd.api.admission import parse_review
from policyd.api.makers import makers_of
from policyd.engine.model.decision import ALLOWED
from policyd.jobs.integrations import POD, Integrations
from policyd.jobs.rules.hidden import hidden_from_queue
from policyd.patch.draft import Draft
from tests.webhooks.reviews import review

QUEUE, MANAGED = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/managed"
CLASS = "kueue.x-k8s.io/priority-class"


def job(*, labels=None, suspend=False):
    metadata = {"name": "train", "namespace": "team-a", "labels": labels or {}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"suspend": suspend, "template": {"spec": {"containers": []}}},
    }


def asked(obj, operation="CREATE", **more):
    return parse_review(review(obj, resource="jobs", operation=operation, **more))


def in_team_a(namespace):
    return namespace == "team-a"


@pytest.mark.parametrize(
    ("operation", "gives", "concerned"),
    [
        pytest.param("CREATE", in_team_a, True, id="new-where-there-is-a-default"),
        pytest.param("CREATE", lambda _: False, False, id="new-elsewhere"),
        pytest.param("UPDATE", in_team_a, False, id="there-before"),
    ],
)
def test_jobs_that_name_no_queue_are_looked_at_where_there_is_a_default(
    operation, gives, concerned
):
    decision = JobAdmission(gives_queue=gives).change(asked(job(), operation), ALLOWED)

    assert bool(decision.operations) is concerned


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_a_job_of_a_namespace_that_takes_no_part_is_left_alone(operation):
    """A policy has the API server send it nevertheless."""
    named = job(labels={QUEUE: "q"})
    request = asked(named, operation, old=job(labels={QUEUE: "other"}, suspend=True))
    taking_part, not_so = (JobAdmission(covers=lambda _, c=c: c) for c in (True, False))

    assert not_so.change(request, ALLOWED) == ALLOWED
    assert not_so.check(request, ALLOWED) == ALLOWED
    concerned = taking_part.change(request, ALLOWED), taking_part.check(request, ALLOWED)
    assert concerned != (ALLOWED, ALLOWED)


def test_a_new_job_is_put_into_the_default_queue_and_held():
    draft = Draft(job())

    JobAdmission(gives_queue=in_team_a).default(asked(job()), draft)

    assert draft.object["metadata"]["labels"][QUEUE] == "default"
    assert draft.object["spec"]["suspend"] is True


def test_a_job_cannot_leave_its_queue_where_there_is_a_default():
    request = asked(job(suspend=True), "UPDATE", old=job(labels={QUEUE: "default"}, suspend=True))

    refused = JobAdmission(gives_queue=in_team_a).check(request, ALLOWED)

    assert [denial.path for denial in refused.denials] == [f"metadata.labels[{QUEUE}]"]
    assert JobAdmission(integrations=Integrations()).check(request, ALLOWED) is ALLOWED


@pytest.mark.parametrize(
    ("owner", "annotations", "warned"),
    [
        pytest.param({"apiVersion": "batch/v1", "kind": "Job"}, {}, True, id="of-a-job"),
        pytest.param({"apiVersion": "apps/v1", "kind": "ReplicaSet"}, {}, False, id="of-others"),
        pytest.param(
            {"apiVersion": "apps/v1", "kind": "StatefulSet"},
            {"kueue.x-k8s.io/pod-suspending-parent": "statefulset"},
            False,
            id="held-for-its-parent",
        ),
    ],
)
def test_a_user_who_marks_pods_of_a_queued_job_as_held_is_warned(owner, annotations, warned):
    owners = [{"name": "a", "uid": "u", "controller": True, **owner}]
    metadata = {
        "name": "a-0",
        "namespace": "team-a",
        "labels": {MANAGED: "true"},
        "annotations": annotations,
        "ownerReferences": owners,
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": []}}
    request = parse_review(review(pod, user="system:kube-controller-manager"))

    decision = JobAdmission().check(request, ALLOWED)

    assert (decision.allowed, bool(decision.warnings)) == (True, warned)


def made_by(kind, api_version):
    return [{"apiVersion": api_version, "kind": kind, "name": "o", "uid": "u", "controller": True}]


@pytest.mark.parametrize(
    ("labels", "owners", "off", "given"),
    [
        pytest.param({QUEUE: "q"}, [], (), "default", id="new"),
        pytest.param({QUEUE: "q", CLASS: "high"}, [], (), "high", id="has-one"),
        pytest.param({}, [], (), None, id="does-not-queue"),
        pytest.param({QUEUE: "q"}, made_by("JobSet", "jobset.x-k8s.io/v1alpha2"), (), None,
                     id="of-another-job"),
        pytest.param({QUEUE: "q"}, made_by("CronJob", "batch/v1"), (), "default",
                     id="of-what-does-not-queue"),
        pytest.param({QUEUE: "q"}, [], ("WorkloadPriorityClassDefaulting",), None, id="gate-off"),
    ],
)  # fmt: skip
@pytest.mark.gate("WorkloadPriorityClassDefaulting")
def test_a_new_job_that_queues_gets_the_class_of_default(labels, owners, off, given):
    known, sent = DefaultClass(), job(labels=labels)
    known.there = True
    sent["metadata"]["ownerReferences"] = owners
    draft = Draft(sent)

    makers = makers_of(["jobset.x-k8s.io=system:jobset"])
    integrations = Integrations(off=frozenset(off), makers=makers)
    request = asked(sent, user="system:jobset")

    JobAdmission(integrations=integrations, default_class=known).default(request, draft)

    assert draft.get(("metadata", "labels", CLASS)) == given


def test_the_templates_of_what_makes_pods_get_it_too():
    known, labels = DefaultClass(), {QUEUE: "q"}
    known.there = True
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "serve", "namespace": "team-a", "labels": labels},
        "spec": {"template": {"spec": {"containers": []}}},
    }
    draft = Draft(deployment)
    request = parse_review(review(deployment, resource="deployments", operation="CREATE"))

    JobAdmission(default_class=known).default(request, draft)

    where = ("spec", "template", "metadata", "labels", CLASS)
    assert draft.get(where) == "default"


JOBS_ONLY = frozenset({("batch", "Job")})
TEMPLATE = {"metadata": {}, "spec": {"containers": [{"name": "main", "image": "i"}]}}
OFF = f"`{QUEUE}` on a JobSet has no effect: the integration `jobset.x-k8s.io/jobset` is off"


@pytest.mark.parametrize(
    ("group", "kind", "kinds", "expected"),
    [
        pytest.param("jobset.x-k8s.io", "JobSet", JOBS_ONLY, OFF, id="off"),
        pytest.param(
            "jobset.x-k8s.io",
            "JobSet",
            JOBS_ONLY | {POD},
            f"{OFF}; name the queue in spec.template.metadata.labels",
            id="off-while-pods-queue",
        ),
        pytest.param("jobset.x-k8s.io", "JobSet", None, "", id="on"),
        pytest.param("batch", "CronJob", JOBS_ONLY, "", id="of-jobs-that-queue"),
        pytest.param(
            "batch",
            "CronJob",
            frozenset(),
            f"`{QUEUE}` on a CronJob has no effect: the integration `batch/job` is off",
            id="of-jobs-that-do-not",
        ),
        pytest.param(
            "argoproj.io",
            "Rollout",
            JOBS_ONLY,
            f"`{QUEUE}` on a Rollout has no effect: the kind has no integration, and that of pods"
            " is off",
            id="unknown-kind",
        ),
        pytest.param(
            "argoproj.io",
            "Rollout",
            {POD},
            f"`{QUEUE}` on a Rollout has no effect: name the queue in"
            " spec.template.metadata.labels",
            id="unknown-kind-while-pods-queue",
        ),
    ],
)
def test_a_queue_that_is_named_in_vain_has_a_warning_with_the_cause(group, kind, kinds, expected):
    obj = {"metadata": {"labels": {QUEUE: "q"}}, "spec": {"template": TEMPLATE}}
    integrations = Integrations(kinds=kinds)

    assert hidden_from_queue(obj, group=group, kind=kind, integrations=integrations) == expected

"""What a Workload says of its times, waits and evictions, through the changes of its status."""

import msgspec
import pytest

from policyd.api.kueue import Admission, Workload
from policyd.api.meta import ObjectMeta
from policyd.controller.watch.preemptions import preempt, preemption_message
from policyd.workload import transitions as t
from policyd.workload.records import (
    check_records,
    condition_records,
    job_of,
    owner_of,
    pod_set_records,
    preemptor_path,
    preemptor_text,
    record_of,
)

START = 1_700_000_000.0
GPU = "nvidia.com/gpu"
ADMISSION = {
    "clusterQueue": "cq",
    "podSetAssignments": [
        {
            "name": "main",
            "count": 2,
            "flavors": {GPU: "h100", "cpu": "h100"},
            "resourceUsage": {GPU: "8", "cpu": "4"},
            "topologyAssignment": {
                "levels": ["kubernetes.io/hostname"],
                "slices": [
                    {
                        "domainCount": 2,
                        "valuesPerLevel": [{"individual": {"prefix": "n", "roots": ["1", "2"]}}],
                        "podCounts": {"universal": 1},
                    }
                ],
            },
        }
    ],
}


def workload(**fields):
    template = {
        "metadata": {"labels": {"policyd.io/owner": "ann"}},
        "spec": {"containers": [{"resources": {"requests": {GPU: "4", "cpu": "2"}}}]},
    }
    spec = {
        "queueName": "lq",
        "priority": 7,
        "priorityClassRef": {
            "group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"
        },
        "podSets": [
            {"name": "main", "count": 2, "template": template,
             "topologyRequest": {"required": "rack"}}
        ],
    }  # fmt: skip
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}
    metadata = {
        "name": "w", "namespace": "ns", "uid": "w", "ownerReferences": [owner],
        "creationTimestamp": "2023-11-14T22:13:20Z",
    }  # fmt: skip
    return msgspec.convert({"metadata": metadata, "spec": {**spec, **fields}}, Workload)


def admitted(of, at):
    admission = msgspec.convert(ADMISSION, Admission)
    return t.with_status(of, t.reserve(of, admission, now=at))


def preempted(of, at):
    message = preemption_message(
        uid="u-2", job_uid="", reason="InClusterQueue", preemptor_path="/c/cq", path="/c/cq"
    )
    of = t.with_status(of, preempt(of, reason="InClusterQueue", message=message, now=at))
    return t.with_status(of, t.after_eviction(of, now=at + 10))


def finished(of, at):
    return t.with_status(of, t.finish(of, reason="Succeeded", message="done", now=at))


def test_a_pending_workload_says_what_it_asks_for_and_how_long_it_waits():
    record = record_of(workload(), now=START + 90)

    assert (record.job, record.owner, record.local_queue) == ("Job/j", "ann", "lq")
    assert (record.priority, record.priority_class) == (7, "WorkloadPriorityClass/high")
    assert (record.state, record.requests) == ("Pending", {GPU: 8, "cpu": 4_000})
    assert (record.times.waited_seconds, record.times.ran_seconds) == (90, None)
    assert record.times.created == "2023-11-14T22:13:20Z"
    assert record.domains == {}


def test_a_finished_one_says_how_long_it_waited_and_ran_and_where():
    record = record_of(finished(admitted(workload(), START + 60), START + 360), now=START + 9_000)

    assert (record.state, record.outcome, record.message) == ("Finished", "Succeeded", "done")
    assert (record.times.waited_seconds, record.times.ran_seconds) == (60, 300)
    assert (record.cluster_queue, record.flavors) == ("cq", ("h100",))
    assert record.domains == {"n1": 1, "n2": 1}


def test_waits_before_and_after_a_preemption_count_together_and_so_do_runs():
    again = admitted(preempted(admitted(workload(), START + 60), START + 100), START + 200)
    record = record_of(again, now=START + 250)

    # It waited 60 s, ran 50 s (until its job had stopped), waited 90 s, and runs for 50 s.
    assert (record.times.waited_seconds, record.times.ran_seconds) == (150, 100)
    assert record.evictions == {"Preempted": 1}
    assert (record.preempted_by, record.preemptor_path) == ("u-2", "/c/cq")
    assert record.state == "Admitted"


def test_one_that_was_stopped_is_pending_again_and_keeps_what_it_ran():
    record = record_of(preempted(admitted(workload(), START + 60), START + 100), now=START + 200)

    assert (record.state, record.cluster_queue) == ("Pending", "")
    assert (record.times.waited_seconds, record.times.ran_seconds) == (150, 50)


@pytest.mark.parametrize(
    ("of", "state"),
    [
        pytest.param(workload(active=False), "Inactive", id="deactivated"),
        pytest.param(
            t.with_status(
                admitted(workload(), START),
                t.evict(admitted(workload(), START), reason="Preempted", message="", now=START),
            ),
            "Stopping",
            id="stopping",
        ),
    ],
)
def test_a_state_is_reported(of, state):
    assert record_of(of, now=START).state == state


def test_pod_sets_say_what_each_pod_requests_and_got():
    (pending,), (running,) = (
        list(pod_set_records(of)) for of in (workload(), admitted(workload(), START))
    )

    assert (pending.count, pending.requests) == (2, {GPU: 4, "cpu": 2_000})
    assert (pending.topology, pending.admitted, pending.flavors) == ("one rack", None, {})
    assert running.flavors == {GPU: "h100", "cpu": "h100"}
    assert (running.admitted, running.domains) == (2, {"n1": 1, "n2": 1})


def test_conditions_come_in_the_order_in_which_they_changed():
    of = finished(admitted(workload(), START + 1), START + 2)

    assert [each.type for each in condition_records(of)] == [
        "QuotaReserved", "Admitted", "Finished"
    ]  # fmt: skip


def test_checks_are_reported_with_their_messages():
    status = {"admissionChecks": [{"name": "nodes", "state": "Retry", "message": "none left"}]}
    of = msgspec.convert({"status": status}, Workload)

    (check,) = check_records(of)
    assert (check.type, check.status, check.message) == ("nodes", "Retry", "none left")


def test_the_owner_on_the_workload_goes_before_that_of_its_pods():
    metadata = ObjectMeta(labels={"policyd.io/owner": "bob"})
    of = msgspec.structs.replace(workload(), metadata=metadata)

    assert (owner_of(workload()), owner_of(of), owner_of(Workload())) == ("ann", "bob", "")


GROUP = {"kueue.x-k8s.io/is-group-workload": "true"}
POD = {"apiVersion": "v1", "kind": "Pod", "name": "p-0", "uid": "p"}
SET = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "serve", "uid": "s"}
LEADERS = {**SET, "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet"}
VOLCANO = {**SET, "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}
STRANGE = {**SET, "apiVersion": "example.com/v1"}
JOB = {**SET, "apiVersion": "batch/v1", "kind": "Job", "controller": True}


@pytest.mark.parametrize(
    ("annotations", "owners", "job"),
    [
        pytest.param({}, [JOB], "Job/serve", id="job"),
        pytest.param(GROUP, [SET], "StatefulSet/serve", id="stateful-set"),
        pytest.param(GROUP, [LEADERS], "LeaderWorkerSet/serve", id="leader-worker-set"),
        pytest.param(GROUP, [VOLCANO], "Job.batch.volcano.sh/serve", id="volcano"),
        pytest.param(GROUP, [POD, SET], "StatefulSet/serve", id="beside-its-pods"),
        pytest.param({}, [SET], "StatefulSet/serve", id="taken-over"),
        pytest.param(GROUP, [POD], "", id="plain-pods"),
        pytest.param(GROUP, [{**POD, "controller": True}], "", id="one-pod-of-a-group"),
        pytest.param(GROUP, [STRANGE], "", id="kind-of-a-stranger"),
        pytest.param({}, [], "", id="itself"),
    ],
)
def test_a_workload_is_called_by_the_kind_and_name_of_its_job(annotations, owners, job):
    metadata = {"name": "w", "annotations": annotations, "ownerReferences": owners}

    assert job_of(msgspec.convert(metadata, ObjectMeta)) == job


@pytest.mark.parametrize(
    ("path", "text"),
    [
        pytest.param("/c/cq", "a workload of ClusterQueue cq", id="with-its-queue"),
        pytest.param("", "a workload that is gone", id="unknown"),
    ],
)
def test_a_preemptor_that_cannot_be_seen_is_called_by_its_queue(path, text):
    assert preemptor_text(path) == text


def test_a_workload_that_was_never_preempted_has_no_preemptor():
    assert preemptor_path(workload()) == ""

"""Everything about one job: what its Workload and its pods say beside its place."""

import re

import click
import pytest
from msgspec.structs import replace

from policyd.cli.questions.job import job_lines
from policyd.cli.questions.why import kind_and_name, snapshot_for, with_kind
from policyd.controller.watch.preemptions import preemption_message
from policyd.kube import resources as r
from policyd.kube.errors import ForbiddenError
from policyd.questions.job import job_answer
from policyd.questions.unqueued_jobs import JobQuery
from policyd.snapshot.values import FORMAT, ClusterQueueUse, PendingRow, QueueSnapshot
from policyd.testing import FakeClient
from policyd.workload.job_answer import JobAnswer, PodsOnNode
from tests.questions.test_unqueued_jobs import QUEUE, owned, put

pytestmark = pytest.mark.anyio

GPU = "nvidia.com/gpu"
NOW = 1_800_000_000.0
TIMES = {"QuotaReserved": "2026-01-02T03:05:00Z", "Admitted": "2026-01-02T03:06:00Z"}
PREEMPTED = preemption_message(
    uid="Workload-urgent", job_uid="", reason="InClusterQueue", preemptor_path="/c/cq", path=""
)


async def asked(client, name="j"):
    snapshot = await snapshot_for(client, "ns")
    return await job_answer(client, JobQuery("Job", "ns", name), snapshot, now=NOW)


def condition(kind, status="True", message="", since="2026-01-02T03:04:05Z"):
    made = {"type": kind, "status": status, "reason": f"Why{kind}", "message": message}
    return {**made, "lastTransitionTime": since}


@pytest.fixture
def client():
    """A job with a Workload that was preempted once and runs again, on two nodes."""
    client = FakeClient()
    put(client, r.LOCAL_QUEUES, "lq", {"clusterQueue": "cq"})
    put(client, r.CLUSTER_QUEUES, "cq", namespace="")
    put(client, r.JOBS, "j", labels={QUEUE: "lq"})
    template = {"spec": {"containers": [{"resources": {"requests": {GPU: "4"}}}]}}
    put(
        client,
        r.WORKLOADS,
        "w",
        {"queueName": "lq", "podSets": [{"name": "main", "count": 3, "template": template}]},
        ownerReferences=owned("Job", "j"),
        creationTimestamp="2026-01-02T03:00:00Z",
        status={
            "conditions": [
                *(condition(kind, since=at) for kind, at in TIMES.items()),
                condition("Evicted", "False", "Previously: Preempted"),
                condition("Preempted", "False", f"Previously: {PREEMPTED}"),
            ],
            "admissionChecks": [{"name": "nodes", "state": "Ready", "message": "made"}],
            "schedulingStats": {
                "evictions": [{"reason": "Preempted", "underlyingCause": "", "count": 1}]
            },
            "admission": {
                "clusterQueue": "cq",
                "podSetAssignments": [{"name": "main", "count": 3, "flavors": {GPU: "h100"}}],
            },
        },
    )
    for name, node, of in (("a", "n1", "j"), ("b", "n1", "j"), ("c", "n2", "j"), ("d", "n2", "x")):
        put(
            client, r.PODS, name, {"nodeName": node}, ownerReferences=owned("Job", of),
            status={"phase": "Running"},
        )  # fmt: skip
    return client


async def test_a_job_is_shown_with_its_workload_and_its_own_pods(client):
    answer = await asked(client)

    assert answer.pods == (PodsOnNode("n1", "Running", 2), PodsOnNode("n2", "Running", 1))
    (pod_set,) = answer.pod_sets
    assert (pod_set.count, pod_set.requests, pod_set.flavors) == (3, {GPU: 4}, {GPU: "h100"})
    assert (answer.record.state, answer.record.evictions) == ("Admitted", {"Preempted": 1})
    assert [each.type for each in answer.checks] == ["nodes"]
    assert answer.left_out == ()


async def test_a_job_names_the_cluster_that_it_was_sent_to_or_may_go_to(client):
    record = (await asked(client)).record
    answer = JobAnswer(why=(await asked(client)).why, record=replace(record, cluster="west"))
    lines = click.unstyle("\n".join(job_lines(answer, wide=False)))
    assert re.search(r"^  cluster +west$", lines, re.MULTILINE)
    assert "may go to" not in lines

    nominated = replace(record, nominated_clusters=("west", "east"))
    lines = click.unstyle("\n".join(job_lines(replace(answer, record=nominated), wide=False)))
    assert re.search(r"^  may go to +west, east$", lines, re.MULTILINE)


async def test_who_preempted_it_is_named_while_that_one_exists(client):
    assert (await asked(client)).preempted_by == "a workload of ClusterQueue cq"

    put(client, r.WORKLOADS, "urgent", {"podSets": []})

    assert (await asked(client)).preempted_by == "ns/urgent"


@pytest.mark.parametrize(
    ("plural", "missing"),
    [
        pytest.param("pods", "pods: no", id="pods"),
        pytest.param("workloads", "times, conditions and pod sets: no", id="workloads"),
    ],
)
async def test_what_the_user_may_not_read_is_reported_as_missing(client, plural, missing):
    if plural == "workloads":
        client.fail(ForbiddenError("no"), verb="get", plural=plural)
    else:
        client.fail(ForbiddenError("no"), plural=plural)
    answer = await asked(client)

    assert answer.left_out == (missing,)
    assert answer.why.workload == "w"


async def test_a_job_without_a_workload_has_its_reason_alone(client):
    put(client, r.JOBS, "stray")
    answer = await asked(client, "stray")

    assert answer == JobAnswer(why=answer.why)
    assert answer.why.state == "NotQueued"


async def test_people_read_one_line_for_each_fact(client):
    lines = [click.unstyle(line).strip() for line in job_lines(await asked(client), wide=False)]

    assert lines[0].startswith("Job ns/j: ")
    assert {
        "admitted       2026-01-02T03:06:00Z",
        "evictions      1 Preempted",
        "preempted by   a workload of ClusterQueue cq",
        f"pod set        main: 3 pods; each 4 {GPU}; flavor h100",
        "pods           2 running on n1, 1 running on n2",
        "check          nodes: Ready: made",
    } <= set(lines)
    shown = [line for line in lines if line.startswith("condition")]
    assert [line.split()[1] for line in shown] == ["QuotaReserved=True", "Admitted=True"]
    assert sum("condition" in line for line in job_lines(await asked(client), wide=True)) == 4


def named(*jobs):
    """Return a snapshot of jobs that are pending in one queue."""
    rows = tuple(PendingRow(f"{team}/w-{n}", job, 0, 0, 0) for n, (team, job) in enumerate(jobs))
    use = ClusterQueueUse("cq", pending=rows)
    return QueueSnapshot(format=FORMAT, taken_at=NOW, cluster_queues=(use,))


@pytest.mark.parametrize(
    ("snapshot", "kind"),
    [
        pytest.param(named(("ns", "RayJob/j"), ("other", "Job/j")), "RayJob", id="in-the-queues"),
        pytest.param(named(("ns", "RayJob/i")), "Job", id="not-in-the-queues"),
        pytest.param(None, "Job", id="no-snapshot"),
    ],
)
def test_a_kind_that_is_left_out_is_that_of_the_job_in_the_queues(snapshot, kind):
    asked, name = kind_and_name("j")

    assert with_kind(JobQuery(asked, "ns", name), snapshot) == JobQuery(kind, "ns", "j")


def test_a_name_that_jobs_of_several_kinds_have_needs_a_kind():
    snapshot = named(("ns", "RayJob/j"), ("ns", "Job/j"))

    with pytest.raises(click.UsageError, match=r"use job/j or rayjob/j"):
        with_kind(JobQuery("", "ns", "j"), snapshot)
    assert with_kind(JobQuery("RayJob", "ns", "j"), snapshot).kind == "RayJob"


@pytest.mark.parametrize("text", ["", "job/", "job/a/b"])
def test_an_argument_that_names_no_job_is_refused(text):
    with pytest.raises(click.UsageError, match="is not KIND/NAME"):
        kind_and_name(text)

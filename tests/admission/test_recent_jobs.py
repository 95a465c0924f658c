"""Each verdict of a burst counts the jobs before it, until a snapshot has them."""

import msgspec
import pytest

from policyd.admission.recent_jobs import RECENT_SECONDS, RecentJobs
from policyd.alloc.queue import FlavorSpec, PreemptionPolicy
from policyd.api.selectors import LabelSelector
from policyd.snapshot.dry_run import AdmissionDryRun
from policyd.snapshot.rules import ClusterQueueRule, LocalQueueRule, QueueRules
from policyd.snapshot.values import (
    FORMAT,
    ClusterQueueUse,
    HeldAmount,
    HoldingRow,
    LocalQueueName,
    QueueSnapshot,
)
from tests.admission.test_verdicts import queued, submitted
from tests.alloc.builders import group, queue
from tests.scenarios.objects import job, pod

GPU = "nvidia.com/gpu"
PREEMPTS = PreemptionPolicy(within_cluster_queue="LowerPriority")
QUOTAS = group(h100={GPU: 8, "cpu": 10**6, "memory": 2**50})
STARTS = "would start now: 4 nvidia.com/gpu of h100 from cq"
WAITS = "would wait: {} in cq, 4 more nvidia.com/gpu needed"


def snapshot(*jobs, **spec):
    """A queue of 8 GPUs, of which some jobs have 4 each."""
    rule = ClusterQueueRule(spec=queue("cq", groups=[QUOTAS], **spec), namespaces=LabelSelector())
    rules = QueueRules(
        flavors=(FlavorSpec(name="h100"),),
        queues=(rule,),
        local_queues=(LocalQueueRule("team-a", "lq", "cq"),),
    )
    use = ClusterQueueUse(
        name="cq",
        local_queues=(LocalQueueName("team-a", "lq"),),
        usages=((HeldAmount("h100", GPU, 4),),),
        holding=tuple(HoldingRow(f"team-a/w-{name}", f"Job/{name}", 0, 0, 0, 0) for name in jobs),
    )
    return QueueSnapshot(format=FORMAT, taken_at=0.0, rules=rules, cluster_queues=(use,))


def take(recent, of):
    recent.take(AdmissionDryRun(of, of.rules), recent.arrived(of))


@pytest.fixture
def recent():
    found = RecentJobs()
    take(found, snapshot())
    return found


def asked(recent, name, *, at=0.0, creates=True, obj=None, gpus=4):
    found = submitted(queued(obj or job(name, gpus=gpus)))
    return recent.verdict(found, namespace_labels={}, now=at, at=at, creates=creates)


def test_jobs_of_a_burst_share_what_is_free(recent):
    assert [asked(recent, name) for name in "abcd"] == [
        *(STARTS, STARTS),
        *(WAITS.format("1st"), WAITS.format("2nd")),
    ]


def test_a_dry_run_takes_nothing(recent):
    assert {asked(recent, name, creates=False) for name in "abcd"} == {STARTS}


def test_a_job_that_is_reviewed_again_is_counted_once(recent):
    assert [asked(recent, "a") for _ in range(3)] == [STARTS] * 3
    assert asked(recent, "b") == STARTS


def test_a_job_is_counted_until_a_snapshot_has_it(recent):
    asked(recent, "a")
    take(recent, snapshot())
    assert [asked(recent, "b", creates=False), asked(recent, "c", gpus=8, creates=False)] == [
        STARTS,
        WAITS.format("1st"),
    ]

    take(recent, snapshot("a"))
    assert [asked(recent, name) for name in "bc"] == [STARTS, WAITS.format("1st")]


def test_a_job_that_does_not_come_is_not_counted_for_long(recent):
    asked(recent, "a", gpus=8)
    assert asked(recent, "b", at=RECENT_SECONDS, creates=False) == WAITS.format("1st")

    assert asked(recent, "b", at=RECENT_SECONDS + 1) == STARTS


def test_after_one_that_preempts_others_nothing_is_known_until_it_has_come():
    found = RecentJobs()
    take(found, snapshot("x", "y", preemption=PREEMPTS))
    urgent = job("urgent", gpus=4)
    urgent["spec"]["template"]["spec"]["priorityClassName"] = "high"
    of = snapshot("x", "y", preemption=PREEMPTS)
    of = msgspec.structs.replace(
        of, rules=msgspec.structs.replace(of.rules, pod_priorities={"high": 10})
    )
    take(found, of)

    first = asked(found, "urgent", obj=urgent)
    assert first.startswith("would start now once a workload is preempted")
    assert asked(found, "next", gpus=4) == ""


def test_pods_of_a_group_are_counted_as_one(recent):
    for index in range(2):
        annotations = {"kueue.x-k8s.io/pod-group-total-count": "2"}
        labels = {"kueue.x-k8s.io/pod-group-name": "g"}
        member = pod(f"g-{index}", gpus=4, labels=labels, annotations=annotations)
        text = asked(recent, "", obj=member)

    assert text.endswith("would start now: 8 nvidia.com/gpu of h100 from cq")


def test_a_job_of_a_queue_that_is_gone_is_dropped(recent):
    asked(recent, "a")
    empty = QueueSnapshot(format=FORMAT, taken_at=0.0, rules=QueueRules())

    take(recent, empty)
    take(recent, snapshot())

    assert asked(recent, "b", gpus=8).startswith("would start now: 8")


def test_without_rules_nothing_is_known(recent):
    recent.take(None, frozenset())

    assert asked(recent, "a") == ""

"""The webhooks say nothing of a job rather than something wrong, and never fail for it."""

import pytest
from structlog.testing import capture_logs

from policyd.alloc.queue import FlavorSpec
from policyd.api.selectors import LabelSelector
from policyd.snapshot.latest import STALE_SECONDS, LatestSnapshot
from policyd.snapshot.rules import ClusterQueueRule, LocalQueueRule, QueueRules
from policyd.snapshot.values import FORMAT, ClusterQueueUse, QueueSnapshot
from policyd.testing import FakeClock
from tests.admission.test_verdicts import queued, submitted
from tests.alloc.builders import group, queue
from tests.scenarios.objects import job
from webhooks import verdicts as module
from webhooks.verdicts import JobVerdicts

GPU = "nvidia.com/gpu"
NAMESPACE = {"metadata": {"name": "team-a"}}
QUOTAS = group(h100={GPU: 8, "cpu": 10**6, "memory": 2**50})
RULES = QueueRules(
    flavors=(FlavorSpec(name="h100"),),
    queues=(ClusterQueueRule(spec=queue("cq", groups=[QUOTAS]), namespaces=LabelSelector()),),
    local_queues=(LocalQueueRule("team-a", "lq", "cq"),),
)
SNAPSHOT = QueueSnapshot(
    format=FORMAT, taken_at=0.0, rules=RULES, cluster_queues=(ClusterQueueUse(name="cq"),)
)
STARTS = "would start now: 8 nvidia.com/gpu of h100 from cq"


@pytest.fixture
def told():
    """Return what a job is told, given what is known; the clock is at hand."""

    def told(snapshot=SNAPSHOT, namespace=NAMESPACE, age=0.0):
        clock = FakeClock()
        latest = LatestSnapshot(clock.monotonic)
        verdicts = JobVerdicts(latest, lambda _name: namespace, clock=clock)
        if snapshot is not None:
            verdicts.take(snapshot)
            latest.put(snapshot)
        clock._pass(age)
        return verdicts(submitted(queued(job("j"))))

    return told


def test_a_job_is_told_what_the_snapshot_says(told):
    assert told() == STARTS


@pytest.mark.parametrize(
    "known",
    [
        pytest.param({"snapshot": None}, id="no-snapshot"),
        pytest.param({"age": STALE_SECONDS + 1}, id="an-old-one"),
        pytest.param({"snapshot": QueueSnapshot(format=FORMAT, taken_at=0.0)}, id="without-rules"),
        pytest.param({"namespace": None}, id="an-unknown-namespace"),
    ],
)
def test_a_job_is_told_nothing_where_nothing_is_known(told, known):
    assert told(**known) == ""


@pytest.mark.parametrize(
    ("broken", "event"), [("Outlook", "outlook_failed"), ("verdict", "verdict_failed")]
)
def test_an_error_is_logged_and_nothing_is_said(told, monkeypatch, broken, event):
    def fail(*_arguments, **_named):
        raise ZeroDivisionError

    monkeypatch.setattr(module, broken, fail)
    with capture_logs() as logs:
        said = told()

    assert said == ""
    assert [each["event"] for each in logs] == [event]


def test_a_review_does_not_wait_for_the_plan_of_another():
    clock = FakeClock()
    latest = LatestSnapshot(clock.monotonic)
    verdicts = JobVerdicts(latest, lambda _name: NAMESPACE, clock=clock)
    verdicts.take(SNAPSHOT)
    latest.put(SNAPSHOT)
    submission = submitted(queued(job("j")))

    with verdicts._lock:
        meanwhile = verdicts(submission)

    assert (meanwhile, verdicts(submission)) == ("", STARTS)

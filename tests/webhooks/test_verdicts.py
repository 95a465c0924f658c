"""The webhooks say nothing of a job rather than something wrong, and never fail for it."""

import pytest
from structlog.testing import capture_logs

from policyd.admission.submissions import submission_of
from policyd.alloc.queue import FlavorSpec
from policyd.api.selectors import LabelSelector
from policyd.snapshot.latest import STALE_SECONDS, LatestSnapshot
from policyd.snapshot.rules import ClusterQueueRule, LocalQueueRule, QueueRules
from policyd.snapshot.values import FORMAT, ClusterQueueUse, QueueSnapshot
from policyd.testing import FakeClock
from tests.admission.test_verdicts import MAKER, queued, submitted
from tests.alloc.builders import group, queue
from tests.scenarios.foreign import foreign, ray_cluster
from tests.scenarios.objects import job
from webhooks.verdicts import FRESH_SECONDS, JobVerdicts

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


def job_j():
    return submitted(queued(job("j")))


@pytest.fixture
def verdict_of():
    """Return what a job is told, given what is known; the clock is at hand."""

    def verdict_of(snapshot=SNAPSHOT, namespace=NAMESPACE, age=0.0, read=job_j):
        clock = FakeClock()
        latest = LatestSnapshot(clock.monotonic)
        verdicts = JobVerdicts(latest, lambda _name: namespace, clock=clock)
        if snapshot is not None:
            verdicts.take(snapshot)
            latest.put(snapshot)
        clock._pass(age)
        return verdicts(read, dry_run=True)

    return verdict_of


def test_a_job_gets_the_verdict_of_the_snapshot(verdict_of):
    assert verdict_of() == STARTS


@pytest.mark.parametrize(
    "known",
    [
        pytest.param({"snapshot": None}, id="no-snapshot"),
        pytest.param({"age": STALE_SECONDS + 1}, id="an-old-one"),
        pytest.param({"snapshot": QueueSnapshot(format=FORMAT, taken_at=0.0)}, id="without-rules"),
        pytest.param({"namespace": None}, id="an-unknown-namespace"),
    ],
)
def test_a_job_gets_no_message_where_nothing_is_known(verdict_of, known):
    assert verdict_of(**known) == ""


@pytest.mark.parametrize(
    ("broken", "event"),
    [
        ("policyd.snapshot.dry_run.AdmissionDryRun", "dry_run_failed"),
        ("policyd.admission.verdicts.verdict", "verdict_failed"),
    ],
)
def test_an_error_is_logged_and_nothing_is_reported(verdict_of, monkeypatch, broken, event):
    def fail(*_arguments, **_named):
        raise ZeroDivisionError

    monkeypatch.setattr(broken, fail)
    with capture_logs() as logs:
        verdict = verdict_of()

    assert verdict == ""
    assert [each["event"] for each in logs] == [event]


def test_a_review_does_not_wait_for_the_plan_of_another():
    clock = FakeClock()
    latest = LatestSnapshot(clock.monotonic)
    verdicts = JobVerdicts(latest, lambda _name: NAMESPACE, clock=clock)
    verdicts.take(SNAPSHOT)
    latest.put(SNAPSHOT)

    with verdicts._lock:
        meanwhile = verdicts(job_j, dry_run=True)

    assert (meanwhile, verdicts(job_j, dry_run=True)) == ("", STARTS)


def test_a_verdict_by_an_older_snapshot_says_its_age(verdict_of):
    assert verdict_of(age=FRESH_SECONDS) == STARTS
    assert verdict_of(age=5.0) == f"{STARTS}; as of 5 s ago"


def test_only_jobs_that_are_created_are_counted():
    clock = FakeClock()
    latest = LatestSnapshot(clock.monotonic)
    verdicts = JobVerdicts(latest, lambda _name: NAMESPACE, clock=clock)
    verdicts.take(SNAPSHOT)
    latest.put(SNAPSHOT)
    others = [lambda name=name: submitted(queued(job(name))) for name in "abc"]

    found = [verdicts(read, dry_run=not number) for number, read in enumerate(others)]

    assert found == [STARTS, STARTS, "would wait: 1st in cq, 8 more nvidia.com/gpu needed"]


def test_a_job_that_cannot_be_read_gets_no_message(verdict_of):
    """Its own rules say whether it is denied: what it can expect must not."""
    body = queued(foreign("RayCluster", "odd", ray_cluster(1)))
    body["spec"]["headGroupSpec"]["template"] = "odd"
    with capture_logs() as logs:
        verdict = verdict_of(
            read=lambda: submission_of(body, "ray.io", "RayCluster", MAKER, "team-a")
        )

    assert verdict == ""
    assert [each["event"] for each in logs] == ["verdict_failed"]

"""The judges of quota, preemptions, starts and statuses object to what must not be."""

import pytest

from tests.histories.lived import HELD, TEXT, cluster_queue, cohort, job, judged, pod, workload
from tests.histories.objects import GPU
from tests.histories.preemptions import preemptions_are_just
from tests.histories.quota import no_quota_is_idle, quota_is_kept, what_runs_has_quota
from tests.histories.reasons import reasons_stay_true
from tests.histories.starts import starts_are_as_admitted, workloads_are_as_their_jobs
from tests.histories.statuses import statuses_are_true, times_are_now


class TestQuota:
    @pytest.mark.parametrize(
        ("mine", "theirs", "gpus", "wrong"),
        [
            pytest.param({}, {}, 16, 0, id="all-that-another-queue-has"),
            pytest.param({}, {}, 17, 1, id="more-than-there-is"),
            pytest.param({"borrowingLimit": "4"}, {}, 12, 0, id="as-much-as-it-may-borrow"),
            pytest.param({"borrowingLimit": "4"}, {}, 13, 1, id="more-than-it-may-borrow"),
            pytest.param({}, {"lendingLimit": "4"}, 12, 0, id="as-much-as-another-lends"),
            pytest.param({}, {"lendingLimit": "4"}, 13, 1, id="more-than-another-lends"),
        ],
    )
    @pytest.mark.parametrize("nested", [False, True])
    def test_a_queue_takes_what_is_left(self, mine, theirs, gpus, wrong, nested):
        cohorts = [(0, cohort("all")), (0, cohort("left", "all")), (0, cohort("right", "all"))]
        writes = (
            *(cohorts if nested else ()),
            (0, cluster_queue(8, cohort="left" if nested else "all", **mine)),
            (0, cluster_queue(8, "b", cohort="right" if nested else "all", **theirs)),
            (9, workload("w", *HELD, gpus=gpus)),
        )

        assert len(judged(quota_is_kept, *writes)) == wrong

    def test_a_cohort_borrows_within_its_limit(self):
        writes = (
            (0, cohort("all", nominal=8)),
            (0, cohort("left", "all", borrowingLimit="4")),
            (0, cluster_queue(8, cohort="left")),
        )

        assert judged(quota_is_kept, *writes, (9, workload("w", *HELD, gpus=12))) == []
        assert len(judged(quota_is_kept, *writes, (9, workload("w", *HELD, gpus=13)))) == 1

    def test_a_quota_that_was_cut_lately_may_still_be_used(self):
        cut = (0, cluster_queue(8)), (200, cluster_queue(4))

        assert judged(quota_is_kept, *cut, (230, workload("w", *HELD, gpus=8))) == []
        assert len(judged(quota_is_kept, *cut, (300, workload("w", *HELD, gpus=8)))) == 1

    @pytest.mark.parametrize(("gpus", "wrong"), [(4, 1), (5, 0)])
    def test_what_fits_does_not_wait_for_long(self, gpus, wrong):
        writes = (
            (0, cluster_queue(8)),
            (1, workload("h", *HELD)),
            (2, workload("w", gpus=gpus)),
            (300, workload("v")),
        )

        assert len(judged(no_quota_is_idle, *writes)) == wrong

    @pytest.mark.parametrize(
        ("back", "until", "wrong"),
        [
            pytest.param(0, 300, 0, id="all-have-quota"),
            pytest.param(1, 40, 0, id="for-a-moment"),
            pytest.param(1, 300, 1, id="given-back-while-they-run"),
        ],
    )
    def test_what_runs_keeps_its_quota(self, back, until, wrong):
        writes = (
            (0, workload("w", *HELD, pods=2)),
            (1, pod("one", of="w", gpus=4)),
            (2, pod("two", of="w", gpus=4)),
            (9, workload("w", *HELD, pods=2, back=back)),
            (until, pod("two", of="w", gpus=4)),
        )

        assert len(judged(what_runs_has_quota, *writes)) == wrong


class TestPreemptions:
    @pytest.mark.parametrize(
        ("why", "priority", "options", "wrong"),
        [
            pytest.param("InClusterQueue", 1, {"within": "LowerPriority"}, 0, id="more-important"),
            pytest.param("InClusterQueue", 0, {"within": "LowerPriority"}, 1, id="as-important"),
            pytest.param("InClusterQueue", 1, {}, 1, id="without-a-right"),
            pytest.param("InCohortReclamation", 1, {"reclaim": "Any"}, 1, id="of-its-own-queue"),
        ],
    )
    def test_within_a_queue(self, why, priority, options, wrong):
        writes = (
            (0, cluster_queue(8, **options)),
            (1, workload("l", *HELD)),
            (2, workload("w", priority=priority)),
            (200, workload("l", *HELD, "Preempted", why=f"{why} w")),
        )

        assert bool(judged(preemptions_are_just, *writes)) == bool(wrong)

    @pytest.mark.parametrize(
        ("why", "held", "own", "reclaim", "wrong"),
        [
            pytest.param("InCohortReclamation", 12, 4, "Any", 0, id="what-was-borrowed"),
            pytest.param("InCohortReclamation", 8, 4, "Any", 1, id="what-is-its-own"),
            pytest.param("InCohortReclamation", 12, 5, "Any", 1, id="by-one-that-has-to-borrow"),
            pytest.param("InCohortReclamation", 12, 4, "LowerPriority", 1, id="without-a-right"),
            pytest.param("InCohortFairSharing", 12, 7, "Any", 0, id="by-a-lower-share"),
            pytest.param("InCohortFairSharing", 9, 7, "Any", 1, id="by-a-higher-share"),
        ],
    )
    def test_within_a_cohort(self, why, held, own, reclaim, wrong):
        writes = (
            (0, cluster_queue(8, reclaim=reclaim)),
            (0, cluster_queue(8, "b", reclaim=reclaim)),
            (1, workload("l", *HELD, gpus=held, queue="b")),
            (1, workload("h", *HELD, gpus=own)),
            (2, workload("w")),
            (200, workload("l", *HELD, "Preempted", gpus=held, queue="b", why=f"{why} w")),
        )

        assert bool(judged(preemptions_are_just, *writes, cohort="all")) == bool(wrong)

    def test_what_is_decided_together_is_written_in_any_order(self):
        why = "InCohortFairSharing w"
        writes = (
            (0, cluster_queue(8, reclaim="Any")),
            (0, cluster_queue(8, "b", reclaim="Any")),
            (1, workload("l", *HELD, gpus=9, queue="b")),
            (1, workload("h", *HELD, gpus=7)),
            (2, workload("w")),
            (200, workload("l", *HELD, "Preempted", gpus=9, queue="b", why=why)),
        )

        for at, wrong in ((201, 0), (900, 1)):
            later = at, workload("m", *HELD, queue="b")
            assert len(judged(preemptions_are_just, *writes, later, cohort="all")) == wrong

    def test_the_preemptor_is_known(self):
        writes = (0, workload("l", *HELD)), (9, workload("l", *HELD, "Preempted", why="Any x"))

        (objection,) = judged(preemptions_are_just, (0, cluster_queue(8)), *writes)
        assert "for nothing that is known" in objection


class TestStarts:
    @pytest.mark.parametrize(
        ("started", "wrong"),
        [
            pytest.param({"pods": 1, "nodes": True}, 0, id="as-admitted"),
            pytest.param({"pods": 2, "nodes": True}, 1, id="with-too-many-pods"),
            pytest.param({"pods": 1}, 1, id="on-any-nodes"),
        ],
    )
    def test_a_job_starts_as_it_was_admitted(self, started, wrong):
        writes = (
            (0, job("w", least=True)),
            (1, workload("w", pods=2)),
            (2, workload("w", *HELD, pods=2, counts=1)),
            (3, job("w", runs=True, least=True, **started)),
        )

        assert len(judged(starts_are_as_admitted, *writes)) == wrong

    @pytest.mark.parametrize(
        ("stopped", "wrong"), [({}, 0), ({"nodes": True}, 1), ({"pods": 1}, 1)]
    )
    def test_a_job_gets_quota_as_it_was_created(self, stopped, wrong):
        writes = (
            (0, job("w")),
            (1, job("w", runs=True, nodes=True)),
            (2, job("w", **stopped)),
            (3, workload("w", pods=2)),
            (4, workload("w", *HELD, pods=2)),
        )

        assert len(judged(starts_are_as_admitted, *writes)) == wrong


class TestCopies:
    @pytest.mark.parametrize(
        ("changed", "until", "wrong"),
        [
            ({"queue": "b"}, 300, 1),
            ({"queue": "b"}, 30, 0),
            ({"priority_class": "production"}, 300, 1),
            ({}, 300, 0),
        ],
    )
    def test_a_workload_follows_its_job(self, changed, until, wrong):
        writes = (0, job("w")), (1, workload("w")), (9, job("w", **changed)), (until, job("w"))

        assert len(judged(workloads_are_as_their_jobs, *writes)) == wrong

    @pytest.mark.parametrize("runs", [True, False])
    def test_a_job_that_runs_keeps_its_queue(self, runs):
        writes = (0, job("w", runs=runs)), (1, job("w", runs=runs, queue="b"))

        assert len(judged(workloads_are_as_their_jobs, *writes)) == runs

    def test_what_holds_quota_keeps_its_queue(self):
        writes = (0, workload("w", *HELD)), (1, workload("w", *HELD, queue="b"))

        (objection,) = judged(workloads_are_as_their_jobs, *writes)
        assert "changes queueName" in objection

    @pytest.mark.parametrize(
        ("checks", "checked", "wrong"),
        [(("Ready",), True, 0), (("Pending",), True, 1), ((), True, 1), ((), False, 0)],
    )
    def test_all_checks_are_ready_before_an_admission(self, checks, checked, wrong):
        writes = (0, workload("w")), (1, workload("w", *HELD, checks=checks))

        assert len(judged(workloads_are_as_their_jobs, *writes, checked=checked)) == wrong

    @pytest.mark.parametrize(("state", "wrong"), [("Pending", 0), ("Ready", 1)])
    def test_an_answer_is_for_one_reservation(self, state, wrong):
        held = workload("w", *HELD, checks=("Ready",))
        writes = (0, held), (1, workload("w", *HELD, "Evicted", checks=(state,)))

        assert len(judged(workloads_are_as_their_jobs, *writes)) == wrong


class TestStatuses:
    @pytest.mark.parametrize(
        ("at", "stated", "wrong"),
        [
            pytest.param(50, {"reservingWorkloads": 1}, 0, id="it-was-so-a-moment-ago"),
            pytest.param(300, {"reservingWorkloads": 1}, 1, id="it-was-so-long-ago"),
            pytest.param(300, {"pendingWorkloads": 1}, 0, id="it-is-so"),
        ],
    )
    def test_a_queue_counts_its_workloads(self, at, stated, wrong):
        queue = {**cluster_queue(8), "status": stated}
        writes = (0, workload("w")), (1, queue), (at, cluster_queue(8))

        assert len(judged(statuses_are_true, *writes)) == wrong

    @pytest.mark.parametrize(("hour", "wrong"), [("00:00", 0), ("05:45", 1)])
    def test_conditions_are_of_now(self, hour, wrong):
        new = workload("w", *HELD)
        new["status"]["conditions"][0]["lastTransitionTime"] = f"2026-01-05T{hour}:09Z"

        assert len(judged(times_are_now, (9, new))) == wrong


class TestStaleReasons:
    @pytest.mark.parametrize(
        ("message", "wrong"),
        [
            pytest.param(TEXT.format(GPU, "4 more needed"), 1, id="missing"),
            pytest.param("no room; held by team/h (8)", 1, id="held"),
            pytest.param("no room; held by team/i (8)", 0, id="still-held"),
            pytest.param("behind team/h, which is next", 1, id="behind"),
            pytest.param("behind team/j, which is next", 0, id="still-behind"),
        ],
    )
    def test_a_reason_is_corrected(self, message, wrong):
        writes = (
            (0, cluster_queue(16)),
            (1, workload("h", *HELD, gpus=8)),
            (1, workload("i", *HELD, gpus=8)),
            (1, workload("j")),
            (2, workload("w", gpus=4, message=message)),
            (9, workload("h", "Finished", gpus=8)),
            (300, workload("w", "QuotaReserved", gpus=4)),
        )

        assert len(judged(reasons_stay_true, *writes)) == wrong

"""The judges object to what must not be, and to nothing else."""

from types import SimpleNamespace

import pytest

from policyd.kube.calls import get_call, patch_call
from policyd.kube.resources import JOBS, PODS, WORKLOADS
from tests.histories import accounts
from tests.histories.gangs import gangs_are_whole
from tests.histories.judges import LEASES, only_the_leader_writes
from tests.histories.lifecycle import life_is_as_documented, steps
from tests.histories.lived import HELD, TEXT, cluster_queue, judged, lived, pod, workload
from tests.histories.objects import GPU
from tests.histories.order import own_quota_comes_back, priority_is_heeded, shares_are_fair
from tests.histories.reasons import reasons_are_true
from tests.histories.record import WORKLOADS as STORED
from tests.histories.record import Version


class TestLife:
    def test_the_page_draws_a_life(self):
        assert {("[*]", "Pending"), ("Evicted", "Pending"), ("Finished", "[*]")} <= steps()
        assert ("Finished", "Pending") not in steps()

    def test_each_step_is_one_of_the_page(self):
        life = [(0, workload("w")), (1, workload("w", *HELD)), (2, workload("w", "Finished"))]

        assert judged(life_is_as_documented, *life) == []
        (objection,) = judged(life_is_as_documented, *life, (3, workload("w")))
        assert "from Finished to Pending" in objection

    def test_nothing_is_admitted_without_quota(self):
        (objection,) = judged(life_is_as_documented, (0, workload("w", "Admitted")))

        assert "without quota" in objection


class TestGangs:
    @pytest.mark.parametrize(("counts", "wrong"), [(2, 0), (1, 1)])
    def test_quota_is_for_all_pods(self, counts, wrong):
        writes = (0, workload("g", pods=2)), (1, workload("g", *HELD, pods=2, counts=counts))

        assert len(judged(gangs_are_whole, *writes)) == wrong

    @pytest.mark.parametrize(
        ("at", "faults", "wrong"), [(20, (), 0), (900, (), 1), (900, (400,), 0)]
    )
    def test_pods_start_together(self, at, faults, wrong):
        writes = (
            (0, workload("g", *HELD, pods=2)),
            (1, pod("one", gated=False)),
            (2, pod("two", gated=True)),
            (at, pod("two", gated=True)),
        )

        assert len(judged(gangs_are_whole, *writes, faults=faults)) == wrong


class TestPriority:
    @pytest.mark.parametrize(
        ("other", "strategy", "wrong"),
        [
            ({"priority": 5}, "BestEffortFIFO", 1),
            ({"priority": 0}, "BestEffortFIFO", 1),  # it is older
            ({"priority": -5}, "BestEffortFIFO", 0),
            ({"priority": 5, "gpus": 8}, "BestEffortFIFO", 0),  # there may be no room for it
            ({"priority": 5, "gpus": 8}, "StrictFIFO", 1),
        ],
    )
    def test_none_overtakes(self, other, strategy, wrong):
        writes = (0, workload("a", **other)), (1, workload("b")), (200, workload("b", *HELD))

        assert len(judged(priority_is_heeded, *writes, strategy=strategy)) == wrong

    @pytest.mark.parametrize(("reason", "wrong"), [("Preempted", 1), ("AdmissionCheck", 0)])
    def test_an_eviction_keeps_the_place_unless_a_check_failed(self, reason, wrong):
        evicted = workload("a")
        evicted["status"]["conditions"] = [
            {"type": "Evicted", "status": "True", "reason": reason, "lastTransitionTime": "z"}
        ]
        writes = (0, evicted), (1, workload("b")), (200, workload("b", *HELD))

        assert len(judged(priority_is_heeded, *writes)) == wrong

    def test_what_is_not_requeued_yet_does_not_wait(self):
        held_back = workload("a")
        held_back["status"]["conditions"] = [{"type": "Requeued", "status": "False"}]
        writes = (0, held_back), (1, workload("b")), (200, workload("b", *HELD))

        assert judged(priority_is_heeded, *writes) == []

    def test_what_is_decided_together_is_written_in_any_order(self):
        writes = [(0, workload("a")), (1, workload("b")), (200, workload("b", *HELD))]

        assert judged(priority_is_heeded, *writes, (201, workload("a", *HELD))) == []
        assert len(judged(priority_is_heeded, *writes, (900, workload("a", *HELD)))) == 1

    @pytest.mark.parametrize(("priority", "wrong"), [(5, 0), (-5, 1)])
    def test_quota_that_is_decided_goes_to_what_comes_first(self, priority, wrong):
        waits = (0, workload("a")), (1, workload("b")), (199, workload("c", priority=priority))
        writes = (200, workload("b", *HELD)), (201, workload("c", *HELD, priority=priority))

        assert len(judged(priority_is_heeded, *waits, *writes)) == wrong

    def test_what_has_just_come_may_not_be_known(self):
        writes = (0, workload("b")), (199, workload("a", priority=5)), (200, workload("b", *HELD))

        assert judged(priority_is_heeded, *writes) == []

    @pytest.mark.parametrize(("held", "wrong"), [(4, 1), (8, 0)])
    def test_own_quota_is_not_waited_for_long(self, held, wrong):
        writes = (
            (0, cluster_queue(8)),
            (1, workload("h", *HELD, gpus=held)),
            (2, workload("a")),
            (900, workload("late")),
        )
        found = judged(own_quota_comes_back, *writes, cohort="all", reclaim="Any")

        assert len(found) == wrong


class TestFairness:
    @pytest.mark.parametrize(
        ("held", "waits", "wrong"),
        [
            pytest.param(8, {}, 1, id="it-would-borrow-less"),
            pytest.param(12, {}, 0, id="it-would-borrow-as-much"),
            pytest.param(8, {"gpus": 8}, 0, id="there-may-be-no-room-for-it"),
            pytest.param(0, {"gpus": 8}, 0, id="nor-for-what-is-its-own"),
        ],
    )
    def test_who_borrows_less_comes_first(self, held, waits, wrong):
        writes = (
            (0, cluster_queue(8)),
            (0, cluster_queue(8, "b")),
            (1, workload("h", *HELD, gpus=12)),
            (1, workload("i", *HELD, gpus=held, queue="b")),
            (2, workload("w", queue="b", **waits)),
            (3, workload("v")),
            (200, workload("v", *HELD)),
        )

        assert len(judged(shares_are_fair, *writes, cohort="all")) == wrong

    @pytest.mark.parametrize(("heavier", "wrong"), [("a", 0), ("b", 1)])
    def test_shares_are_by_weight(self, heavier, wrong):
        world = lived(
            (0, cluster_queue(8)),
            (0, cluster_queue(8, "b")),
            (1, workload("h", *HELD, gpus=12)),
            (1, workload("i", *HELD, gpus=12, queue="b")),
            (2, workload("w", queue="b")),
            (3, workload("v")),
            (200, workload("v", *HELD)),
            cohort="all",
        )
        world.plan.setting["queues"][heavier]["weight"] = 2

        assert len(list(shares_are_fair(world, None))) == wrong

    @pytest.mark.parametrize(("limits", "wrong"), [({}, 1), ({"lendingLimit": "4"}, 0)])
    def test_who_borrows_in_part_comes_first_only_with_what_is_not_lent(self, limits, wrong):
        writes = (
            (0, cluster_queue(8, **limits)),
            (0, cluster_queue(8, "b")),
            (1, workload("h", *HELD, gpus=6)),
            (1, workload("i", *HELD, gpus=5, queue="b")),
            (2, workload("w", queue="b")),
            (3, workload("v")),
            (200, workload("v", *HELD)),
        )

        assert len(judged(shares_are_fair, *writes, cohort="all")) == wrong

    def test_what_has_just_come_may_not_be_known(self):
        writes = (
            (0, cluster_queue(8)),
            (0, cluster_queue(8, "b")),
            (1, workload("h", *HELD, gpus=12)),
            (3, workload("v")),
            (199, workload("w", queue="b")),
            (200, workload("v", *HELD)),
        )

        assert judged(shares_are_fair, *writes, cohort="all") == []


class TestReasons:
    @pytest.mark.parametrize(("missing", "wrong"), [("2 more needed", 0), ("3 more needed", 1)])
    def test_numbers_are_those_of_the_queue(self, missing, wrong):
        writes = (
            (0, cluster_queue(8)),
            (1, workload("h", *HELD, gpus=6)),
            (300, workload("a", message=TEXT.format(GPU, missing))),
        )

        assert len(judged(reasons_are_true, *writes)) == wrong

    @pytest.mark.parametrize(("missing", "wrong"), [("2 more needed", 0), ("3 more needed", 1)])
    def test_what_ends_may_be_counted_with_what_begins(self, missing, wrong):
        ended = workload("h", "QuotaReserved", "Finished", gpus=6)
        writes = (
            (0, cluster_queue(12)),
            (1, workload("h", *HELD, gpus=6)),
            (298, ended),
            (299, workload("i", *HELD, gpus=4)),
            (300, workload("a", message=TEXT.format(GPU, missing))),
        )

        assert len(judged(reasons_are_true, *writes)) == wrong

    @pytest.mark.parametrize(("missing", "wrong"), [("2 more needed", 0), ("6 more needed", 1)])
    def test_pods_that_have_succeeded_are_not_asked_for_again(self, missing, wrong):
        again = workload("a", "Evicted", pods=2, back=1, message=TEXT.format(GPU, missing))
        writes = (0, cluster_queue(8)), (1, workload("h", *HELD, gpus=6)), (300, again)

        assert len(judged(reasons_are_true, *writes)) == wrong


class TestLeader:
    @pytest.mark.parametrize(
        ("at", "process", "resource", "wrong"),
        [
            pytest.param(500, "two", STORED, 1, id="long-after-another-leads"),
            pytest.param(60, "two", STORED, 0, id="what-was-under-way"),
            pytest.param(500, "one", STORED, 0, id="by-the-leader"),
            pytest.param(500, "two", "events", 0, id="an-event-of-what-was-done-before"),
        ],
    )
    def test_who_does_not_lead_does_not_write(self, at, process, resource, wrong):
        def lease(at, holder):
            held = {"metadata": {"name": "lease"}, "spec": {"holderIdentity": holder}}
            return Version(at, accounts.OWN, LEASES, "MODIFIED", "/lease", None, held, held, holder)

        new = workload("w")
        write = Version(at, accounts.OWN, resource, "ADDED", "team/w", None, new, new, process)
        versions = [lease(0, "two"), lease(10, "one"), lease(400, "one"), write]
        world = SimpleNamespace(record=SimpleNamespace(versions=versions))

        assert len(list(only_the_leader_writes(world, None))) == wrong


class TestRights:
    @pytest.mark.parametrize(
        ("call", "lacking"),
        [
            (get_call("/api/v1/namespaces/team/pods/p"), ""),
            (get_call("/apis/batch/v1"), ""),
            (patch_call(JOBS, "j", {}, {"namespace": "team"}), ""),
            (patch_call(WORKLOADS, "w", {}, {"namespace": "team", "subresource": "status"}), ""),
            (
                patch_call(PODS, "p", {}, {"namespace": "team", "subresource": "resize"}),
                "patch pods",
            ),
            (get_call("/api/v1/namespaces/team/secrets/s"), "get secrets"),
            (get_call("/apis/coordination.k8s.io/v1/namespaces/team/leases/x"), "get leases"),
        ],
    )
    def test_the_chart_grants_what_the_controller_asks(self, call, lacking):
        assert accounts.missing_right(call).startswith(lacking)
        assert bool(accounts.missing_right(call)) == bool(lacking)

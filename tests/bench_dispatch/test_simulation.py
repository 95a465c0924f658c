"""The simulation of dispatchers loses no job, and knows what its clusters do."""

import pytest

from tests.bench_dispatch.simulation import ROOMS, Cluster, Hindsight, Job, Run, generate, runs


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "best-effort"])
def test_each_job_starts_once_under_each_dispatcher(strict):
    jobs = generate(3, 30)

    for _, run in runs(3, 30, strict=strict):
        assert run.waits.keys() == {each.key for each in jobs}
        assert min(run.waits.values()) >= 0
        ran = [job for cluster in run.clusters.values() for _, job, _ in cluster.running]
        assert len(ran) == len({each.key for each in ran})


def test_a_start_in_hindsight_is_the_one_that_happens_in_a_strict_queue():
    class Remembering(Hindsight):
        def send(self, run, job, now):
            starts = [each.start_of(job, truly=True) for each in run.clusters.values()]
            expected[job.key] = min(starts) - job.at
            super().send(run, job, now)

    expected = {}

    run = Run(generate(5, 40), strict=True).live(Remembering())

    assert run.waits == pytest.approx(expected)


def test_a_cluster_holds_no_more_than_it_has_room_for():
    cluster = Cluster(8, strict=True)
    for index in range(3):
        cluster.put(Job(f"job-{index}", 0.0, 4, 100.0, 100.0))
    cluster.put(Job("large", 0.0, 16, 100.0, 100.0))

    started = [cluster.next_start() for _ in range(3)]

    assert [job and job.key for job in started] == ["job-0", "job-1", None]
    assert cluster.start_of(Job("new", 0.0, 8, 1.0, 1.0), truly=True) == 200.0
    assert max(ROOMS.values()) < 100

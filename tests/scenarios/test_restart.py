"""The controller is killed in the middle: nothing is lost, nothing is admitted twice."""

import pytest

from tests.scenarios.api import condition, eventually
from tests.scenarios.objects import job
from tests.scenarios.test_queue import admitted, finished


@pytest.mark.e2e
@pytest.mark.parametrize("cluster", ["real"], indirect=True)
def test_a_killed_controller_goes_on_where_it_was(cluster, api):
    controller = cluster.controller
    names = [f"wave-{index}" for index in range(8)]
    for name in names:
        api.create(job(name, gpus=4, run_for="4s"))
    eventually(lambda: any(admitted(api, name) for name in names), what="one job is admitted")

    for _ in range(3):
        controller.kill()
        assert held(api) <= 12
        controller.start()
        eventually(lambda: held(api) > 0 or all_done(api, names), what="jobs go on")

    eventually(lambda: all_done(api, names), within=90, what="every job is complete")
    owners = [w["metadata"]["ownerReferences"][0]["name"] for w in api.find("Workload", "team-a")]
    assert sorted(owners) == names


def held(api):
    """GPUs that admitted, unfinished workloads of the team hold."""
    total = 0
    for workload in api.find("Workload", "team-a"):
        if condition(workload, "Finished").get("status") == "True":
            continue
        for assignment in (
            workload.get("status", {}).get("admission", {}).get("podSetAssignments", [])
        ):
            total += int(assignment["resourceUsage"]["nvidia.com/gpu"])
    return total


def all_done(api, names):
    return all(finished(api, name) for name in names)

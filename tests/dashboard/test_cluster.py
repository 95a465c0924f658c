"""Racks, hosts and devices, with the pods on them."""

from policyd.dashboard.views.cluster import ALL_AT_ONCE, MOST_HOSTS, ClusterRead, cluster
from policyd.kube.errors import ForbiddenError
from policyd.simulate.stranding import JobOnNode, NodeLine, StrandedDevices
from tests.alloc.builders import queue
from tests.cli.questions.test_nodes import claim, driver, pod
from tests.dashboard.looking import Looking
from tests.dashboard.made import GPU, NOW
from tests.status.test_pending_reasons import settled


def line(name, *jobs, rack="r1", total=8, stranded=0, state="Ready", pods=True):
    """Return a node with jobs: pairs of a job and its devices."""
    used = sum(count for _, count in jobs)
    free = total - used
    return NodeLine(
        name=name,
        domain=rack,
        state=state,
        allocatable={GPU: total, "cpu": 64_000},
        free={GPU: free, "cpu": 64_000 - 8_000 * used, "memory": 2**30},
        fragments={GPU: free} if 0 < free < total else {},
        stranded=(StrandedDevices(GPU, stranded, ("t/Job/a",), ("cpu",)),) if stranded else (),
        pods=tuple(JobOnNode(job, 1, {GPU: n}) for job, n in jobs) if pods else None,
    )


def shown(*lines, **query):
    return cluster(ClusterRead(lines), query, NOW)


def test_devices_are_summed_up_by_rack_and_in_all():
    found = shown(line("a", ("t/Job/x", 3), stranded=5), line("b"), line("c", rack="r2"))

    assert (found.nodes, found.device) == (3, GPU)
    assert (found.sums.total, found.sums.used, found.sums.free) == (24, 3, 21)
    assert (found.sums.fragments, found.sums.stranded) == (5, 5)
    assert [(rack.name, rack.hosts, rack.sums.used) for rack in found.racks] == [
        ("r1", 2, 3), ("r2", 1, 0),
    ]  # fmt: skip


def test_a_host_shows_its_devices_one_by_one():
    found = shown(line("a", ("t/Job/x", 2), ("t/Job/y", 1), stranded=2), job="t/Job/y")

    assert found.hosts[0].slots == (
        "chosen", "used", "used", "stranded", "stranded", "fragment", "fragment", "fragment",
    )  # fmt: skip
    assert found.hosts[0].stranded_by == ("t/Job/a",)
    assert found.hosts[0].missing == "cpu"


def test_devices_of_a_host_that_takes_no_pods_are_off():
    assert set(shown(line("a", state="Cordoned")).hosts[0].slots) == {"off"}
    assert shown(line("a", state="NotReady")).racks[0].off == 1


def test_the_pods_of_a_host_come_with_what_they_hold():
    (host,) = shown(line("a", ("t/Job/x", 1), ("u/JobSet/y", 4))).hosts

    assert [(each.namespace, each.kind, each.name) for each in host.pods] == [
        ("u", "JobSet", "y"), ("t", "Job", "x"),
    ]  # fmt: skip
    assert host.pods[0].holds == "4 nvidia.com/gpu"


def many(count):
    return [line(f"n{n:04}", (f"t/Job/j{n % 50}", 8), rack=f"r{n // 16:03}") for n in range(count)]


def test_a_large_cluster_shows_racks_and_the_hosts_of_one():
    lines = many(640)

    assert shown(*lines).hosts == ()
    assert len(shown(*lines).racks) == 40
    assert len(shown(*lines, rack="r003").hosts) == 16
    assert shown(*lines, rack="no such rack").hosts == ()
    assert len(shown(*many(ALL_AT_ONCE)).hosts) == ALL_AT_ONCE


def test_a_job_is_marked_wherever_it_is():
    found = shown(*many(640), job="t/Job/j7")

    assert found.chosen_hosts == 13
    assert [host.name for host in found.hosts][:2] == ["n0007", "n0057"]
    assert all(host.chosen for host in found.hosts)
    assert sum(rack.chosen for rack in found.racks) == 13


def test_hosts_are_bounded():
    found = shown(*[line(f"n{n}", rack="one") for n in range(MOST_HOSTS + 3)], rack="one")

    assert (len(found.hosts), found.hosts_left_out) == (MOST_HOSTS, 3)


def test_many_devices_of_a_host_are_a_bar():
    assert shown(line("a", total=64)).hosts[0].slots == ()


def test_nodes_without_pods_say_that_pods_are_not_known():
    found = shown(line("a", pods=False), rack="r1")

    assert not found.pods_known
    assert found.hosts[0].pods is None


def test_nodes_that_may_not_be_read_are_not_counted_as_none():
    found = cluster(ClusterRead(None, missing=("nodes: you may not list them",)), {}, NOW)

    assert not found.known
    assert found.missing == ("nodes: you may not list them",)


def test_nodes_without_devices_and_without_a_topology():
    bare = NodeLine(name="a", domain="", state="Ready", allocatable={"cpu": 1}, free={"cpu": 1})
    found = shown(bare)

    assert (found.device, found.racks[0].name) == ("", "No place in a topology")
    assert found.hosts[0].sums.total == 0


def test_devices_that_pods_get_by_claims_are_shown_to_those_who_may_read_claims():
    looking = Looking()
    driver(looking.api, *"abcd", extendedResourceName=GPU)
    claim(looking.api, "one", *"abc", pods=("p",))
    pod(looking.api, "p", "dra", 0, owner=("Job", "train"))
    looking.api.serve(settled(queue("q", gpu=0)))
    kinds = ("deviceclasses", "resourceclaims", "resourceslices", "nodes", "pods")
    looking.api.grants |= {("ann", each, "") for each in kinds}
    looking.api.grants |= {("bob", each, "") for each in kinds[3:]}
    looking.sign_in("ann", "")
    bob = looking.another()
    looking.sign_in("bob", "", browser=bob)

    shown = looking.get("/cluster").text
    assert f"{GPU} in use" in shown
    assert "ns/Job/train" in shown
    assert "Not known" not in shown
    looking.api.fail(ForbiddenError("bob may not list them"), plural="resourceslices")
    hidden = bob.get("/cluster").text
    assert "Not known: devices that pods get by claims: bob may not list them." in hidden
    assert f"{GPU} in use" not in hidden

"""Parts of a GPU that are suggested to who waits for a whole one: only those that are here."""

import pytest
from msgspec.structs import replace

from policyd.alloc.cycle import plan_cycle
from policyd.alloc.plan import Requeue
from policyd.alloc.queue import FlavorSpec
from policyd.alloc.topology.values import HOSTNAME, Placement, TopologyNode, TopologyPlacement
from policyd.alloc.workload import QueuedPodSet
from policyd.node_rules import LabelRequirement
from policyd.optimize.devices import GPU, SLICES
from policyd.status.remedies import UseProfile, remedy_text
from policyd.status.remedy_search import cheapest, remedies
from tests.alloc.builders import queue, quota, state, workload
from tests.alloc.topology.builders import request

H100 = "NVIDIA-H100-80GB-HBM3"
SMALL, BIG = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"


def node(name, **fields):
    labels = {f"{GPU}.product": H100, "pool": "gpu", HOSTNAME: name}
    return TopologyNode(
        name=name, labels=labels, allocatable={"pods": 9, **fields.pop("has", {})}, **fields
    )


def asking(*, gpus=1, count=1, place=False, more_than=None, requests=None, **fields):
    need = LabelRequirement(key=f"{GPU}.memory", operator="Gt", values=(str(more_than),))
    wants = requests or {GPU: gpus}
    pods = QueuedPodSet(
        name="main",
        count=count,
        requests=wants,
        affinity=() if more_than is None else ((need,),),
        place=request(count, requests={GPU: gpus}) if place else None,
        placed=place,
        **fields,
    )
    return workload("w", "q", pods)


def world(wants, *nodes, gpus=0, parts=8, levels=(), slices=None):
    quotas = {GPU: quota(gpus), SMALL: quota(parts), BIG: quota(parts)}
    of = state(flavors=())
    of.put_flavor(
        FlavorSpec(
            name="default", labels={"pool": "gpu"}, levels=levels, topology="t" if levels else ""
        )
    )
    for each in nodes:
        of.ledger.nodes.put(each)
    amounts = quotas if slices is None else {SLICES: quota(slices)}
    spec = queue("q", gpu=1)
    ((group,),) = [spec.groups]
    flavor = replace(group.flavors[0], quotas=amounts)
    of.put_queue(
        replace(spec, groups=(replace(group, resources=tuple(amounts), flavors=(flavor,)),))
    )
    of.put_workload(wants)
    return of


def suggested(of):
    plan = plan_cycle(of)
    of.commit(plan)
    (refused,) = [action for action in plan.actions if isinstance(action, Requeue)]
    found = remedies(of, refused.workload, refused.refusal)
    return [(each.profile, each.nodes) for each in found if isinstance(each, UseProfile)]


def test_the_biggest_part_that_is_free_goes_first_and_says_what_it_is():
    of = world(asking(), node("a", has={SMALL: 2, BIG: 1}), node("b", has={SMALL: 1}))

    assert suggested(of) == [(BIG, 1), (SMALL, 2)]
    message = remedy_text(UseProfile(pod_set="m", profile=BIG, share="3/7", gigabytes=40, nodes=1))
    assert message == (
        "ask for 1 nvidia.com/mig-3g.40gb instead of 1 nvidia.com/gpu, if 3/7 of a GPU with 40 GB"
        " is enough: it is free on 1 node(s)"
    )


@pytest.mark.parametrize(
    ("more_than", "expected"),
    [
        pytest.param(9000, [(SMALL, 1), (BIG, 1)], id="the-smallest-that-suffices-first"),
        pytest.param(20_000, [(BIG, 1)], id="a-part-is-too-small"),
        pytest.param(60_000, [], id="all-are"),
    ],
)
def test_memory_that_the_pod_asks_for_is_heeded(more_than, expected):
    of = world(
        asking(more_than=more_than),
        replace(
            node("a", has={SMALL: 1, BIG: 1}),
            labels={**node("a").labels, f"{GPU}.memory": "81559"},
        ),
    )

    assert suggested(of) == expected


@pytest.mark.parametrize(
    ("wants", "nodes", "fields"),
    [
        pytest.param(asking(), [node("a", has={GPU: 8})], {}, id="no-node-has-any"),
        pytest.param(asking(), [node("a", has={BIG: 1}, ready=False)], {}, id="node-not-ready"),
        pytest.param(
            asking(), [replace(node("a", has={BIG: 1}), labels={})], {}, id="node-of-no-flavor"
        ),
        pytest.param(
            asking(node_selector={"zone": "z"}), [node("a", has={BIG: 1})], {}, id="other-nodes"
        ),
        pytest.param(asking(), [node("a", has={BIG: 1})], {"parts": 0}, id="no-quota-for-it"),
        pytest.param(asking(gpus=2), [node("a", has={BIG: 9})], {}, id="asks-for-several"),
        pytest.param(asking(count=2), [node("a", has={BIG: 9})], {}, id="a-gang"),
        pytest.param(
            asking(requests={"cpu": 1}), [node("a", has={BIG: 1})], {}, id="asks-for-no-gpu"
        ),
    ],
)
def test_nothing_is_suggested_that_would_not_do(wants, nodes, fields):
    assert suggested(world(wants, *nodes, **fields)) == []


def test_usage_of_others_on_nodes_is_not_free():
    of = world(
        asking(place=True),
        node("a", has={BIG: 1}),
        node("b", has={BIG: 1}),
        levels=("pool", HOSTNAME),
    )
    for name in ("a", "b"):
        assert suggested(of)
        domains = TopologyPlacement(levels=(HOSTNAME,), domains=(((name,), 1),))
        of.ledger.nodes.hold(
            f"on-{name}", [Placement(flavor="default", assignment=domains, requests={BIG: 1})]
        )
        of.wake("q")

    assert suggested(of) == []


def test_quota_counted_in_slices_of_gpus_is_counted_so_for_parts():
    """Of seven slices, four are left, which is enough for three, not for a whole GPU."""
    wants = asking(place=True, requests={SLICES: 7})
    of = world(wants, node("a", has={BIG: 1, GPU: 1}), slices=4, levels=("pool", HOSTNAME))

    assert suggested(of) == [(BIG, 1)]


def test_waiting_and_running_fewer_pods_go_before_it():
    of = world(asking(), node("a", has={BIG: 1}), gpus=1)
    of.put_workload(replace(asking(), key="first", uid="first", queued_at=-1.0))
    plan = plan_cycle(of)
    of.commit(plan)
    plan = plan_cycle(of)

    (refused,) = [a for a in plan.actions if isinstance(a, Requeue)]

    assert "wait until first" in remedy_text(cheapest(of, refused.workload, refused.refusal))

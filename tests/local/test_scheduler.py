"""The embedded scheduler follows pods and nodes change by change, and places what fits."""

from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyd.api.nodes import Node
from policyd.kube.changes import Added, Deleted, Modified
from policyd.kube.errors import UnreachableError
from policyd.local.objects import LocalPod
from policyd.local.scheduler import Scheduler, requests

QUIET = SimpleNamespace(record=lambda *_given, **_named: None)


def pod(name, gpus=1, node="", phase="Pending", *, gated=False):
    requested = {"resources": {"requests": {"gpu": str(gpus)}}}
    gates = [{"name": "kueue.x-k8s.io/admission"}] if gated else []
    spec = {"containers": [requested], "nodeName": node, "schedulingGates": gates}
    metadata = {"name": name, "namespace": "team", "uid": name}
    return msgspec.convert(
        {"metadata": metadata, "spec": spec, "status": {"phase": phase}}, LocalPod
    )


def node(name, gpus):
    status = {"allocatable": {"gpu": str(gpus), "pods": "9"}}
    return msgspec.convert({"metadata": {"name": name}, "status": status}, Node)


class Binder:
    """Takes bindings, unless it is down."""

    def __init__(self):
        self.down, self.bound, self.reasons = False, {}, {}

    async def create(self, _resource, binding, **_options):
        if self.down:
            raise UnreachableError("nobody answers")
        self.bound[binding["metadata"]["name"]] = binding["target"]["name"]

    async def patch(self, _resource, name, patch, **_options):
        (condition,) = patch["status"]["conditions"]
        self.reasons[name] = condition["message"]


def scheduled(*nodes):
    binder = Binder()
    scheduler = Scheduler(binder, QUIET)
    for each in nodes:
        scheduler.take_node(Added(each))
    return binder, scheduler


@pytest.mark.anyio
async def test_a_pod_is_placed_once_there_is_room():
    binder, scheduler = scheduled(node("n", 2))
    runs = pod("runs", 2, "n", "Running")
    for each in (runs, pod("waits", 2), pod("gated", gated=True)):
        scheduler.take_pod(Added(each))
    await scheduler.step(0.0)
    assert binder.bound == {}
    assert binder.reasons == {"waits": "0/1 nodes are available: 1 Insufficient gpu."}

    scheduler.take_pod(Modified(runs, pod("runs", 2, "n", "Succeeded")))
    await scheduler.step(1.0)

    assert binder.bound == {"waits": "n"}


@pytest.mark.anyio
async def test_room_is_given_once_though_the_binding_does_not_show_yet():
    binder, scheduler = scheduled(node("n", 1))
    for name in ("a", "b"):
        scheduler.take_pod(Added(pod(name)))
    await scheduler.step(0.0)
    scheduler.take_pod(Modified(pod("a"), pod("a")))  # something else of it changed
    await scheduler.step(1.0)

    assert binder.bound == {"a": "n"}


@pytest.mark.anyio
async def test_a_binding_that_failed_is_tried_again():
    binder, scheduler = scheduled(node("n", 1))
    scheduler.take_pod(Added(pod("a")))
    binder.down = True
    with pytest.raises(UnreachableError):
        await scheduler.step(0.0)

    binder.down = False
    await scheduler.step(1.0)

    assert binder.bound == {"a": "n"}


states = st.tuples(
    st.sampled_from("abcd"), st.integers(1, 3), st.sampled_from(["", "m", "n"]),
    st.sampled_from(["Pending", "Running", "Succeeded"]), st.booleans(),
)  # fmt: skip


@given(st.lists(states, max_size=25))
def test_what_is_free_is_what_the_pods_leave(steps):
    _, scheduler = scheduled(node("m", 8), node("n", 8))
    pods = {}
    for name, gpus, place, phase, gone in steps:
        before, now = pods.pop(name, None), pod(name, gpus, place, phase)
        if gone:
            scheduler.take_pod(Deleted(before or now))
            continue
        pods[name] = now
        scheduler.take_pod(Modified(before, now) if before else Added(now))

        free = {each.node.metadata.name: each.free["gpu"] for each in scheduler._candidates()}
        assert free == {
            place: 8 - sum(requests(p)["gpu"] for p in pods.values()
                           if p.spec.node_name == place and not p.over)
            for place in ("m", "n")
        }  # fmt: skip

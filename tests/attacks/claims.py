"""Devices by claims beyond quota: claims that pods share, and claims that become other ones.

A job is admitted with few devices. Then its claim, or the template of its claims, is deleted and
made anew with more, at each moment at which a user could do it, also while a pod is held. Or a
claim that pods share is spread over pods and pod sets that end, or that there are none of. Or its
selectors take long.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Coroutine
from contextlib import suppress
from itertools import product
from typing import Any

import msgspec

from policyd.api.configuration.kinds import DeviceClassMapping
from policyd.devices.amounts import DeviceCountError
from policyd.devices.claims import ChargeRules, ClaimCount
from policyd.devices.counting import DeviceCounter
from policyd.devices.inventory import Inventory
from policyd.devices.mappings import DeviceMappings
from policyd.devices.objects import ClaimSpec, DeviceClass, ResourceClaim, ResourceSlice
from policyd.devices.rations import Rations
from policyd.kube import resources as r
from tests.attacks.figures import Figures
from tests.controller.test_claimed_places import start_gang, with_racks
from tests.controller.test_elastic_jobs import make_pods
from tests.controller.topology.test_topologies import make_pods as make_placed
from tests.controller.watch.test_claimed_devices import (
    CLASS,
    DRIVER,
    claiming,
    claiming_members,
    claiming_pod,
    elastic_claiming,
    furnished,
    make_claims,
    offer_template,
    put_claim,
    replace_member,
    reported,
)
from tests.controller.world import GPU, World, condition, gates, running
from tests.questions.test_unqueued_jobs import owned

GPUS, MORE = 8, 64
WITHIN_SECONDS = 10


def swapped() -> Figures:
    """Swap claims and templates at each moment: the pods with more devices are reported."""
    claims = product(CLAIMS, MOMENTS, AFTER[:1], DEVICES)  # one that a pod has stays
    templates = product(("template",), MOMENTS, AFTER, DEVICES)
    return asyncio.run(_tried([_swap(*each) for each in (*claims, *templates)]))


CLAIMS = ("claim", "claim-of-a-pod")
MOMENTS = ("before-the-pod", "after-the-pod")
AFTER = ("stays", "restored", "deleted")
DEVICES = (MORE, "All")


async def _swap(way: str, moment: str, after: str, devices: object) -> str:
    """Run one swap; return its name if nobody notices that the pod has more devices."""
    world = furnished(gpus=GPUS)
    by = {"template": "c"} if way == "template" else {"shared": "c"}
    _offer(world, way, 1)
    async with running(world):
        world.put(r.JOBS, claiming("train", **by))
        await world.pass_time(3)
        if moment == "after-the-pod":
            pod = claiming_pod(world, "p", **by)
            await world.pass_time(1)
        _withdraw(world, way)
        _offer(world, way, devices)
        if moment == "before-the-pod":
            pod = claiming_pod(world, "p", **by)
        if way == "template":
            put_claim(world, "p-gpus-x", devices, owners=owned("Pod", "p", api="v1"))
            made = [{"name": "gpus", "resourceClaimName": "p-gpus-x"}]
            world.put(r.PODS, pod | {"status": {"resourceClaimStatuses": made}})
            if after != "stays":
                _withdraw(world, way)
            if after == "restored":
                _offer(world, way, 1)
        await world.pass_time(WITHIN_SECONDS)
        return "" if reported(world) else f"{way}, {moment}, {after}, {devices} devices"


def held() -> Figures:
    """Swap what a pod claims before its gate is removed: it stays held."""
    return asyncio.run(_tried([_hold(*each) for each in product(GATES, HELD_BY, DEVICES)]))


HELD_BY = ("template", "claim", "claim-made-for-it")


def _replaced(world: World, **by: str) -> str:
    replace_member(world, "b", "late", **by)
    return "late"


def _added(world: World, **_by: str) -> str:
    make_pods(world, "late")
    return "late"


def _placed(world: World, **_by: str) -> str:
    make_placed(world, "gang", indexes=[0])
    return "gang-0"


GATES = {
    "group": (furnished, claiming_members, _replaced),
    "elastic": (furnished, elastic_claiming, _added),
    "topology": (with_racks, start_gang, _placed),
}
"""How each world is made, what is admitted there, and how a pod comes later, whose name it is."""


async def _hold(gate: str, way: str, devices: object) -> str:
    build, begin, come = GATES[gate]
    kind, by = ("claim", {"shared": "c"}) if way == "claim" else ("template", {"template": "c"})
    world = build()
    _offer(world, kind, 1)
    async with running(world):
        begin(world, **by)
        while not any(condition(each, "Admitted") for each in world.all(r.WORKLOADS)):
            await world.pass_time(1)  # devices of nodes are counted in a thread
        await world.pass_time(3)
        if way != "claim-made-for-it":
            _withdraw(world, kind)
            _offer(world, kind, devices)
        name = come(world, **by)
        if way == "template":
            make_claims(world, name)
        if way == "claim-made-for-it":
            put_claim(world, "made", devices, owners=owned("Pod", name, api="v1"))
            made = [{"name": "gpus", "resourceClaimName": "made"}]
            world.set_status(r.PODS, name, resourceClaimStatuses=made)
        await world.pass_time(WITHIN_SECONDS)
        held = gates(world.get(r.PODS, name))
        return "" if held else f"{gate}, {way}, {devices} devices"


def _offer(world: World, way: str, devices: object) -> None:
    if way == "template":
        fields = {"allocationMode": "All"} if devices == "All" else {}
        offer_template(world, "c", 0 if fields else devices, **fields)
        return
    forged = way == "claim-of-a-pod" and devices != 1
    put_claim(world, "c", devices, owners=owned("Pod", "x", api="v1") if forged else ())


def _withdraw(world: World, way: str) -> None:
    world.delete(r.RESOURCE_CLAIM_TEMPLATES if way == "template" else r.RESOURCE_CLAIMS, "c")


def shared() -> Figures:
    """Spread a shared claim over pods: others never start with the devices that it has."""
    ended = [_ended(pods, done) for pods in (2, 4, 8) for done in range(1, pods)]
    return asyncio.run(_tried([*ended, *map(_spread, SPREADS)]))


SPREADS = ((0, 1), (0, 0, 1), (1, 0), (0, 1, 1))
"""Numbers of pods of the pod sets that name one claim."""


async def _ended(pods: int, done: int) -> str:
    world = furnished(gpus=GPUS)
    put_claim(world, "c", GPUS)
    put_claim(world, "d", 1)
    async with running(world):
        world.put(r.JOBS, claiming("first", shared="c", pods=pods))
        await world.pass_time(2)
        world.put(r.JOBS, claiming("second", shared="d"))
        world.set_status(r.JOBS, "first", active=pods - done, succeeded=done)
        await world.pass_time(2)
        return "" if world.suspended("second") else f"{done} of {pods} pods that share have ended"


async def _spread(counts: tuple[int, ...]) -> str:
    world = furnished(gpus=GPUS)
    put_claim(world, "c", MORE)
    template = claiming("x", shared="c")["spec"]["template"]
    pod_sets = [
        {"name": f"set-{index}", "count": count, "template": template}
        for index, count in enumerate(counts)
    ]
    async with running(world):
        spec = {"queueName": "lq-cq", "podSets": pod_sets}
        world.create(r.WORKLOADS, {"metadata": {"name": "w"}, "spec": spec})
        await world.pass_time(2)
        reserved = condition(world.get(r.WORKLOADS, "w"), "QuotaReserved")
        return "" if reserved["status"] == "False" else f"one claim of pod sets of {counts} pods"


async def _tried(attempts: list[Coroutine[Any, Any, str]]) -> Figures:
    passed = [found for each in attempts if (found := await each)]
    return Figures(tried=len(attempts), bypasses=len(passed), faults=tuple(passed))


def long_selectors() -> Figures:
    """Count claims whose selectors take long to compile, or look at each device often."""
    tried, worst, faults = 0, 0.0, []
    for name, write in SELECTORS.items():
        for requests, each in ((1, 1), (1, 32), (32, 1), (32, 4)):
            texts = iter(write(number) for number in range(requests * each))
            asked = [
                {"deviceClassName": CLASS, "allocationMode": "ExactCount", "count": 1}
                | {"selectors": [{"cel": {"expression": next(texts)}} for _ in range(each)]}
                for _ in range(requests)
            ]
            spec = {"devices": {"requests": [{"name": "r", "exactly": one} for one in asked]}}
            counting = ClaimCount(_rules(), _classes().get, Inventory(_slices()))
            tried += 1
            began = time.process_time()
            with suppress(DeviceCountError):
                counting.total(msgspec.convert(spec, ClaimSpec))
            took = time.process_time() - began
            worst = max(worst, took)
            if took > MOST_SECONDS:
                faults.append(f"{requests} requests of {each} selectors, {name}: {took:.1f} s")
    return Figures(tried=tried, worst_seconds=worst, faults=tuple(faults))


def many_selectors() -> Figures:
    """Have many namespaces count many claims with selectors of their own: turns stay short.

    In each turn, a namespace that has only one claim gets it counted.
    """
    rations, inventory = Rations(), Inventory(_slices())
    worst, faults = 0.0, list[str]()
    counted = Counter[str]()
    for turn in range(TURNS):
        began = time.process_time()
        for namespace in GREEDY:
            while rations.allows(namespace) and counted[namespace] < CLAIMS_EACH:
                counted[namespace] += 1
                _count_one(namespace, counted[namespace], inventory, rations)
        took = time.process_time() - began
        worst = max(worst, took)
        if took > MOST_SECONDS * (len(GREEDY) if turn == 0 else 1):
            faults.append(f"turn {turn} took {took:.1f} s")
        if not rations.allows(f"modest-{turn}"):
            faults.append(f"a namespace with one claim waits in turn {turn}")
        rations.next_turn()
    return Figures(tried=counted.total(), worst_seconds=worst, faults=tuple(faults))


GREEDY = ("greedy", "as-greedy", "greedy-too")
CLAIMS_EACH, TURNS = 100, 12


def _count_one(namespace: str, number: int, inventory: Inventory, rations: Rations) -> None:
    requests = [
        {"deviceClassName": CLASS, "allocationMode": "ExactCount", "count": 1}
        | {"selectors": [{"cel": {"expression": f"false && '{namespace}' == '{number}-{each}'"}}]}
        for each in range(32)
    ]
    spec = {"devices": {"requests": [{"name": "r", "exactly": one} for one in requests]}}
    metadata = {"name": f"c-{number}", "namespace": namespace}
    claim = msgspec.convert({"metadata": metadata, "spec": spec}, ResourceClaim)
    counting = DeviceCounter(
        rules=_rules(), classes=_classes().get, inventory=inventory, rations=rations
    )
    with suppress(DeviceCountError):
        counting.of_claim(claim)


MOST_SECONDS = 1.0
"""CPU that one claim may take of the controller."""
DEVICES_PUBLISHED, ON_A_NODE = 5_000, 50
SELECTORS = {
    "that say no": lambda number: f"false && {number} > 0",
    "that look at each attribute": lambda number: (
        f"device.attributes['{DRIVER}'].exists(name, name == 'x{number}')"
    ),
    "that compare quantities": lambda number: (
        f"device.capacity['{DRIVER}'].memory.isGreaterThan(quantity('{1000 + number}Gi'))"
    ),
    "that match patterns": lambda number: (
        f"device.attributes['{DRIVER}'].a0.matches('(x+x+)+{number}')"
    ),
    "that are long": lambda number: " && ".join(f"{number} == {each}" for each in range(900)),
    "that compile patterns": lambda number: " && ".join(
        f"'x'.matches('(a{{1,900}}){{1,9}}{number}{each}')" for each in range(100)
    ),
}


def _classes() -> dict[str, DeviceClass]:
    return {CLASS: msgspec.convert({"metadata": {"name": CLASS}}, DeviceClass)}


def _rules() -> ChargeRules:
    mapping = {"name": GPU, "deviceClassNames": [CLASS]}
    return ChargeRules(DeviceMappings.of([msgspec.convert(mapping, DeviceClassMapping)]))


def _slices() -> list[ResourceSlice]:
    attributes = {f"a{number}": {"string": "x" * 60} for number in range(20)}
    about = {"attributes": attributes, "capacity": {"memory": {"value": "40Gi"}}}
    devices = [{"name": f"d{number}", **about} for number in range(ON_A_NODE)]
    bodies = (
        {
            "metadata": {"name": node},
            "spec": {
                "driver": DRIVER,
                "nodeName": node,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                "devices": devices,
            },
        }
        for node in (f"n{number}" for number in range(DEVICES_PUBLISHED // ON_A_NODE))
    )
    return [msgspec.convert(each, ResourceSlice) for each in bodies]


ATTACKS = {
    "claims that become others": swapped,
    "claims of held pods that become others": held,
    "claims that pods share": shared,
    "selectors of claims": long_selectors,
    "selectors of many claims": many_selectors,
}

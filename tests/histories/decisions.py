"""A judge of decisions: what the controller decided is what the core decides on what it sees.

At some moments, the allocator's state is built anew from the objects that the controller knows.
Both states must agree on what is held and what waits, and where the controller rests, the new one
must have nothing to decide: else a change was missed, or something stale is believed.
"""

import asyncio

import msgspec

from policyd.alloc.cycle import plan_cycle
from policyd.alloc.plan import Admit, Preempt
from policyd.controller.watch.cache import Cache
from policyd.controller.watch.mirrors import open_mirrors
from policyd.controller.watch.queue_changes import QueueChanges
from policyd.kube.pace import Pace

PATIENCE = 6
"""Looks, a second apart and without any change, before a difference counts."""
MOST_CYCLES = 12
SEEN = ("namespaces", "priorities", "priority_classes", "limit_ranges", "runtime_classes",
        "checks", "topologies", "flavors", "cohorts", "cluster_queues", "local_queues",
        "workloads")  # fmt: skip


def built_anew(controller):
    """Return a state made from the objects that a controller knows, and what it has assumed."""
    pace = Pace(clock=controller.pace.clock)
    mirrors = open_mirrors(None, pace, controller.settings.integrations)
    cache = Cache(
        mirrors,
        pace=pace,
        settings=controller.settings.queueing,
        integrations=controller.settings.integrations,
    )
    QueueChanges(cache)
    mirrors.workloads.listen(cache.take)
    cache._held_back = set(controller.cache._held_back)
    for name in SEEN:
        for obj in getattr(controller.mirrors, name):
            getattr(mirrors, name).wrote(obj)
    for key, holding in holdings(controller.cache.state).items():
        if holding.assumed:
            value = msgspec.structs.replace(holding.workload, admission=holding.admission)
            cache.state.put_workload(value)
        if holding.preempted:
            cache.state._note_preempted(key, preempted=True)
    cache.state.now = controller.cache.now
    cache.state.giving_way = set(controller.cache.state.giving_way)
    return cache.state


def holdings(state):
    """Return what each workload holds."""
    return {key: each for queue in state.queues.values() for key, each in queue.holdings.items()}


def _waiting(state):
    return {
        each.workload.key: (each.workload.priority, queue.name)
        for queue in state.queues.values()
        for each in queue.pending
    }


def differences(controller):
    """Yield how a controller's state differs from one that is built anew."""
    state, new = controller.cache.state, built_anew(controller)
    yield from _unequal(state, new)
    # Places depend on pods, too; and some wait on purpose.
    if not state.ledger.nodes.trees and state.extension.next_due() is None:
        yield from _undecided(new)


def _unequal(state, new):
    held = [{key: h.admission.totals() for key, h in holdings(s).items()} for s in (state, new)]
    for key in sorted(held[0].keys() | held[1].keys()):
        if held[0].get(key) != held[1].get(key):
            yield f"{key} holds {held[0].get(key)}, and should {held[1].get(key)}"
    waiting = [_waiting(each) for each in (state, new)]
    for key in sorted(waiting[0].keys() | waiting[1].keys()):
        if waiting[0].get(key) != waiting[1].get(key):
            yield f"{key} waits as {waiting[0].get(key)}, and should as {waiting[1].get(key)}"


def _undecided(new):
    for _ in range(MOST_CYCLES):
        plan = plan_cycle(new)
        decided = [each for each in plan.actions if isinstance(each, Admit | Preempt)]
        if decided:
            verb = type(decided[0]).__name__.lower()
            yield f"the core would {verb} {decided[0].workload.key}, and the controller rests"
            return
        if not plan.actions:
            return
        new.commit(plan)


async def watch_decisions(world, process):
    """Look at one controller now; note what stays different for some seconds."""
    found, before = [], None
    for _ in range(PATIENCE):
        controller = process.controller
        leads = controller.health.synced.is_set() and controller.leading()
        if not (process.alive and leads) or process.frozen_until > world.loop.time():
            return
        now = [each.informer.version for each in controller.mirrors.all()]
        if found and now != before:
            return
        before, found = now, list(differences(controller))
        if not found:
            return
        await asyncio.sleep(1.0)
    world.differences += [f"{world.loop.time():.1f} s: {each}" for each in found[:3]]


def decisions_are_the_cores(world, log):
    """What was decided is what the core decides on the state that was visible."""
    yield from world.differences

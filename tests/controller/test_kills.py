"""Killed at any write, before it is carried out or after: nothing lost, nothing admitted twice."""

import asyncio

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from policyd.api.kueue import names
from policyd.kube import resources as r
from tests.controller.world import World, condition, gates, held_gpus

QUOTA = 8
WRITES = 36
"""More than the scenario below takes."""


async def scenario(world):
    """Three jobs that run one after the other, then a group of pods, to the end."""
    for name in ("a", "b", "c"):
        world.job(name)
    for index in range(2):
        world.pod(f"ring-{index}", group="ring", total=2)
    await settle(world)
    for _ in range(10):
        if await end_what_runs(world):
            return
    raise AssertionError(f"not done: {left_over(world)}")


async def settle(world):
    """Let time pass; if the controller was killed meanwhile, start another one."""
    await world.pass_time(3)
    if world.client.dead:
        await world.kill()
        await world.start()
        await world.pass_time(3)


async def end_what_runs(world):
    """End all that runs, and tell whether everything has come to an end."""
    for job in world.all(r.JOBS):
        if not job["spec"]["suspend"] and not ended(job):
            world.end_job(job["metadata"]["name"])
    world.run_pods("Succeeded")
    await settle(world)
    return not left_over(world)


def ended(job):
    return condition(job, "Complete").get("status") == "True"


def left_over(world):
    jobs = [j["metadata"]["name"] for j in world.all(r.JOBS) if not ended(j)]
    pods = [p["metadata"]["name"] for p in world.all(r.PODS) if phase(p) != "Succeeded"]
    open_ones = [w for w in world.all(r.WORKLOADS) if not is_finished(w)]
    return jobs + pods + [w["metadata"]["name"] for w in open_ones]


def phase(pod):
    return pod.get("status", {}).get("phase")


def is_finished(workload):
    return condition(workload, "Finished").get("status") == "True"


def check_history(world, *, evicts=False):
    """Check every moment of the past: quota kept, nobody admitted twice, groups gated."""
    held, admissions, admitted = {}, {}, set()
    for change in world.store.history:
        name = change.last["metadata"]["name"]
        if change.resource == r.WORKLOADS:
            had, has = bool(held.get(name)), held_gpus(change.new)
            held[name] = has
            assert sum(held.values()) <= QUOTA, f"too much quota at {change.version}: {held}"
            if has and not had:
                admissions[name] = admissions.get(name, 0) + 1
            if has:
                admitted.add(name)
        if change.resource == r.PODS and change.new is not None and not gates(change.new):
            group = change.new["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"]
            assert group in admitted, f"{name} was let go before its group was admitted"
    assert evicts or set(admissions.values()) <= {1}, admissions


def check_end(world):
    """Check that each job and group has one workload, finished, and no gate or suspension stuck."""
    owners = [
        sorted({o["kind"] for o in w["metadata"]["ownerReferences"]})
        for w in world.all(r.WORKLOADS)
    ]
    assert sorted(owners) == [["Job"], ["Job"], ["Job"], ["Pod"]]
    assert all(w["metadata"]["finalizers"] == [] for w in world.all(r.WORKLOADS))


def run(main):
    asyncio.run(main)


@pytest.mark.parametrize("after", [False, True], ids=["before-it", "after-it"])
@pytest.mark.parametrize("writes", range(WRITES))
def test_a_kill_at_any_write_loses_nothing(writes, after):
    async def main():
        world = World()
        world.furnish(gpus=QUOTA)
        await world.start(writes=writes, after=after)
        await scenario(world)
        await world.kill()
        check_history(world)
        check_end(world)

    run(main())


def test_the_scenario_takes_no_more_writes_than_are_tried():
    async def main():
        world = World()
        world.furnish(gpus=QUOTA)
        await world.start()
        await scenario(world)
        await world.kill()
        return world.client.counted

    assert 20 < asyncio.run(main()) <= WRITES


ACTIONS = st.one_of(
    st.tuples(st.just("job"), st.integers(1, 9)),
    st.tuples(st.just("group"), st.integers(1, 3)),
    st.tuples(st.just("end"), st.just(0)),
    st.tuples(st.just("delete"), st.integers(0, 5)),
    st.tuples(st.just("kill"), st.integers(0, 12)),
    st.tuples(st.just("drain"), st.just(0)),
    st.tuples(st.just("restart"), st.just(0)),
    st.tuples(st.just("wait"), st.just(0)),
)


@settings(max_examples=60, deadline=None)
@given(actions=st.lists(ACTIONS, min_size=3, max_size=14), after=st.booleans())
@example(actions=[("group", 2), ("kill", 2), ("drain", 0)], after=False)
def test_any_history_keeps_quota_and_loses_nothing(actions, after):
    async def main():
        world = World()
        world.furnish(gpus=QUOTA)
        await world.start()
        for number, (verb, size) in enumerate(actions):
            await act(world, verb, size, number=number, after=after)
        await restart(world)
        for _ in range(20):
            if await end_what_runs(world) or not possible(world):
                break
        await world.kill()
        check_history(world, evicts=True)
        assert not possible(world), left_over(world)

    run(main())


async def act(world, verb, size, *, number, after):
    if verb == "job":
        world.job(f"job-{number}", gpus=size)
    elif verb == "group":
        for index in range(size):
            world.pod(f"group-{number}-{index}", group=f"group-{number}", total=size)
    elif verb == "kill":
        await world.kill()
        await world.start(writes=size, after=after)
    else:
        await {"end": end_what_runs, "drain": drain, "restart": restart}.get(verb, wait)(world)
    if verb == "delete" and world.all(r.JOBS):
        jobs = world.all(r.JOBS)
        world.delete(r.JOBS, jobs[size % len(jobs)]["metadata"]["name"])


async def drain(world):
    world.queue(gpus=QUOTA, stopPolicy="HoldAndDrain")
    await settle(world)
    stop_what_is_suspended(world)
    await settle(world)


async def restart(world):
    world.queue(gpus=QUOTA)
    await settle(world)


async def wait(world):
    await world.pass_time(0.5)


def stop_what_is_suspended(world):
    """End the pods of suspended jobs, as the Job controller does."""
    for job in world.all(r.JOBS):
        if job["spec"]["suspend"] and job.get("status", {}).get("active"):
            world.set_status(r.JOBS, job["metadata"]["name"], active=0)


def possible(world):
    """What is left over, not bigger than the quota, and not waiting for pods of its user."""
    big = {j["metadata"]["name"] for j in world.all(r.JOBS) if gpus_of(j) > QUOTA}
    big |= {world.workload_of(name)["metadata"]["name"] for name in big if world.workload_of(name)}
    return [name for name in left_over(world) if name not in big | waiting_for_pods(world)]


def waiting_for_pods(world):
    """Pods and workloads of groups of which an eviction deleted some pods, and not the others.

    Those it deleted had started, and it is for whoever made the group to replace them.
    """
    groups = {}
    for pod in world.all(r.PODS):
        group = pod["metadata"]["labels"][names.POD_GROUP_NAME]
        groups.setdefault(group, []).append(pod["metadata"])
    short = {
        group: members
        for group, members in groups.items()
        if len(members) < int(members[0]["annotations"][names.POD_GROUP_TOTAL_COUNT])
        and condition(world.get(r.WORKLOADS, group), "Evicted").get("status") == "True"
    }
    return set(short) | {member["name"] for members in short.values() for member in members}


def gpus_of(job):
    container = job["spec"]["template"]["spec"]["containers"][0]
    return int(container["resources"]["requests"]["nvidia.com/gpu"])

"""Kueue and policyd by one Lease: one of them leads, and only an administrator says which."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from policyd.kube.kueue_lease import HOLDER, NAME, NAMESPACE, TAKEN_OVER, KueueLease
from policyd.kube.leader import LeaderElection
from policyd.kube.resources import LEASES, PODS
from policyd.testing import FakeClient, FakeClock, ObjectStore

pytestmark = pytest.mark.anyio

GIVEN = {"metadata": {"annotations": {TAKEN_OVER: "true"}}}
TAKEN_BACK = {"metadata": {"annotations": {TAKEN_OVER: None}}}


class Connection(FakeClient):
    """A client whose API server may stop to answer."""

    silent = False

    async def get(self, *args, **options):
        if self.silent:
            await asyncio.Event().wait()
        return await FakeClient.get(self, *args, **options)


class Cluster:
    """A cluster with policyd's look at Kueue, and Kueue's own election where it runs."""

    def __init__(self):
        self.clock = FakeClock()
        self.client = Connection(ObjectStore(self.clock))
        self.settled = []
        self.ours = self.replica()
        self.tasks = []
        self.kueue = None

    def replica(self):
        async def settle():
            self.settled.append(self.ours.clear)

        return KueueLease(self.client, namespace=NAMESPACE, settle=settle, pace=self.clock.pace())

    def start(self, lease):
        self.tasks.append(asyncio.ensure_future(lease.run(None)))
        return self.tasks[-1]

    def start_kueue(self, identity="kueue-1"):
        self.kueue = LeaderElection(
            self.client, NAME, namespace=NAMESPACE, identity=identity, pace=self.clock.pace()
        )
        self.tasks.append(asyncio.ensure_future(self.kueue.run()))
        return self.tasks[-1]

    async def after(self, seconds):
        """Let time pass, and see at each moment that not both lead."""
        for _ in range(int(seconds * 4)):
            await self.clock.advance(0.25)
            assert not (self.ours.clear and self.kueue is not None and self.kueue.leading)

    async def annotate(self, patch):
        await self.client.patch(LEASES, NAME, patch, namespace=NAMESPACE, into=dict)

    async def create_pod(self, pod, status, *, namespace):
        await self.client.create(PODS, pod, namespace=namespace, into=dict)
        name = pod["metadata"]["name"]
        await self.client.patch(
            PODS, name, status, namespace=namespace, subresource="status", into=dict
        )

    async def holder(self):
        lease = await self.client.get(LEASES, NAME, namespace=NAMESPACE, into=dict)
        return lease["spec"]["holderIdentity"]


@asynccontextmanager
async def cluster():
    made = Cluster()
    try:
        yield made
    finally:
        for task in made.tasks:
            task.cancel()
        await asyncio.gather(*made.tasks, return_exceptions=True)


async def test_policyd_leads_where_no_kueue_is():
    async with cluster() as found:
        found.start(found.ours)

        await found.after(60)

        assert found.ours.clear
        assert not found.ours.stood_by


async def test_policyd_stands_by_while_kueue_leads_and_does_not_use_its_restarts():
    async with cluster() as found:
        kueue = found.start_kueue()
        await found.after(2)
        found.start(found.ours)
        await found.after(30)
        assert not found.ours.clear

        kueue.cancel()
        await found.after(60)

        assert not found.ours.clear
        assert found.ours.stood_by


async def test_a_lease_that_is_given_is_taken_once_kueue_has_stopped_and_then_kept():
    async with cluster() as found:
        kueue = found.start_kueue()
        await found.after(2)
        found.start(found.ours)
        await found.annotate(GIVEN)
        await found.after(20)
        assert not found.ours.clear

        kueue.cancel()
        await found.after(3)
        assert found.ours.clear
        found.start_kueue("kueue-2")
        await found.after(60)

        assert found.ours.clear
        assert await found.holder() == HOLDER


async def test_a_kueue_that_was_killed_keeps_its_lease_for_its_term():
    async with cluster() as found:
        await found.client.create(
            LEASES,
            {
                "metadata": {"name": NAME, **GIVEN["metadata"]},
                "spec": {"holderIdentity": "kueue-1", "leaseDurationSeconds": 15},
            },
            namespace=NAMESPACE,
            into=dict,
        )
        found.start(found.ours)
        await found.after(14)
        assert not found.ours.clear

        await found.after(3)

        assert found.ours.clear


async def test_a_lease_that_is_taken_back_goes_to_kueue_after_the_last_write():
    async with cluster() as found:
        kueue = found.start_kueue()
        await found.after(2)
        await found.annotate(GIVEN)
        kueue.cancel()
        found.start(found.ours)
        await found.after(3)
        assert found.ours.clear
        found.start_kueue("kueue-2")
        await found.after(3)

        await found.annotate(TAKEN_BACK)
        await found.after(6)

        assert await found.holder() == "kueue-2"
        assert found.settled == [False]
        assert not found.ours.clear


async def test_another_replica_goes_on_at_once():
    async with cluster() as found:
        await found.client.create(
            LEASES,
            {"metadata": {"name": NAME, **GIVEN["metadata"]}},
            namespace=NAMESPACE,
            into=dict,
        )
        first = found.start(found.ours)
        await found.after(1)
        first.cancel()
        found.ours = found.replica()
        found.start(found.ours)

        await found.after(1)

        assert found.ours.clear


async def test_a_kueue_without_leader_election_is_noticed_by_its_pods():
    async with cluster() as found:
        labels = {"app.kubernetes.io/name": "kueue", "control-plane": "controller-manager"}
        pod = {"metadata": {"name": "k", "labels": labels}}
        running = {"status": {"phase": "Running"}}
        found.start(found.ours)
        await found.after(1)
        assert found.ours.clear
        await found.create_pod(pod, running, namespace="team-a")
        await found.after(15)
        assert found.ours.clear  # users may give pods any labels in their own namespaces

        await found.create_pod(pod, running, namespace=NAMESPACE)
        await found.after(15)

        assert not found.ours.clear


async def test_a_silent_api_server_ends_the_leading_in_time():
    async with cluster() as found:
        found.start(found.ours)
        await found.after(1)

        found.client.silent = True
        await found.after(12)

        assert not found.ours.clear

"""Lives through a history: users, administrators, operators and faults, one event after another."""

import asyncio
import copy
from collections import Counter
from random import Random

from policyd.alloc.settings import FairSharingRules, QueueingSettings
from policyd.api.kueue.names import FINISHED, POD_GROUP_NAME, QUEUE_NAME
from policyd.jobs.integrations import Integrations
from policyd.kube import resources as r
from policyd.kube.errors import ApiError
from policyd.kube.leader import micro_time
from tests.histories import objects
from tests.histories.accounts import HOME
from tests.histories.cluster import ALL_KINDS, KINDS, Cluster, template
from tests.histories.decisions import watch_decisions
from tests.histories.loop import Process
from tests.histories.objects import INVALID, TEAM
from tests.histories.operators import Operators
from tests.histories.plan import HOPELESS, WINDOWS
from tests.histories.record import WORKLOADS, Record, is_true
from tests.histories.trouble import Trouble

FEATURES = {
    "least": "job with partial admission",
    "topology": "topology",
    "fails": "job that fails",
    "elects": "two controllers",
    "fair": "fair sharing",
}
CALM_SECONDS = 3600.0
"""Between the last fault and the first look whether all has run."""
MOST_CALM_HOURS = 30
EVERY, MOST_LOOKS = 4, 25
"""After each so many events, and about so often at most, decisions are compared with the core's."""


class World:
    """One history, as it goes on."""

    def __init__(self, plan, loop):
        self.plan, self.loop = plan, loop
        self.random = Random(f"{plan.seed}/world")
        self.trouble = Trouble(loop, self.random.random)
        self.cluster = Cluster(loop, self.random, self.trouble, template())
        self.record = Record(self.cluster, plan)
        self.users = Process(loop, "users")
        self.alice = self.cluster.client("alice", self.users)
        self.mallory = self.cluster.client("mallory", self.users)
        self.admin = self.cluster.client("admin", self.users)
        self.trouble.conflict = self.record.touch
        self.trouble.crash, self.trouble.freeze = self._kill, self._freeze_one
        self.submitted = {}
        self.deleted = set()
        self.done = Counter()
        self.refused = []
        self.differences = []
        """What `decisions` saw."""
        self._replaced, self._done_in_part = set(), set()
        self._down_for, self._freezes = 0.0, []

    async def run(self):
        """Live through all of it, until everything has settled."""
        setting = self.plan.setting
        for feature in ("elects", "fair", "topology"):
            self.done[f"history with {FEATURES[feature]}"] += bool(setting[feature])
        for queue in setting["queues"].values():
            self.done["queue with an admission check"] += queue["checked"]
        for resource, body in objects.setting_objects(setting):
            await self._create(self.admin, resource, body)
            if resource == r.ADMISSION_CHECKS:
                await self.admin.patch(
                    resource, objects.CHECK, objects.active(self.users.now()), into=dict,
                    subresource="status",
                )  # fmt: skip
        self.rest = self.cluster.start_rest()
        Operators(self.cluster, self.random).start()
        self.cluster.store.listen(self._replace_lost, "pods")
        self._start_controllers()
        await asyncio.sleep(5)
        every = max(EVERY, len(self.plan.events) // MOST_LOOKS)
        for number, event in enumerate(self.plan.events):
            await asyncio.sleep(max(0.0, event.at - self.loop.time()))
            self.users.start(self._happen(event))
            if number % every == 0:
                self._watch_decisions()
        await asyncio.sleep(max(0.0, self.plan.ends_at - CALM_SECONDS - self.loop.time()))
        await self._calm_down()

    async def _calm_down(self):
        """End all faults, and wait until nothing is left to run."""
        self.trouble.end()
        self.record.calm_since = self.loop.time()
        await asyncio.sleep(CALM_SECONDS)
        for _ in range(MOST_CALM_HOURS):
            if self.record.all_ended():
                break
            await asyncio.sleep(CALM_SECONDS)
        await asyncio.sleep(60)
        self.record.quiet_since = self.loop.time()
        self._watch_decisions()
        await asyncio.sleep(600)

    def _watch_decisions(self):
        for process in self.cluster.controllers:
            self.users.start(watch_decisions(self, process))

    def _start_controllers(self):
        elects = self.plan.setting["elects"]
        for _ in range(2 if elects else 1):
            self.cluster.start_controller(elects=elects, **self._settings())

    async def _happen(self, event):
        self.record.faults += event.is_fault
        act = getattr(self, "_" + event.act.replace(" ", "_").replace("-", "_"), None)
        try:
            # An act returns true if there was nothing to act upon.
            if event.act in WINDOWS:
                self.trouble.begin(event.act, event.about["lasts"], event.about["rate"])
                self.done[event.act] += 1
            elif not await act(**event.about):
                self.done[event.act] += 1
        except ApiError as error:
            self.refused.append((self.loop.time(), event, str(error)))

    # Users.

    async def _submit(self, **about):
        self.submitted[about["name"]] = about
        for resource, body in objects.job_objects(about):
            await self._create(self.alice, resource, body)
            if about["name"] in self.deleted:  # meanwhile: the rest is not created
                await self._delete(about["name"], how=0.0)
                break
        self.done[about["kind"]] += 1
        for feature in ("least", "topology", "fails"):
            self.done[FEATURES[feature]] += bool(about[feature])
        self.done["job larger than its queue"] += about["gpus"] >= HOPELESS

    async def _create(self, client, resource, body):
        namespace = body["metadata"].get("namespace", "")
        while True:
            try:
                await client.create(resource, copy.deepcopy(body), into=dict, namespace=namespace)
            except ApiError as error:
                if error.code in {0, 500, 503}:
                    await asyncio.sleep(15)
                    continue
                if error.code != 409:
                    raise
            return

    def _items(self, name):
        about = self.submitted.get(name)
        return [] if about is None else objects.job_objects(about)

    async def _delete(self, name, how):
        self.deleted.add(name)
        for resource, body in self._items(name):
            await self._quietly(
                self.alice.delete(resource, body["metadata"]["name"], namespace=TEAM,
                                  propagation="Background"))  # fmt: skip
        if self.submitted.get(name, {}).get("kind") == "PodGroup":
            for later in (0.0, 300.0):  # it may come after its pods are deleted
                await asyncio.sleep(later)
                await self._quietly(self.alice.delete(r.WORKLOADS, name, namespace=TEAM))

    async def _quietly(self, call):
        try:
            await call
        except ApiError as error:
            self.refused.append((self.loop.time(), None, str(error)))

    def _pods_of(self, name):
        return [p for p in self.cluster.objects(r.PODS) if p["metadata"]["name"].startswith(name)]

    async def _workload_deleted(self, name):
        """Delete the Workload of a job that stands: the job is stopped, and gets another one."""
        found = [
            workload["metadata"]["name"]
            for workload in self.cluster.objects(r.WORKLOADS)
            for owner in workload["metadata"].get("ownerReferences", ())
            if owner["name"] == name and owner["kind"] != "Pod"
        ]
        for each in found:
            await self._quietly(self.alice.delete(r.WORKLOADS, each, namespace=TEAM))
        return not found

    async def _kill_pod(self, name, how):
        mine = self._pods_of(name)
        if not mine:
            return True
        pod = mine[int(how * len(mine))]["metadata"]
        await self._quietly(self.admin.delete(r.PODS, pod["name"], namespace=TEAM))
        return None

    def _replace_lost(self, event):
        """Have the user of a group create another pod for one that is lost."""
        metadata, status = event.object["metadata"], event.object.get("status", {})
        group = metadata.get("labels", {}).get(POD_GROUP_NAME)
        if status.get("phase") == "Succeeded":
            self._done_in_part.add(group)
        lost = metadata.get("deletionTimestamp") or event.type == "DELETED"
        lost = status.get("phase") == "Failed" or (lost and status.get("phase") != "Succeeded")
        if group and lost and metadata["uid"] not in self._replaced:
            self._replaced.add(metadata["uid"])
            self.users.start(self._replace(group, metadata["name"]))

    async def _replace(self, group, name):
        await asyncio.sleep(5 + 55 * self.random.random())
        workload = self.cluster.store.get(WORKLOADS, TEAM, group)
        called_off = workload is None and group in self._done_in_part
        if group in self.deleted or is_true(workload, FINISHED) or called_off:
            return
        number = int(name.rpartition("-")[2])
        about = self.submitted[group] | {"round": len(self._replaced)}
        _, body = objects.job_objects(about)[number]
        await self._create(self.alice, r.PODS, body)

    async def _cheat(self, name, how):
        """Try to run without the queue."""
        items = self._items(name)
        if not items:
            return True
        resource, body = items[0]
        patches = ({"spec": {"suspend": False}}, {"metadata": {"labels": {QUEUE_NAME: None}}})
        if "runPolicy" in body["spec"]:
            patches = ({"spec": {"runPolicy": {"suspend": False}}}, patches[1])
        if resource == r.PODS:
            patches = ({"spec": {"schedulingGates": None}}, patches[1])
        patch = patches[int(how * len(patches))]
        await self._quietly(
            self.mallory.patch(resource, body["metadata"]["name"], patch, into=dict, namespace=TEAM)
        )
        return None

    async def _edit(self, name, how):
        """Give a job another priority, or another queue while it waits."""
        items = self._items(name)
        if len(items) != 1:  # the pods of a group would have different queues
            return True
        resource, body = items[0]
        queues = sorted(self.plan.setting["queues"])
        labels = {QUEUE_NAME: queues[int(how * len(queues))]}
        if how < 0.5:
            labels = {"kueue.x-k8s.io/priority-class": "production"}
        patch = {"metadata": {"labels": labels}}
        await self._quietly(
            self.alice.patch(resource, body["metadata"]["name"], patch, into=dict, namespace=TEAM)
        )
        return None

    # Administrators.

    async def _quota(self, queue, lasts, how):
        given = self.plan.setting["queues"][queue]
        await self._set_quota(queue, int(given["gpus"] * how * 2))
        await asyncio.sleep(lasts)
        await self._set_quota(queue, given["gpus"])

    async def _set_quota(self, queue, gpus):
        groups = objects.quota(self.plan.setting["queues"][queue], gpus)
        await self._insist(r.CLUSTER_QUEUES, queue, {"spec": {"resourceGroups": groups}})

    async def _preemption(self, queue, lasts, how):
        """Have a queue preempt by another policy for a while."""
        other = ("Never", "LowerPriority", "LowerOrNewerEqualPriority")[int(how * 3)]
        for within in (other, self.plan.setting["queues"][queue]["within"]):
            spec = {"preemption": {"withinClusterQueue": within}}
            await self._insist(r.CLUSTER_QUEUES, queue, {"spec": spec})
            await asyncio.sleep(lasts)

    async def _insist(self, resource, name, patch, namespace="", of=""):
        while True:
            try:
                await self.admin.patch(
                    resource, name, patch, into=dict, namespace=namespace, subresource=of
                )
            except ApiError as error:
                if error.code not in {0, 500, 503}:
                    raise
                await asyncio.sleep(15)
            else:
                return

    async def _hold(self, queue, lasts, how, *, policy="Hold"):
        await self._insist(r.CLUSTER_QUEUES, queue, {"spec": {"stopPolicy": policy}})
        await asyncio.sleep(lasts)
        await self._insist(r.CLUSTER_QUEUES, queue, {"spec": {"stopPolicy": "None"}})

    async def _drain(self, queue, lasts, how):
        await self._hold(queue, lasts, how, policy="HoldAndDrain")

    async def _local_queue(self, queue, lasts, how):
        """Delete a LocalQueue for a while, or stop it."""
        self.record.note_trouble(lasts)
        if how < 0.4:
            await self._quietly(self.admin.delete(r.LOCAL_QUEUES, queue, namespace=TEAM))
            await asyncio.sleep(lasts)
            await self._create(self.admin, r.LOCAL_QUEUES, objects.local_queue(queue))
            return
        for policy in ("Hold" if how < 0.7 else "HoldAndDrain", "None"):
            await self._insist(r.LOCAL_QUEUES, queue, {"spec": {"stopPolicy": policy}}, TEAM)
            await asyncio.sleep(lasts)

    async def _invalid(self, name, lasts):
        """Have the operator of a RayJob find its spec invalid for a while, before it makes pods."""
        resource, body = self._items(name)[0]
        if self._pods_of(f"{name}-"):
            return True
        for found in (INVALID, "Initializing"):
            patch = {"status": {"jobDeploymentStatus": found}}
            await self._insist(resource, body["metadata"]["name"], patch, TEAM, of="status")
            await asyncio.sleep(lasts)
        return None

    async def _deactivate(self, lasts, how):
        found = [w for w in self.cluster.objects(r.WORKLOADS) if w["metadata"].get("namespace")]
        if not found:
            return True
        name = found[int(how * len(found))]["metadata"]["name"]
        await self._insist(r.WORKLOADS, name, {"spec": {"active": False}}, TEAM)
        await asyncio.sleep(lasts)
        await self._insist(r.WORKLOADS, name, {"spec": {"active": True}}, TEAM)
        return None

    async def _node_lost(self, lasts, how, *, drains=False):
        number = int(how * self.plan.setting["nodes"])
        name = f"node-{number}"
        if drains:
            await self._insist(r.NODES, name, {"spec": {"unschedulable": True}})
        else:
            await self._quietly(self.admin.delete(r.NODES, name))
        for pod in self.cluster.objects(r.PODS):
            if pod["spec"].get("nodeName") == name:
                await self._quietly(
                    self.admin.delete(r.PODS, pod["metadata"]["name"], namespace=TEAM)
                )
        await asyncio.sleep(lasts)
        if drains:
            await self._insist(r.NODES, name, {"spec": {"unschedulable": None}})
        else:
            await self._create(self.admin, r.NODES, objects.node(number))

    async def _node_drained(self, lasts, how):
        await self._node_lost(lasts, how, drains=True)

    async def _node_added(self, lasts, how):
        number = self.plan.setting["nodes"] + 2 + int(how * 100)
        await self._create(self.admin, r.NODES, objects.node(number))

    # Faults.

    def _victim(self):
        controllers = self.cluster.controllers
        if not controllers:
            return None
        return controllers[int(self.random.random() * len(controllers))]

    async def _crash(self, lasts):
        victim = self._victim()
        if victim is None:
            return True
        self._down_for = lasts
        self._kill(victim)
        return None

    def _kill(self, victim):
        """Kill a controller, and start another one some time later."""
        if victim.alive:
            self.cluster.kill(victim)
            self.record.note_trouble(self._down_for)
            self.users.start(self._start_again(self._down_for))

    async def _start_again(self, seconds):
        await asyncio.sleep(seconds)
        self.cluster.start_controller(elects=self.plan.setting["elects"], **self._settings())

    def _settings(self):
        """Return the settings of every controller of this history."""
        setting = self.plan.setting
        kinds = frozenset({*KINDS, *(k for k in ALL_KINDS if k[1] == setting["kind"])})
        fair = FairSharingRules() if setting["fair"] else None
        return {
            "integrations": Integrations(kinds=kinds),
            "queueing": QueueingSettings(fair_sharing=fair),
        }

    async def _crash_at_a_write(self, lasts, number, after):
        """Crash at a write of its own, before it is carried out or right after."""
        self._down_for = lasts
        self.trouble.strike_at(number, "after" if after else "before")

    async def _unanswered_admission(self, lasts):
        """Have the next admission time out after it was written, and no watch tell of it."""
        self.trouble.strike_at(1, "unanswered")

    async def _freeze(self, lasts):
        victim = self._victim()
        if victim is None:
            return True
        victim.freeze(lasts)
        return None

    async def _freeze_at_a_write(self, lasts, number):
        """Freeze between a write of its own and the next one."""
        self._freezes = [lasts]
        self.trouble.strike_at(number, "frozen")

    async def _leaders_frozen(self, lasts, number):
        """Freeze a leader among its writes, and the next one as it takes the Lease.

        The first goes on before the other does: it finds all as it left it, and does not lead.
        """
        self._freezes = [lasts, lasts]
        self.trouble.strike_at(number, "frozen")

    def _freeze_one(self, victim):
        lasts = self._freezes.pop(0)
        victim.freeze(lasts)
        self.record.note_trouble(lasts)
        if self._freezes:
            self.trouble.strike_at(1, "frozen")

    async def _clock(self, lasts, seconds):
        victim = self._victim()
        if victim is None:
            return True
        victim.skew += seconds
        return None

    async def _server_down(self, lasts):
        self.trouble.begin("server down", lasts)
        self.cluster.network.cut()

    async def _webhooks_down(self, lasts):
        self.trouble.begin("webhooks down", lasts)

    async def _compaction(self, lasts):
        self.cluster.store.forget()
        for process in self.cluster.controllers:
            self.cluster.network.cut(process)

    async def _cut(self, lasts):
        for process in self.cluster.controllers:
            self.cluster.network.cut(process)

    async def _leader_lost(self, lasts):
        """Let somebody else hold the Lease, who does not renew it, as after a restore."""
        spec = {"holderIdentity": "before", "renewTime": micro_time(self.users.now())}
        await self._insist(r.LEASES, "policyd-controller", {"spec": spec}, HOME)

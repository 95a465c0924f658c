"""The embedded cluster in virtual time: API server, controller, and what is simulated of the rest.

All of it runs in one event loop without sockets, so that time goes on exactly when nothing is left
to do. A job that runs for a day takes as long as the few requests about it.
"""

import asyncio
import heapq
from collections import Counter
from contextlib import asynccontextmanager, suppress
from functools import cache
from unittest.mock import patch
from urllib.parse import urlencode

from policyd.api.kueue import Workload
from policyd.api.kueue.names import EVICTED, FINISHED, PREEMPTED, QUOTA_RESERVED
from policyd.api.meta import ObjectMeta, Wire, condition_true
from policyd.cli.bootstrap import INITIAL_KINDS, definitions
from policyd.controller.queues import hours
from policyd.controller.run import Controller
from policyd.controller.settings import ControllerSettings, ForecastsSettings
from policyd.jobs.base import controller_of
from policyd.kube import resources as r
from policyd.kube.changes import Deleted
from policyd.kube.errors import AlreadyExistsError, NotFoundError, error_from_answer
from policyd.kube.http_client import HttpClient
from policyd.kube.informer import Informer
from policyd.kube.transport import Limits
from policyd.local.apiserver.housekeeping import Housekeeping
from policyd.local.apiserver.server import ApiServer
from policyd.local.simulation import StepLoop, run_simulation
from policyd.testing import FakeClock
from tests.histories.objects import JOB_SETS
from tests.scenarios import foreign

SELDOM = 1e6
"""Seconds between two looks at what nothing here reads."""
START = 1_767_571_200.0
"""Midnight of 5 January 2026."""


OFTEN = 5
"""How often a client asks for a kind that is not served, with an answer."""


async def idle():
    """Let all tasks run until none has anything to do before time goes on."""
    ready = asyncio.get_running_loop()._ready
    await asyncio.sleep(0)
    while ready:  # noqa: ASYNC110 - no event says that all tasks wait
        await asyncio.sleep(0)


class IdleClock(FakeClock):
    """A clock that goes on once everything is idle."""

    async def advance(self, seconds):
        end = self._elapsed + seconds
        await idle()
        while self._sleepers and self._sleepers[0][0] <= end:
            at, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                self._pass(max(0.0, at - self._elapsed))
                woken.set_result(None)
                await idle()
        self._pass(end - self._elapsed)


class Direct:
    """A transport that calls the API server's application, with a user's token."""

    def __init__(self, server):
        self._application = server._app
        (user,) = server.kubeconfig()["users"]
        self._token = f"Bearer {user['user']['token']}".encode()

    async def open(self):
        pass

    async def close(self):
        pass

    def _scope(self, call):
        headers = [(b"authorization", self._token), (b"accept", b"application/json")]
        if call.body is not None:
            headers.append((b"content-type", call.content_type.encode()))
        return {
            "type": "http",
            "method": call.method,
            "path": call.path,
            "query_string": urlencode(call.query).encode(),
            "headers": headers,
        }

    async def _call(self, call, send):
        parts = [{"type": "http.request", "body": call.body or b"", "more_body": False}]

        async def receive():
            return parts.pop() if parts else await asyncio.Event().wait()

        await self._application(self._scope(call), receive, send)

    async def send(self, call):
        sent = []

        async def send(message):
            sent.append(message)

        await self._call(call, send)
        body, status = b"".join(each.get("body", b"") for each in sent), sent[0]["status"]
        if status >= 400:
            raise error_from_answer(status, body, asked=str(call), retry_after="")
        return body

    async def stream(self, call):
        queue = asyncio.Queue()
        task = asyncio.create_task(self._call(call, queue.put))
        try:
            first = await queue.get()
            if first["status"] >= 400:
                body = (await queue.get())["body"]
                raise error_from_answer(first["status"], body, asked=str(call), retry_after="")
            while (message := await queue.get())["body"]:
                yield message["body"]
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


class DirectClient(HttpClient):
    """A client without sockets. To ask again and again for a kind that is not served takes ever."""

    def __init__(self, server, pace):
        self._pace, self._transport, self._limits = pace, Direct(server), Limits()
        self._missing = Counter()

    async def page(self, resource, **options):
        try:
            return await HttpClient.page(self, resource, **options)
        except NotFoundError:
            self._missing[resource] += 1
            if self._missing[resource] < OFTEN:
                raise
            return await asyncio.Event().wait()


class VirtualCluster:
    """The cluster, and when its workloads got their quota and lost it."""

    def __init__(self, server, clock, client):
        self.server, self.clock, self.client = server, clock, client
        self.starts, self.stops, self.ends = {}, {}, {}
        self.changed_at = 0.0
        """When a job last got quota, lost it, or ended."""
        self._seen = {}

    async def create(self, body):
        resource = RESOURCES[body["kind"]]
        namespace = body["metadata"].get("namespace", "")
        return await self.client.create(resource, body, into=dict, namespace=namespace)

    async def until(self, at):
        """Let it be so many seconds after midnight."""
        await self.clock.advance(START + at - self.clock.now())

    async def until_still(self, still, *, at_most):
        """Let time pass until nothing happened for `still` seconds, and to `at_most` at most."""
        since = self.now
        while self.now < (end := min(at_most, max(since, self.changed_at) + still)):
            await self.until(end)

    def note(self, change):
        """Note a change of a workload, by the name of its job: it gets quota, loses it, or ends."""
        workload = change.object
        owner = controller_of(workload.metadata)  # a group of pods has none
        name, now = workload.metadata.name if owner is None else owner.name, self.now
        conditions = workload.status.conditions
        held = condition_true(conditions, QUOTA_RESERVED)
        stopped = condition_true(conditions, PREEMPTED) and condition_true(conditions, EVICTED)
        before = self._seen.get(name, (False, False))
        if held and not before[0]:
            self.starts.setdefault(name, []).append(now)
        if stopped and not before[1] and self.starts[name][-1:] == [now]:
            self.starts[name].pop()  # it had only just begun
        elif stopped and not before[1]:
            self.stops.setdefault(name, []).append(now)
        ended = condition_true(conditions, FINISHED) or isinstance(change, Deleted)
        if ended:
            self.ends.setdefault(name, now)
        if ended or (held, stopped) != before:
            self.changed_at = now
        self._seen[name] = held, stopped

    @property
    def now(self):
        """Seconds since midnight."""
        return self.clock.now() - START


RESOURCES = INITIAL_KINDS | {
    each.kind: each for each in (r.JOBS, r.NODES, r.TOPOLOGIES, r.PODS, r.WORKLOADS, JOB_SETS)
}


@cache
def kinds():
    """The definitions of policyd's kinds, which take longer to make than a job to run."""
    return [*definitions(), foreign.anything(*foreign.GROUPS["JobSet"], "JobSet")]


class Stored(Wire, frozen=True):
    """A Job or a JobSet."""

    metadata: ObjectMeta
    spec: dict
    status: dict = {}


class JobSetOperator:
    """Makes the Jobs of JobSets, suspends and resumes them, and notes when they are complete."""

    def __init__(self, client):
        self._client, self._sets, self._jobs = client, {}, {}

    def take_set(self, change):
        self._take(self._sets, change)

    def take_job(self, change):
        self._take(self._jobs, change)

    @staticmethod
    def _take(known, change):
        name = change.object.metadata.name
        known.pop(name, None)
        if not isinstance(change, Deleted):
            known[name] = change.object

    async def step(self, _now):
        for each in list(self._sets.values()):
            if not each.status.get("conditions"):
                await self._look(each)

    async def _look(self, job_set):
        metadata, ended = job_set.metadata, []
        for part in job_set.spec["replicatedJobs"]:
            name, spec = f"{metadata.name}-{part['name']}-0", part["template"]["spec"]
            there, suspend = self._jobs.get(name), job_set.spec["suspend"]
            if there is None:
                await self._create(metadata, name, {**spec, "suspend": suspend})
            elif there.spec["suspend"] != suspend:
                patch = {"suspend": suspend}
                if not suspend:  # with what the queue chose
                    kept = ("nodeSelector", "schedulingGates", "tolerations")
                    pod = spec["template"]
                    patch["template"] = {
                        "metadata": pod.get("metadata", {}),
                        "spec": {field: pod["spec"].get(field) for field in kept},
                    }
                await self._client.patch(
                    r.JOBS, name, {"spec": patch}, into=dict, namespace=metadata.namespace
                )
            conditions = () if there is None else there.status.get("conditions", ())
            ended.append(any(each["type"] == "Complete" for each in conditions))
        if all(ended):
            done = {"type": "Completed", "status": "True", "reason": "Done", "message": "the end",
                    "lastTransitionTime": "2026-01-05T00:00:00Z"}  # fmt: skip
            await self._client.patch(
                JOB_SETS, metadata.name, {"status": {"conditions": [done]}}, into=dict,
                namespace=metadata.namespace, subresource="status",
            )  # fmt: skip

    async def _create(self, about, name, spec):
        owner = {"apiVersion": JOB_SETS.api_version, "kind": "JobSet", "name": about.name,
                 "uid": about.uid, "controller": True}  # fmt: skip
        metadata = {"name": name, "namespace": about.namespace, "ownerReferences": [owner]}
        body = {"metadata": metadata, "spec": spec}
        with suppress(AlreadyExistsError):
            await self._client.create(r.JOBS, body, into=dict, namespace=about.namespace)


@asynccontextmanager
async def virtual_cluster(objects, queueing=None):
    """A cluster with these objects, in which nothing has happened yet."""
    clock = IdleClock(START)
    server = ApiServer(clock=clock)
    pace = clock.pace()
    client = DirectClient(server, pace)
    cluster = VirtualCluster(server, clock, client)
    for made in kinds():
        await client.create(r.CUSTOM_RESOURCE_DEFINITIONS, made, into=dict)
    for each in objects:
        await cluster.create(each)
    settings = ControllerSettings(
        # Weeks pass, and each half minute would have a forecast.
        forecasts=ForecastsSettings(enabled=False),
        policies=False,
        **({} if queueing is None else {"queueing": queueing}),
    )
    workloads = Informer(client, r.WORKLOADS, into=Workload, on_change=cluster.note, pace=pace)
    operator = JobSetOperator(client)
    steps = StepLoop(operator.step, pace)
    sets, jobs = (
        Informer(client, resource, into=Stored, on_change=steps.after(take), pace=pace)
        for resource, take in ((JOB_SETS, operator.take_set), (r.JOBS, operator.take_job))
    )
    parts = [
        *(sets.run(), jobs.run(), steps.run()),
        Housekeeping(server._state).run(),
        run_simulation(client, pace),
        Controller(client, settings, pace=pace).run(),
        workloads.run(),
    ]
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        with patch.object(hours, "IDLE_SECONDS", SELDOM):
            await clock.advance(1)
            yield cluster
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.stop()

"""The simulated rest of a cluster over three informers: scheduler, kubelets, jobs and claims."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, NoReturn, TypeVar

import structlog

from policyd.api.nodes import Node
from policyd.kube.client import Client
from policyd.kube.connection import ApiConnection
from policyd.kube.errors import ApiError
from policyd.kube.events import EventRecorder
from policyd.kube.informer import Informer
from policyd.kube.pace import Pace
from policyd.kube.resources import JOBS, NODES, PODS
from policyd.local.claim_controller import ClaimController
from policyd.local.job_controller import JobController
from policyd.local.kubelet import Kubelet
from policyd.local.objects import Job, LocalPod
from policyd.local.scheduler import Scheduler
from policyd.local.steps import RETRY_SECONDS

C = TypeVar("C")

log = structlog.get_logger()

JOB_CONTROLLER: Final = "system:serviceaccount:kube-system:job-controller"
"""The account that creates the pods of Jobs, as on a real cluster: webhooks check it."""


class StepLoop:
    """Runs one step after another, woken by `wake` or by the time the step asked for."""

    def __init__(self, step: Callable[[float], Awaitable[float | None]], pace: Pace) -> None:
        self._step = step
        self._pace = pace
        self._changed = asyncio.Event()

    def after(self, take: Callable[[C], None]) -> Callable[[C], None]:
        """Return a callback for changes that hands each to `take`, and asks for a step."""

        def on_change(change: C) -> None:
            take(change)
            self._changed.set()

        return on_change

    async def run(self) -> NoReturn:
        """Step until cancelled."""
        while True:
            self._changed.clear()
            try:
                wait = await self._step(self._pace.clock.now())
            except ApiError as error:
                log.warning("step_failed", step=self._step.__qualname__, error=str(error))
                wait = RETRY_SECONDS
            await self._pace.wait(self._changed, wait)


def acting_as(connection: ApiConnection, account: str) -> ApiConnection:
    """Return a connection whose requests are those of a service account."""
    namespace = account.split(":")[2]
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    named = (("Impersonate-Group", group) for group in groups)
    return replace(connection, impersonation=(("Impersonate-User", account), *named))


async def run_simulation(
    client: Client, pace: Pace | None = None, *, job_controller: Client | None = None
) -> None:
    """Schedule pods, run them, and make the pods of Jobs and the claims of pods, until cancelled.

    Args:
        client: The API server.
        pace: Time.
        job_controller: The API server as the Job controller asks it; as all do if left out.
    """
    pace = pace or Pace()
    scheduling = EventRecorder(client, component="default-scheduler", pace=pace)
    working = EventRecorder(client, component="job-controller", pace=pace)
    scheduler = Scheduler(client, scheduling)
    kubelet, claims = Kubelet(client), ClaimController(client)
    controller = JobController(job_controller or client, working)
    parts = (scheduler, kubelet, controller, claims)
    places, runs, makes, claiming = loops = [StepLoop(part.step, pace) for part in parts]
    take_pod = handing_to(
        places.after(scheduler.take_pod),
        runs.after(kubelet.pods.take),
        makes.after(controller.take_pod),
        claiming.after(claims.pods.take),
    )
    take_node = handing_to(places.after(scheduler.take_node), runs.after(kubelet.nodes.take))
    take_job = makes.after(controller.take_job)
    pods = Informer(client, PODS, into=LocalPod, on_change=take_pod, pace=pace)
    nodes = Informer(client, NODES, into=Node, on_change=take_node, pace=pace)
    jobs = Informer(client, JOBS, into=Job, on_change=take_job, pace=pace)
    async with asyncio.TaskGroup() as group:
        for informer in (pods, nodes, jobs):
            group.create_task(informer.run())
        for informer in (pods, nodes, jobs):
            await informer.synced.wait()
        for loop in loops:
            group.create_task(loop.run())
        for recorder in (scheduling, working):
            group.create_task(recorder.run())


def handing_to(*listeners: Callable[[C], None]) -> Callable[[C], None]:
    """Return a callback for changes that hands each to all listeners."""

    def on_change(change: C) -> None:
        for take in listeners:
            take(change)

    return on_change

"""The simulated rest of a cluster: scheduler, kubelets and Job controller over three informers."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, NoReturn

import structlog

from policyd.api.nodes import Node
from policyd.kube.client import Client
from policyd.kube.connection import ApiConnection
from policyd.kube.errors import ApiError
from policyd.kube.events import EventRecorder
from policyd.kube.informer import Informer
from policyd.kube.pace import Pace
from policyd.kube.resources import JOBS, NODES, PODS
from policyd.local.job_controller import JobController
from policyd.local.kubelet import Kubelet
from policyd.local.objects import Job, LocalPod
from policyd.local.scheduler import Scheduler

log = structlog.get_logger()

RETRY_SECONDS = 1.0
"""After an error of the API server: short, as both live in one process."""


class StepLoop:
    """Runs one step after another, woken by `wake` or by the time the step asked for."""

    def __init__(self, step: Callable[[float], Awaitable[float | None]], pace: Pace) -> None:
        self._step = step
        self._pace = pace
        self._changed = asyncio.Event()

    def wake(self, *_change: object) -> None:
        """Ask for a step. Fits as an informer's callback."""
        self._changed.set()

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


JOB_CONTROLLER: Final = "system:serviceaccount:kube-system:job-controller"
"""The account that creates the pods of Jobs, as on a real cluster: webhooks check it."""


def acting_as(connection: ApiConnection, account: str) -> ApiConnection:
    """Return a connection whose requests are those of a service account."""
    namespace = account.split(":")[2]
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    named = (("Impersonate-Group", group) for group in groups)
    return replace(connection, impersonation=(("Impersonate-User", account), *named))


async def run_simulation(
    client: Client, pace: Pace | None = None, *, job_controller: Client | None = None
) -> None:
    """Schedule pods, run them, and make the pods of Jobs, until cancelled.

    Args:
        client: The API server.
        pace: Time.
        job_controller: The API server as the Job controller asks it; as all do if left out.
    """
    pace = pace or Pace()
    scheduling = EventRecorder(client, component="default-scheduler", pace=pace)
    working = EventRecorder(client, component="job-controller", pace=pace)
    loops: list[StepLoop] = []

    def wake(*_change: object) -> None:
        for loop in loops:
            loop.wake()

    pods = Informer(client, PODS, into=LocalPod, on_change=wake, pace=pace)
    nodes = Informer(client, NODES, into=Node, on_change=wake, pace=pace)
    jobs = Informer(client, JOBS, into=Job, on_change=wake, pace=pace)
    steps = (
        Scheduler(client, pods, nodes, scheduling).step,
        Kubelet(client, pods, nodes).step,
        JobController(job_controller or client, jobs, pods, working).step,
    )
    async with asyncio.TaskGroup() as group:
        for informer in (pods, nodes, jobs):
            group.create_task(informer.run())
        for informer in (pods, nodes, jobs):
            await informer.synced.wait()
        loops.extend(StepLoop(step, pace) for step in steps)
        for loop in loops:
            group.create_task(loop.run())
        for recorder in (scheduling, working):
            group.create_task(recorder.run())

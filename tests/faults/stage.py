"""The cluster that things are broken in: a real control plane, policyd's processes, and jobs."""

import contextlib
import itertools
import json
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from tests.charts.release import NAMESPACE
from tests.controlplane.programs import API_SERVER, ETCD
from tests.controlplane.server import ControlPlane
from tests.faults.history import Judge, read_history
from tests.faults.proxy import Proxy, Trouble
from tests.scenarios.api import Api, Refused, condition, eventually
from tests.scenarios.clusters import (
    Process,
    accounts_on,
    install,
    webhooks_are_ready,
    webhooks_command,
)
from tests.scenarios.objects import job

TEAMS = ("team-a", "team-b")
LIMITS = {"team-a": 12, "team-b": 12, "research": 16}
"""GPUs: a team's own and what it may borrow; both teams' own."""

FLAGS = {API_SERVER: ["--etcd-compaction-interval=0"]}
"""The whole history stays."""

WITHIN_SECONDS = 240
DOWN = (OSError, Refused)


@dataclass
class Stage:
    """What a fault is made in.

    Attributes:
        account: A kubeconfig of the controllers' account.
        running: Controllers that were started and not stopped, the first one first.
        notes: What a fault has measured, in words.
    """

    control_plane: ControlPlane
    api: Api
    proxy: Proxy
    webhooks: Process
    folder: Path
    account: Path
    running: list[Process] = field(default_factory=list)
    judge: Judge = field(default_factory=lambda: Judge(LIMITS, dict.fromkeys(TEAMS, "research")))
    names: "itertools.count[int]" = field(default_factory=itertools.count)
    notes: list[str] = field(default_factory=list)

    @property
    def etcd(self) -> str:
        """etcd's address."""
        return f"http://127.0.0.1:{self.control_plane.site.ports[ETCD]}"

    def controller(self, *more: str, direct: bool = False, skewed: Path | None = None) -> Process:
        """Start a controller, through the proxy unless it shall go `direct`."""
        kubeconfig = self.account if direct else self.proxy.in_front_of(self.account)
        program = ["policyd"] if skewed is None else ["tests.faults.skewed", str(skewed)]
        command = [sys.executable, "-m", *program, "controller", "--kubeconfig", str(kubeconfig)]
        log = self.folder / f"controller-{next(self.names)}.log"
        process = Process([*command, "--namespace", NAMESPACE, *more], log)
        process.start()
        self.running.append(process)
        return process

    def stop_controllers(self) -> None:
        """End all controllers."""
        while self.running:
            self.running.pop().kill()

    def leads(self, process: Process) -> bool:
        """Tell whether a controller has begun to lead since it was started last."""
        process.alive()
        return '"leading"' in process.log.read_text(errors="replace")

    def stands_by(self, process: Process) -> bool:
        """Tell whether a controller knows all that there is."""
        process.alive()
        return '"mirrors_synced"' in process.log.read_text(errors="replace")

    def hand_over(self, leader: Process, follower: Process) -> float:
        """End a leader by SIGTERM; return the seconds until another has decided something."""
        stopped_at = time.time()
        leader.running.terminate()
        self.running.remove(leader)
        decided = eventually(lambda: first_decision(follower), within=WITHIN_SECONDS)
        code = leader.running.wait(timeout=WITHIN_SECONDS)
        assert code == 0, leader.tail()
        return decided - stopped_at

    def submit(self, name: str, count: int, *, every: float = 0.0) -> list[tuple[str, str]]:
        """Create jobs in turns in both teams; return their namespaces and names."""
        made = []
        for number in range(count):
            team = TEAMS[number % len(TEAMS)]
            item = job(f"{name}-{number}", team, gpus=4, pods=1 + number % 2, run_for="1s")
            self.patiently(item)
            made.append((team, f"{name}-{number}"))
            time.sleep(every)
        return made

    def patiently(self, item: dict) -> None:  # type: ignore[type-arg]
        """Create an object, however long the API server is down."""

        def created() -> bool:
            try:
                self.api.create(item)
            except Refused as refusal:
                return refusal.code == 409
            except OSError:
                return False
            return True

        eventually(created, within=WITHIN_SECONDS, what=f"{item['metadata']['name']} is created")

    def await_complete(self, jobs: list[tuple[str, str]]) -> None:
        """Wait until jobs are complete.

        Raises:
            AssertionError: If some are not within four minutes; it says what they wait for.
        """

        def over() -> bool:
            for process in self.running:
                process.alive()
            return not self.left(jobs)

        eventually(over, within=WITHIN_SECONDS, what=f"{len(jobs)} jobs are over")

    def left(self, jobs: list[tuple[str, str]]) -> list[str]:
        """Return which jobs are not complete."""
        try:
            found = {
                (team, item["metadata"]["name"]): item
                for team in TEAMS
                for item in self.api.find("Job", team)
            }
        except DOWN:
            return ["the API server does not answer"]
        lost = [f"{name} is lost" for key, name in ((j, j[1]) for j in jobs) if key not in found]
        return lost + [
            name
            for team, name in jobs
            if (team, name) in found
            and condition(found[team, name], "Complete").get("status") != "True"
        ]

    def clear(self, jobs: list[tuple[str, str]]) -> list[str]:
        """Delete jobs, and return what stays of them: finalizers, pods, workloads."""
        for team, name in jobs:
            self.api.delete("Job", name, team, missing_is_fine=True)
        with contextlib.suppress(AssertionError):
            eventually(lambda: not self._remains(), within=60)
        return self._remains()

    def _remains(self) -> list[str]:
        return [
            f"{kind} {item['metadata']['name']} stays"
            for kind in ("Job", "Pod", "Workload")
            for team in TEAMS
            for item in self.api.find(kind, team)
        ]

    def judged(self) -> list[str]:
        """Go through the history since the last time; return what must not be."""
        history = read_history(self.etcd, since=self.judge.revision + 1)
        return list(self.judge.faults(history))

    def sweep(self) -> None:
        """Take away what a fault has left, so that the next begins with nothing."""
        self.proxy.trouble = Trouble()
        self.stop_controllers()
        self.controller("--no-leader-election")
        left = [(team, j["metadata"]["name"]) for team in TEAMS for j in self.api.find("Job", team)]
        assert not self.clear(left), "what a fault has left stays: the next cannot be judged"


def first_decision(process: Process) -> float | None:
    """Return when a controller first gave quota to a workload; None if it has not yet."""
    process.alive()
    lines = process.log.read_text(errors="replace").splitlines()
    decided = next((line for line in lines if '"quota_reserved"' in line), None)
    if decided is None:
        return None
    return datetime.fromisoformat(json.loads(decided)["timestamp"]).timestamp()


@contextmanager
def opened(folder: Path) -> Iterator[Stage]:
    """Start everything but a controller."""
    with ControlPlane(flags=FLAGS) as control_plane, ExitStack() as stack:
        api = Api(control_plane.kubeconfig)
        install(api)
        proxy = stack.enter_context(Proxy(control_plane))
        accounts = accounts_on(control_plane)
        webhooks = Process(webhooks_command(accounts), folder / "webhooks.log")
        webhooks.start()
        stack.callback(webhooks.stop)
        eventually(lambda: webhooks_are_ready(api, (webhooks,)), what="the webhook is open")
        stage = Stage(control_plane, api, proxy, webhooks, folder, accounts.controller)
        stack.callback(stage.stop_controllers)
        yield stage

"""The faults: each makes trouble while jobs come, and returns the jobs that must be over."""

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median

from tests.controlplane.programs import API_SERVER, ETCD
from tests.faults.proxy import Trouble
from tests.faults.stage import Stage
from tests.scenarios.api import Refused, eventually
from tests.scenarios.clusters import Process, webhooks_are_ready
from tests.scenarios.objects import pod

Jobs = list[tuple[str, str]]
ALONE = "--no-leader-election"
JOBS = 24
TERM_SECONDS = 15
HAND_OVERS = 5
HAND_OVER_SECONDS = 2.0
BESIDE_PODS = 1_000


def killed(stage: Stage, times: int) -> Jobs:
    """SIGKILL at random moments, and a new controller each time, while jobs come."""
    jobs: Jobs = []
    for number in range(times):
        process = stage.controller(ALONE)
        eventually(lambda process=process: stage.leads(process), what="the controller leads")
        jobs += stage.submit(f"killed-{number}", 2)
        time.sleep(random.uniform(0.0, 1.5))
        process.kill()
        stage.running.remove(process)
    stage.controller(ALONE)
    return jobs


def server_killed(stage: Stage) -> Jobs:
    """The API server is killed and started again, three times."""
    stage.controller()
    jobs = stage.submit("server-killed", JOBS // 2, every=0.2)
    for _ in range(3):
        stage.control_plane.kill(API_SERVER)
        time.sleep(2)
        stage.control_plane.start(API_SERVER)
        time.sleep(5)
    return jobs + stage.submit("server-back", JOBS // 2, every=0.2)


def etcd_stopped(stage: Stage) -> Jobs:
    """etcd answers nobody for 30 s."""
    stage.controller()
    jobs = stage.submit("etcd-stopped", JOBS // 2, every=0.2)
    stage.control_plane.pause(ETCD)
    time.sleep(30)
    stage.control_plane.resume(ETCD)
    return jobs + stage.submit("etcd-back", JOBS // 2, every=0.2)


def troubled(name: str, trouble: Trouble) -> Callable[[Stage], Jobs]:
    """Return a fault that the proxy makes."""

    def fault(stage: Stage) -> Jobs:
        stage.controller(ALONE)
        stage.proxy.trouble = trouble
        jobs = stage.submit(name, JOBS, every=0.3)
        time.sleep(20)
        assert trouble.made or trouble.delay, "no trouble was made"
        stage.proxy.trouble = Trouble()
        return jobs

    fault.__doc__ = f"The API server's answers: {name}."
    return fault


def two_leaders(stage: Stage) -> Jobs:
    """Two controllers fight for the Lease: each in its turn is killed."""
    pair = [stage.controller(), stage.controller()]
    jobs: Jobs = []
    for number in range(4):
        jobs += stage.submit(f"fight-{number}", JOBS // 4, every=0.2)
        pair[number % 2].kill()
        time.sleep(1)
        pair[number % 2].start()
        time.sleep(TERM_SECONDS)
    return jobs


def clean_stop(stage: Stage) -> Jobs:
    """The leader is stopped by SIGTERM under load, five times; its stand-by decides within 2 s."""
    leader = stage.controller()
    eventually(lambda: stage.leads(leader), within=60, what="the first leads")
    jobs: Jobs = []
    seconds = []
    for number in range(HAND_OVERS):
        jobs += stage.submit(f"stop-{number}", JOBS)
        follower = stage.controller()
        eventually(lambda follower=follower: stage.stands_by(follower), what="another stands by")
        seconds.append(stage.hand_over(leader, follower))
        leader = follower
    stage.notes.append(
        "from the stop to the next decision: " + ", ".join(f"{s:.2f} s" for s in seconds)
    )
    assert median(seconds) <= HAND_OVER_SECONDS, stage.notes[-1]
    return jobs


def frozen(stage: Stage) -> Jobs:
    """The leader is stopped past its term, another takes over, and the first wakes up again."""
    first = stage.controller()
    eventually(lambda: stage.leads(first), within=60, what="the first leads")
    second = stage.controller()
    jobs = stage.submit("frozen", JOBS // 2, every=0.1)
    os.kill(first.running.pid, signal.SIGSTOP)
    try:
        eventually(lambda: stage.leads(second), within=90, what="the second leads")
        jobs += stage.submit("thawed", JOBS // 2)
    finally:
        os.kill(first.running.pid, signal.SIGCONT)
    return jobs


def webhooks_down(stage: Stage) -> Jobs:
    """The webhooks are down while a thousand pods are made: these run beside the queue."""
    stage.controller()
    stage.webhooks.kill()
    labels = {"kueue.x-k8s.io/queue-name": "team-a"}
    annotations = {"policyd.io/run-for": "1s"}
    for number in range(BESIDE_PODS):
        made = pod(f"beside-{number}", gpus=0, labels=labels, annotations=annotations)
        stage.patiently(made)
    stage.webhooks.start()
    eventually(lambda: _open(stage, stage.webhooks), within=60, what="the webhook is open")
    jobs = stage.submit("webhooks-back", JOBS)
    for number in range(BESIDE_PODS):
        stage.api.delete("Pod", f"beside-{number}", "team-a", missing_is_fine=True)
    return jobs


def _open(stage: Stage, webhooks: Process) -> bool:
    with suppress(Refused, OSError):
        return webhooks_are_ready(stage.api, (webhooks,))
    return False


def clock_jumps(stage: Stage) -> Jobs:
    """The controller's clock jumps an hour ahead, and two hours back."""
    wrong = Path(stage.folder, "skew")
    wrong.write_text("0")
    stage.controller(skewed=wrong)
    jobs: Jobs = []
    for number, seconds in enumerate((0, 3600, -3600, 0)):
        wrong.write_text(str(seconds))
        jobs += stage.submit(f"clock-{number}", JOBS // 4, every=0.3)
        time.sleep(3)
    return jobs


def faults(kills: int) -> dict[str, Callable[[Stage], Jobs]]:
    """Return all faults by name."""
    return {
        "controller killed": lambda stage: killed(stage, kills),
        "API server killed": server_killed,
        "API server slow": troubled("slow", Trouble(delay=1.0)),
        "answers 409": troubled("conflict", Trouble(code=409, share=0.5)),
        "answers 410": troubled("gone", Trouble(code=410, share=0.5)),
        "answers 429": troubled("throttled", Trouble(code=429, share=0.5)),
        "answers 500": troubled("broken", Trouble(code=500, share=0.5)),
        "watches cut": troubled("cut", Trouble(cut=0.3)),
        "etcd stopped": etcd_stopped,
        "clean stop": clean_stop,
        "two leaders": two_leaders,
        "leader frozen": frozen,
        "webhooks down": webhooks_down,
        "clock jumps": clock_jumps,
    }

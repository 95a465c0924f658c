"""Expressions that cost more than they are charged for, and reviews that stop others."""

import asyncio
import gc
import random
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import msgspec
import structlog

from policyd.admission.handler import AdmissionHandler
from policyd.clock import SystemClock
from policyd.engine.compile.load import load_policies
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.model.deadline import never
from tests.attacks.figures import Figures
from tests.cel import costly
from webhooks.workers import SWITCH_SECONDS, WORKERS, Workers

SEARCH_SECONDS = 60.0
"""How long expressions are made up."""
BESIDE_SECONDS = 3.0
"""How long heavy reviews come in, in each of three rounds."""
ROUNDS = 3
MOST_DELAY = 0.1
"""How long a heavy review may keep a light one waiting."""
REQUEST_SECONDS = 4.0
"""The share of the default timeout, 5 s, that deciding may take."""

_POLICY = """\
apiVersion: policyd.io/v1alpha1
kind: Policy
metadata: {{name: {name}}}
spec:
  matchConstraints:
    resourceRules:
    - {{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*"]}}
  validations:
"""


def _policies(expressions, count):
    made = []
    for number in range(count):
        text = _POLICY.format(name=f"p{number}") + "".join(
            f"  - expression: {msgspec.json.encode(each).decode()}\n    message: never\n"
            for each in expressions
        )
        made += load_policies(text, "p.yaml").policies
    return PolicySet(made, namespaces=lambda _name: {"metadata": {"labels": {}}})


def _review(data, old=None):
    about = {"metadata": {"name": "a", "namespace": "a"}, "data": data}
    config = {"apiVersion": "v1", "kind": "ConfigMap", **about}
    request = {
        "uid": "1",
        "kind": {"version": "v1", "kind": "ConfigMap"},
        "resource": {"version": "v1", "resource": "configmaps"},
        "operation": "CREATE",
        "namespace": "a",
        "name": "a",
        "object": config,
    }
    if old is not None:
        request |= {"operation": "UPDATE", "oldObject": {**config, "data": old}}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return msgspec.json.encode(review)


def search():
    """Make up expressions from all there is, over the largest objects."""
    seed = random.randrange(10**6)
    costly.variables()
    gc.collect()
    gc.freeze()
    try:
        until, tried, worst = time.monotonic() + SEARCH_SECONDS, 0, []
        while time.monotonic() < until:
            measured = costly.measure(costly.expression(seed, tried))
            tried += 1
            if measured is not None:
                worst = sorted((*worst, measured), reverse=True)[:5]
        again = [costly.measured_again(each) for each in worst]
    finally:
        gc.unfreeze()
    slow = [each for each in again if each.seconds > costly.BOUND_SECONDS]
    return Figures(
        tried=tried,
        worst_seconds=max(each.seconds for each in again),
        faults=tuple(f"seed {seed}: {costly.shown(each)}" for each in slow),
    )


_LARGE = {f"k{i}": "v" * 20 for i in range(40_000)}
_GREEDY = (
    "object.data.all(k, object.data[k] == oldObject.data[k])",
    "!object.data.exists(k, object.data.exists(l, k + l == 'x'))",
    "object.?data == oldObject.?data",
    "object.data.map(k, k).distinct().size() > 0",
)


def shared_out():
    """Have a hundred policies, each just below its limit, decide on one object, and a light one."""
    policies = _policies(_GREEDY, 100)
    body = _review(_LARGE, _LARGE)
    answered = AdmissionHandler(phase="validate", policies=policies.validate).answer
    began = time.thread_time()
    asyncio.run(answered(body, never))
    seconds = time.thread_time() - began
    late = f"100 policies took {seconds:.1f} s of CPU, and have {REQUEST_SECONDS} s"
    faults = (late,) if seconds > REQUEST_SECONDS else ()
    return Figures(tried=100, worst_seconds=seconds, faults=faults)


def beside():
    """Send heavy reviews one after the other, and light ones beside them."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        with ThreadPoolExecutor(WORKERS) as executor:
            rounds = [asyncio.run(_beside(executor)) for _ in range(ROUNDS)]
    finally:
        sys.setswitchinterval(before)
    # What stops others does so in each round; what else the machine had to do does not.
    longest = min(max(delayed) for delayed, _ in rounds)
    late = f"a light review waited {longest * 1000:.0f} ms beside heavy ones"
    return Figures(
        tried=sum(tried for _, tried in rounds),
        worst_seconds=longest,
        median_seconds=statistics.median(each for delayed, _ in rounds for each in delayed),
        faults=(late,) if longest > MOST_DELAY else (),
    )


async def _beside(executor):
    workers = Workers(executor, clock=SystemClock())
    policies = _policies(_GREEDY, 2)
    answered = AdmissionHandler(
        phase="validate",
        policies=policies.validate,
        with_external_data=workers.decide,
        run=workers.run,
    ).answer
    light = _review({"a": "b"}, {"a": "b"})
    heavy = [
        _review(_LARGE, _LARGE),
        _review({"a": "<" * 1_000_000}, {"a": "<" * 1_000_000}),
        _review({f"k{i}": [{}] * 10 for i in range(30_000)}),
        _review({f"k{i}": "v" for i in range(500)}, {"k": "v"}),  # light, and takes long
    ]
    stop = asyncio.Event()

    async def send_heavy():
        sent = 0
        while not stop.is_set():
            await answered(heavy[sent % len(heavy)], never)
            sent += 1
        return sent

    async with asyncio.TaskGroup() as group:
        senders = [group.create_task(send_heavy()) for _ in range(4)]
        delayed = []
        until = time.monotonic() + BESIDE_SECONDS
        while time.monotonic() < until:
            delayed.append(await _timed(answered, light))
            await asyncio.sleep(0.005)
        stop.set()
    return delayed, len(delayed) + sum(sender.result() for sender in senders)


async def _timed(answered, body):
    """Return how long a review took that came in just now.

    What counts is the time that this process had: on a busy machine, others take theirs.
    """
    loop = asyncio.get_running_loop()
    began = time.process_time()
    came = asyncio.Event()
    loop.call_later(0, came.set)
    await came.wait()
    await answered(body, never)
    return time.process_time() - began


def _quietly(run):
    """Return an attack without what it logs."""

    def attack():
        with structlog.testing.capture_logs():
            return run()

    return attack


ATTACKS = {
    "work that is not charged": _quietly(search),
    "a hundred greedy policies": _quietly(shared_out),
    "heavy reviews beside light ones": _quietly(beside),
}

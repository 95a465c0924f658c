"""One history, from its plan to what the judges say of it."""

import asyncio
import gc
import os
import random
import sys
import time
import traceback
import warnings
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from unittest import mock

import structlog

from policyd.controller.queues import bases, hours
from policyd.kube.events import EventRecorder
from policyd.local import simulation
from policyd.local.apiserver import housekeeping
from policyd.local.apiserver.reading import watch
from policyd.local.apiserver.writing import write
from tests.histories.cluster import template
from tests.histories.judges import JUDGES
from tests.histories.loop import SimulatedLoop, StuckError
from tests.histories.plan import plan_of
from tests.histories.world import World

SELDOM = 3600.0
"""Seconds between what else happens all the time, so that hours would consist of it."""


class Unrecorded(EventRecorder):
    """Writes nothing."""

    def record(self, *_given, **_named):
        pass


ZONE = "Asia/Kathmandu"
"""Of the machine: what is of another zone than it says is then seen to be."""
FEWEST_EVENTS = 60
"""With fewer, as in a history that was made smaller, the same is allowed as with these."""
MOST_CALLBACKS, MOST_AT_ONCE = 2_000, 5
"""For each planned event, in all and at one moment: else jobs preempt each other for ever."""

LIGHTER = (
    (watch, "BOOKMARK_SECONDS", SELDOM),
    (hours, "IDLE_SECONDS", SELDOM),
    (bases, "REFRESH_SECONDS", SELDOM),
    (housekeeping, "SWEEP_SECONDS", SELDOM),
    # Nothing here reads who set which field, and to keep that is a quarter of the work.
    (write, "tracked", lambda _old, new, _request, _now: new),
    # The events of the scheduler and of the Job controller are a twelfth of all requests.
    (simulation, "EventRecorder", Unrecorded),
)
"""What is otherwise than in a cluster, as it costs much and no judge looks at it."""


@dataclass
class Outcome:
    """What became of a history."""

    plan: object
    faults: list
    """What the judges found: the name of the judge, and a sentence."""
    digest: str = ""
    seconds: float = 0.0
    simulated: float = 0.0
    workloads: int = 0
    writes: int = 0
    peak_load: float = 0.0
    callbacks: int = 0
    done: dict = field(default_factory=dict)
    struck: dict = field(default_factory=dict)
    world: object = None


class Log:
    """Keeps the errors that product code logs because nobody foresaw them."""

    def __init__(self):
        self.errors = []

    def __call__(self, _logger, method, event):
        if method == "exception" or event.get("exc_info"):
            self.errors.append({**event, "traceback": traceback.format_exc(limit=-6)})
        raise structlog.DropEvent


@contextmanager
def surroundings(seed, *, collects=True):
    """Have all that is random follow from the seed, and log into a list.

    Without `collects`, the process ends soon, and nothing has to be freed.
    """
    state = random.getstate()
    random.seed(seed)
    log = Log()
    structlog.configure(
        processors=[log],
        wrapper_class=structlog.make_filtering_bound_logger("error"),
        cache_logger_on_first_use=False,
    )
    gc.disable()
    gc.freeze()  # what was there before is not looked through at the end
    unraisable, sys.unraisablehook = sys.unraisablehook, lambda _error: None
    try:
        with ExitStack() as stack:
            for each in LIGHTER:
                stack.enter_context(mock.patch.object(*each))
            stack.enter_context(mock.patch.dict(os.environ, {"TZ": ZONE}))
            time.tzset()
            yield log
    finally:
        if collects:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                gc.collect()  # without a word of tasks that were killed, or still run
            sys.unraisablehook = unraisable
            structlog.reset_defaults()
            gc.unfreeze()
            gc.enable()
        random.setstate(state)
        time.tzset()


def live_through(plan, *, digest=False, judges=JUDGES, keep=False, collects=True):
    """Live through a history, and judge it."""
    template()
    began = time.process_time()
    with surroundings(plan.seed, collects=collects) as log:
        size = max(FEWEST_EVENTS, len(plan.events)) + 10
        loop = SimulatedLoop(
            f"{plan.seed}/order", most_turns=MOST_AT_ONCE * size, most=MOST_CALLBACKS * size
        )
        world = World(plan, loop)
        found = []
        try:
            loop.run_until_complete(world.run())
        except StuckError as error:
            found.append(("time goes on", str(error)))
        loop.over = True
        found += [
            (name, text)
            for name, judge in judges.items()
            for text in objections_of(judge, world, log)
        ]
        outcome = Outcome(
            plan,
            found,
            world.record.digest() if digest else "",
            simulated=loop.time(),
            workloads=len({v.key for v in world.record.of("workloads.kueue.x-k8s.io")}),
            writes=len(world.record.versions),
            peak_load=world.record.peak_load(),
            callbacks=loop.callbacks,
            done=dict(world.done + world.record.evictions()),
            struck=dict(world.trouble.struck),
            world=world if keep else None,
        )
        loop.close()
        asyncio.set_event_loop(None)
        if not collects:
            _KEPT.append(world)
        del loop, world
    outcome.seconds = time.process_time() - began
    return outcome


def objections_of(judge, world, log):
    """Yield what a judge objects to; also that it could not read what was written."""
    try:
        yield from judge(world, log)
    except LookupError as error:
        yield f"what was written cannot be read: {error!r}"


def warm_up():
    """Do what every history would do once: imports, rules that are compiled, what is remembered."""
    live_through(plan_of(WARMING), collects=False)
    gc.freeze()


WARMING = 1_000_003
"""The seed of a history in which much takes part."""

_KEPT = []
"""Worlds of a process that ends soon: taking them apart would cost time."""


def outcome_of(plan):
    """Live through a history in a process of its own, which keeps nothing for another."""
    return live_through(plan, collects=False)

"""How far a Workload and a Job travel through the controller.

Three figures, from the whole to the way itself:

- all files and calls that the controller passes because of one object: statuses, metrics, reasons
  and whatever else listens, too;
- the files that the numbered steps of its way enter, whatever they ask there;
- the files that the way leads through: those on the stack when a step hands over, that is when it
  puts the object into the allocator's state, queues a key, plans a cycle, or writes. A reader opens
  these to follow the way, so the target is theirs; the ADR on ways gives the reasons.

`python -m tests.house_loops` lists the files.
"""

import asyncio
import sys
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from policyd.kube import resources as r
from policyd.testing import FakeClient
from policyd.testing.objects import ObjectStore
from tests.controller.world import World, names, running
from tests.house import PRODUCT, ROOT

FAKES = "/policyd/testing/"
"""The API server in memory is a part of the tests, and not of the way."""

STEPS = {
    "workload": "policyd/controller/workload_reconciler.py",
    "job": "policyd/controller/jobs/job_reconciler.py",
}
"""Where the numbered steps of each way are."""

HANDOVERS = {
    "CoreState.put_workload",
    "WorkQueue.add",
    "plan_cycle",
    "Writes.create",
    "Writes.patch",
}
"""What a step does with what it has found out."""


@dataclass
class Travel:
    """What one object passed on its way.

    Attributes:
        calls: Calls of the product's functions, by file.
        entered: Those of them that were made below a step.
        through: The files through which a step came to hand over.
    """

    calls: Counter[str] = field(default_factory=Counter)
    entered: Counter[str] = field(default_factory=Counter)
    through: set[str] = field(default_factory=set)


class Unchecked(World):
    """A world in which no test checks what the controller writes."""

    client_type = type("Unchecking", (FakeClient,), {})

    def __init__(self):
        super().__init__()
        self.store = ObjectStore(clock=self.clock)


def figures(found):
    """Return the figures of a way, by what they count."""
    return {
        "files that it leads through": len(found.through),
        "files that its steps enter": len(found.entered),
        "files that the controller passes": len(found.calls),
        "calls of the controller": found.calls.total(),
    }


@contextmanager
def travelled(steps, root=ROOT):
    """Count what is passed while this is open, on the way whose steps are in a file."""
    tops = tuple(f"{root / top}/" for top in PRODUCT)
    found = Travel()

    def of_product(name):
        return name.startswith(tops) and FAKES not in name

    def count(frame, event, _):
        if event != "call" or not of_product(frame.f_code.co_filename):
            return
        stack = list(_stack(frame))
        short = [str(Path(name).relative_to(root)) for name in stack if of_product(name)]
        found.calls[short[0]] += 1
        if steps in short:
            found.entered[short[0]] += 1
            if frame.f_code.co_qualname in HANDOVERS:
                found.through.update(short)

    sys.setprofile(count)
    try:
        yield found
    finally:
        sys.setprofile(None)


def _stack(frame):
    while frame is not None:
        yield frame.f_code.co_filename
        frame = frame.f_back


async def workload_way():
    """Count what a Workload passes from its watch event to the patch that admits it."""
    world = Unchecked()
    async with running(world):
        world.furnish()
        world.job("warm", gpus=1)
        await world.pass_time(2)
        workload = world.workload_of("warm")
        second = {key: workload[key] for key in ("apiVersion", "kind", "spec") if key in workload}
        second["metadata"] = {"name": "second", "labels": {}, "finalizers": []}
        with travelled(STEPS["workload"]) as found:
            world.create(r.WORKLOADS, second)
            await world.pass_time(0.2)
        assert world.is_true("second", "QuotaReserved")
    return found


async def job_way():
    """Count what a Job passes from its watch event to the Workload that stands for it."""
    world = Unchecked()
    async with running(world):
        world.furnish(gpus=1)
        world.job("warm", gpus=1)
        await world.pass_time(2)
        with travelled(STEPS["job"]) as found:
            world.job("second", gpus=1)
            await world.pass_time(0.1)
        assert len(names(world, r.WORKLOADS)) == 2
    return found


def main() -> None:
    """Print the files of both ways: how many calls of each, and which the way leads through."""
    for name, way in (("Workload", workload_way), ("Job", job_way)):
        found = asyncio.run(way())
        print(f"{name}: {', '.join(f'{what}: {now:,}' for what, now in figures(found).items())}")
        for file, count in found.calls.most_common():
            mark = "through" if file in found.through else "entered" * (file in found.entered)
            print(f"{count:6,}  {mark:8} {file}")


if __name__ == "__main__":
    main()

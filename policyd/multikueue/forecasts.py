"""The forecast dispatcher: a workload goes to the worker where it would start first.

It goes beyond Kueue, and is used only where the Configuration names it. Each worker that runs
policyd serves a snapshot of its queues with forecasts. A workload is tried in each, as if it were
submitted there now, and one copy of it is made: where it would start first. Workers without
forecasts, such as those that run Kueue, are tried some at a time, as the incremental dispatcher
does, once no other worker can say when the workload starts.
"""

from collections.abc import Mapping
from math import inf
from typing import Final, NamedTuple

from policyd.alloc.workload import QueuedWorkload
from policyd.api.kueue import Workload
from policyd.multikueue.dispatch import ROUND_SECONDS, next_round
from policyd.multikueue.settings import MultiKueueSettings
from policyd.snapshot.dry_run import AdmissionDryRun, NeverFits, WouldStart
from policyd.workload.pod_set_values import pod_set_values, rules_of_snapshot

PATIENCE_SECONDS: Final = 30.0
"""How long a worker may need for its first forecast: it makes them once it is asked."""
LOOK_SECONDS: Final = 2.0
"""Between looks at the snapshots of a workload that waits for a forecast."""
LEAST_GAIN_SECONDS: Final = 60.0
LEAST_GAIN: Final = 0.1
"""How much sooner a workload must start elsewhere to leave its place in a queue: so long, and this
part of its wait."""


class ExpectedStart(NamedTuple):
    """When a workload would start on a worker, in seconds since the epoch.

    Attributes:
        median: As many start before as after.
        high: One in twenty starts after.
        victims: How many workloads would be preempted for it.
    """

    median: float
    high: float
    victims: int = 0


NEVER: Final = ExpectedStart(inf, inf)
"""The worker cannot run it, as far as it is known."""
SOON_KNOWN: Final = ExpectedStart(inf, -inf)
"""The worker got another workload a moment ago, which its snapshot does not have yet."""


class Trial(NamedTuple):
    """What a worker would do with a workload.

    Attributes:
        start: When it would start; None if that is not known.
        queued: The workload in the queue of the worker; None if it has none there.
        quota: What it would get at once; None if it would wait.
    """

    start: ExpectedStart | None
    queued: QueuedWorkload | None = None
    quota: WouldStart | None = None


def try_workload(dry_run: AdmissionDryRun, workload: Workload, *, now: float) -> Trial:
    """Say what a worker would do with a workload that it gets now.

    Args:
        dry_run: The queues of the worker.
        workload: The workload on the manager.
        now: Seconds since the epoch.
    """
    metadata, spec = workload.metadata, workload.spec
    local = dry_run.local_queue(metadata.namespace, spec.queue_name)
    use = None if local is None else dry_run.status(local.cluster_queue)
    if local is None or use is None or not local.open or not use.active:
        return Trial(NEVER)
    given = rules_of_snapshot(dry_run.rules, metadata.namespace)
    pod_sets, objection = pod_set_values(workload, {}, given)
    if objection is not None:
        return Trial(NEVER)
    queued = QueuedWorkload(
        key=metadata.key,
        uid=metadata.uid,
        cluster_queue=local.cluster_queue,
        local_queue=f"{metadata.namespace}/{local.name}",
        priority=spec.priority or 0,
        queued_at=now,
        pod_sets=pod_sets,
    )
    result = dry_run.result(queued)
    if isinstance(result, NeverFits):
        return Trial(NEVER)
    if isinstance(result, WouldStart):
        return Trial(ExpectedStart(now, now + ROUND_SECONDS, result.victims), queued, result)
    row = dry_run.start_of(queued, result, now=now)
    if row is None:
        return Trial(None, queued)
    # One that waits does not start now, whatever the clock of the worker says.
    return Trial(ExpectedStart(max(row.median, now + 1), max(row.high, now + 1)), queued)


class Choice(NamedTuple):
    """Where a workload goes.

    Attributes:
        names: All workers that are nominated from now on.
        again: Seconds until it is to be looked at again.
        promised: When it starts there; None if that is not known.
    """

    names: tuple[str, ...]
    again: float
    promised: ExpectedStart | None = None


class Waiting(NamedTuple):
    """A workload that has not started anywhere.

    Attributes:
        nominated: The workers that it was sent to.
        seconds: For how long a worker has been looked for.
        promised: When it starts where it was sent to; None if that is not known.
    """

    nominated: tuple[str, ...] = ()
    seconds: float = 0.0
    promised: ExpectedStart | None = None


def choose(
    waiting: Waiting,
    starts: Mapping[str, ExpectedStart | None],
    settings: MultiKueueSettings,
    *,
    now: float,
) -> Choice:
    """Return where a workload goes.

    Args:
        waiting: The workload.
        starts: When it would start on each connected worker, in the order of the config; None
            where that is not known.
        settings: How many workers without a forecast are tried at a time.
        now: Seconds since the epoch.
    """
    known = {name: start for name, start in starts.items() if start and start.median < inf}
    ranks = {name: (max(start.median, now), start.victims) for name, start in known.items()}
    best = min(ranks, key=ranks.__getitem__, default="")
    slow = None in starts.values() and waiting.seconds < PATIENCE_SECONDS
    at_once = bool(best) and known[best].median <= now
    if not at_once and (slow or SOON_KNOWN in starts.values()):
        return Choice(waiting.nominated, LOOK_SECONDS, waiting.promised)
    kept = tuple(name for name in waiting.nominated if name in starts)
    promised = waiting.promised or (known.get(kept[0]) if len(kept) == 1 else None)
    late = not kept or promised is None or now > promised.high
    if best and best not in kept and (late or _gains(known[best], promised, now)):
        return Choice((best,), ROUND_SECONDS, known[best])
    if not late or best in kept:
        return Choice(kept, ROUND_SECONDS, known[best] if late else promised)
    return Choice(next_round(kept, _without_forecast(starts), settings), ROUND_SECONDS)


def _without_forecast(starts: Mapping[str, ExpectedStart | None]) -> list[str]:
    """Return the workers that may run a workload, and do not say when; all if none may."""
    return [name for name, start in starts.items() if start is None] or list(starts)


def _gains(start: ExpectedStart, promised: ExpectedStart | None, now: float) -> bool:
    """Tell whether a workload starts so much sooner elsewhere that it should move."""
    if promised is None:
        return True
    least = max(LEAST_GAIN_SECONDS, LEAST_GAIN * (promised.median - now))
    return max(start.median, now) + least < promised.median

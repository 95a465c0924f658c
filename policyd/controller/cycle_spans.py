"""A span for each scheduling cycle that decides something, with its decisions as events."""

from collections import Counter
from collections.abc import Callable
from itertools import islice

from policyd.alloc.plan import Plan
from policyd.clock import Clock
from policyd.tracing import MOST_EVENTS, Tracer

_NANOSECONDS = 1_000_000_000


def cycle_spans(tracer: Tracer, clock: Clock) -> Callable[[Plan, float], None]:
    """Return a function that makes the span of a cycle, given its plan and how long it took.

    Args:
        tracer: OpenTelemetry's tracer.
        clock: The time at which a cycle ends.
    """

    def note(plan: Plan, seconds: float) -> None:
        ended = clock.now()
        span = tracer.start_span("cycle", start_time=int((ended - seconds) * _NANOSECONDS))
        if span.is_recording():
            kinds = Counter(type(action).__name__.lower() for action in plan.actions)
            for kind, number in kinds.items():
                span.set_attribute(f"policyd.cycle.{kind}", number)
            for action in islice(plan.actions, MOST_EVENTS):
                about = {
                    "workload": action.workload.key,
                    "cluster_queue": action.workload.cluster_queue,
                }
                span.add_event(type(action).__name__.lower(), about)
        span.end(end_time=int(ended * _NANOSECONDS))

    return note

"""What is known of one job: its place in the queue, and what its Workload and its pods say."""

from policyd.alloc.value import Value
from policyd.snapshot.answers import WhyAnswer
from policyd.workload.records import ConditionRecord, PodSetRecord, WorkloadRecord


class PodsOnNode(Value, frozen=True, rename="camel"):
    """How many pods of a job are on a node ("" if on none yet), by their phase."""

    node: str
    phase: str
    pods: int


class JobAnswer(Value, frozen=True, rename="camel"):
    """A job, as `why` answers for it, and what its Workload and pods say.

    Attributes:
        why: Its place, or what it does.
        record: Its times, waits and evictions; None if it has no Workload.
        pod_sets: What it asks for, and got.
        pods: Where its pods are; None if they cannot be listed.
        preempted_by: Who preempted it last: `namespace/name` of a Workload, or as much as is known.
        left_out: What could not be found out, and why.
    """

    why: WhyAnswer
    record: WorkloadRecord | None = None
    pod_sets: tuple[PodSetRecord, ...] = ()
    pods: tuple[PodsOnNode, ...] | None = None
    conditions: tuple[ConditionRecord, ...] = ()
    checks: tuple[ConditionRecord, ...] = ()
    preempted_by: str = ""
    left_out: tuple[str, ...] = ()

"""What is sent to the webhooks: what policies ask for, and what the queue must see besides."""

from collections.abc import Iterable

from policyd.api.admission import FailurePolicy
from policyd.engine.compiled import CompiledPolicy
from policyd.jobs.integrations import Integrations
from webhooks.calls import DoorRules, door_rules


def rules_for(
    policies: Iterable[CompiledPolicy],
    defaulted: frozenset[str] = frozenset(),
    *,
    queue: Integrations | None,
    failure_policy: FailurePolicy = "Fail",
) -> DoorRules:
    """Derive what is sent.

    Whatever is sent for the queue's sake and must be asked is refused where it cannot be judged,
    too.

    Args:
        policies: Those in force.
        defaulted: Namespaces with a queue for jobs that name none.
        queue: Which jobs are held for their queue; None if nothing is done for the queue.
        failure_policy: What becomes of jobs that queue, and of queues, if nobody answers.
    """
    return door_rules(policies, queue=queue, defaulted=defaulted, failure_policy=failure_policy)

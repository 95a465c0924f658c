"""Whether the pods of a workload all run, as the condition PodsReady says it, in Kueue's words.

Since when it does is read from the condition, so that a controller that is started again knows it.
"""

from typing import Final

from policyd.api.kueue import Workload
from policyd.api.kueue.names import ADMITTED, EVICTED, PODS_READY
from policyd.api.meta import Condition, condition_true, find_condition

_RUNNING: Final = "All pods reached readiness and the workload is running"
STARTED: Final = Condition(PODS_READY, "True", "Started", _RUNNING)
RECOVERED: Final = Condition(PODS_READY, "True", "Recovered", _RUNNING)
RECOVERING: Final = Condition(
    PODS_READY, "False", "WaitForRecovery", "At least one pod has failed, waiting for recovery"
)
STARTING: Final = Condition(
    PODS_READY, "False", "WaitForStart", "Not all pods are ready or succeeded"
)


def readiness(workload: Workload, *, ready: bool) -> Condition | None:
    """Return the due condition of a workload's pods; None if it is already set.

    While a workload is being stopped its pods end, which is not reported.
    """
    known = find_condition(workload.status.conditions, PODS_READY)
    if condition_true(workload.status.conditions, ADMITTED):
        if condition_true(workload.status.conditions, EVICTED):
            return None
        condition = _of_running(known, ready=ready)
    else:
        condition = STARTING
    same = known is not None and (known.status, known.reason) == (
        condition.status,
        condition.reason,
    )
    return None if same else condition


def _of_running(known: Condition | None, *, ready: bool) -> Condition:
    reason = "" if known is None else known.reason
    if ready:
        return RECOVERED if reason in {"WaitForRecovery", "Recovered"} else STARTED
    ran = known is not None and (known.status == "True" or reason == "WaitForRecovery")
    return RECOVERING if ran else STARTING

"""The gates that keep a workload from preempting: its status has one for each of its spec's."""

import msgspec

from policyd.api.kueue import PreemptionGateState, Workload, WorkloadStatus
from policyd.api.meta import timestamp


def sync_preemption_gates(workload: Workload, *, now: float) -> WorkloadStatus:
    """Return the status with a state for each preemption gate, and for no others.

    A new one is closed; whoever has put it into the spec opens it.

    Args:
        workload: The workload.
        now: Seconds since the epoch.
    """
    status, gates = workload.status, workload.spec.preemption_gates
    if not (gates or status.preemption_gates):
        return status
    states = {state.name: state for state in status.preemption_gates}
    if states.keys() == {gate.name for gate in gates}:
        return status
    wanted = (
        states.get(gate.name) or PreemptionGateState(gate.name, "Closed", timestamp(now))
        for gate in gates
    )
    return msgspec.structs.replace(status, preemption_gates=tuple(wanted))

"""A judge of the life of a workload, by the state machine of docs/concepts/lifecycle.md."""

import re
from functools import cache
from pathlib import Path

from policyd.api.kueue.names import ADMITTED, EVICTED, FINISHED, QUOTA_RESERVED
from tests.histories.record import WORKLOADS, is_true

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "lifecycle.md"
NOTHING = "[*]"
"""Before a workload is created, and once it is deleted."""
STEP = re.compile(r"^ *(\w+|\[\*\]) --> (\w+|\[\*\])", re.MULTILINE)


@cache
def steps():
    """Return the steps that the page draws: pairs of states."""
    return frozenset(STEP.findall(PAGE.read_text()))


def state_of(workload):
    """Return the state of a workload, as the page defines them."""
    if workload is None:
        return NOTHING
    if is_true(workload, FINISHED):
        return "Finished"
    if is_true(workload, QUOTA_RESERVED):
        if is_true(workload, EVICTED):
            return "Evicted"
        return "Admitted" if is_true(workload, ADMITTED) else "Reserved"
    return "Pending" if workload["spec"].get("active", True) else "Inactive"


def life_is_as_documented(world, log):
    """A workload goes from state to state as the page says, and never without quota is admitted."""
    for v in world.record.of(WORKLOADS):
        step = state_of(v.old), state_of(v.new)
        if step[0] != step[1] and step not in steps():
            yield f"{v.at:.1f} s: {v.who} takes {v.key} from {step[0]} to {step[1]}"
        if is_true(v.new, ADMITTED) and not is_true(v.new, QUOTA_RESERVED):
            yield f"{v.at:.1f} s: {v.key} is admitted without quota"
        if is_true(v.new, QUOTA_RESERVED) and not v.new["status"].get("admission"):
            yield f"{v.at:.1f} s: {v.key} holds quota of no queue"

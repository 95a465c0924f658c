"""Makes a history that fails smaller, until each event that is left is needed; and tells it."""

from dataclasses import replace

from tests.histories.history import live_through
from tests.histories.objects import TEAM
from tests.histories.record import WORKLOADS

SHOWN = ("QuotaReserved", "Admitted", "Evicted", "Finished")


def shrink(outcome, *, most=120, report=lambda _left: None):
    """Return the outcome of the smallest history found in which the same judge objects.

    Args:
        outcome: Of a history that fails.
        most: Histories that are tried.
        report: Called with the number of events that are left.
    """
    judge, tried = outcome.faults[0][0], 0
    best, size = outcome, max(1, len(outcome.plan.events) // 2)
    while size and tried < most:
        smaller = None
        for at in range(0, len(best.plan.events), size):
            gone = best.plan.events[at : at + size]
            tried += 1
            found = live_through(replace(best.plan.without(gone)), keep=False)
            if any(name == judge for name, _ in found.faults):
                smaller = found
                break
            if tried >= most:
                break
        if smaller is None:
            size //= 2
        else:
            best = smaller
            size = min(size, len(best.plan.events))
            report(len(best.plan.events))
    return best


def story(outcome):
    """Return a failing history as a person reads it: what happened, and what was written of it."""
    outcome = live_through(outcome.plan, keep=True)
    lines = [f"seed {outcome.plan.seed}: {name}: {text}" for name, text in outcome.faults]
    timeline = [(e.at, f"{e.act} {_about(e)}") for e in outcome.plan.events]
    named = {e.about["name"] for e in outcome.plan.events if e.act == "submit"}
    for v in outcome.world.record.versions:
        shown = _shown(v)
        if shown and any(name in v.key for name in named):
            timeline.append((v.at, shown))
    setting = outcome.plan.setting
    lines.append(f"setting: {setting['nodes']} nodes, queues {setting['queues']}")
    lines += [f"{at:10.3f} s  {text}" for at, text in sorted(timeline, key=lambda each: each[0])]
    return "\n".join(lines)


def _about(event):
    return ", ".join(f"{name}={value}" for name, value in event.about.items() if value != "")


def _shown(v):
    """Return one write in words; of a workload only changes of its conditions."""
    name = v.key.removeprefix(f"{TEAM}/")
    who = v.who.rpartition(":")[2]
    if v.new is None:
        return f"    {v.resource} {name} is gone" if v.resource != "events" else ""
    if v.resource == WORKLOADS:
        now, before = _conditions(v.new), _conditions(v.old)
        return f"    {who}: workload {name} {now}" if now != before or v.old is None else ""
    if v.resource in {"jobs.batch", "jobsets.jobset.x-k8s.io"}:
        suspended = [bool((each or {}).get("spec", {}).get("suspend")) for each in (v.old, v.new)]
        if v.old is None or suspended[0] != suspended[1]:
            return f"    {who}: {v.resource} {name} {'waits' if suspended[1] else 'may run'}"
    if v.resource == "pods":
        phase = v.new.get("status", {}).get("phase")
        if v.old is None or v.old.get("status", {}).get("phase") != phase:
            return f"    {who}: pod {name} {phase}"
    return ""


def _conditions(workload):
    found = (workload or {}).get("status", {}).get("conditions") or ()
    true = [each["type"] for each in found if each["status"] == "True" and each["type"] in SHOWN]
    return " ".join(sorted(true)) or "waits"

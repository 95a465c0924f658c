"""What a job's status may say: its counts, its times, and the conditions it ends with."""

from collections.abc import Iterator

from policyd.local.apiserver.kinds.container_checks import NOT_NEGATIVE
from policyd.local.apiserver.status import Cause, Object, required, wrong

COUNTS = ("active", "failed", "ready", "succeeded", "terminating")

NEEDED = {"Complete": "SuccessCriteriaMet", "Failed": "FailureTarget"}
"""The conditions a job ends with, and those that come before."""


def check_job_status(new: Object, old: Object) -> Iterator[Cause]:
    """Check a change of a job's status."""
    status, before = new.get("status", {}), old.get("status", {})
    if status == before:
        return
    for name in COUNTS:
        if status.get(name, 0) < 0:
            yield wrong(f"status.{name}", status[name], NOT_NEGATIVE)
    yield from _check_times(status, before, suspended=bool(new["spec"].get("suspend")))
    yield from _check_end(status, before)


def _check_times(status: Object, before: Object, *, suspended: bool) -> Iterator[Cause]:
    complete = _is(status, "Complete")
    if "completionTime" in status and not complete:
        why = "cannot set completionTime when there is no Complete=True condition"
        yield wrong("status.completionTime", status["completionTime"], why)
    elif complete and not _is(before, "Complete") and "completionTime" not in status:
        why = "completionTime is required for Complete jobs"
        yield required("status.completionTime", why)
    started = before.get("startTime")
    if started and not suspended and status.get("startTime") != started:
        if "startTime" in status:
            why = "field is immutable for unsuspended job once set"
            yield wrong("status.startTime", status["startTime"], why)
        else:
            yield required("status.startTime", "startTime cannot be removed for unsuspended job")


def _check_end(status: Object, before: Object) -> Iterator[Cause]:
    for end, needed in NEEDED.items():
        if not _is(status, end) or _is(before, end):
            continue
        if not _is(status, needed):
            spoken = needed if end == "Failed" else "SuccessCriteriaMet"
            value = "true" if end == "Complete" else "True"
            why = f"cannot set {end}=True condition without the {spoken}={value} condition"
            yield Cause("FieldValueInvalid", f"Invalid value: {why}", "status.conditions")
        if "startTime" not in status:
            yield required("status.startTime", "startTime is required for finished job")


def _is(status: Object, condition: str) -> bool:
    conditions = status.get("conditions", ())
    return any(c.get("type") == condition and c.get("status") == "True" for c in conditions)

"""The cells of the tables of built-in kinds."""

from policyd.api.meta import Json
from policyd.local.apiserver.status import Object, json_text
from policyd.status.ages import age, duration, seconds_of

ROLE_PREFIX = "node-role.kubernetes.io/"


def at(value: Json, path: str, default: Json) -> Json:
    """Return the value at a dotted path, or the default."""
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return default if value is None else value


def text(value: Json) -> Json:
    """Write a value as text; None stays."""
    match value:
        case None | str():
            return value
        case bool():
            return "true" if value else "false"
        case dict() | list():
            return json_text(value)
        case _:
            return str(value)


def _true(conditions: Json, kind: str) -> bool:
    return any(c["type"] == kind and c["status"] == "True" for c in conditions or ())


def _statuses(pod: Object) -> list[Json]:
    found: list[Json] = pod.get("status", {}).get("containerStatuses", [])
    return found


def pod_ready(pod: Object, _now: float) -> str:
    """Write how many containers are ready, of how many."""
    ready = sum(bool(status.get("ready")) for status in _statuses(pod))
    return f"{ready}/{len(pod['spec'].get('containers', ()))}"


def pod_status(pod: Object, _now: float) -> str:
    """Write why a pod is where it is, in one word."""
    status = pod.get("status", {})
    found: str = status.get("reason") or status.get("phase", "Unknown")
    for condition in status.get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            found = "SchedulingGated"
    for container in reversed(_statuses(pod)):
        found = _container_word(container.get("state", {})) or found
    if "deletionTimestamp" in pod["metadata"]:
        return "Terminating"
    return found


def _container_word(state: Object) -> str:
    ended = state.get("terminated")
    if ended is None:
        return str(at(state, "waiting.reason", ""))
    if ended.get("reason"):
        return str(ended["reason"])
    signal = ended.get("signal", 0)
    return f"Signal:{signal}" if signal else f"ExitCode:{ended.get('exitCode', 0)}"


ENDS = {
    "Failed": ("Failed", "The pod failed."),
    "Succeeded": ("Succeeded", "The pod has completed successfully."),
}
"""The conditions of the row of a pod that has ended: reason and message, by phase."""


def row_conditions(value: Object) -> list[Object]:
    """Say beside a row that its pod has ended."""
    end = ENDS.get(at(value, "status.phase", "")) if value.get("kind") == "Pod" else None
    if end is None:
        return []
    reason, message = end
    return [{"type": "Completed", "status": "True", "reason": reason, "message": message}]


def pod_restarts(pod: Object, now: float) -> str:
    """Write how often containers were started again, and when that was last."""
    count = sum(status.get("restartCount", 0) for status in _statuses(pod))
    ends = [at(status, "lastState.terminated.finishedAt", "") for status in _statuses(pod)]
    last = max((end for end in ends if end), default="")
    return f"{count} ({age(last, now)} ago)" if count and last else str(count)


def readiness_gates(pod: Object, _now: float) -> str:
    """Write how many of a pod's readiness gates are open."""
    gates = at(pod, "spec.readinessGates", [])
    conditions = at(pod, "status.conditions", [])
    opened = sum(_true(conditions, gate.get("conditionType", "")) for gate in gates)
    return f"{opened}/{len(gates)}" if gates else "<none>"


def job_status(job: Object, _now: float) -> str:
    """Return the status of a job."""
    conditions = job.get("status", {}).get("conditions", ())
    for kind, word in (
        ("Complete", "Complete"),
        ("Failed", "Failed"),
        ("FailureTarget", "FailureTarget"),
        ("SuccessCriteriaMet", "SuccessCriteriaMet"),
        ("Suspended", "Suspended"),
    ):
        if "deletionTimestamp" in job["metadata"] and kind == "FailureTarget":
            return "Terminating"
        if _true(conditions, kind):
            return word
    return "Terminating" if "deletionTimestamp" in job["metadata"] else "Running"


def job_completions(job: Object, _now: float) -> str:
    """Write how many pods have succeeded, of how many."""
    done, spec = job.get("status", {}).get("succeeded", 0), job["spec"]
    if "completions" in spec:
        return f"{done}/{spec['completions']}"
    parallelism = spec.get("parallelism", 0)
    return f"{done}/1 of {parallelism}" if parallelism > 1 else f"{done}/1"


def job_duration(job: Object, now: float) -> str:
    """Write how long a job has been running, or ran."""
    status = job.get("status", {})
    if "startTime" not in status:
        return ""
    end = seconds_of(status["completionTime"]) if "completionTime" in status else now
    return duration(end - seconds_of(status["startTime"]))


def cron_job_suspended(cron_job: Object, _now: float) -> str:
    """Write whether a cron job is suspended, in Python's spelling and the server's."""
    return str(bool(cron_job["spec"].get("suspend")))


def cron_job_active(cron_job: Object, _now: float) -> int:
    """Count a cron job's running jobs."""
    return len(cron_job.get("status", {}).get("active", ()))


def cron_job_last(cron_job: Object, now: float) -> str:
    """Write when a cron job was due last."""
    last = cron_job.get("status", {}).get("lastScheduleTime")
    return age(last, now) if last else "<none>"


def container_names(workload: Object, _now: float) -> str:
    """Write the names of a workload's containers."""
    return ",".join(c["name"] for c in at(workload, "spec.template.spec.containers", []))


def images(workload: Object, _now: float) -> str:
    """Write the images of a workload's containers."""
    return ",".join(c.get("image", "") for c in at(workload, "spec.template.spec.containers", []))


def selector(workload: Object, now: float) -> str:
    """Write the labels that a workload selects its pods by."""
    return labels("spec.selector.matchLabels", workload, now)


def ready_of(workload: Object, _now: float, *, wanted: str) -> str:
    """Write how many replicas are ready, of how many."""
    return f"{at(workload, 'status.readyReplicas', 0)}/{at(workload, wanted, 0)}"


def node_status(node: Object, _now: float) -> str:
    """Write whether a node is ready, and whether it takes pods."""
    conditions = node.get("status", {}).get("conditions", ())
    known = any(c["type"] == "Ready" for c in conditions)
    word = "Unknown" if not known else "Ready" if _true(conditions, "Ready") else "NotReady"
    cordoned = node.get("spec", {}).get("unschedulable")
    return f"{word},SchedulingDisabled" if cordoned else word


def node_roles(node: Object, _now: float) -> str:
    """Write the roles in a node's labels."""
    labels = node["metadata"].get("labels", {})
    roles = [key.removeprefix(ROLE_PREFIX) for key in labels if key.startswith(ROLE_PREFIX)]
    return ",".join(sorted(roles)) or "<none>"


def node_address(kind: str, node: Object, _now: float) -> str:
    """Write a node's address of a kind, such as `InternalIP`."""
    addresses = node.get("status", {}).get("addresses", ())
    return next((a["address"] for a in addresses if a["type"] == kind), "<none>")


def node_fact(name: str, node: Object, _now: float) -> str:
    """Return a fact from a node's status."""
    return str(at(node, f"status.nodeInfo.{name}", "") or "<unknown>")


def node_kernel(node: Object, now: float) -> str:
    """Return a node's kernel and its architecture."""
    kernel, made_for = (node_fact(name, node, now) for name in ("kernelVersion", "architecture"))
    return kernel if made_for == "<unknown>" else f"{kernel} ({made_for})"


def bound_role(binding: Object, _now: float) -> str:
    """Write which role a binding gives."""
    return f"{at(binding, 'roleRef.kind', '')}/{at(binding, 'roleRef.name', '')}"


def subjects(kind: str, binding: Object, _now: float) -> str:
    """Write the subjects of one kind in a binding."""
    found = [s for s in binding.get("subjects", ()) if s.get("kind") == kind]
    own = (f"{s['namespace']}/{s['name']}" if s.get("namespace") else s["name"] for s in found)
    return ", ".join(own)


def labels(path: str, value: Object, _now: float) -> str:
    """Write the labels at a path, as a selector has them."""
    return ",".join(f"{k}={v}" for k, v in sorted(at(value, path, {}).items())) or "<none>"


def event_last_seen(event: Object, now: float) -> str:
    """Write when an event happened last."""
    series = at(event, "series.lastObservedTime", None)
    return age(series or event.get("lastTimestamp") or event.get("eventTime"), now)


def event_first_seen(event: Object, now: float) -> str:
    """Write when an event happened first."""
    return age(event.get("firstTimestamp") or event.get("eventTime"), now)


def event_object(event: Object, _now: float) -> str:
    """Write which object an event is about."""
    about = event.get("involvedObject", {})
    return f"{about.get('kind', '').lower()}/{about.get('name', '')}"


def event_source(event: Object, _now: float) -> str:
    """Return the source of an event."""
    source = event.get("source", {})
    parts = (source.get("component") or event.get("reportingComponent", ""), source.get("host"))
    return ", ".join(part for part in parts if part)


def event_message(event: Object, _now: float) -> str:
    """Return the message of an event."""
    return str(event.get("message", "")).strip()


def data_count(value: Object, _now: float) -> int:
    """Count the entries of a config map or secret."""
    return len(value.get("data", {})) + len(value.get("binaryData", {}))


def service_ports(service: Object, _now: float) -> str:
    """Write a service's ports."""
    ports = service.get("spec", {}).get("ports", ())
    return ",".join(f"{p['port']}/{p.get('protocol', 'TCP')}" for p in ports) or "<none>"


def webhook_count(configuration: Object, _now: float) -> int:
    """Count the webhooks of a configuration."""
    return len(configuration.get("webhooks", ()))

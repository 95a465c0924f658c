"""The defaults of pods and pod templates."""

from collections.abc import Iterator

from policyd.api.meta import Json
from policyd.local.apiserver.status import Object

NOT_READY_SECONDS = 300
"""How long a pod stays on a node that is not ready or not reachable."""

GATED_MESSAGE = "Scheduling is blocked due to non-empty scheduling gates"

PROBES = ("livenessProbe", "readinessProbe", "startupProbe")


def default_pod(pod: Object) -> None:
    """Fill in a pod's spec."""
    spec = pod.setdefault("spec", {})
    default_pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    for container in containers_of(spec):
        _requests_from_limits(container["resources"])
    if spec.get("resources"):
        _requests_from_limits(spec["resources"])
    default_pod_status(pod)


def default_template(template: Object) -> None:
    """Fill in a pod template."""
    template.setdefault("metadata", {})
    default_pod_spec(template.setdefault("spec", {}))


def default_pod_spec(spec: Object) -> None:
    """Set the defaults that pods and templates have in common."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("securityContext", {})
    grace = spec.setdefault("terminationGracePeriodSeconds", 30)
    if grace < 0:
        spec["terminationGracePeriodSeconds"] = 1
    if "serviceAccountName" in spec:
        spec.setdefault("serviceAccount", spec["serviceAccountName"])
    elif "serviceAccount" in spec:
        spec["serviceAccountName"] = spec["serviceAccount"]
    for container in containers_of(spec):
        _default_container(container)
        for port in container.get("ports", ()) if spec.get("hostNetwork") else ():
            port.setdefault("hostPort", port.get("containerPort"))
    for volume in spec.get("volumes", ()):
        _default_volume(volume)


def default_pod_status(pod: Object) -> None:
    """Write a pod's address also as the only one of a list."""
    status = pod.get("status", {})
    if status.get("podIP") and not status.get("podIPs"):
        status["podIPs"] = [{"ip": status["podIP"]}]
    if status.get("hostIP") and not status.get("hostIPs"):
        status["hostIPs"] = [{"ip": status["hostIP"]}]


def containers_of(spec: Object) -> Iterator[Object]:
    """Yield the containers of a pod, init containers first."""
    yield from spec.get("initContainers", ())
    yield from spec.get("containers", ())


def _default_container(container: Object) -> None:
    image = container.get("image", "")
    policy = "Always" if _is_latest(image) else "IfNotPresent"
    container.setdefault("imagePullPolicy", policy)
    container.setdefault("resources", {})
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    for port in container.get("ports", ()):
        port.setdefault("protocol", "TCP")
    for variable in container.get("env", ()):
        reference = variable.get("valueFrom", {}).get("fieldRef")
        if reference is not None:
            reference.setdefault("apiVersion", "v1")
    for name in PROBES:
        if name in container:
            _default_probe(container[name])


def _is_latest(image: str) -> bool:
    last = image.rpartition("/")[2]
    return "@" not in last and (":" not in last or last.endswith(":latest"))


def _default_probe(probe: Object) -> None:
    if "httpGet" in probe:
        probe["httpGet"].setdefault("path", "/")
        probe["httpGet"].setdefault("scheme", "HTTP")
    probe.setdefault("failureThreshold", 3)
    probe.setdefault("periodSeconds", 10)
    probe.setdefault("successThreshold", 1)
    probe.setdefault("timeoutSeconds", 1)


def _default_volume(volume: Object) -> None:
    if set(volume) == {"name"}:
        volume["emptyDir"] = {}
    for kind in ("configMap", "secret", "projected", "downwardAPI"):
        if kind in volume:
            volume[kind].setdefault("defaultMode", 420)
    if "hostPath" in volume:
        volume["hostPath"].setdefault("type", "")


def _requests_from_limits(resources: Object) -> None:
    for name, amount in resources.get("limits", {}).items():
        resources.setdefault("requests", {}).setdefault(name, amount)


def add_node_tolerations(spec: Object) -> None:
    """Let a pod stay for a while on a node that fails, as the admission plug-in does."""
    tolerations: list[Json] = spec.get("tolerations", [])
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(_tolerates(toleration, key) for toleration in tolerations):
            added = {"key": key, "operator": "Exists", "effect": "NoExecute"}
            tolerations.append({**added, "tolerationSeconds": NOT_READY_SECONDS})
    spec["tolerations"] = tolerations


def _tolerates(toleration: Object, key: str) -> bool:
    return toleration.get("effect", "NoExecute") in {"", "NoExecute"} and toleration.get(
        "key", key
    ) in {"", key}


def first_status(pod: Object, now: str) -> Object:
    """Return the status of a pod that is created."""
    status: Object = {"phase": "Pending", "qosClass": qos_class(pod["spec"])}
    if pod["spec"].get("schedulingGates"):
        gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
        times = {"message": GATED_MESSAGE, "lastProbeTime": None, "lastTransitionTime": now}
        status["conditions"] = [gated | times]
    return status


def qos_class(spec: Object) -> str:
    """Tell which quality of service a pod's requests and limits amount to, by cpu and memory."""
    containers = list(containers_of(spec))
    given = [c.get("resources", {}) for c in containers]
    names = ("cpu", "memory")
    if not any(
        r.get(part, {}).get(name, "0") != "0"
        for r in given
        for part in ("requests", "limits")
        for name in names
    ):
        return "BestEffort"
    guaranteed = all(
        r.get("limits", {}).get(name) and r["limits"][name] == r.get("requests", {}).get(name)
        for r in given
        for name in names
    )
    return "Guaranteed" if guaranteed else "Burstable"

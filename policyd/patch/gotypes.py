"""What Go's types write though nobody set it, and leave out though somebody did.

The table of kinds comes from OpenAPI documents, which say neither. What stands here is what users
and controllers meet in statuses, events and pods.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from datetime import UTC, datetime

from policyd.api.meta import Json
from policyd.patch.omitted import OMITTED

Object = dict[str, Json]

NODE_INFO = dict.fromkeys(
    (
        "architecture",
        "bootID",
        "containerRuntimeVersion",
        "kernelVersion",
        "kubeProxyVersion",
        "kubeletVersion",
        "machineID",
        "operatingSystem",
        "osImage",
        "systemUUID",
    ),
    "",
)
TIMES = {"lastProbeTime": None, "lastTransitionTime": None}

PRESENT: Mapping[str, Object] = {
    "apps/v1.DaemonSetStatus": {
        "currentNumberScheduled": 0,
        "desiredNumberScheduled": 0,
        "numberMisscheduled": 0,
        "numberReady": 0,
    },
    "apps/v1.ReplicaSetStatus": {"replicas": 0},
    "apps/v1.StatefulSetStatus": {"availableReplicas": 0, "replicas": 0},
    "batch/v1.JobCondition": TIMES,
    "core/v1.ContainerStateRunning": {"startedAt": None},
    "core/v1.ContainerStateTerminated": {"finishedAt": None, "startedAt": None},
    "core/v1.ContainerStatus": {"lastState": {}, "state": {}},
    "core/v1.Event": {
        "eventTime": None,
        "firstTimestamp": None,
        "lastTimestamp": None,
        "reportingComponent": "",
        "reportingInstance": "",
        "source": {},
    },
    "core/v1.NodeCondition": {"lastHeartbeatTime": None, "lastTransitionTime": None},
    "core/v1.NodeStatus": {
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
        "nodeInfo": NODE_INFO,
    },
    "core/v1.NodeSystemInfo": NODE_INFO,
    "core/v1.PodCondition": TIMES,
    "core/v1.ResourceFieldSelector": {"divisor": "0"},
    "events/v1.Event": {
        "deprecatedFirstTimestamp": None,
        "deprecatedLastTimestamp": None,
        "deprecatedSource": {},
        "eventTime": None,
    },
    "rbac/v1.ClusterRole": {"rules": None},
    "rbac/v1.Role": {"rules": None},
}
"""The fields that a struct is never written without, and their zero values."""

LAYOUTS = {
    "time": "2006-01-02T15:04:05Z07:00",
    "microtime": "2006-01-02T15:04:05.000000Z07:00",
}
_DATE = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"
_ZONE = r"(Z|[+-]\d\d:\d\d)"
_TIMES = {
    "time": re.compile(rf"{_DATE}(\.\d+)?{_ZONE}"),
    "microtime": re.compile(rf"{_DATE}\.\d{{6}}\d*{_ZONE}"),
}
_NOT_BASE64 = re.compile(r"[^A-Za-z0-9+/=\r\n]")


def completed(decoded: Object, type_name: str) -> None:
    """Give a struct, in place, what its type always writes, and take what it never does."""
    for name in OMITTED.get(type_name, ()):
        if decoded.get(name) in ("", 0):
            del decoded[name]
    for name, empty in PRESENT.get(type_name, {}).items():
        if name not in decoded:
            decoded[name] = _copied(empty)


def _copied(value: Json) -> Json:
    return {name: _copied(part) for name, part in value.items()} if type(value) is dict else value


def canonical_time(text: str, scalar: str) -> str:
    """Write a time as the API does: in UTC, with no fraction, or with microseconds.

    Raises:
        ValueError: If it is none; the text is Go's.
    """
    moment = _moment(text) if _TIMES[scalar].fullmatch(text) else None
    if moment is None:
        layout = LAYOUTS[scalar]
        raise ValueError(f'parsing time "{text}" as "{layout}": cannot parse "{text}" as "2006"')
    form = "%Y-%m-%dT%H:%M:%SZ" if scalar == "time" else "%Y-%m-%dT%H:%M:%S.%fZ"
    return moment.strftime(form)


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (OverflowError, ValueError):
        return None


def check_base64(text: str) -> None:
    """Check what is to be bytes.

    Raises:
        ValueError: If it is not base64; the text is Go's.
    """
    found = _NOT_BASE64.search(text)
    if found:
        raise ValueError(f"illegal base64 data at input byte {found.start()}")
    try:
        base64.b64decode(text, validate=False)
    except binascii.Error:
        raise ValueError(f"illegal base64 data at input byte {len(text)}") from None

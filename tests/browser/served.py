"""Pages that are served, with something to see: by `policyd up`, and by `policyd dashboard`."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from policyd.engine.offline.report import APIS
from tests.browser.visiting import Visitor
from tests.report_kinds import definitions
from tests.scenarios.api import Api, eventually
from tests.scenarios.clusters import COMMANDS, Cluster, Process, ready
from tests.scenarios.objects import job

REPORTS = "apis/wgpolicyk8s.io/v1alpha2/namespaces/{}/policyreports"
LINK = re.compile(r"(http://127\.0\.0\.1:\d+)/enter/[\w-]+")
ADDRESS = re.compile(r"(http://127\.0\.0\.1:\d+)/\s")
HOSTILE = "<img src=x onerror=alert(1)>\"'`</script><script>alert(2)</script>&amp;"
"""Text that would run if it got into a page as it is."""


@dataclass
class ServedPage:
    """A page, and where its process writes new links.

    Attributes:
        cluster: What it shows.
        process: The process that serves it.
        used: Links that were used.
    """

    cluster: Cluster
    process: Process
    used: set[str] = field(default_factory=set)

    @property
    def url(self) -> str:
        """The page's address, without a slash at its end."""
        text = self.process.log.read_text(errors="replace")
        found = [*LINK.finditer(text), *ADDRESS.finditer(text)]
        assert found, text[-2_000:]
        return found[-1][1]

    def link(self) -> str:
        """Return the newest link."""
        return [*LINK.finditer(self.process.log.read_text(errors="replace"))][-1][0]

    def enter(self, visitor: Visitor) -> None:
        """Sign in by a new link, which the terminal has as soon as the page is asked for."""
        visitor.goes(self.url)
        if visitor.page.url.startswith(f"{self.url}/sign-in"):
            eventually(lambda: self.link() not in self.used, what="a link that was not used")
        self.used.add(self.link())
        visitor.goes(self.link())
        visitor.page.wait_for_url(f"{self.url}/")


@contextmanager
def dashboard(cluster: Cluster, folder: Path, *options: str) -> Iterator[ServedPage]:
    """`policyd dashboard` on a cluster."""
    command = [str(COMMANDS / "policyd"), "dashboard", "--kubeconfig", str(cluster.kubeconfig)]
    process = Process([*command, *options], folder / "dashboard.log")
    process.start()
    try:
        eventually(lambda: ready(process, "http://"), what="`policyd dashboard` is ready")
        yield ServedPage(cluster, process)
    finally:
        process.stop()


def populate(api: Api) -> None:
    """Have something of everything: jobs that run, wait and were preempted, policies, reports."""
    api.patch(
        "ClusterQueue", "team-a", {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}}
    )
    budget = {"policyd.io/budget-gpu-hours": "500", "policyd.io/budget-time-zone": "Europe/Berlin"}
    api.patch("ClusterQueue", "team-a", {"metadata": {"annotations": budget}})
    api.create(prioritized("pretrain", "research", gpus=12, pods=2))
    eventually(lambda: admitted(api, "pretrain"), what="the first job is admitted")
    api.create(prioritized("urgent", "production", gpus=8, pods=2))
    eventually(lambda: admitted(api, "urgent"), what="a job that preempts another is admitted")
    api.create(prioritized("evaluate", "production", namespace="team-b", gpus=4))
    eventually(lambda: admitted(api, "evaluate", "team-b"), what="a job of the other team runs")
    api.create(prioritized("sweep", "production", namespace="team-b", gpus=12, pods=2))
    for each in policies(api):
        api.create(each)
    for crd in definitions(APIS[1]):
        api.create(crd)
    eventually(lambda: _reported(api), what="reports are served")


def prioritized(name: str, priority: str, *, namespace: str = "team-a", **size: int) -> Any:
    """A job that runs for an hour, as it says."""
    made = job(name, namespace, run_for="1h", **size)
    made["metadata"]["labels"] = {"kueue.x-k8s.io/priority-class": priority}
    made["metadata"]["annotations"] = {"policyd.io/expected-run-time": "1h"}
    return made


def hostile_job() -> Any:
    """A job that waits, with hostile text wherever the API takes any text."""
    made = prioritized("hostile", "research", namespace="team-b", gpus=8)
    texts = {"policyd.io/owner": HOSTILE, "note": HOSTILE}
    made["metadata"]["annotations"] |= texts
    made["spec"]["template"]["metadata"]["annotations"] |= texts
    made["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "X", "value": HOSTILE}]
    return made


def hostile_event(name: str) -> Any:
    """An event about a job that anybody may write who may write events."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.hostile", "namespace": "team-b"},
        "involvedObject": {"kind": "Job", "namespace": "team-b", "name": name},
        "reason": "Pending",
        "message": HOSTILE,
        "type": "Warning",
        "source": {"component": "policyd-controller"},
        "firstTimestamp": "2026-01-02T03:04:05Z",
        "lastTimestamp": "2026-01-02T03:04:05Z",
        "count": 3,
    }


def policies(api: Api) -> Iterator[Any]:
    """Yield a shadow, a policy that is rolled out, and one without a binding."""
    about = {"apiVersion": "policyd.io/v1alpha1", "kind": "Policy"}
    pods = {
        "resourceRules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
             "resources": ["pods"]}
        ]
    }  # fmt: skip
    wrong = [{"name": "named", "expression": "true", "message": HOSTILE}]
    spec = {"matchConstraints": pods, "validations": wrong, "description": HOSTILE}
    steps = [{"enforcement": "Warn", "percent": 20}, {"enforcement": "Skip", "namespaces": ["b"]}]
    capped = next(p for p in api.find("Policy") if p["metadata"]["name"] == "cap-gpus-per-pod")
    description = "Limit the GPUs of a pod to four."
    for name, given in {
        "cap-gpus-to-four": {
            **capped["spec"], "shadowOf": "cap-gpus-per-pod", "description": description,
        },
        "images-from-here": {
            **spec, "description": "Take images from our own registry.", "rollout": steps,
        },
        "unbound": {**spec, "requiresBinding": True},
    }.items():  # fmt: skip
        yield {**about, "metadata": {"name": name}, "spec": given}


def report(namespace: str = "team-a") -> Any:
    """A report as a scan writes it, with hostile text that objects brought."""

    def result(policy: str, outcome: str, count: int, **properties: str) -> Any:
        found = {"count": str(count), **properties}
        named = [{"apiVersion": "v1", "kind": "Pod", "name": HOSTILE, "namespace": namespace}]
        return {
            "source": "policyd", "policy": policy, "rule": "gpus", "result": outcome,
            "message": f"a pod requests 12 GPUs {HOSTILE}", "resources": named,
            "properties": found,
        }  # fmt: skip

    return {
        "apiVersion": "wgpolicyk8s.io/v1alpha2",
        "kind": "PolicyReport",
        "metadata": {
            "name": "policyd",
            "namespace": namespace,
            "labels": {"app.kubernetes.io/managed-by": "policyd"},
        },
        "results": [
            result("cap-gpus-per-pod", "pass", 31),
            result("cap-gpus-per-pod", "fail", 2, enforcement="Deny"),
            result("images-from-here", "fail", 7, enforcement="Warn", admitted="40"),
            result("cap-gpus-to-four", "fail", 5, shadowOf="cap-gpus-per-pod"),
        ],
    }


def _reported(api: Api) -> bool:
    try:
        api.call("POST", REPORTS.format("team-a"), report())
    except Exception:  # noqa: BLE001 - the kind was created a moment ago
        return False
    return True


def admitted(api: Api, name: str, namespace: str = "team-a") -> bool:
    """Tell whether a job has been started."""
    return not api.get("Job", name, namespace)["spec"]["suspend"]

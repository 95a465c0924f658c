"""Idle notebooks: which of them are stopped, by the idle time that a policy set on them."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from policyd.alloc.value import Value
from policyd.usage.idle import PodUse

IDLE_AFTER: Final = "policyd.io/idle-after"
"""The annotation of a notebook that says after what idle time it is stopped; without it, never."""
NOTEBOOK: Final = "policyd.io/notebook"
"""The label of StatefulSets and Deployments that are notebooks: `true`."""
STOPPED: Final = "kubeflow-resource-stopped"
"""The annotation by which Kubeflow's controller keeps a Notebook stopped; it has the time."""

_DURATION: Final = re.compile(r"([1-9][0-9]{0,5})([smh])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600}


class Notebook(NamedTuple):
    """A notebook with the only pod that it has.

    Attributes:
        kind: StatefulSet, Deployment or Notebook.
        replicas: How many pods it is to have.
        idle_after: What the annotation says; "" if there is none.
        pod: The name of its pod.
        started_at: When the pod was created, in seconds since the epoch.
        gpus: How many GPUs the pod requests, and parts of them.
    """

    kind: str
    namespace: str
    name: str
    replicas: int
    idle_after: str
    pod: str
    started_at: float
    gpus: float


class NotebookVerdict(Value, frozen=True, rename="camel"):
    """Whether a notebook is stopped.

    Attributes:
        notebook: `Kind/name`.
        since: Since when it is idle, in seconds since the epoch.
        stops: Whether it is to be stopped.
        why: Why, or why not, in a sentence.
    """

    namespace: str
    notebook: str
    since: float | None
    stops: bool
    why: str


def judge(notebook: Notebook, use: PodUse, *, end: float) -> NotebookVerdict:
    """Decide whether a notebook is stopped.

    Args:
        notebook: The notebook.
        use: Of its pod.
        end: Up to when the use is known, in seconds since the epoch.
    """
    # A pod of the same name may have been idle before this one was created.
    since = None if use.since is None else max(use.since, notebook.started_at)
    stops, why = _decision(notebook, use, since, end)
    return NotebookVerdict(
        namespace=notebook.namespace,
        notebook=f"{notebook.kind}/{notebook.name}",
        since=since,
        stops=stops,
        why=why,
    )


def _decision(notebook: Notebook, use: PodUse, since: float | None, end: float) -> tuple[bool, str]:
    found = _DURATION.fullmatch(notebook.idle_after)
    obstacle = _obstacle(notebook, use)
    if obstacle or found is None or since is None:
        return False, obstacle or "its GPUs are in use, or it is not known whether they are"
    idle, most = end - since, int(found[1]) * _SECONDS[found[2]]
    if idle < most:
        return False, f"idle for {idle / 60:.0f} minutes, and {notebook.idle_after} are allowed"
    return True, f"idle for {idle / 3_600:.1f} hours, and {notebook.idle_after} are allowed"


def _obstacle(notebook: Notebook, use: PodUse) -> str:
    """Return why a notebook is not stopped however long it is idle; "" if it may be."""
    if not notebook.idle_after:
        return f"it has no annotation {IDLE_AFTER}"
    if _DURATION.fullmatch(notebook.idle_after) is None:
        return f"its annotation {IDLE_AFTER} is not a duration"
    if notebook.replicas != 1:
        return f"it has {notebook.replicas} replicas, and notebooks have one"
    if use.gpus < notebook.gpus:
        return "not all GPUs that it requests have samples"
    return ""


def reversal(verdict: NotebookVerdict) -> str:
    """Return the command that starts a stopped notebook again."""
    kind, _, name = verdict.notebook.partition("/")
    if kind == "Notebook":
        return f"kubectl annotate notebook/{name} -n {verdict.namespace} {STOPPED}-"
    return f"kubectl scale {kind.lower()}/{name} -n {verdict.namespace} --replicas=1"


def stop_patch(kind: str, version: str, *, at: str) -> Mapping[str, object]:
    """Return the merge patch that stops a notebook, unless it changed since it was read.

    Args:
        kind: Of the notebook; of StatefulSets and Deployments, their scale is patched.
        version: The resource version of what is patched.
        at: When, as the API server writes it.
    """
    metadata: dict[str, object] = {"resourceVersion": version}
    if kind == "Notebook":
        return {"metadata": {**metadata, "annotations": {STOPPED: at}}}
    return {"metadata": metadata, "spec": {"replicas": 0}}

"""What policyd's processes write: one of each sort."""

from collections.abc import Iterator

from policyd.registration.exclusions import LEFT_OUT
from tests.charts.release import CONTROLLER, WEBHOOKS
from tests.charts.writes import (
    CONFIG_MAPS,
    FORMER,
    NO_FINALIZERS,
    OTHER_FINALIZER,
    REGISTRATION,
    STARTED,
    SUBMITTER,
    SUSPENDED,
    TEMPLATES,
    Write,
    added,
    created,
    encoded,
    patch,
    path_of,
    pod_template,
    registered,
    replaced,
    rule,
    secret_path,
    started,
    train_job_patch,
)


def legal() -> Iterator[Write]:
    """Yield what the processes do, one of each sort."""
    yield from _of_pods()
    yield from _of_jobs()
    yield from _of_other_objects()
    yield from _of_webhooks()


def _of_pods() -> Iterator[Write]:
    gone = [{"op": "remove", "path": "/spec/schedulingGates/0"}]
    tolerations = added("/spec/tolerations/-", STARTED["spec"]["tolerations"][0])
    rest = {"metadata": {"finalizers": [OTHER_FINALIZER]}}
    yield patch("a-pod-is-kept-no-longer", path_of("Pod", "held"), rest)
    yield patch("the-last-finalizer-of-a-pod", path_of("Pod", "running"), NO_FINALIZERS)
    yield patch("a-held-pod-is-let-go", path_of("Pod", "held"), gone)
    yield patch(
        "a-held-pod-is-sent-to-nodes",
        path_of("Pod", "held"),
        {"spec": {"nodeSelector": {"a": "b"}}},
    )
    yield patch("a-pod-of-a-job-gets-its-place", path_of("Pod", "of-a-job"), gone)
    yield patch("a-pod-tolerates-its-flavor", path_of("Pod", "held"), tolerations)
    yield patch(
        "a-pod-is-labelled", path_of("Pod", "running"), {"metadata": {"labels": {"a": "b"}}}
    )
    yield Write(
        id="a-pod-is-stopped", account=CONTROLLER, method="DELETE", path=path_of("Pod", "running")
    )
    ends = {"type": "TerminationTarget", "status": "True"}
    ready = {"type": "Ready", "status": "True"}
    yield patch(
        "a-pod-is-told-that-it-ends",
        path_of("Pod", "running", "status"),
        {"status": {"conditions": [ready, ends]}},
    )
    ended = added("/status/conditions/-", {"type": "TerminatedByKueue", "status": "True"})
    failed = [*replaced("/status/phase", "Failed"), *ended]
    yield patch("a-pod-fails", path_of("Pod", "of-a-job", "status"), failed)
    forced = {"conditions": [{"type": "KueueFailureRecovery", "status": "True"}], "phase": "Failed"}
    lost = path_of("Pod", "lost")
    yield patch("a-lost-pod-fails", path_of("Pod", "lost", "status"), {"status": forced})
    yield Write(id="a-lost-pod-goes", account=CONTROLLER, method="DELETE", path=lost)


def _of_jobs() -> Iterator[Write]:
    unsuspended = replaced("/spec/suspend", value=False)
    starts = [*started("/spec/template", labelled=True), *unsuspended]
    yield patch("a-Job-starts", path_of("Job", "job"), starts)
    fewer = {"spec": {"parallelism": 1}}
    yield patch("a-Job-starts-in-part", path_of("Job", "partial"), fewer)
    stopping = {"metadata": {"annotations": {"kueue.x-k8s.io/stopping": "true"}}}
    yield patch(
        "a-Job-is-being-stopped", path_of("Job", "job"), stopping | {"spec": {"suspend": True}}
    )
    yield patch(
        "a-Job-was-never-started", path_of("Job", "job", "status"), {"status": {"startTime": None}}
    )
    for kind, where in TEMPLATES.items():
        suspended = replaced(SUSPENDED.get(kind, "/spec/suspend"), value=False)
        yield patch(f"a-{kind}-starts", path_of(kind, kind.lower()), [*started(where), *suspended])
    submitter = [
        *added("/spec/submitterPodTemplate", SUBMITTER),
        *started("/spec/submitterPodTemplate"),
    ]
    yield patch("a-RayJob-gets-its-submitter", path_of("RayJob", "rayjob"), submitter)
    own = replaced("/spec/runtimePatches/1", train_job_patch(STARTED))
    yield patch("a-TrainJob-starts", path_of("TrainJob", "trainjob"), own)


def _of_other_objects() -> Iterator[Write]:
    held = {"metadata": {"finalizers": ["kueue.x-k8s.io/resource-in-use"]}}
    yield patch("a-queue-is-held", path_of("ClusterQueue", "queue"), held)
    yield created("a-pod-template-is-made", pod_template("new", "Workload"))
    owner = {
        "apiVersion": "autoscaling.x-k8s.io/v1",
        "kind": "ProvisioningRequest",
        "name": "r",
        "uid": "2",
    }
    handed = {"metadata": {"ownerReferences": [owner]}}
    yield patch("a-pod-template-is-handed-over", path_of("PodTemplate", "workload"), handed)
    memory = {"binaryData": {"memory": "H4sI"}}
    record = {"binaryData": {"hours": "eJw="}}
    yield patch("hours-are-recorded", f"{CONFIG_MAPS}/{CONTROLLER}-hours", record)
    yield patch("what-forecasts-learnt-is-stored", f"{CONFIG_MAPS}/{CONTROLLER}-memory", memory)


def _of_webhooks() -> Iterator[Write]:
    for each in ("mutating", "validating"):
        yield registered(f"{each}-webhooks", each)
        yield registered(f"{each}-webhooks-of-the-release-before", each, FORMER)
        path = f"{REGISTRATION}/{each}webhookconfigurations/{FORMER}"
        deleted = {"method": "DELETE", "path": path}
        yield Write(id=f"{each}-webhooks-replaced", account=WEBHOOKS, **deleted)
    conditions = [
        {"name": f"no-{name}", "expression": each.condition} for name, each in LEFT_OUT.items()
    ]
    yield registered(
        "everything-but-secrets-and-roles",
        "mutating",
        rules=[rule("*", "*")],
        matchConditions=conditions,
    )
    data = {"tls.crt": encoded("c"), "tls.key": encoded("k"), "upcoming-ca.crt": encoded("c")}
    yield patch("a-certificate-is-renewed", secret_path(WEBHOOKS), {"data": data}, WEBHOOKS)

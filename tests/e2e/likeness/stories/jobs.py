"""Jobs, and the kinds that have pod templates too: defaults, mistakes, changes."""

from tests.e2e.likeness.asking import STRATEGIC, create, find, patch, read, remove, replace
from tests.e2e.likeness.objects import CONTAINER, GATE, deployment, job, make


def bad(**spec):
    return create(job("bad", **spec), dryRun="All")


def change(part="", content=STRATEGIC, **spec):
    return patch("Job", "web", {"spec": spec}, content, part=part)


def template(**spec):
    return change(template={"spec": spec})


def status(**fields):
    return patch("Job", "web", {"status": fields}, part="status")


SUSPENDED = {
    "type": "Suspended",
    "status": "True",
    "reason": "JobSuspended",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}

STORIES = {
    "defaults": [create(job()), read("Job", "web"), find("Job")],
    "defaults-of-all-kinds": [
        create(job("plain", metadata={"labels": {"a": "b"}})),
        create(job("indexed", completionMode="Indexed", completions=4, parallelism=2)),
        create(job("per-index", completionMode="Indexed", completions=4, backoffLimitPerIndex=1)),
        create(job("parallel", parallelism=4, suspend=True, ttlSecondsAfterFinished=5)),
        create(
            job(
                "policy",
                podFailurePolicy={
                    "rules": [
                        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
                    ]
                },
            )
        ),
        create(job("labelled", template={"schedulingGates": [GATE], "nodeSelector": {"a": "b"}})),
        create(job("gen", metadata={"name": "", "generateName": "gen-"})),
        create(job("managed", managedBy="example.com/other")),
    ],
    "mistakes": [
        create(make("Job", "bad"), dryRun="All"),
        create(make("Job", "bad", spec={}), dryRun="All"),
        bad(template={"restartPolicy": "Always"}),
        bad(template={"restartPolicy": None}),
        bad(template={"containers": []}),
        bad(template={"containers": [{"name": "main"}]}),
        bad(template={"nodeSelector": {"a b": ""}}),
        bad(template={"tolerations": [{"operator": "X"}]}),
        bad(parallelism=-1),
        bad(completions=-1),
        bad(backoffLimit=-1),
        bad(activeDeadlineSeconds=-1),
        bad(ttlSecondsAfterFinished=-1),
        bad(completionMode="Indexed"),
        bad(completionMode="Both"),
        bad(backoffLimitPerIndex=1),
        bad(maxFailedIndexes=1),
        bad(parallelism="x"),
        bad(suspend="yes"),
        bad(selector={"matchLabels": {"a": "b"}}),
        bad(manualSelector=True, selector={"matchLabels": {"a": "b"}}),
        bad(manualSelector=True),
        bad(managedBy="Nobody Here"),
        bad(podReplacementPolicy="Never"),
        create(job("a" * 64), dryRun="All"),
        create(job("Bad_"), dryRun="All"),
        create(job("a.b"), dryRun="All"),
    ],
    "changes-while-suspended": [
        create(job(suspend=True)),
        template(nodeSelector={"a": "b"}),
        template(tolerations=[{"key": "a", "operator": "Exists"}]),
        template(schedulingGates=[GATE]),
        template(affinity={"nodeAffinity": {}}),
        template(priorityClassName="x"),
        change(template={"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}}),
        template(containers=[{"name": "main", "resources": {"requests": {"cpu": "1"}}}]),
        template(containers=[{"name": "main", "image": "other"}]),
        template(restartPolicy="OnFailure"),
        change(parallelism=3),
        change(completions=3),
        change(completionMode="Indexed"),
        change(backoffLimit=2),
        change(activeDeadlineSeconds=100),
        change(managedBy="example.com/x"),
        change(selector={"matchLabels": {"a": "b"}}),
        patch("Job", "web", {"metadata": {"labels": {"queue": "a"}}}),
        change(suspend=False),
        read("Job", "web"),
    ],
    "changes-while-running": [
        create(job()),
        status(startTime="2026-01-01T00:00:00Z", active=1, ready=0),
        template(nodeSelector={"a": "b"}),
        change(template={"metadata": {"labels": {"a": "b"}}}),
        change(suspend=True),
        template(nodeSelector={"a": "b"}),
        status(active=1, startTime=None),
        template(nodeSelector={"a": "b"}),
        status(conditions=[SUSPENDED], active=1),
        template(nodeSelector={"a": "c"}),
        status(conditions=[SUSPENDED], active=0),
        template(nodeSelector={"a": "c"}),
        read("Job", "web"),
        replace("Job", "web", lambda job: job | {"spec": {**job["spec"], "parallelism": 4}}),
        remove("Job", "web", propagationPolicy="Background"),
    ],
    "elastic": [
        create(job(completionMode="Indexed", completions=2, parallelism=2)),
        change(completions=3),
        change(completions=3, parallelism=3),
        change(completions=None),
    ],
    "statuses": [
        create(job()),
        status(active=-1),
        status(succeeded=1, completionTime="2026-01-01T00:00:00Z"),
        status(conditions=[{"type": "Complete", "status": "True"}]),
        status(startTime="2026-01-01T00:00:00Z"),
        status(startTime="2026-01-02T00:00:00Z"),
        status(startTime="yesterday"),
        status(uncountedTerminatedPods={}),
        status(
            conditions=[
                {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
                for kind in ("SuccessCriteriaMet", "Complete")
            ],
            completionTime="2026-01-02T00:00:00Z",
            succeeded=1,
        ),
        change(suspend=True),
        read("Job", "web", "status"),
    ],
    "deployments": [
        create(deployment()),
        read("Deployment", "web", "scale"),
        patch("Deployment", "web", {"spec": {"replicas": 4}}, part="scale"),
        patch("Deployment", "web", {"spec": {"replicas": -4}}, part="scale"),
        replace("Deployment", "web", lambda _: scale(5), part="scale"),
        read("Deployment", "web"),
        patch("Deployment", "web", {"spec": {"replicas": None}}),
        patch("Deployment", "web", {"spec": {"replicas": -1}}),
        patch("Deployment", "web", {"spec": {"selector": {"matchLabels": {"app": "b"}}}}),
        patch("Deployment", "web", {"spec": {"strategy": {"type": "Recreate"}}}),
        patch("Deployment", "web", {"spec": {"strategy": {"type": "Sometimes"}}}),
        patch("Deployment", "web", {"spec": {"minReadySeconds": -1}}),
        patch("Deployment", "web", {"status": {"replicas": 1}}, part="status"),
        create(deployment("bad", selector={"matchLabels": {"app": "other"}}), dryRun="All"),
        create(deployment("bad", selector=None), dryRun="All"),
        create(make("Deployment", "bad", spec={}), dryRun="All"),
        create(deployment("bad", selector={}), dryRun="All"),
        find("Deployment"),
        remove("Deployment", "web"),
    ],
    "stateful-sets": [
        create(
            make(
                "StatefulSet",
                "web",
                spec={
                    "selector": {"matchLabels": {"a": "b"}},
                    "serviceName": "x",
                    "template": {
                        "metadata": {"labels": {"a": "b"}},
                        "spec": {"containers": [CONTAINER]},
                    },
                },
            )
        ),
        patch("StatefulSet", "web", {"spec": {"serviceName": "y"}}),
        patch("StatefulSet", "web", {"spec": {"replicas": 3}}, part="scale"),
    ],
}


def scale(replicas):
    kind = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "web"}}
    return kind | {"spec": {"replicas": replicas}}

"""The same commands of the same kubectl print the same, whichever of the servers it talks to."""

import json
import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.controlplane.programs import find_binaries
from tests.e2e.likeness.asking import create
from tests.e2e.likeness.differences import rephrased
from tests.e2e.likeness.objects import config_map, deployment, gated, job, make, pod
from tests.e2e.likeness.stories.custom import cron_tab, definition, established
from tests.e2e.likeness.telling import answer, new_namespace, raw, unlike

pytestmark = pytest.mark.e2e

TIMEOUT_SECONDS = 60

EVENT = make(
    "Event",
    "web.1",
    involvedObject={"kind": "Pod", "name": "web", "namespace": "{namespace}", "apiVersion": "v1"},
    reason="Because",
    type="Warning",
    message="something happened",
    count=3,
    firstTimestamp="2026-01-01T00:00:00Z",
    lastTimestamp="2026-01-01T00:00:00Z",
    source={"component": "likeness"},
)
NODE = make(
    "Node",
    "kubectl-node",
    metadata={"labels": {"rack": "a", "node-role.kubernetes.io/gpu": ""}},
    spec={"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]},
    status={
        "capacity": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "8", "pods": "110"},
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "KubeletReady",
                "message": "here",
                "lastHeartbeatTime": "2026-01-01T00:00:00Z",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ],
        "nodeInfo": {"kubeletVersion": "v1.36.0", "osImage": "any", "architecture": "amd64"},
    },
)
READY_AT_LAST = {
    "metadata": {"labels": {"row": "b"}},
    "spec": {"taints": NODE["spec"]["taints"]},
}
"""The taint of a node that is not ready, which only the real server gives, is gone after it."""

APPLY = ("apply", "--server-side", "-f", "-")
YAML = ("-o", "yaml", "--show-managed-fields")


def given(command, value):
    """Run a command with an object as its input."""
    return command, json.dumps(value)


def merged(value):
    return "-p", json.dumps(value)


CREATE = ("create", "-f", "-")

STORIES = {
    "pods": [
        given(CREATE, pod(metadata={"labels": {"app": "web"}})),
        given(CREATE, pod()),
        given(CREATE, gated("waiting")),
        given((*CREATE, "--dry-run=server", "-o", "yaml"), pod("trial")),
        ("get", "pods"),
        ("get", "pods", "-o", "wide", "--show-labels"),
        ("get", "pod", "web", *YAML),
        ("get", "pods", "-o", "json"),
        ("get", "pods", "-o", "name", "--sort-by=.metadata.name"),
        ("get", "pods", "-l", "app=web", "--field-selector=status.phase=Pending"),
        ("get", "pods", "-o", "custom-columns=NAME:.metadata.name,PHASE:.status.phase"),
        ("get", "pods", "--chunk-size=1"),
        ("get", "pods", "-A", "-l", "nothing=here"),
        ("get", "pod", "nobody"),
        ("get", "po/web", "po/nobody"),
        ("describe", "pod", "web"),
        ("describe", "pod", "waiting"),
        given(CREATE, EVENT),
        ("get", "events"),
        ("events",),
        ("describe", "pod", "web"),
        ("label", "pod", "web", "a=b"),
        ("label", "pod", "web", "a=c"),
        ("label", "pod", "web", "a=c", "--overwrite"),
        ("label", "pod", "web", "a-"),
        ("label", "pod", "web", "a=b c"),
        ("annotate", "pod", "web", "x=y"),
        ("patch", "pod", "web", *merged({"spec": {"nodeSelector": {"a": "b"}}})),
        ("patch", "pod", "web", "--type=merge", *merged({"metadata": {"labels": {"m": "1"}}})),
        (
            "patch",
            "pod",
            "waiting",
            "--type=json",
            *merged([{"op": "remove", "path": "/spec/schedulingGates/0"}]),
        ),
        ("patch", "pod", "waiting", "--type=json", *merged([{"op": "remove", "path": "/x"}])),
        ("patch", "pod", "web", "--subresource=status", *merged({"status": {"phase": "Running"}})),
        ("wait", "--for=jsonpath={.status.phase}=Running", "pod/web", "--timeout=10s"),
        ("wait", "--for=condition=Ready", "pod/web", "--timeout=1s"),
        ("set", "image", "pod/web", "main=other"),
        ("get", "pod", "web", "--subresource=status"),
        ("delete", "pod", "web", "--wait=false"),
        ("delete", "pod", "web", "--ignore-not-found", "--force"),
        ("delete", "pods", "--all", "--wait=false"),
        ("delete", "pod", "web"),
    ],
    "jobs": [
        given(CREATE, job(suspend=True, parallelism=2, completions=4)),
        ("get", "jobs"),
        ("get", "jobs", "-o", "wide"),
        ("get", "job", "web", *YAML),
        ("describe", "job", "web"),
        ("patch", "job", "web", *merged({"spec": {"suspend": False}})),
        ("patch", "job", "web", *merged({"spec": {"parallelism": "x"}})),
        ("create", "job", "made", "--image=busybox", "--", "true"),
        ("create", "cronjob", "often", "--image=busybox", "--schedule=* * * * *"),
        ("get", "cronjobs"),
        ("delete", "job", "web"),
        ("delete", "job", "made", "--cascade=orphan"),
    ],
    "apply": [
        given(("apply", "-f", "-"), config_map(a="1")),
        given(("apply", "-f", "-"), config_map(a="1")),
        given(("apply", "-f", "-"), config_map(b="2")),
        given(("diff", "-f", "-"), config_map(b="2")),
        given(("apply", "-f", "-", "--dry-run=server"), config_map(b="3")),
        given((*APPLY, "--field-manager=other"), config_map(b="4")),
        given((*APPLY, "--field-manager=other", "--force-conflicts"), config_map(b="4")),
        given((*APPLY, "--dry-run=server"), config_map("trial")),
        given(APPLY, pod()),
        given(APPLY, {**pod(), "colour": "red"}),
        given(("apply", "-f", "-"), {**config_map(), "colour": "red"}),
        given(("apply", "-f", "-"), deployment()),
        given(("apply", "-f", "-"), deployment(replicas=3)),
        given(("replace", "-f", "-"), config_map(c="5")),
        given(("replace", "-f", "-"), config_map("nobody")),
        given(("replace", "--force", "-f", "-"), config_map(c="6")),
        ("get", "configmap", "web", *YAML),
        ("scale", "deployment", "web", "--replicas=5"),
        ("scale", "deployment", "web", "--replicas=5", "--current-replicas=1"),
        ("get", "deployment", "web", "-o", "wide"),
        ("autoscale", "deployment", "web", "--max=3", "--dry-run=client", "-o", "name"),
        given(("delete", "-f", "-"), deployment()),
    ],
    "mistakes": [
        given(CREATE, pod("Bad_")),
        given(CREATE, pod("bad", restartPolicy="Sometimes", priorityClassName="nowhere")),
        given(CREATE, pod("bad", container={"image": None})),
        given(CREATE, pod("bad", container={"imagee": "x"})),
        given((*CREATE, "--validate=ignore"), pod("odd", container={"imagee": "x"})),
        given((*CREATE, "--validate=warn"), pod("odder", container={"imagee": "x"})),
        given(CREATE, pod("bad", container={"resources": {"limits": {"cpu": "1x"}}})),
        given(CREATE, job("bad", template={"restartPolicy": "Always"})),
        given(CREATE, pod("bad", metadata={"namespace": "nowhere"})),
        given(CREATE, {"apiVersion": "v1", "kind": "Nothing", "metadata": {"name": "x"}}),
        given(CREATE, {"apiVersion": "v9", "kind": "Pod", "metadata": {"name": "x"}}),
        ("get", "nothings"),
        ("get", "pods", "--field-selector=spec.x=y"),
        ("delete", "namespace", "default"),
        ("logs", "nobody"),
        ("scale", "configmap", "web", "--replicas=1"),
    ],
    "kinds": [
        ("create", "secret", "generic", "web", "--from-literal=a=b"),
        ("describe", "secret", "web"),
        ("create", "configmap", "web", "--from-literal=a=b"),
        ("describe", "configmap", "web"),
        ("create", "serviceaccount", "runner"),
        ("create", "role", "reader", "--verb=get", "--resource=pods"),
        ("create", "rolebinding", "reader", "--role=reader", "--serviceaccount=default:runner"),
        ("get", "roles,rolebindings"),
        ("create", "priorityclass", "kubectl-high", "--value=1000", "--description=x"),
        ("get", "priorityclass", "kubectl-high"),
        ("delete", "priorityclass", "kubectl-high"),
        ("create", "namespace", "kubectl-made"),
        ("get", "namespace", "kubectl-made"),
        ("describe", "namespace", "kubectl-made"),
        ("delete", "namespace", "kubectl-made"),
        ("get", "secret,configmap", "-l", "nothing=here"),
    ],
    "nodes": [
        given(CREATE, NODE),
        ("patch", "node", "kubectl-node", *merged(READY_AT_LAST)),
        ("get", "node", "kubectl-node"),
        ("get", "node", "kubectl-node", "-o", "wide"),
        ("get", "node", "kubectl-node", "-L", "rack"),
        ("describe", "node", "kubectl-node"),
        ("cordon", "kubectl-node"),
        ("uncordon", "kubectl-node"),
        ("taint", "node", "kubectl-node", "a=b:NoExecute"),
        ("taint", "node", "kubectl-node", "gpu-"),
        ("drain", "kubectl-node"),
        ("delete", "node", "kubectl-node"),
    ],
    "custom-kinds": [
        given(CREATE, cron_tab()),
        given(CREATE, cron_tab("bad", schedule="daily", replicas=0)),
        given(CREATE, cron_tab("bad", colour="red")),
        ("get", "lct"),
        ("get", "crontabs", "-o", "wide"),
        ("get", "crontab", "daily", *YAML),
        ("describe", "crontab", "daily"),
        ("patch", "crontab", "daily", *merged({"spec": {"replicas": 2}})),
        ("patch", "crontab", "daily", "--type=merge", *merged({"spec": {"replicas": 2}})),
        ("scale", "crontab", "daily", "--replicas=3"),
        given(APPLY, cron_tab(replicas=4)),
        given((*APPLY, "--force-conflicts"), cron_tab(replicas=4)),
        given(("apply", "-f", "-"), cron_tab("applied")),
        ("explain", "crontab.spec.replicas"),
        ("delete", "crontabs", "--all"),
    ],
    "questions": [
        ("auth", "can-i", "create", "pods"),
        ("auth", "can-i", "create", "nothings.example.com"),
        ("auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"),
        ("api-resources", "--api-group=batch"),
        ("api-resources", "--api-group=apps", "-o", "wide"),
        ("api-resources", "--api-group=scheduling.k8s.io"),
        ("api-resources", "--api-group=likeness.example.com"),
        ("explain", "pod.spec.nothing"),
        ("get", "--raw", "/healthz"),
        ("get", "--raw", "/nothing"),
    ],
}

BLANKED = [
    (re.compile(r'(resourceVersion"?: )"?\d+"?'), r"\1X"),
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UID"),
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z"), "TIME"),
    (re.compile(r"\w{3}, \d\d \w{3} \d{4} [\d:]+ [+-]\d{4}"), "TIME"),
    (re.compile(r"\b(\d+[ydhms])+\b"), "AGE"),
    (re.compile(r"likeness-\d+"), "NAMESPACE"),
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"(/tmp/|\.\./)\S+"), "FILE"),
    (re.compile(r"(Resource Version: +)\d+"), r"\1X"),
    (re.compile(r"[ \t]+"), " "),
    (re.compile(r"-{3,}"), "---"),
]


def kubectls():
    """Find kubectl: the one that was built, and another that is on the PATH."""
    built, found = find_binaries() / "kubectl", shutil.which("kubectl")
    return {"built": built} | ({"installed": Path(found)} if found else {})


@pytest.fixture(scope="module")
def definitions(servers_and_loop):
    """Define the custom kind that the stories are about."""
    servers, _ = servers_and_loop
    for server in servers.values():
        answer(server, create(definition()), "default", None)
        path = (
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/crontabs.likeness.example.com"
        )
        while not established(raw(server, "GET", path, None)[2]):
            pass


def run(kubectl, server, folder, step):
    """Run one command; return what it says, blanked."""
    arguments, stdin = step if isinstance(step[0], tuple) else (step, "")
    done = subprocess.run(
        [kubectl, "--namespace", folder.name, *arguments],
        input=stdin.replace("{namespace}", folder.name),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "KUBECONFIG": str(server.kubeconfig)},
    )
    text = done.stdout + done.stderr
    for pattern, blank in BLANKED:
        text = pattern.sub(blank, text)
    output = ordered(rephrased(text))
    return {"command": " ".join(arguments), "code": done.returncode, "said": output}


def ordered(text):
    """Sort what is wrong with an object: the real server checks maps in no certain order."""
    lines = [line.rstrip() for line in text.splitlines()]
    return sorted(lines) if any(line.startswith("* ") for line in lines) else lines


@pytest.mark.parametrize("story", list(STORIES))
@pytest.mark.parametrize("kubectl", ["built", "installed"])
def test_kubectl_prints_the_same(servers, definitions, tmp_path, story, kubectl):
    program = kubectls().get(kubectl)
    if program is None:
        pytest.skip("no other kubectl is installed")

    def run_commands(who):
        server = servers[who]
        folder = tmp_path / who / new_namespace(server)
        folder.mkdir(parents=True)
        return [run(program, server, folder, step) for step in STORIES[story]]

    with ThreadPoolExecutor() as both:
        outputs = dict(zip(servers, both.map(run_commands, servers), strict=True))

    assert outputs["embedded"] == outputs["real"], unlike(outputs)

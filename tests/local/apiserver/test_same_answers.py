"""The embedded server and the real one, asked the same by the same kubectl, answer the same.

Each case is a small story in a namespace of its own. What differs by nature (versions, uids, times)
is blanked; what the real controllers do to objects is avoided.
"""

import asyncio
import json
import re
import uuid

import pytest
from aiohttp import web

from tests.controlplane.programs import API_SERVER, CONTROLLER_MANAGER, ETCD
from tests.controlplane.server import ControlPlane
from tests.local.apiserver.hooks import configuration, patching, serving_hooks
from tests.local.apiserver.test_kubectl import CRON_TAB, DEPLOYMENT, POD, Kubectl

pytestmark = [pytest.mark.anyio, pytest.mark.e2e]

GATED = POD.replace("spec:\n", "spec:\n  schedulingGates: [{name: example.com/wait}]\n")

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: web}
spec:
  suspend: true
  managedBy: example.com/nobody
  template: {spec: {restartPolicy: Never, containers: [{name: main, image: busybox}]}}
"""

DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: crontabs.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: crontabs, kind: CronTab, shortNames: [ct]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              schedule: {type: string, maxLength: 10}
              replicas: {type: integer, minimum: 1, default: 1}
          status: {type: object, properties: {ready: {type: string}}}
    additionalPrinterColumns: [{name: Schedule, type: string, jsonPath: .spec.schedule}]
"""

BLANKED = [
    (re.compile(r'(resourceVersion: )"?\d+"?'), r"\1X"),
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UID"),
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:]+Z"), "TIME"),
    (re.compile(r"\b\d+s\b"), "AGE"),
    (re.compile(r" +"), " "),
]

CREATE = ("create", "-f", "-")
APPLY = ("apply", "--server-side", "-f", "-")


def patch(kind, name, change, *more):
    return ("patch", kind, name, "-p", json.dumps(change), *more)


def yaml(kind, name="web"):
    return ("get", kind, name, "-o", "yaml", "--show-managed-fields")


def broken(manifest, old, new):
    return (CREATE, manifest.replace(old, new))


STORIES = [
    pytest.param([(CREATE, POD), yaml("pod"), ("delete", "pod", "web")], id="pod"),
    pytest.param([(CREATE, GATED), yaml("pod"), ("get", "pods")], id="gated-pod"),
    pytest.param(
        [
            (CREATE, GATED),
            patch("pod", "web", {"spec": {"nodeSelector": {"a": "b"}}}),
            patch("pod", "web", {"spec": {"nodeSelector": {"a": "c"}}}),
            patch("pod", "web", {"spec": {"schedulingGates": [{"name": "x.io/y"}]}}),
            patch("pod", "web", [{"op": "remove", "path": "/spec/schedulingGates"}], "--type=json"),
            yaml("pod"),
        ],
        id="changes-of-a-gated-pod",
    ),
    pytest.param([(CREATE, JOB), yaml("job"), ("get", "jobs", "-o", "wide")], id="job"),
    pytest.param(
        [
            (CREATE, JOB),
            patch("job", "web", {"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}}),
            patch("job", "web", {"spec": {"suspend": False}}),
            patch("job", "web", {"spec": {"parallelism": -1}}),
            patch("job", "web", {"spec": {"completionMode": "Indexed"}}),
            yaml("job"),
        ],
        id="changes-of-a-job",
    ),
    pytest.param(
        [
            (APPLY, JOB),
            (APPLY, JOB),
            ((*APPLY, "--field-manager=other"), JOB.replace("true", "false")),
            ((*APPLY, "--field-manager=other", "--force-conflicts"), JOB.replace("true", "false")),
            yaml("job"),
        ],
        id="applying",
    ),
    pytest.param(
        [
            broken(POD, "image:", "imagee:"),
            broken(POD, "name: web", "name: Web_1"),
            broken(POD, "containers:", "restartPolicy: Foo\n  containers:"),
            broken(POD, "name: main", "name: main, resources: {limits: {cpu: 1x}}"),
            broken(POD, "name: main", "name: main, resources: {requests: {x.y/z: 1}}"),
            broken(JOB, "Never", "Always"),
            broken(JOB, "suspend: true", "suspend: true\n  parallelism: x"),
            broken(DEPLOYMENT, "labels: {app: web}", "labels: {app: other}"),
            broken(POD, "metadata: {", "metadata: {namespace: nowhere, "),
            ("get", "pod", "nobody"),
            ("get", "nothings"),
        ],
        id="mistakes",
    ),
    pytest.param(
        [
            (CREATE, DEFINITION),
            ("wait", "--for=condition=Established", "crd/crontabs.example.com"),
            ("get", "ct"),
            (CREATE, CRON_TAB),
            yaml("ct", "daily"),
            ("get", "ct"),
            broken(CRON_TAB, "0 0 * * *", "0 0 * * * * *"),
            broken(CRON_TAB, "schedule:", "replicas: 0, schedule:"),
            broken(CRON_TAB, "schedule:", "scedule:"),
            patch(
                "ct", "daily", {"spec": {"replicas": 3}, "status": {"ready": "x"}}, "--type=merge"
            ),
            patch(
                "ct", "daily", {"status": {"ready": "x"}}, "--type=merge", "--subresource=status"
            ),
            yaml("ct", "daily"),
            ("delete", "ct", "daily"),
            ("delete", "crd", "crontabs.example.com"),
        ],
        id="custom-kind",
    ),
    pytest.param(
        [
            ("create", "configmap", "web", "--from-literal=a=b"),
            ("label", "configmap", "web", "x=y"),
            yaml("configmap"),
            ("create", "secret", "generic", "web", "--from-literal=a=b"),
            yaml("secret"),
            ("create", "role", "web", "--verb=get", "--resource=pods"),
            yaml("role"),
            ("create", "configmap", "web"),
            ("delete", "configmap", "web"),
        ],
        id="kinds-by-name",
    ),
]


WRITES = [
    (CREATE, POD),
    patch("pod", "web", {"metadata": {"labels": {"a": "b"}}}),
    ("get", "pod", "web", "-o", "yaml"),
    ("delete", "pod", "web"),
]


@pytest.fixture(scope="module")
def real():
    with ControlPlane(components=(ETCD, API_SERVER, CONTROLLER_MANAGER)) as control_plane:
        yield control_plane


async def run_story(kubectl, story):
    """Run a story's commands; return all that kubectl says, blanked."""
    namespace = f"same-{uuid.uuid4().hex[:6]}"
    await kubectl.run("create", "namespace", namespace)
    answers = []
    for step in story:
        arguments, stdin = step if isinstance(step[0], tuple) else (step, "")
        process = await kubectl.start("-n", namespace, *arguments)
        async with asyncio.timeout(30):
            out, complaint = await process.communicate(stdin.encode())
        text = (out + complaint).decode().replace(namespace, "NAMESPACE")
        for pattern, blank in BLANKED:
            text = pattern.sub(blank, text)
        answers.append((arguments, sorted_causes(text)))
    return answers


def sorted_causes(text):
    """Sort what is wrong with an object: the real server checks maps in no certain order."""
    lines = text.splitlines()
    return sorted(lines) if any(line.startswith("* ") for line in lines) else lines


@pytest.fixture
def kubectls(server, real, tmp_path):
    """Return kubectl for the embedded server and for the real one."""
    found = []
    for kubeconfig in (json.dumps(server.kubeconfig()), real.kubeconfig.read_text()):
        folder = tmp_path / str(len(found))
        folder.mkdir()
        (folder / "kubeconfig").write_text(kubeconfig)
        found.append(Kubectl(folder))
    return found


@pytest.mark.parametrize("story", STORIES)
async def test_both_servers_answer_the_same(kubectls, story):
    embedded, real = [await run_story(kubectl, story) for kubectl in kubectls]

    assert embedded == real


@pytest.mark.parametrize(
    ("answer", "failure_policy"),
    [
        pytest.param({}, "Fail", id="allowed"),
        pytest.param(patching(("add", "/metadata/labels/x", "y")), "Fail", id="patched"),
        pytest.param(
            patching(
                ("remove", "/spec/priority", None),
                ("replace", "/spec/priorityClassName", "system-node-critical"),
            ),
            "Ignore",
            id="priority-class-patched",
        ),
        pytest.param({"warnings": ["careful"]}, "Fail", id="warned"),
        pytest.param(
            {"allowed": False, "status": {"message": "not today", "code": 403}},
            "Fail",
            id="denied",
        ),
        pytest.param(
            {"allowed": False, "status": {"reason": "Forbidden"}}, "Fail", id="denied-by-reason"
        ),
        pytest.param({"allowed": False}, "Fail", id="denied-without-a-word"),
        pytest.param({"uid": "x"}, "Ignore", id="other-uid-ignored"),
        pytest.param(lambda _: web.Response(status=500, text="oh"), "Fail", id="server-error"),
        pytest.param(lambda _: web.Response(status=404), "Fail", id="not-found"),
        pytest.param(patching(("remove", "/spec/no", None)), "Fail", id="patch-does-not-fit"),
    ],
)
async def test_both_servers_ask_webhooks_the_same(kubectls, answer, failure_policy):
    async with serving_hooks() as hooks:
        hooks.answers["/a"] = answer
        webhook = hooks.webhook("/a", failurePolicy=failure_policy)
        webhook["rules"][0]["operations"] = ["CREATE", "UPDATE"]

        embedded, real = [await ask(kubectl, hooks, webhook) for kubectl in kubectls]

    assert embedded == real


async def ask(kubectl, hooks, webhook):
    """Register a webhook and write to a pod; return what kubectl says, and what is asked."""
    kind = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
    }
    await kubectl.create(json.dumps(kind | configuration(webhook, name="same")))
    await known_to(kubectl, hooks)
    hooks.asked.clear()
    answers = await run_story(kubectl, WRITES)
    await kubectl.run("delete", "mutatingwebhookconfiguration", "same")
    return answers, [blanked(request) for _, request in hooks.asked]


async def known_to(kubectl, hooks):
    """Wait until the server has noticed the configuration, which the real one takes a while for."""
    async with asyncio.timeout(30):
        while not hooks.asked:
            process = await kubectl.start("create", "--dry-run=server", "-f", "-")
            await process.communicate(POD.encode())


def blanked(request):
    """Blank what differs between two servers in a review."""
    text = json.dumps(request, sort_keys=True)
    for pattern, blank in BLANKED[1:4]:
        text = pattern.sub(blank, text)
    decoded = json.loads(re.sub(r"same-[0-9a-f]{6}", "NAMESPACE", text))
    decoded.pop("userInfo")
    for name in ("object", "oldObject"):
        about = (decoded[name] or {}).get("metadata", {})
        about.pop("resourceVersion", None)
        about.pop("creationTimestamp", None)
    return decoded

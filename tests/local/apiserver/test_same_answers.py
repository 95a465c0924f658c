"""The embedded server and the real one, asked the same by the same kubectl, answer the same.

Each case is a small story in a namespace of its own. What differs by nature (versions, uids, times)
is blanked; what the real controllers do to objects is avoided.
"""

import asyncio
import json
import re
import uuid

import pytest

from policyd.local.apiserver import ApiServer
from tests.controlplane.programs import API_SERVER, CONTROLLER_MANAGER, ETCD
from tests.controlplane.server import ControlPlane
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
            broken(DEPLOYMENT, "app: web}}", "app: other}}"),
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
            ("annotate", "configmap", "web", "x=y"),
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


@pytest.fixture(scope="module")
def real():
    with ControlPlane(components=(ETCD, API_SERVER, CONTROLLER_MANAGER)) as control_plane:
        yield control_plane


async def tell(kubectl, story):
    """Run a story's commands; return all that kubectl says, blanked."""
    namespace = f"same-{uuid.uuid4().hex[:6]}"
    await kubectl.run("create", "namespace", namespace)
    said = []
    for step in story:
        arguments, stdin = step if isinstance(step[0], tuple) else (step, "")
        process = await kubectl.start("-n", namespace, *arguments)
        async with asyncio.timeout(30):
            out, complaint = await process.communicate(stdin.encode())
        text = (out + complaint).decode().replace(namespace, "NAMESPACE")
        for pattern, blank in BLANKED:
            text = pattern.sub(blank, text)
        said.append((arguments, sorted_causes(text)))
    return said


def sorted_causes(text):
    """Sort what is wrong with an object: the real server checks maps in no certain order."""
    lines = text.splitlines()
    return sorted(lines) if any(line.startswith("* ") for line in lines) else lines


@pytest.mark.parametrize("story", STORIES)
async def test_both_servers_answer_the_same(real, story, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "kubeconfig").write_text(real.kubeconfig.read_text())
    (tmp_path / "embedded").mkdir()
    server = ApiServer()
    (tmp_path / "embedded" / "kubeconfig").write_text(json.dumps(server.kubeconfig()))
    await server.start()

    embedded = await tell(Kubectl(tmp_path / "embedded"), story)
    await server.stop()

    assert embedded == await tell(Kubectl(tmp_path / "real"), story)

"""The unchanged kubectl against the embedded server: every verb that users are promised."""

import asyncio
import json
import os
import shutil

import pytest

from tests.controlplane.process import ControlPlaneError
from tests.controlplane.programs import find_binaries
from tests.local.apiserver.client import WAIT_SECONDS

pytestmark = pytest.mark.anyio


def find_kubectl():
    """Return the kubectl on the PATH, or the one that was built for the real control plane."""
    found = shutil.which("kubectl")
    try:
        return found or str(find_binaries() / "kubectl")
    except ControlPlaneError:
        return None


KUBECTL = find_kubectl()
if KUBECTL is None:
    pytest.skip("kubectl is neither on the PATH nor built", allow_module_level=True)

POD = """
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers: [{name: main, image: "busybox:1"}]
"""

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: "busybox:1"}]}
"""

CRON_TABS = """
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
    schema:
      openAPIV3Schema:
        type: object
        properties: {spec: {type: object, properties: {schedule: {type: string}}}}
    additionalPrinterColumns: [{name: Schedule, type: string, jsonPath: .spec.schedule}]
"""

CRON_TAB = """
apiVersion: example.com/v1
kind: CronTab
metadata: {name: daily}
spec: {schedule: "0 0 * * *"}
"""


class Kubectl:
    """Runs kubectl with a kubeconfig and a home of its own."""

    def __init__(self, folder):
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "KUBECONFIG": str(folder / "kubeconfig"),
        }

    async def start(self, *arguments):
        return await asyncio.create_subprocess_exec(
            KUBECTL,
            *arguments,
            env=self.environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def run(self, *arguments, stdin="", code=0):
        """Run a command; return what it prints: its data if it succeeds, else its complaint."""
        process = await self.start(*arguments)
        async with asyncio.timeout(3 * WAIT_SECONDS):
            out, complaint = await process.communicate(stdin.encode())
        assert process.returncode == code, (out, complaint)
        return (complaint if code else out).decode()

    async def create(self, manifest):
        await self.run("create", "-f", "-", stdin=manifest)

    async def get(self, *arguments):
        return json.loads(await self.run("get", *arguments, "-o", "json"))


@pytest.fixture
async def kubectl(server, tmp_path):
    (tmp_path / "kubeconfig").write_text(json.dumps(server.kubeconfig()))
    return Kubectl(tmp_path)


async def test_create_and_get_as_yaml(kubectl):
    printed = await kubectl.run("create", "-f", "-", stdin=POD)

    yaml = await kubectl.run("get", "pod", "web", "-o", "yaml")
    assert printed == "pod/web created\n"
    assert "schedulerName: default-scheduler" in yaml
    assert "managedFields" not in yaml


async def test_get_prints_the_usual_table(kubectl):
    await kubectl.create(POD)

    header, row = (await kubectl.run("get", "pods", "-o", "wide")).splitlines()

    assert header.split()[:7] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE"]
    assert row.split()[:4] == ["web", "0/1", "Pending", "0"]


async def test_get_watches(kubectl):
    await kubectl.create(POD)
    process = await kubectl.start("get", "pods", "-w")
    async with asyncio.timeout(WAIT_SECONDS):
        lines = [await process.stdout.readline() for _ in range(2)]
        await kubectl.run("create", "-f", "-", stdin=POD.replace("web", "second"))
        lines.append(await process.stdout.readline())
    process.terminate()
    await process.communicate()

    assert [line.split()[0] for line in lines] == [b"NAME", b"web", b"second"]


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["namespace", "team"], id="namespace"),
        pytest.param(["configmap", "c", "--from-literal=a=b"], id="configmap"),
        pytest.param(["secret", "generic", "s", "--from-literal=a=b"], id="secret"),
        pytest.param(["deployment", "d", "--image=nginx", "--replicas=0"], id="deployment"),
        pytest.param(["job", "j", "--image=busybox", "--", "sleep", "1"], id="job"),
        pytest.param(["priorityclass", "p", "--value=10"], id="priorityclass"),
        pytest.param(["serviceaccount", "robot"], id="serviceaccount"),
        pytest.param(["role", "r", "--verb=get", "--resource=pods"], id="role"),
    ],
)
async def test_create_by_name_of_the_kind(kubectl, arguments):
    printed = await kubectl.run("create", *arguments)

    assert printed.endswith(" created\n")


async def test_the_options_of_the_command_line_are_stored(kubectl):
    await kubectl.run("create", "deployment", "d", "--image=nginx:1", "--replicas=0", "--port=80")

    spec = (await kubectl.get("deployment", "d"))["spec"]

    assert spec["replicas"] == 0
    (container,) = spec["template"]["spec"]["containers"]
    assert (container["image"], container["imagePullPolicy"]) == ("nginx:1", "IfNotPresent")
    assert container["ports"] == [{"containerPort": 80, "protocol": "TCP"}]


async def test_run_and_delete(kubectl):
    await kubectl.run("run", "web", "--image=nginx")

    printed = await kubectl.run("delete", "pod", "web")

    assert printed == 'pod "web" deleted\n'
    assert "NotFound" in await kubectl.run("get", "pod", "web", code=1)


async def test_describe_shows_object_and_events(kubectl):
    await kubectl.create(POD)
    uid = (await kubectl.get("pod", "web"))["metadata"]["uid"]
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "default"},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "web",
            "namespace": "default",
            "uid": uid,
        },
        "type": "Normal",
        "reason": "Waiting",
        "message": "4 GPUs are missing",
        "source": {"component": "policyd"},
    }
    await kubectl.create(json.dumps(event))

    printed = await kubectl.run("describe", "pod", "web")

    assert "Status:       Pending" in printed
    assert "4 GPUs are missing" in printed
    assert "4 GPUs are missing" in await kubectl.run("events", "--for", "pod/web")
    assert "4 GPUs are missing" in await kubectl.run("get", "events")


async def test_apply_on_the_clients_side(kubectl):
    created = await kubectl.run("apply", "-f", "-", stdin=DEPLOYMENT)
    same = await kubectl.run("apply", "-f", "-", stdin=DEPLOYMENT)
    more = DEPLOYMENT.replace("containers: [{", "containers: [{name: side, image: log}, {")
    changed = await kubectl.run("apply", "-f", "-", stdin=more)

    assert [line.split()[-1] for line in (created, same, changed)] == [
        "created",
        "unchanged",
        "configured",
    ]
    spec = (await kubectl.get("deployment", "web"))["spec"]["template"]["spec"]
    assert {container["name"] for container in spec["containers"]} == {"main", "side"}


async def test_apply_on_the_servers_side(kubectl):
    apply = ("apply", "--server-side", "-f", "-")
    first = await kubectl.run(*apply, stdin=DEPLOYMENT)
    other = DEPLOYMENT.replace("busybox:1", "busybox:2")
    refused = await kubectl.run(*apply, "--field-manager=other", stdin=other, code=1)
    forced = await kubectl.run(*apply, "--field-manager=other", "--force-conflicts", stdin=other)

    assert first == forced == "deployment.apps/web serverside-applied\n"
    assert "Apply failed with 1 conflict" in refused
    assert '.spec.template.spec.containers[name="main"].image' in refused


async def test_the_servers_side_takes_over_from_the_clients(kubectl):
    await kubectl.run("apply", "-f", "-", stdin=DEPLOYMENT)

    printed = await kubectl.run(
        "apply", "--server-side", "-f", "-", stdin=DEPLOYMENT.replace("busybox:1", "busybox:2")
    )

    assert printed == "deployment.apps/web serverside-applied\n"


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        pytest.param("merge", {"metadata": {"labels": {"a": "b"}}}, id="merge"),
        pytest.param("strategic", {"metadata": {"labels": {"a": "b"}}}, id="strategic"),
        pytest.param(
            "json", [{"op": "add", "path": "/metadata/labels/a", "value": "b"}], id="json"
        ),
    ],
)
async def test_patch(kubectl, kind, change):
    await kubectl.create(POD)

    await kubectl.run("patch", "pod", "web", "--type", kind, "-p", json.dumps(change))

    assert (await kubectl.get("pod", "web"))["metadata"]["labels"] == {"app": "web", "a": "b"}


async def test_label_annotate_and_select(kubectl):
    await kubectl.create(POD)

    await kubectl.run("label", "pod", "web", "tier=research")
    await kubectl.run("annotate", "pod", "web", "note=hello")

    found = await kubectl.get("pods", "-l", "tier=research")
    assert found["items"][0]["metadata"]["annotations"] == {"note": "hello"}


async def test_scale(kubectl):
    await kubectl.create(DEPLOYMENT)

    printed = await kubectl.run("scale", "deployment", "web", "--replicas=3")

    assert printed == "deployment.apps/web scaled\n"
    assert (await kubectl.get("deployment", "web"))["spec"]["replicas"] == 3


async def test_a_dry_run_on_the_server_shows_and_stores_nothing(kubectl):
    shown = await kubectl.run("create", "--dry-run=server", "-o", "yaml", "-f", "-", stdin=POD)

    assert "schedulerName: default-scheduler" in shown
    assert "NotFound" in await kubectl.run("get", "pod", "web", code=1)


async def test_wait_for_a_condition_and_for_deletion(kubectl):
    await kubectl.create(POD)
    waiting = await kubectl.start("wait", "--for=condition=Ready", "pod/web", "--timeout=20s")
    status = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    await kubectl.run("patch", "pod", "web", "--subresource=status", "-p", json.dumps(status))
    out, _ = await waiting.communicate()
    going = await kubectl.start("wait", "--for=delete", "pod/web", "--timeout=20s")
    await kubectl.run("delete", "pod", "web")
    await going.communicate()

    assert out == b"pod/web condition met\n"
    assert going.returncode == 0


async def test_explain_and_api_resources(kubectl):
    explained = await kubectl.run("explain", "pod.spec.schedulingGates")
    listed = await kubectl.run("api-resources")

    assert "FIELD: schedulingGates <[]PodSchedulingGate>" in explained
    assert ["jobs", "batch/v1", "true", "Job"] in [line.split() for line in listed.splitlines()]


async def test_custom_kinds_from_definition_to_deletion(kubectl):
    await kubectl.run("apply", "-f", "-", stdin=CRON_TABS)
    await kubectl.run("wait", "--for=condition=Established", "crd/crontabs.example.com")

    await kubectl.run("apply", "-f", "-", stdin=CRON_TAB)
    table = await kubectl.run("get", "ct")
    explained = await kubectl.run("explain", "ct.spec")
    unknown = await kubectl.run(
        "create", "-f", "-", stdin=CRON_TAB.replace("schedule:", "scedule:"), code=1
    )
    await kubectl.run("delete", "crd", "crontabs.example.com")

    assert table.splitlines()[1].split() == ["daily", "0", "0", "*", "*", "*"]
    assert "schedule\t<string>" in explained
    assert 'unknown field "spec.scedule"' in unknown


async def test_mistakes_are_reported_as_by_the_real_server(kubectl):
    wrong = POD.replace("image:", "imagee:")
    unknown = await kubectl.run("create", "-f", "-", stdin=wrong, code=1)
    missing = await kubectl.run("create", "-n", "nowhere", "-f", "-", stdin=POD, code=1)
    await kubectl.create(POD)
    again = await kubectl.run("create", "-f", "-", stdin=POD, code=1)

    assert unknown == (
        'Error from server (BadRequest): error when creating "STDIN": Pod in version "v1" cannot be'
        ' handled as a Pod: strict decoding error: unknown field "spec.containers[0].imagee"\n'
    )
    assert missing == (
        'Error from server (NotFound): error when creating "STDIN": namespaces "nowhere" not'
        " found\n"
    )
    assert again == (
        'Error from server (AlreadyExists): error when creating "STDIN": pods "web" already'
        " exists\n"
    )


async def test_logs_auth_and_version(kubectl):
    await kubectl.create(POD + "  nodeName: n1\n")

    assert await kubectl.run("logs", "web") == ""
    assert await kubectl.run("auth", "can-i", "create", "pods") == "yes\n"
    assert "kubernetes-admin" in await kubectl.run("auth", "whoami")
    assert "Server Version: v1.36.3" in await kubectl.run("version")


async def test_diff_replace_and_delete_by_selector(kubectl):
    await kubectl.create(POD)
    changed = POD.replace("busybox:1", "busybox:2")

    shown = await kubectl.start("diff", "-f", "-")
    out, _ = await shown.communicate(changed.encode())
    await kubectl.run("replace", "-f", "-", stdin=changed)
    deleted = await kubectl.run("delete", "pods", "-l", "app=web")

    assert b"+  - image: busybox:2" in out
    assert deleted == 'pod "web" deleted\n'

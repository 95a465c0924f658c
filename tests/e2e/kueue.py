"""Kueue itself on a real control plane: its chart, and its program where its Deployment has pods.

The chart and the program come from Kueue's Go module. The program runs on this machine while the
Deployment has replicas, and its Services lead to it. Its pod has no node: this plays its kubelet.
"""

import base64
import subprocess
import threading
import urllib.request
from contextlib import contextmanager

import yaml

from tests.charts.release import account_kubeconfig, helm, lead_to_this_machine
from tests.controlplane import programs
from tests.scenarios.api import PATCH_TYPES, Api, Refused, condition
from tests.scenarios.clusters import Process

NAMESPACE = "kueue-system"
DEPLOYMENT = "kueue-controller-manager"
LEASE = f"apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/c1f6bfd2.kueue.x-k8s.io"
SECRET = f"api/v1/namespaces/{NAMESPACE}/secrets/kueue-webhook-server-cert"
PORTS = ("webhook", "visibility", "health", "metrics")


class Kueue:
    """Kueue as installed by its chart."""

    def __init__(self, control_plane, folder):
        self.program = programs.build_kueue()
        self.chart = programs.kueue_module() / "charts" / "kueue"
        self.control_plane = control_plane
        self.folder = folder
        self.api = Api(control_plane.kubeconfig)
        self.ports = programs.free_ports(PORTS)
        self.certificates = folder / "certificates"
        self.certificates.mkdir()
        self._ended = threading.Event()

    def install(self):
        """Install what the chart has, with Services that lead to this machine."""
        done = helm(
            *("template", "kueue", self.chart, f"--namespace={NAMESPACE}"), folder=self.folder
        )
        assert done.code == 0, done.err
        found = [item for item in yaml.safe_load_all(done.out) if item]
        for item in found:
            self._adapt(item)
        self.control_plane.kubectl("create", "namespace", NAMESPACE)
        apply = ("apply", "--server-side", "--field-manager=helm", "-f", "-")
        self.control_plane.kubectl(*apply, stdin=yaml.safe_dump_all(found))
        for service in ("kueue-webhook-service", "kueue-visibility-server"):
            lead_to_this_machine(self.control_plane, service, NAMESPACE)
        kubeconfig = account_kubeconfig(self.control_plane, DEPLOYMENT, NAMESPACE)
        config = self.folder / "config.yaml"
        config.write_text(self._configuration(found))
        command = [str(self.program), f"--config={config}", f"--kubeconfig={kubeconfig}"]
        self.process = Process(command, self.folder / "kueue.log")

    def _adapt(self, item):
        """Have an object of the chart mean the ports of this machine."""
        kind, spec = item["kind"], item.get("spec", {})
        for webhook in item.get("webhooks", ()):
            webhook["clientConfig"]["service"]["port"] = self.ports["webhook"]
        if kind == "CustomResourceDefinition":
            for version in spec["versions"]:  # as Kueue 0.15 has it, which serves both
                version["storage"] = version["name"] == "v1beta1"
        if kind == "CustomResourceDefinition" and "conversion" in spec:
            config = spec["conversion"]["webhook"]["clientConfig"]
            config["service"]["port"] = self.ports["webhook"]
        if kind == "APIService":
            spec["service"]["port"] = self.ports["visibility"]
        if kind == "Deployment":
            spec["template"]["spec"]["schedulerName"] = "nobody"

    def _configuration(self, found):
        """Return the Configuration of the chart, for a process that is in no pod."""
        (text,) = (
            item["data"]["controller_manager_config.yaml"]
            for item in found
            if item["kind"] == "ConfigMap" and item["metadata"]["name"] == "kueue-manager-config"
        )
        made = yaml.safe_load(text)
        made["namespace"] = NAMESPACE
        made["health"] = {"healthProbeBindAddress": f"127.0.0.1:{self.ports['health']}"}
        made["metrics"] = {"bindAddress": f"127.0.0.1:{self.ports['metrics']}"}
        made["webhook"] = {"port": self.ports["webhook"], "certDir": str(self.certificates)}
        made["visibilityServer"] = {"bindPort": self.ports["visibility"]}
        made["leaderElection"]["resourceNamespace"] = NAMESPACE
        return yaml.safe_dump(made)

    @contextmanager
    def running(self):
        """Have the program run while the Deployment has replicas."""
        follower = threading.Thread(target=self._follow)
        follower.start()
        try:
            yield self
        finally:
            self._ended.set()
            follower.join()

    def _follow(self):
        path = f"apis/apps/v1/namespaces/{NAMESPACE}/deployments/{DEPLOYMENT}"
        started = False
        while not self._ended.wait(0.2):
            wanted = self.api.call("GET", path)["spec"]["replicas"] > 0
            if wanted and not started:
                self.process.start()
            elif started and not wanted:
                self._stop()
            started = wanted
            self._mount()
            self._report()
        if started:
            self._stop()

    def _stop(self):
        self.process.running.terminate()
        try:
            self.process.running.wait(timeout=15)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def _report(self):
        """Do what the kubelet does: say whether the program in the pods is ready."""
        for pod in self.api.find("Pod", NAMESPACE):
            ready = condition(pod, "Ready").get("status", "False") == "True"
            if ready is not self.ready():
                now = {"type": "Ready", "status": str(not ready)}
                status = {"phase": "Running", "conditions": [now]}
                path = f"api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}/status"
                patch = {"status": status}
                try:
                    self.api.call("PATCH", path, patch, content_type=PATCH_TYPES["merge"])
                except Refused as refusal:
                    if refusal.code != 404:  # deleted meanwhile
                        raise

    def ready(self):
        """Tell whether the program says that it is."""
        address = f"http://127.0.0.1:{self.ports['health']}/readyz"
        try:
            with urllib.request.urlopen(address, timeout=1) as answer:
                return answer.status == 200
        except OSError:
            return False

    def _mount(self):
        """Do what the kubelet does: put the Secret's certificates where the program looks."""
        try:
            data = self.api.call("GET", SECRET).get("data") or {}
        except Refused:
            return
        for name, text in data.items():
            file, content = self.certificates / name, base64.b64decode(text)
            if not file.exists() or file.read_bytes() != content:
                temporary = file.with_suffix(".new")
                temporary.write_bytes(content)
                temporary.rename(file)

    def holder(self):
        """The holder of Kueue's Lease; None if there is none."""
        try:
            return self.api.call("GET", LEASE)["spec"].get("holderIdentity")
        except Refused:
            return None

    def scale(self, replicas):
        path = f"apis/apps/v1/namespaces/{NAMESPACE}/deployments/{DEPLOYMENT}"
        patch = {"spec": {"replicas": replicas}}
        self.api.call("PATCH", path, patch, content_type=PATCH_TYPES["merge"])

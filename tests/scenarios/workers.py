"""A manager of MultiKueue and its workers, each a real API server with policyd in it."""

import base64
import json
import sys
from contextlib import ExitStack, contextmanager

import yaml

from policyd.api.kueue.names import MULTI_KUEUE
from tests.charts.release import NAMESPACE
from tests.scenarios import clusters
from tests.scenarios.api import authority, condition, eventually

KUEUE = "kueue.x-k8s.io/v1beta2"
NAMES = ("east", "west")
FRAMEWORKS = (
    *("batch/job", "pod", "statefulset", "jobset.x-k8s.io/jobset"),
    *("leaderworkerset.x-k8s.io/leaderworkerset", "workload.codeflare.dev/appwrapper"),
)
"""Those of the manager: a Configuration that does not name them has no pods sent."""
EXEC = "client.authentication.k8s.io/v1"


@contextmanager
def manager_and_workers(new_folder, also=()):
    """Start a manager whose queue sends its jobs away, and its workers.

    Args:
        new_folder: Makes an empty folder, given the start of its name.
        also: Secrets that the manager may read beside those of its workers.
    """
    with ExitStack() as stack:
        workers = {name: stack.enter_context(clusters.real(new_folder(name))) for name in NAMES}
        multi_kueue = {"enabled": True, "secrets": [*NAMES, *also]}
        values = {"controller__multiKueue": multi_kueue}
        folder = new_folder("manager")
        both = ["--config", str(configuration(folder, workers["west"].kubeconfig))]
        manager = stack.enter_context(clusters.real(folder, values=values, both=both))
        connect(manager.api, workers)
        yield manager, workers


def configuration(folder, kubeconfig):
    """Write a Configuration whose program answers with the token of a worker, if it is asked so."""
    token = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]["token"]
    answer = {"apiVersion": EXEC, "kind": "ExecCredential", "status": {"token": token}}
    program = folder / "credentials"
    program.write_text(
        f"#!{sys.executable} -I\nimport json, os\n"
        "asked = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
        "assert asked['spec']['cluster']['config'] == {'account': 'manager'}\n"
        f"print({json.dumps(json.dumps(answer))})\n"
    )
    program.chmod(0o700)
    run = {
        "apiVersion": EXEC,
        "command": str(program),
        "interactiveMode": "Never",
        "provideClusterInfo": True,
    }
    file = folder / "configuration.yaml"
    given = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "integrations": {"frameworks": list(FRAMEWORKS)},
        "featureGates": {"MultiKueueClusterProfile": True},
        "multiKueue": {
            "workerLostTimeout": "10s",
            "clusterProfile": {"accessProviders": [{"name": "test", "execConfig": run}]},
        },
    }
    file.write_text(yaml.safe_dump(given))
    return file


def connect(api, workers):
    """Have a manager send the jobs of one queue to workers, which have a queue of that name."""
    for name, worker in workers.items():
        by_secret(api, name, carried(worker.kubeconfig))
    make(api, "MultiKueueConfig", "all", {"clusters": list(NAMES)})
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "all"}
    spec = {"controllerName": MULTI_KUEUE, "parameters": parameters}
    make(api, "AdmissionCheck", "away", spec)
    groups = api.find("ClusterQueue")[0]["spec"]["resourceGroups"]
    for quota in (q for g in groups for f in g["flavors"] for q in f["resources"]):
        quota.pop("borrowingLimit", None)
        quota.pop("lendingLimit", None)
    strategy = {"admissionChecks": [{"name": "away"}]}
    spec = {"namespaceSelector": {}, "resourceGroups": groups, "admissionChecksStrategy": strategy}
    make(api, "ClusterQueue", "away", spec)
    local_queue(api, "away")
    for worker in workers.values():
        local_queue(worker.api, worker.api.find("ClusterQueue")[0]["metadata"]["name"])
    for name in workers:
        eventually(lambda name=name: is_active(api, name), within=60, what=f"{name} is connected")


def local_queue(api, cluster_queue):
    metadata = {"name": "away", "namespace": "team-a"}
    spec = {"clusterQueue": cluster_queue}
    api.create({"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": metadata, "spec": spec})


def by_secret(api, name, kubeconfig):
    """Make a worker whose kubeconfig is in a Secret of the same name."""
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "data": {"kubeconfig": packed(kubeconfig)},
    }
    api.call("POST", f"api/v1/namespaces/{NAMESPACE}/secrets", secret)
    source = {"kubeConfig": {"location": name, "locationType": "Secret"}}
    make(api, "MultiKueueCluster", name, {"clusterSource": source})


def carried(kubeconfig):
    """Return a kubeconfig that carries all it needs, as it must in a Secret."""
    config = yaml.safe_load(kubeconfig.read_text())
    cluster = config["clusters"][0]["cluster"]
    pem = base64.b64encode(authority(cluster).encode()).decode()
    reached = {"server": cluster["server"], "certificate-authority-data": pem}
    token = config["users"][0]["user"]["token"]
    return {
        "clusters": [{"name": "worker", "cluster": reached}],
        "users": [{"name": "manager", "user": {"token": token}}],
        "contexts": [{"name": "worker", "context": {"cluster": "worker", "user": "manager"}}],
        "current-context": "worker",
    }


def make(api, kind, name, spec):
    body = {"apiVersion": KUEUE, "kind": kind, "metadata": {"name": name}, "spec": spec}
    return api.create(body)


def is_active(api, name):
    return condition(api.get("MultiKueueCluster", name), "Active").get("status") == "True"


def packed(kubeconfig):
    """Return a kubeconfig as a Secret has it among its data."""
    return base64.b64encode(json.dumps(kubeconfig).encode()).decode()

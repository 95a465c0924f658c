"""`kubectl explain` of the kinds that policyd brings along."""

import os
import subprocess

import pytest

from tests.controlplane.programs import find_binaries

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("localqueues.spec.clusterQueue", "The ClusterQueue whose quota is used"),
        ("workloads.spec.maximumExecutionTimeSeconds", "it is deactivated then"),
        ("policies.spec.inject.gang", "How many pods start together."),
    ],
)
def test_kubectl_says_what_a_field_means(cluster, tmp_path, path, words):
    command = [find_binaries() / "kubectl", f"--kubeconfig={cluster.kubeconfig}", "explain", path]
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}

    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)

    assert words in " ".join(done.stdout.split())

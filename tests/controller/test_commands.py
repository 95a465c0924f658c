"""`policyd controller` and `policyd crds`, and the controller's probes."""

import aiohttp
import pytest
import yaml
from click.testing import CliRunner

from policyd.cli import main
from policyd.controller.metrics.health import ControllerHealth, serve_health
from policyd.errors import ConfigurationError


def test_the_kinds_are_printed_as_yaml_that_can_be_applied():
    result = CliRunner().invoke(main, ["crds"])

    documents = list(yaml.safe_load_all(result.stdout))
    names = {document["metadata"]["name"] for document in documents}
    assert {"workloads.kueue.x-k8s.io", "policies.policyd.io"} <= names
    assert {document["kind"] for document in documents} == {"CustomResourceDefinition"}


def test_a_wrong_kubeconfig_is_one_sentence_and_a_hint(tmp_path):
    result = CliRunner().invoke(main, ["controller", "--kubeconfig", str(tmp_path / "none")])

    assert result.exit_code == 2
    first, second, *rest = result.stderr.splitlines()
    assert first.startswith("error: kubeconfig")
    assert second.startswith("hint: ")
    assert rest == []


@pytest.mark.anyio
async def test_probes_say_what_is_waited_for():
    health = ControllerHealth()
    health.missing = ("workloads.kueue.x-k8s.io",)
    async with serve_health(health, host="127.0.0.1", port=0) as port:
        before = await fetch(port, "readyz")
        health.synced.set()
        after = await fetch(port, "readyz")
        live = await fetch(port, "livez")
        metrics = await fetch(port, "metrics")

    assert before == (503, "waiting for workloads.kueue.x-k8s.io\n")
    assert (after, live) == ((200, "ok\n"), (200, "ok\n"))
    assert "policyd_leading" in metrics[1]


@pytest.mark.anyio
async def test_a_taken_port_is_reported():
    async with serve_health(ControllerHealth(), host="127.0.0.1", port=0) as port:
        with pytest.raises(ConfigurationError, match=f"port `{port}` on `127.0.0.1` is taken"):
            async with serve_health(ControllerHealth(), host="127.0.0.1", port=port):
                pass


async def fetch(port, path):
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}/{path}") as answer,
    ):
        return answer.status, await answer.text()

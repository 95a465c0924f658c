"""The same questions to a real Prometheus that has the recorded series on its disk."""

import socket
import subprocess
import time
import urllib.error
import urllib.request

import pytest

from tests.cli.usage.test_fragmentation import check_fragmentation
from tests.cli.usage.test_idle import check_idle
from tests.cli.usage.test_rightsize import check_rightsize
from tests.monitoring.prometheus import where
from tests.usage.recording import open_metrics

FOLDER = where()
pytestmark = pytest.mark.skipif(
    not (FOLDER / "prometheus").exists(), reason="prometheus is not at hand: run `make monitoring`"
)


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "series").write_text("\n".join(open_metrics()) + "\n")
    (folder / "prometheus.yml").write_text("{}\n")
    create = [FOLDER / "promtool", "tsdb", "create-blocks-from", "openmetrics", "series", "data"]
    subprocess.run(create, cwd=folder, check=True, capture_output=True, timeout=120)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        FOLDER / "prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data",
        "--storage.tsdb.retention.time=50y", f"--web.listen-address=127.0.0.1:{port}",
    ]  # fmt: skip
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        try:
            wait_until_ready(f"http://127.0.0.1:{port}/-/ready", process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(timeout=30)


def wait_until_ready(address, process):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        assert process.poll() is None, "prometheus has ended"
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.2)
    raise AssertionError("prometheus is not ready after a minute")


@pytest.mark.parametrize("check", [check_idle, check_rightsize, check_fragmentation])
def test_a_real_prometheus_gives_the_same_answers(address, check):
    check(address)

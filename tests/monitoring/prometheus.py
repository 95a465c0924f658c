"""A Prometheus on this machine that scrapes policyd's processes, and promtool."""

import json
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.controlplane.programs import free_ports
from tests.scenarios.api import eventually

HERE = Path(__file__).parent
RULES = HERE.parents[1] / "charts" / "policyd" / "rules" / "alerts.yaml"
RULES_TEST = HERE / "alerts.yaml"
INTERVAL = "1s"


@dataclass(frozen=True, kw_only=True)
class Prometheus:
    """A Prometheus that runs.

    Attributes:
        address: Where its API is.
        started_at: When it was ready, in seconds since the epoch.
    """

    address: str
    started_at: float

    def ask(self, path: str, **query: object) -> Any:
        """Return the data of an answer of its API.

        Raises:
            AssertionError: If it answers with an error, in its words.
        """
        url = f"{self.address}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(json.load(error).get("error", str(error))) from None

    def numbers(self, expression: str) -> dict[str, float]:
        """Return the last number of each series that a query had since the start, by its labels."""
        span = {"start": self.started_at, "end": time.time(), "step": 2}
        found: dict[str, float] = {}
        for series in self.ask("query_range", query=expression, **span)["result"]:
            numbers = [float(text) for _, text in series["values"] if text != "NaN"]
            if numbers:
                found[json.dumps(series["metric"], sort_keys=True)] = numbers[-1]
        return found

    def rules(self) -> list[dict[str, Any]]:
        """Return the alert rules, with their states and errors."""
        return [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]


@contextmanager
def scraping(folder: Path, targets: Mapping[str, int]) -> Iterator[Prometheus]:
    """Run Prometheus with the chart's rules while the block runs.

    Args:
        folder: Where its data and its log go.
        targets: The ports of what it scrapes, by job.
    """
    binaries = programs()
    jobs = [
        {
            "job_name": job,
            "honor_labels": True,
            "static_configs": [
                {"targets": [f"127.0.0.1:{port}"], "labels": {"namespace": "policyd-system"}}
            ],
        }
        for job, port in targets.items()
    ]
    every = {"scrape_interval": INTERVAL, "evaluation_interval": INTERVAL}
    config = {"global": every, "rule_files": [str(RULES)], "scrape_configs": jobs}
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(config))
    subprocess.run(
        [binaries / "promtool", "check", "config", file], check=True, capture_output=True
    )
    port = free_ports(["prometheus"])["prometheus"]
    address = f"http://127.0.0.1:{port}"
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                binaries / "prometheus",
                f"--config.file={file}",
                f"--storage.tsdb.path={folder / 'prometheus'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        eventually(lambda: _ready(address), what="Prometheus is ready")
        yield Prometheus(address=address, started_at=time.time())
    finally:
        process.terminate()
        process.wait(timeout=30)


def programs(*options: str) -> Path:
    """Return the folder of prometheus and promtool; unpack them if they are missing."""
    command = [HERE / "prometheus.sh", *options]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Path(done.stdout.strip())


def where() -> Path:
    """Return the same folder, and unpack nothing."""
    return programs("--where")


def check_rules(folder: Path, binaries: Path) -> None:
    """Check and test the rules by promtool.

    Raises:
        AssertionError: If it finds anything.
    """
    test = folder / "alerts.yaml"
    test.write_text(RULES_TEST.read_text().replace("RULES", str(RULES), 1))
    for what, file in (("check", RULES), ("test", test)):
        command = [binaries / "promtool", what, "rules", file]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def lint(text: str, binaries: Path) -> list[str]:
    """Return what promtool has against the names of metrics, but for those that Kueue chose."""
    command = [binaries / "promtool", "check", "metrics"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    lines = (done.stdout + done.stderr).splitlines()
    return [
        line for line in lines if line.strip() and not line.startswith(("kueue_", "multikueue_"))
    ]


def _ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/-/ready", timeout=2) as answer:
            return answer.status == 200
    except OSError:
        return False

"""A user is told at once, by kubectl, whether a new job would start, and if not, why."""

import json
import re
import subprocess
import time

from tests.controlplane.programs import find_binaries
from tests.scenarios.api import eventually
from tests.scenarios.objects import job
from tests.scenarios.test_queue import admitted, waiting


def verdicts_of(cluster, item, *options):
    """Create something by kubectl; return the warnings about its queue."""
    kubectl = [find_binaries() / "kubectl", f"--kubeconfig={cluster.kubeconfig}"]
    command = [*kubectl, "create", *options, "-f", "-"]
    done = subprocess.run(
        command, input=json.dumps(item), capture_output=True, text=True, check=True, timeout=60
    )
    verdicts = (line.partition("Warning: queue: ")[2] for line in done.stderr.splitlines())
    return list(filter(None, verdicts))


def dry(cluster, item):
    return verdicts_of(cluster, item, "--dry-run=server")


def without_start(verdicts):
    """Leave out the starts of jobs: they are known once others have ended on the cluster."""
    return [each.partition("; start in ")[0] for each in verdicts]


def in_queue(item, name):
    item["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": name}
    return item


STARTS = "would start now: 8 nvidia.com/gpu of h100 from team-a"


def test_a_dry_run_says_what_a_real_creation_then_does(cluster, api):
    eventually(lambda: dry(cluster, job("first")) == [STARTS], what="the first would start")
    assert api.find("Workload", "team-a") == []

    verdicts_of(cluster, job("first", run_for="120s"))
    eventually(lambda: admitted(api, "first"), what="it is admitted")
    borrows = "would start now: 4 nvidia.com/gpu of h100 from team-a, 4 of them borrowed from"
    waits = "would wait: 1st in team-a, 4 more nvidia.com/gpu needed"
    eventually(
        lambda: dry(cluster, job("small", gpus=4)) == [f"{borrows} research"], what="it borrows"
    )
    assert without_start(verdicts_of(cluster, job("second", run_for="120s"))) == [waits]
    eventually(lambda: waiting(api, "second"), what="the second waits")
    assert "Warning" not in str(api.get("Job", "second", "team-a"))
    second = waits.replace("1st", "2nd")
    eventually(
        lambda: without_start(dry(cluster, job("third"))) == [second],
        what="the third would be behind",
    )


def limited(name, seconds):
    """A job that runs for all GPUs that there are, and so long, which it declares."""
    body = job(name, gpus=12, pods=2, run_for=f"{seconds}s")
    body["metadata"].setdefault("labels", {})["kueue.x-k8s.io/max-exec-time-seconds"] = str(seconds)
    return body


WAITS = re.compile(r"would wait: 1st in team-a, \d+ more nvidia.com/gpu needed; start in (\d+) min")


def test_a_job_starts_when_its_verdict_forecast_it(cluster, api):
    api.create(limited("first", 60))
    eventually(lambda: admitted(api, "first"), what="the first is admitted")
    since = time.time()

    def minutes_forecast():
        (verdict,) = dry(cluster, limited("second", 60))
        found = WAITS.fullmatch(verdict)
        return found and int(found[1])

    minutes = eventually(minutes_forecast, what="a dry run says when it would start")
    asked = time.time()
    (verdict,) = verdicts_of(cluster, limited("second", 60))
    assert WAITS.fullmatch(verdict)
    eventually(lambda: admitted(api, "second"), what="it starts", within=150)
    waited = time.time() - asked

    assert abs(waited - 60 * minutes) <= 45, f"{minutes} min, {waited} s after {asked - since} s"


def test_a_job_that_can_never_start_gets_a_message(cluster, api):
    del api
    (missing,) = eventually(lambda: dry(cluster, in_queue(job("lost"), "taem-a")), what="a verdict")
    (never,) = dry(cluster, job("huge", gpus=16, pods=2))

    assert missing == (
        "would wait: there is no LocalQueue taem-a yet; namespace team-a has team-a"
        " (did you mean `team-a`?)"
    )
    assert never == (
        "can never start in team-a: 16 nvidia.com/gpu of h100 requested, 12 is all that it can"
        " ever have"
    )


def test_there_is_no_verdict_for_unknown_queues(cluster, api):
    """The last scenario: the controller is away, and comes back."""
    if cluster.name == "embedded":
        return  # one process
    cluster.controller.kill()
    try:
        time.sleep(12)
        assert dry(cluster, job("first")) == []
    finally:
        cluster.controller.start()
        eventually(lambda: dry(cluster, job("first")), within=90, what="it is told again")

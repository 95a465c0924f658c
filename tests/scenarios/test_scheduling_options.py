"""What a queue may ask for beyond Kueue's rules, as its users see it."""

from contextlib import contextmanager

from tests.scenarios.api import condition, eventually
from tests.scenarios.objects import job, pod
from tests.scenarios.test_queue import admitted, finished, of_class, waiting, workload_of

GROUP = "kueue.x-k8s.io/pod-group-name"
TOTAL = "kueue.x-k8s.io/pod-group-total-count"


@contextmanager
def asking(api, queue, **annotations):
    """Let a queue ask for something, for the time being."""
    named = {f"policyd.io/{name.replace('_', '-')}": text for name, text in annotations.items()}
    api.patch("ClusterQueue", queue, {"metadata": {"annotations": named}})
    try:
        yield
    finally:
        none = dict.fromkeys(named)
        api.patch("ClusterQueue", queue, {"metadata": {"annotations": none}})


def limited(seconds, item):
    labels = item["metadata"].setdefault("labels", {})
    labels["kueue.x-k8s.io/max-exec-time-seconds"] = str(seconds)
    return item


def test_room_is_held_for_a_waiting_gang_and_short_jobs_go_before_it(api):
    with asking(api, "team-a", reserve_after="0s"):
        api.create(limited(3600, job("holder", run_for="600s")))
        eventually(lambda: admitted(api, "holder"), what="the holder is admitted")
        # Ages are whole seconds: of the same one and class, anybody may be the first.
        api.create(of_class("production", job("gang", gpus=12, pods=3, run_for="1s")))
        reservation = eventually(lambda: reserved(api, "gang"), what="its reservation is told")
        assert "more needed, reserved for it from" in reservation

        api.create(of_class("research", job("endless", gpus=4, run_for="600s")))
        condition = eventually(lambda: waiting(api, "endless"), what="the endless job waits")[
            "message"
        ]
        assert "it could delay team-a/gang," in condition
        assert "which has a reservation from" in condition
        api.create(limited(60, of_class("research", job("short", gpus=4, run_for="1s"))))

        eventually(lambda: finished(api, "short"), what="the short job ran")
        api.delete("Job", "holder", "team-a")

        eventually(lambda: finished(api, "gang"), what="the gang ran")
        eventually(lambda: admitted(api, "endless"), what="the endless job is admitted then")


def reserved(api, name):
    message = (waiting(api, name) or {}).get("message", "")
    return message if "reserved" in message else ""


def test_a_gang_that_lost_a_pod_for_good_is_stopped_whole(api):
    with asking(api, "team-a", stale_gang_grace="2s"):
        for name in ("zero", "one"):
            api.create(pod(name, labels={GROUP: "gang"}, annotations={TOTAL: "2"}))
        eventually(lambda: running(api) == {"zero", "one"}, what="both pods run")
        eventually(
            lambda: condition(workload_of(api, "gang"), "PodsReady").get("status") == "True",
            what="the gang is known to be complete",
        )

        api.delete("Pod", "one", "team-a")

        evicted = eventually(lambda: eviction(api, "gang"), what="the gang is evicted")
        assert evicted["reason"] == "EvictedDueToStaleGang"
        assert "fewer pods than it needs" in evicted["message"]
        eventually(lambda: not running(api), what="the other pod is stopped too")


def running(api):
    pods = api.find("Pod", "team-a")
    return {
        p["metadata"]["name"]
        for p in pods
        if p["status"].get("phase") == "Running" and not p["metadata"].get("deletionTimestamp")
    }


def eviction(api, name):
    """What was told of a workload's eviction: it is gone with the last of its pods."""
    found = (e for e in api.find("Event", "team-a") if e["involvedObject"]["name"] == name)
    return next((e for e in found if e["reason"].startswith("EvictedDueTo")), None)

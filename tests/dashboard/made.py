"""Snapshots made by hand, small or large."""

from policyd.snapshot.values import (
    NONE,
    ClusterQueueUse,
    CohortUse,
    HeldAmount,
    HoldingRow,
    LocalQueueName,
    Origin,
    PendingRow,
    QueueSnapshot,
    QuotaHolder,
    QuotaShortfall,
    QuotaUse,
    SnapshotReason,
    StartRow,
)

NOW = 1_700_000_000.0
GPU = "nvidia.com/gpu"
SIZES = (0, 1, 2, 4, 8, 16, 32, 64)
KINDS = ("Job", "JobSet", "RayJob")


def made_queue(name, *, pending=0, holding=0, nominal=64, used=40, **changes):
    """Return a queue in which so many wait, and so many hold quota."""
    lacking = QuotaShortfall(
        flavor="h100",
        resource=GPU,
        requested=32,
        available=16,
        missing=16,
        holders=(QuotaHolder(name="team-b/other", cluster_queue="q", amount=32),),
        others=2,
    )
    fields = {
        "name": name,
        "quotas": (
            QuotaUse("h100", GPU, nominal, used, max(0, used - nominal), 0, nominal - used),
            QuotaUse("h100", "cpu", nominal * 8_000, used * 8_000),
        ),
        "local_queues": (LocalQueueName(name, "main"),),
        "origins": (Origin("ann"),),
        "requests": tuple({GPU: size, "cpu": 8_000 * max(size, 1)} for size in SIZES),
        "reasons": (
            SnapshotReason(
                type="InsufficientQuota",
                message="16 more are needed",
                lacking=(lacking,),
                user="request 16",
                administrator="raise the quota",
            ),
        ),
        "usages": tuple((HeldAmount("h100", GPU, size),) for size in SIZES),
        "starts": (StartRow(int(NOW) + 600, int(NOW) + 300, int(NOW) + 1_500, "exact"),),
        "pending": tuple(
            PendingRow(
                f"{name}/w{n}",
                f"{KINDS[n % 3]}/train-{n}",
                100,
                int(NOW) - 60 - n,
                n % 8,
                0,
                0 if n else NONE,
                NONE if n else 0,
                0,
                0 if n % 2 else NONE,
            )
            for n in range(pending)
        ),
        "holding": tuple(
            HoldingRow(f"{name}/h{n}", f"Job/run-{n}", 100, int(NOW) - 30, n % 8, 0)
            for n in range(holding)
        ),
        **changes,
    }
    return ClusterQueueUse(**fields)


def made_snapshot(*queues, cohorts=(), **changes):
    """Return a snapshot of queues."""
    fields = {"format": 1, "taken_at": NOW, "cluster_queues": queues, "cohorts": cohorts}
    return QueueSnapshot(**{**fields, **changes})


def cohort(name, parent="", nominal=128, used=64):
    return CohortUse(name, parent, (QuotaUse("h100", GPU, nominal, used),))

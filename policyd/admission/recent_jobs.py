"""Verdicts on new jobs that count those before them: a burst comes before a snapshot has any."""

from collections.abc import Mapping, Set
from typing import Final, NamedTuple

from policyd.admission import verdicts
from policyd.admission.submissions import Submission
from policyd.alloc.workload import QueuedWorkload
from policyd.snapshot.answers import called
from policyd.snapshot.dry_run import AdmissionDryRun, DryRunResult, NeverFits
from policyd.snapshot.values import QueueSnapshot

RECENT_SECONDS: Final = 5.0
"""For how long a job is counted that no snapshot has: something else may have refused it."""
MOST_RECENT: Final = 500


class _RecentJob(NamedTuple):
    """A job that was created at a time, and what becomes of it."""

    at: float
    workload: QueuedWorkload
    result: DryRunResult


class RecentJobs:
    """Gives verdicts by the latest snapshot, and counts new jobs until one has them.

    Not for several threads at a time.
    """

    def __init__(self) -> None:
        """Begin with none, and without a snapshot."""
        self._jobs: dict[str, _RecentJob] = {}
        self._dry_run: AdmissionDryRun | None = None

    def arrived(self, snapshot: QueueSnapshot) -> Set[str]:
        """Return the jobs that a newer snapshot has; none if none is awaited."""
        if not self._jobs:
            return frozenset()
        queues = snapshot.cluster_queues
        pending = {called(row) for queue in queues for row in queue.pending}
        return pending | {called(row) for queue in queues for row in queue.holding}

    def take(self, dry_run: AdmissionDryRun | None, arrived: Set[str]) -> None:
        """Take over the dry run that is made from a newer snapshot, if there is one.

        Args:
            dry_run: It has none of the jobs that are counted here.
            arrived: The jobs that the snapshot has.
        """
        self._dry_run = dry_run
        if dry_run is None:
            return
        self._jobs = {
            key: job
            for key, job in self._jobs.items()
            if key not in arrived and _has_queue(dry_run, job.workload.cluster_queue)
        }
        dry_run.expect((job.workload, job.result) for job in self._jobs.values())

    def verdict(
        self,
        submission: Submission,
        *,
        namespace_labels: Mapping[str, str],
        now: float,
        at: float,
        creates: bool,
    ) -> str:
        """Say what a job can expect; "" if that is not known.

        Args:
            submission: The job.
            namespace_labels: Of its namespace.
            now: Seconds since the epoch.
            at: Seconds of a clock that only goes forward.
            creates: Whether the job is created: those after it find less.
        """
        if self._dry_run is None:
            return ""
        self._forget(verdicts.key_of(submission), at)
        planned: list[tuple[QueuedWorkload, DryRunResult]] = []
        text = verdicts.verdict(
            self._dry_run,
            submission,
            namespace_labels=namespace_labels,
            now=now,
            planned=lambda *found: planned.append(found),
        )
        if creates and submission.metadata.name:
            for workload, result in planned:
                self._count(self._dry_run, _RecentJob(at, workload, result))
        return text

    def _count(self, dry_run: AdmissionDryRun, job: _RecentJob) -> None:
        if len(self._jobs) < MOST_RECENT and not isinstance(job.result, NeverFits):
            self._jobs[job.workload.key] = job
            dry_run.expect([(job.workload, job.result)])

    def _forget(self, key: str, at: float) -> None:
        """Count a job no longer that is reviewed once more, nor those that did not come in time."""
        late = {name for name, job in self._jobs.items() if at - job.at > RECENT_SECONDS}
        gone = (late | {key}) & self._jobs.keys()
        for name in gone:
            del self._jobs[name]
        if gone and self._dry_run is not None:
            self._dry_run.forget(gone)


def _has_queue(dry_run: AdmissionDryRun, name: str) -> bool:
    return dry_run.queue(name) is not None and dry_run.status(name) is not None

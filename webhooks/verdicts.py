"""Verdicts on new jobs, from the latest snapshot of the queues."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import structlog

from policyd.admission.decisions import PendingError
from policyd.admission.submissions import Submission
from policyd.clock import Clock
from policyd.engine.objects.match import NamespaceLookup, labels_of
from policyd.snapshot.latest import LatestSnapshot
from policyd.snapshot.values import QueueSnapshot
from webhooks.observe.review_log import ReviewLog

if TYPE_CHECKING:
    from policyd.admission.recent_jobs import RecentJobs

LOCK_SECONDS: Final = 0.002
"""How long a review waits for another one's plan; then there is no warning."""

FRESH_SECONDS: Final = 2.0
"""From this age of the snapshot on, a verdict says how old it is."""

log = structlog.get_logger(__name__)


class JobVerdicts:
    """Says what new jobs can expect.

    Args of the constructor:
        latest: The snapshots.
        namespaces: Finds namespaces.
        clock: Time.
    """

    def __init__(
        self, latest: LatestSnapshot, namespaces: NamespaceLookup, *, clock: Clock
    ) -> None:
        self._latest = latest
        self._namespaces = namespaces
        self._clock = clock
        self._lines = ReviewLog(clock)
        self._lock = threading.Lock()
        self._recent: RecentJobs | None = None

    def take(self, snapshot: QueueSnapshot) -> None:
        """Prepare for a snapshot, in a thread, before reviews see it."""
        # The allocator comes with the first snapshot: no review waits for it before.
        from policyd.admission.recent_jobs import RecentJobs  # noqa: PLC0415
        from policyd.snapshot.dry_run import AdmissionDryRun  # noqa: PLC0415

        recent = self._recent or RecentJobs()
        try:
            rules = snapshot.rules
            made = None if rules is None else AdmissionDryRun(snapshot, rules)
            arrived = recent.arrived(snapshot)
            with self._lock:
                recent.take(made, arrived)
            self._recent = recent
        except Exception as error:  # noqa: BLE001 - a bug here must not end the server
            self._recent = None
            self._lines.write(log.error, "dry_run_failed", exc_info=error)

    def __call__(self, submitted: Callable[[], Submission | None], *, dry_run: bool) -> str:
        """Say what the job can expect that a call returns; "" if that is not known.

        Args:
            submitted: Returns the job.
            dry_run: Whether it is not created: it takes nothing from those after it.
        """
        recent = self._recent
        if recent is None or self._latest.current() is None:
            return ""
        submission = self._read(submitted)
        if submission is None:
            return ""
        found = self._namespaces(submission.metadata.namespace)
        if found is None or not self._lock.acquire(timeout=LOCK_SECONDS):
            return ""
        age = self._latest.age
        try:
            text = recent.verdict(
                submission,
                namespace_labels=labels_of(found),
                now=self._clock.now(),
                at=self._clock.monotonic(),
                creates=not dry_run,
            )
        except Exception as error:  # noqa: BLE001 - a bug here must not deny a job
            self._lines.write(log.error, "verdict_failed", exc_info=error)
            return ""
        finally:
            self._lock.release()
        return f"{text}; as of {age:.0f} s ago" if text and age > FRESH_SECONDS else text

    def _read(self, submitted: Callable[[], Submission | None]) -> Submission | None:
        try:
            return submitted()
        except PendingError:
            raise
        except Exception as error:  # noqa: BLE001 - a bug here must not deny a job
            self._lines.write(log.error, "verdict_failed", exc_info=error)
            return None

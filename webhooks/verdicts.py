"""Verdicts on new jobs, from the latest snapshot of the queues."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from policyd.admission.decisions import PendingError
from policyd.admission.submissions import Submission
from policyd.clock import Clock
from policyd.engine.objects.match import NamespaceLookup, labels_of
from policyd.snapshot.latest import LatestSnapshot
from policyd.snapshot.values import QueueSnapshot
from webhooks.observe.review_log import ReviewLog

LOCK_SECONDS: Final = 0.002
"""How long a review waits for another one's plan; then there is no warning."""

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
        self._verdict: Callable[..., str] | None = None

    def take(self, snapshot: QueueSnapshot) -> None:
        """Prepare for a snapshot, in a thread, before reviews see it."""
        # The allocator comes with the first snapshot: no review waits for it before.
        from policyd.admission.verdicts import verdict  # noqa: PLC0415
        from policyd.snapshot.dry_run import AdmissionDryRun  # noqa: PLC0415

        rules = snapshot.rules
        try:
            self._verdict = (
                None if rules is None else partial(verdict, AdmissionDryRun(snapshot, rules))
            )
        except Exception as error:  # noqa: BLE001 - a bug here must not end the server
            self._verdict = None
            self._lines.write(log.error, "dry_run_failed", exc_info=error)

    def __call__(self, submitted: Callable[[], Submission | None]) -> str:
        """Say what the job can expect that a call returns; "" if that is not known."""
        verdict = self._verdict
        if verdict is None or self._latest.current() is None:
            return ""
        submission = self._read(submitted)
        if submission is None:
            return ""
        found = self._namespaces(submission.metadata.namespace)
        if found is None or not self._lock.acquire(timeout=LOCK_SECONDS):
            return ""
        try:
            return verdict(submission, namespace_labels=labels_of(found), now=self._clock.now())
        except Exception as error:  # noqa: BLE001 - a bug here must not deny a job
            self._lines.write(log.error, "verdict_failed", exc_info=error)
            return ""
        finally:
            self._lock.release()

    def _read(self, submitted: Callable[[], Submission | None]) -> Submission | None:
        try:
            return submitted()
        except PendingError:
            raise
        except Exception as error:  # noqa: BLE001 - a bug here must not deny a job
            self._lines.write(log.error, "verdict_failed", exc_info=error)
            return None

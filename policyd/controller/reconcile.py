"""Workers: each takes a key from the work queue, and calls the reconciler of its kind."""

from collections.abc import Awaitable, Callable, Mapping
from typing import NoReturn, get_args

import msgspec
import structlog

from policyd.controller.metrics.counters import ControllerMetrics
from policyd.controller.watch.claimed_devices import TURN_SECONDS
from policyd.controller.watch.keys import ReconcileKey, Subject
from policyd.controller.writes import NotLeadingError
from policyd.devices.amounts import CountedLaterError
from policyd.kube.errors import ApiError, ConflictError, NotFoundError
from policyd.kube.workqueue import WorkQueue

log = structlog.get_logger()

Reconcile = Callable[[ReconcileKey], Awaitable[float | None]]


class Dispatcher:
    """Gives keys to their reconcilers; failed ones come again, later each time."""

    def __init__(
        self,
        queue: WorkQueue[ReconcileKey],
        reconcilers: Mapping[str, Reconcile],
        *,
        metrics: ControllerMetrics,
    ) -> None:
        self.queue = queue
        self._reconcilers = reconcilers
        self._metrics = metrics
        metrics.expect_failures(get_args(Subject))

    async def work(self) -> NoReturn:
        """Reconcile one key after the other until cancelled."""
        while True:
            key = await self.queue.get()
            try:
                await self.reconcile(key)
            finally:
                self.queue.done(key)

    async def reconcile(self, key: ReconcileKey) -> None:  # noqa: C901 - one error after the other
        """Reconcile one key, and see to it that it comes again if it must."""
        try:
            wait = await self._reconcilers[key.kind or key.subject](key)
        except NotLeadingError:
            return
        except (ConflictError, NotFoundError) as error:
            # Another client was faster: the next try is based on the new version.
            log.debug("reconcile_outdated", key="/".join(key), error=str(error))
            self.queue.requeue(key)
        except CountedLaterError as error:
            log.debug("reconcile_later", key="/".join(key), error=str(error))
            self.queue.add_after(key, TURN_SECONDS)
        except ApiError as error:
            seconds = self.queue.requeue(key)
            self._metrics.failed(key.subject)
            log.warning("reconcile_failed", key="/".join(key), seconds=seconds, error=str(error))
        except msgspec.ValidationError as error:
            # A schema let a value through that is not of its type; our webhooks would not.
            seconds = self.queue.requeue(key)
            self._metrics.failed(key.subject)
            log.warning("object_unreadable", key="/".join(key), seconds=seconds, error=str(error))
        except Exception:
            # An unforeseen error about one object must not stop the queue for all the others.
            self.queue.requeue(key)
            self._metrics.failed(key.subject)
            log.exception("reconcile_error", key="/".join(key))
        else:
            self.queue.forget(key)
            if wait is not None:
                self.queue.add_after(key, wait)

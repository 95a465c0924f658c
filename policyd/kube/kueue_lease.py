"""Kueue's Lease, by which policyd and Kueue know of each other: one of them leads the queues.

Theory of operation. Kueue's controllers elect their leader by a Lease in Kueue's namespace. policyd
leads while there is no such Lease, or while it holds the Lease itself: then no Kueue can lead,
however it was started. It takes the Lease only if an administrator has given it away, which an
annotation says that `policyd takeover` writes: otherwise, a restart of Kueue would be a takeover.

As in `leader`, the end of leading is a moment on the clock, and a Lease of another holder is free
when it has not changed for a whole term. All replicas of policyd hold it under one name, since
a Lease of their own says which of them leads.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NoReturn

import structlog

from policyd.api.meta import ObjectMeta, Wire
from policyd.kube.client import Client
from policyd.kube.errors import ApiError, ConflictError, ForbiddenError, NotFoundError
from policyd.kube.leader import LeaderElection, Lease, LeaseTerms, micro_time
from policyd.kube.pace import Pace
from policyd.kube.resources import LEASES, PODS

log = structlog.get_logger()

NAME: Final = "c1f6bfd2.kueue.x-k8s.io"
"""The default name of Kueue's Lease."""
NAMESPACE: Final = "kueue-system"
"""The default namespace of Kueue."""
HOLDER: Final = "policyd-controller"
"""policyd as the holder of Kueue's Lease."""
TAKEN_OVER: Final = "policyd.io/taken-over"
"""The annotation of a Lease that is given to policyd, with the value `true`."""
KUEUE_PODS: Final = "app.kubernetes.io/name=kueue,control-plane=controller-manager"
"""Selects the pods of Kueue's controller."""
PODS_SECONDS: Final = 10.0
"""How often pods of Kueue are looked for while there is no Lease: such a Kueue elects no leader."""
HINT: Final = "`policyd takeover start` takes the queues over from Kueue, without a job restarted"


class _PodStatus(Wire, frozen=True):
    phase: str = ""


class _Pod(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    status: _PodStatus = _PodStatus()


def is_given(lease: Lease) -> bool:
    """Tell whether an administrator has given Kueue's Lease to policyd."""
    return lease.metadata.annotations.get(TAKEN_OVER) == "true"


async def runs_without_lease(client: Client, namespace: str) -> str:
    """Return the name of a running pod of Kueue's controller; "" if there is none.

    Raises:
        ApiError: If the pods cannot be read.
    """
    page = await client.page(
        PODS, into=_Pod, namespace=namespace, label_selector=KUEUE_PODS, limit=100
    )
    running = (pod.metadata.name for pod in page.items if pod.status.phase == "Running")
    return next(running, "")


class KueueLease:
    """Says whether policyd may lead: no Kueue does, and none can start to.

    Args of the constructor:
        client: The API server.
        namespace: Of Kueue.
        settle: Waits until the writes that are under way have ended.
        terms: How long things last.
        pace: Time.
    """

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        settle: Callable[[], Awaitable[None]],
        terms: LeaseTerms | None = None,
        pace: Pace | None = None,
    ) -> None:
        self.namespace = namespace
        self.stood_by = False
        """Whether Kueue led since this process has."""
        self._client = client
        self._settle = settle
        self._terms = terms or LeaseTerms()
        self._pace = pace or Pace()
        self._clear_until = 0.0
        self._seen_version = ""
        self._changed_at = 0.0
        self._pods_at = 0.0
        self._reported = ""
        self._clear = asyncio.Event()
        self._blocked = asyncio.Event()

    @property
    def clear(self) -> bool:
        """Whether policyd may lead now."""
        return self._pace.clock.monotonic() < self._clear_until

    async def wait_clear(self) -> None:
        """Wait until policyd may lead."""
        await self._clear.wait()

    async def wait_blocked(self) -> None:
        """Wait until policyd, which may lead, no longer may."""
        await self._blocked.wait()

    async def run(self, election: LeaderElection | None) -> NoReturn:
        """Look at the Lease, and hold it if it is given to policyd, until cancelled.

        The Lease is kept then: it runs out unless another replica of policyd goes on.

        Args:
            election: Says which replica of policyd leads; the others do not look.
        """
        while True:
            if election is not None and not election.leading:
                self._clear_until = 0.0
                self._notify()
                await election.wait_elected()
            await self._try_once()
            terms = self._terms
            await self._pace.sleep(terms.retry_seconds if self.clear else terms.candidate_seconds)

    async def _try_once(self) -> None:
        self._notify()
        sent_at = self._pace.clock.monotonic()
        try:
            why_not = await self._pace.within(self._terms.call_seconds, self._look(sent_at))
        except ConflictError:
            return  # it has changed since it was read
        except ForbiddenError as error:
            hint = "the chart grants `get` and `patch` of Kueue's Lease, and `list` of pods"
            self._report("kueue_not_watched", str(error), hint)
            why_not = ""
        except (ApiError, TimeoutError) as error:
            log.warning("kueue_lease_call_failed", error=str(error))
            return  # what was known counts until `_clear_until`
        if why_not:
            self._clear_until, self.stood_by = 0.0, True
            self._report("standing_by", why_not, HINT)
        else:
            self._clear_until = sent_at + self._terms.renew_seconds
        self._notify()

    async def _look(self, now: float) -> str:
        """Return the reason why policyd may not lead; "" if it may."""
        where = f"{self.namespace}/{NAME}"
        try:
            lease = await self._client.get(LEASES, NAME, namespace=self.namespace, into=Lease)
        except NotFoundError:
            return await self._pods(now)
        if lease.metadata.resource_version != self._seen_version:
            self._seen_version, self._changed_at = lease.metadata.resource_version, now
        holder = lease.spec.holder_identity or ""
        if not is_given(lease):
            if holder == HOLDER:
                self._clear_until = 0.0
                self._notify()
                await self._settle()
                await self._write(lease, "", 1)
            return f"Kueue has the Lease {where}" + (f": {holder}" if holder != HOLDER else "")
        term = lease.spec.lease_duration_seconds or self._terms.lease_seconds
        if holder not in {"", HOLDER} and now < self._changed_at + term:
            return f"Kueue still holds the Lease {where}: {holder}"
        await self._write(lease, HOLDER, self._terms.lease_seconds)
        return ""

    async def _pods(self, now: float) -> str:
        if self.clear and now < self._pods_at + PODS_SECONDS:
            return ""
        pod = await runs_without_lease(self._client, self.namespace)
        self._pods_at = now
        return f"Kueue runs without leader election: pod {self.namespace}/{pod}" if pod else ""

    async def _write(self, lease: Lease, holder: str, seconds: int) -> None:
        now = micro_time(self._pace.clock.now())
        spec = {"holderIdentity": holder, "leaseDurationSeconds": seconds, "renewTime": now}
        if holder and lease.spec.holder_identity != holder:
            passed = (lease.spec.lease_transitions or 0) + 1
            spec |= {"acquireTime": now, "leaseTransitions": passed}
        patch = {"metadata": {"resourceVersion": lease.metadata.resource_version}, "spec": spec}
        await self._client.patch(LEASES, NAME, patch, namespace=self.namespace, into=Lease)

    def _report(self, event: str, why: str, hint: str) -> None:
        """Log a reason once, until there is another."""
        if self._reported != why:
            self._reported = why
            log.warning(event, why=why, hint=hint)

    def _notify(self) -> None:
        if self.clear and not self._clear.is_set():
            self._blocked.clear()
            self._clear.set()
        elif self._clear.is_set() and not self.clear:
            self._clear.clear()
            self._blocked.set()

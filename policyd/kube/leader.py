"""One leader among many candidates, by a Lease.

Theory of operation. The holder renews the Lease; a candidate takes it when it has no holder, or
when it has not changed for a whole term. Both measure on their own monotonic clocks, from times
that they saw or sent: the times written in the Lease are for people, so clocks may be wrong.

The holder leads for `renew_seconds` from the moment it *sent* the renewal that succeeded. That is
shorter than the term, which a candidate counts from when it *saw* the renewal, later still: so the
one has stopped before the other starts. The end of leading is a moment on the clock, not an event:
no hanging call, and no process frozen and woken, can delay it.

Every write carries the resource version that it is based on, so that of two candidates one wins.

A holder that is stopped gives the Lease up once its last writes have ended, and leaves in it the
latest version that it wrote: the next one's watches may be behind that. If the writes do not end,
the Lease runs out.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NoReturn

import structlog

from policyd.api.meta import ObjectMeta, Wire
from policyd.kube.client import Client
from policyd.kube.errors import AlreadyExistsError, ApiError, ConflictError, NotFoundError
from policyd.kube.pace import Pace
from policyd.kube.resources import LEASES

log = structlog.get_logger()

HANDOVER = "policyd.io/last-word"
"""Annotation of a Lease: the holder's handover to the next one."""

_MICRO_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"  # the server requires all six digits


class LeaseSpec(Wire, frozen=True):
    """The holder of a Lease, and for how long. Times are text: shown, never compared."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Wire, frozen=True):
    """A coordination.k8s.io/v1 Lease."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTerms:
    """How long things last, in seconds."""

    lease_seconds: int = 15
    """A Lease unchanged for so long is free to take."""
    renew_seconds: float = 10.0
    """The leader stops so long after the last renewal that succeeded."""
    retry_seconds: float = 2.0
    """Between renewals."""
    candidate_seconds: float = 0.5
    """Between a candidate's looks at the Lease: how long a clean hand-over takes at most."""
    call_seconds: float = 4.0
    """For one call; two fit before the leader must stop."""

    def __post_init__(self) -> None:
        if not self.call_seconds < self.renew_seconds < self.lease_seconds:
            raise ValueError("a call must be shorter than the renewal, and that than the lease")


async def leave_nothing() -> str:
    """Leave nothing for the next leader."""
    return ""


class LeaderElection:
    """Takes part in an election until cancelled; cancelled while it leads, it gives the Lease up.

    `leading` is true only while no other candidate can be leading: ask it before each write.
    """

    def __init__(  # noqa: PLR0913 - the Lease's name has two parts
        self,
        client: Client,
        name: str,
        *,
        namespace: str,
        identity: str,
        terms: LeaseTerms | None = None,
        leave: Callable[[], Awaitable[str]] = leave_nothing,
        pace: Pace | None = None,
    ) -> None:
        self._client = client
        self._leave = leave
        self._name = name
        self._namespace = namespace
        self.identity = identity
        """Must be another for each process, also after a restart."""
        self._terms = terms or LeaseTerms()
        self._pace = pace or Pace()
        self._lease: Lease | None = None
        self._seen_version = ""
        self._changed_at = 0.0
        self._leads_until = 0.0
        self.handed_over = ""
        """The handover of the last holder, if it released the Lease; empty if it disappeared, as
        this candidate itself did that leads again."""
        self._elected = asyncio.Event()
        self._lost = asyncio.Event()  # cleared with each election
        self.transitions = 0
        """How often the Lease has passed to another holder, as far as is known."""

    @property
    def leading(self) -> bool:
        """Whether this candidate leads now."""
        return self._pace.clock.monotonic() < self._leads_until

    @property
    def holder(self) -> str:
        """The holder of the Lease when it was last seen; empty for none."""
        return (self._lease.spec.holder_identity or "") if self._lease else ""

    @property
    def spare_seconds(self) -> float:
        """How long after the end of leading no other candidate can lead: writes have to end."""
        return self._terms.lease_seconds - self._terms.renew_seconds

    async def wait_elected(self) -> None:
        """Wait until this candidate leads."""
        await self._elected.wait()

    async def wait_lost(self) -> None:
        """Wait until this candidate, having led, no longer does."""
        await self._lost.wait()

    async def run(self) -> NoReturn:
        """Seek the Lease, keep it, and seek it again if it is lost."""
        try:
            while True:
                await self._try_once()
                await self._pace.sleep(self._pause())
        finally:
            if self.leading:
                self._leads_until = 0.0
                await self._release()
            self._notify()

    async def _try_once(self) -> None:
        """Look, and take or renew the Lease; afterwards, `leading` is as it should be."""
        self._notify()
        seconds = self._terms.call_seconds
        if self.leading:
            seconds = min(seconds, self._leads_until - self._pace.clock.monotonic())
        try:
            await self._pace.within(seconds, self._take_or_renew())
        except (AlreadyExistsError, ConflictError, NotFoundError) as error:
            self._lease = None  # the known state is outdated: read it before the next try
            log.info("lease_outdated", lease=self._name, error=str(error))
        except (ApiError, TimeoutError) as error:
            log.warning("lease_call_failed", lease=self._name, error=str(error))
        self._notify()

    async def _take_or_renew(self) -> None:
        if self._lease is None or self.holder != self.identity:
            await self._look()
        if self._lease is None:
            await self._write(None)
        elif self._is_free():
            await self._write(self._lease)

    def _is_free(self) -> bool:
        assert self._lease is not None, "a lease is looked at before it is judged"
        if self.holder in {"", self.identity}:
            return True
        term = self._lease.spec.lease_duration_seconds or self._terms.lease_seconds
        return self._pace.clock.monotonic() >= self._changed_at + term

    async def _look(self) -> None:
        try:
            lease = await self._client.get(
                LEASES, self._name, namespace=self._namespace, into=Lease
            )
        except NotFoundError:
            self._lease = None
            return
        self._note(lease)

    def _note(self, lease: Lease) -> None:
        """Keep the state of the Lease, and the time when it was first seen."""
        version = lease.metadata.resource_version
        if self._seen_version != version:
            self._seen_version = version
            self._changed_at = self._pace.clock.monotonic()
        self._lease = lease
        self.transitions = lease.spec.lease_transitions or 0

    async def _write(self, lease: Lease | None) -> None:
        sent_at = self._pace.clock.monotonic()
        spec = self._spec(lease)
        if not self.leading:
            left = {} if lease is None or self.holder else lease.metadata.annotations
            self.handed_over = left.get(HANDOVER, "")
        if lease is None:
            written = await self._client.create(
                LEASES,
                {"metadata": {"name": self._name}, "spec": spec},
                namespace=self._namespace,
                into=Lease,
            )
        else:
            written = await self._patch(lease, spec)
        self._note(written)
        self._leads_until = sent_at + self._terms.renew_seconds

    def _spec(self, lease: Lease | None) -> dict[str, Any]:
        now = micro_time(self._pace.clock.now())
        spec: dict[str, Any] = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self._terms.lease_seconds,
            "renewTime": now,
        }
        if lease is None:
            return spec | {"acquireTime": now, "leaseTransitions": 0}
        if self.holder != self.identity:
            passed = (lease.spec.lease_transitions or 0) + 1
            return spec | {"acquireTime": now, "leaseTransitions": passed}
        return spec

    async def _patch(
        self, lease: Lease, spec: Mapping[str, Any], *, annotations: Mapping[str, str] | None = None
    ) -> Lease:
        metadata: dict[str, Any] = {"resourceVersion": lease.metadata.resource_version}
        if annotations:
            metadata["annotations"] = annotations
        return await self._client.patch(
            LEASES,
            self._name,
            {"metadata": metadata, "spec": spec},
            namespace=self._namespace,
            into=Lease,
        )

    async def _release(self) -> None:
        """Let the next candidate take the Lease at its next look, instead of after a term."""
        if self._lease is None:
            return
        try:
            await self._pace.within(self._terms.call_seconds, self._give_back(self._lease))
            log.info("lease_released", lease=self._name)
        except (ApiError, TimeoutError) as error:
            log.warning("lease_not_released", lease=self._name, error=str(error))

    async def _give_back(self, lease: Lease) -> None:
        left = {HANDOVER: await self._leave()}
        now = micro_time(self._pace.clock.now())
        spec = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": now}
        try:
            await self._patch(lease, spec, annotations=left)
        except ConflictError:
            # Perhaps by ourselves: being stopped cut a renewal off that the server carried out.
            lease = await self._client.get(
                LEASES, self._name, namespace=self._namespace, into=Lease
            )
            if lease.spec.holder_identity != self.identity:
                raise
            await self._patch(lease, spec, annotations=left)

    def _pause(self) -> float:
        """Return how long until the next try: spread, and never past the end of leading."""
        spread = 1 + self._pace.jitter() / 5
        if not self.leading:
            return self._terms.candidate_seconds * spread
        left = self._leads_until - self._pace.clock.monotonic()
        return min(self._terms.retry_seconds * spread, left)

    def _notify(self) -> None:
        """Wake the tasks that wait for a change of `leading`."""
        if self.leading and not self._elected.is_set():
            self._lost.clear()
            self._elected.set()
            log.info("leader_elected", lease=self._name, identity=self.identity)
        elif self._elected.is_set() and not self.leading:
            self._elected.clear()
            self._lost.set()
            log.warning("leadership_lost", lease=self._name, identity=self.identity)


def micro_time(seconds: float) -> str:
    """Write a time as a Lease has it."""
    return datetime.fromtimestamp(seconds, tz=UTC).strftime(_MICRO_TIME)

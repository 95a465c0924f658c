"""Shadows of policies, evaluated after the answer: no caller waits for them, or sees them.

Requests are kept for a moment, as many as there is room for; a burst that has no room is
counted, and left out. A shadow that goes wrong goes wrong alone.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, NoReturn

import structlog

from policyd.admission.decisions import WithExternalData
from policyd.api.admission import AdmissionRequest
from policyd.clock import Clock
from policyd.engine.evaluate.policy_set import Phase, PolicySet
from policyd.engine.model.deadline import never
from policyd.engine.model.decision import Decision
from policyd.engine.offline.shadows import Decide as Ask
from policyd.engine.offline.shadows import Shadow, ShadowDifference, compared, deciders
from webhooks.metrics import WebhookMetrics

MOST_WAITING: Final = 256
"""Requests that are kept to be asked about."""

MOST_BYTES: Final = 16 * 1024 * 1024
"""How much of them, together."""

MOST_LINES: Final = 10
"""Differences that are logged within a second; all are counted."""

Report = Callable[[AdmissionRequest, ShadowDifference], None]
"""Takes note of a difference."""

log = structlog.get_logger(__name__)


class Shadows:
    """Evaluates shadows, and reports how they differ from the policies in force.

    Args of the constructor:
        policies: Returns the policies in force.
        metrics: Where answers are counted.
        clock: Limits the log.
        inquire: Fetches the external data of decisions; None if there is none.
        report: Takes note of each difference.
        exempt: Groups whose requests no policy is asked about.
    """

    def __init__(  # noqa: PLR0913 - all that shadows read and report to
        self,
        policies: Callable[[], PolicySet],
        *,
        metrics: WebhookMetrics,
        clock: Clock,
        inquire: WithExternalData | None = None,
        report: Report = lambda _request, _difference: None,
        exempt: frozenset[str] = frozenset(),
    ) -> None:
        self._policies = policies
        self._count = metrics.shadow_reviews
        self._clock = clock
        self._inquire = inquire
        self._report = report
        self._exempt = exempt
        self._waiting: deque[tuple[Phase, AdmissionRequest, tuple[Shadow, ...]]] = deque()
        self._bytes = 0
        self._woken = asyncio.Event()
        self._known: tuple[PolicySet | None, tuple[Shadow, ...]] = (None, ())
        self._second, self._lines = 0, 0

    def offer(self, phase: Phase, request: AdmissionRequest) -> None:
        """Have shadows asked about a request that was answered, if there are any for it."""
        policies = self._policies()
        if not policies.shadows or not self._exempt.isdisjoint(request.user_info.groups):
            return
        asked = tuple(s for s in self._shadows(policies) if s.concerns(request, phase))
        if not asked:
            return
        size = _size(request)
        if len(self._waiting) >= MOST_WAITING or self._bytes + size > MOST_BYTES:
            self._count.labels(phase, "dropped").inc()
            return
        self._bytes += size
        self._waiting.append((phase, request, asked))
        self._woken.set()

    async def run(self) -> NoReturn:
        """Ask shadows until cancelled."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            while self._waiting:
                phase, request, asked = self._waiting.popleft()
                self._bytes -= _size(request)
                for shadow in asked:
                    await self._compare(shadow, phase, request)
                    await asyncio.sleep(0)  # reviews come first

    def _shadows(self, policies: PolicySet) -> tuple[Shadow, ...]:
        """Return the shadows of a set; they are put together once for each."""
        if self._known[0] is not policies:
            self._known = policies, tuple(Shadow(policy, policies) for policy in policies.shadows)
        return self._known[1]

    async def _compare(self, shadow: Shadow, phase: Phase, request: AdmissionRequest) -> None:
        try:
            old, new = [await self._ask(ask, request) for ask in deciders(shadow, phase)]
            found = compared(shadow, phase, request=request, old=old, new=new)
        except Exception:  # a bug, which must not affect reviews
            self._count.labels(phase, "failed").inc()
            log.exception("shadow_failed", shadow=shadow.policy.name)
            return
        self._count.labels(phase, found.outcome).inc()
        if found.outcome != "same":
            self._report(request, found)
            self._log(request, found)

    async def _ask(self, ask: Ask, request: AdmissionRequest) -> Decision:
        if self._inquire is None:
            return ask(request, never)
        return await self._inquire(ask, request, never)

    def _log(self, request: AdmissionRequest, found: ShadowDifference) -> None:
        second = int(self._clock.monotonic())
        self._lines = self._lines + 1 if second == self._second else 1
        self._second = second
        if self._lines <= MOST_LINES:
            log.info(
                "shadow_differs",
                shadow=found.shadow,
                of=found.of,
                outcome=found.outcome,
                reason=str(found),
                uid=request.uid,
                kind=request.kind.kind,
                namespace=request.namespace,
                name=request.name,
            )


def _size(request: AdmissionRequest) -> int:
    return len(memoryview(request.object)) + len(memoryview(request.old_object))

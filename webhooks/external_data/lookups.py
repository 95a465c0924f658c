"""The external data of reviews: questions, and how decisions get answers without waiting.

Policies are evaluated at once. So a question whose answer is not known yet is noted, and answered
by an error, and that decision is dropped. All noted questions are asked together, and the
review is decided again, until it asks nothing new. Each round answers a question at least, their
number is bounded, and so is the time.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from policyd.admission.decisions import Decide, PendingError
from policyd.api.admission import AdmissionRequest
from policyd.clock import Clock
from policyd.engine.model.deadline import OutOfTime
from policyd.engine.model.decision import Decision
from policyd.errors import PolicydError

MOST_QUESTIONS: Final = 64
"""Questions in one review: twice as many as the budget of one policy allows."""

MOST_KEPT: Final = 10_000
"""Answers that are kept at a time."""

MOST_KEPT_BYTES: Final = 8 * 1024 * 1024
"""Bytes of these answers together: in memory they take several times as much."""

ASK_SECONDS: Final = 10.0
"""When a question is given up that no review waits for any more."""

TURN_SECONDS: Final = 0.02
"""How often a waiting thread looks at the time."""

Key = bytes
"""The question itself, encoded."""


class UnansweredError(PolicydError):
    """A question has no answer."""


class ExternalAnswer(NamedTuple):
    """An answer to a question.

    Attributes:
        value: The answer, which readers do not change.
        seconds: How long it counts.
        size: In how many bytes it came.
    """

    value: object
    seconds: float
    size: int = 0


Ask = Callable[[], Awaitable[ExternalAnswer]]
"""Asks a question. Raises a PolicydError if there is no answer."""


Run = Callable[[Decide, AdmissionRequest, OutOfTime], Awaitable[Decision]]
"""Calls the function that decides on a request."""


@dataclass(slots=True)
class _Round:
    """The questions of one review so far, with their answers or errors."""

    answers: dict[Key, ExternalAnswer | UnansweredError] = field(default_factory=dict)
    unknown: dict[Key, Ask] = field(default_factory=dict)


class ExternalLookups:
    """Questions of reviews to others; their answers are kept for a moment.

    Args of the constructor:
        clock: Says how old an answer is.
    """

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[Key, tuple[float, ExternalAnswer]] = {}
        self._kept_bytes = 0
        self._asking: dict[Key, asyncio.Task[ExternalAnswer | UnansweredError]] = {}
        self._deciding = threading.local()

    async def decide(
        self,
        decide: Decide,
        request: AdmissionRequest,
        out_of_time: OutOfTime,
        *,
        run: Run | None = None,
    ) -> Decision:
        """Decide on a request, with all that it asks answered, or known to be unanswered.

        Args:
            decide: Decides.
            request: The request.
            out_of_time: Tells whether the caller is about to stop waiting.
            run: Calls `decide`, on whichever thread; at once if left out.
        """
        own = _Round()

        def decide_once(asked: AdmissionRequest, late: OutOfTime) -> Decision:
            # Deciding waits for nothing, so that no other review comes between on this thread.
            self._deciding.round = own
            return decide(asked, late)

        while True:
            if run is None:
                decision = decide_once(request, out_of_time)
            else:
                decision = await run(decide_once, request, out_of_time)
            if not own.unknown:
                return decision
            await self._answer(own, out_of_time)

    def answer(self, key: Key, ask: Ask) -> object:
        """Return the answer to a question.

        Args:
            key: The question; equal questions have the same answer.
            ask: Asks it.

        Raises:
            PendingError: If it is to be asked first.
            UnansweredError: If it was asked, and there is no answer, or it is one too many.
        """
        own: _Round = self._deciding.round
        answer = own.answers.get(key) or self._known(key)
        if answer is None and len(own.answers) + len(own.unknown) >= MOST_QUESTIONS:
            answer = UnansweredError(f"more than {MOST_QUESTIONS} external requests in one review")
        elif answer is None:
            own.unknown[key] = ask
            raise PendingError("not answered yet")
        else:
            own.answers[key] = answer
        if isinstance(answer, UnansweredError):
            raise answer
        return answer.value

    def _known(self, key: Key) -> ExternalAnswer | None:
        until, answer = self._kept.get(key, (0.0, None))
        return answer if until > self._clock.monotonic() else None

    async def _answer(self, own: _Round, out_of_time: OutOfTime) -> None:
        asked = {key: self._ask(key, ask) for key, ask in own.unknown.items()}
        own.unknown.clear()
        pending = set(asked.values())
        while pending and not out_of_time():
            _, pending = await asyncio.wait(pending, timeout=TURN_SECONDS)
        late = UnansweredError("no answer in time")
        for key, task in asked.items():
            own.answers[key] = task.result() if task.done() else late

    def _ask(self, key: Key, ask: Ask) -> "asyncio.Task[ExternalAnswer | UnansweredError]":
        """Ask, once for all reviews with the question."""
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.create_task(self._asked(key, ask))
        return task

    async def _asked(self, key: Key, ask: Ask) -> ExternalAnswer | UnansweredError:
        try:
            async with asyncio.timeout(ASK_SECONDS):
                answer = await ask()
        except TimeoutError:
            return UnansweredError(f"no answer within {ASK_SECONDS:.0f} s")
        except PolicydError as error:
            return UnansweredError(str(error))
        finally:
            del self._asking[key]
        self._keep(key, answer)
        return answer

    def _keep(self, key: Key, answer: ExternalAnswer) -> None:
        if len(self._kept) >= MOST_KEPT or self._kept_bytes + answer.size > MOST_KEPT_BYTES:
            self._kept.clear()  # answers that are still needed are fetched again
            self._kept_bytes = 0
        self._kept[key] = self._clock.monotonic() + answer.seconds, answer
        self._kept_bytes += answer.size

"""The way of a review: its bytes in, those of its answer out, in six steps.

An AdmissionHandler serves one path, `/mutate` or `/validate`. Policies come before jobs and queues,
so that these see the queue name that a policy gives.
"""

from dataclasses import dataclass
from functools import partial
from typing import Final

from policyd.admission.decisions import (
    Decide,
    Observe,
    Prepare,
    Run,
    WithExternalData,
    combined,
)
from policyd.admission.jobs import JobAdmission
from policyd.admission.queues import QueueAdmission
from policyd.api.admission import AdmissionRequest, parse_review
from policyd.engine.evaluate.policy_set import Phase
from policyd.engine.evaluate.review import answer_review
from policyd.engine.model.deadline import OutOfTime, never
from policyd.engine.model.decision import ALLOWED, Decision

HEAVY_BYTES: Final = 32 * 1024
"""The length up to which a review, or its objects, are read and decided on the event loop, which
takes well below a millisecond. Nearly all are shorter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionHandler:
    """Answers the reviews of one phase.

    Attributes:
        phase: Whether objects are changed or checked.
        policies: Returns the decision of the policies of this phase.
        jobs: Decides on queued jobs; None if jobs do not queue.
        queues: Decides on Kueue's objects; None if jobs do not queue.
        exempt: Groups whose requests are allowed without a decision.
        prepare: Awaited before the decision.
        with_external_data: Decides, and fetches the external data that the decision asks for; if
            left out, nothing is fetched.
        observe: Called with each decision.
        run: Reads long reviews, and writes the answers to them; at once if left out.
    """

    phase: Phase
    policies: Decide
    jobs: JobAdmission | None = None
    queues: QueueAdmission | None = None
    exempt: frozenset[str] = frozenset()
    prepare: Prepare | None = None
    with_external_data: WithExternalData | None = None
    observe: Observe | None = None
    run: Run | None = None

    async def answer(self, body: bytes, out_of_time: OutOfTime) -> bytes:
        """Answer a review, as far as it can be decided before it is out of time.

        Raises:
            ReviewError: If it is none.
        """
        beside = self.run if len(body) > HEAVY_BYTES else None
        # 1. Parse the envelope; the objects stay bytes.
        request = await beside(partial(parse_review, body)) if beside else parse_review(body)
        # 2. Prepare external data: the namespace now, the rest as soon as deciding asks for it.
        if self.prepare is not None:
            await self.prepare(request)
        decide = self.mutate if self.phase == "mutate" else self.validate
        # 3. Policies, 4. jobs and 5. queues decide: see `mutate` and `validate`.
        if self.with_external_data is None:
            decision = decide(request, out_of_time)
        else:
            decision = await self.with_external_data(decide, request, out_of_time)
        if self.observe is not None:
            self.observe(request, decision)
        # 6. Answer.
        if beside is None:
            return answer_review(request, decision)
        answered: bytes = await beside(partial(answer_review, request, decision))
        return answered

    def mutate(self, request: AdmissionRequest, out_of_time: OutOfTime = never) -> Decision:
        """Return the changes of the object: each step sees the changes of the steps before it."""
        if self.exempt and not self.exempt.isdisjoint(request.user_info.groups):
            return ALLOWED
        # 3. Policies.
        decision = self.policies(request, out_of_time)
        # 4. Jobs.
        if self.jobs is not None:
            decision = self.jobs.change(request, decision)
        # 5. Queues.
        return decision if self.queues is None else self.queues.change(request, decision)

    def validate(self, request: AdmissionRequest, out_of_time: OutOfTime = never) -> Decision:
        """Return all objections to the request: one answer has all of them."""
        if self.exempt and not self.exempt.isdisjoint(request.user_info.groups):
            return ALLOWED
        # 3. Policies.
        decision = self.policies(request, out_of_time)
        # 4. Jobs.
        jobs = ALLOWED if self.jobs is None else self.jobs.check(request, decision)
        # 5. Queues.
        queues = ALLOWED if self.queues is None else self.queues.check(request)
        return combined(decision, jobs, queues)

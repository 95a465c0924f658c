"""Answers to reviews that cannot be evaluated: too large, too slow, too many, or broken.

The API server writes the envelope before the object, so that the first bytes identify a review even
if the rest never arrives. The answer follows the failurePolicy of each policy: a request that may
concern a required policy, or the queue, is denied; labels and conditions that cannot be read count
as met. Requests that a repair of the cluster or of the webhooks may need are allowed, as no policy
ever applies to them.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from policyd.admission.decisions import SPEAKER
from policyd.admission.jobs import QUEUE_WORDS, nowhere
from policyd.api.admission import (
    AdmissionRequest,
    AdmissionResponse,
    AnsweredReview,
    Head,
    RefusalStatus,
    Rule,
    read_head,
)
from policyd.api.causes import UnevaluatedCause
from policyd.api.names import SYSTEM_NAMESPACES
from policyd.api.policy import is_policy
from policyd.api.selectors import LabelSelector
from policyd.engine.evaluate.policy_set import Phase, PolicySet
from policyd.engine.evaluate.unevaluated import UnevaluatedPolicies, unevaluated_policies
from policyd.engine.objects.match import NamespaceLookup, attributes_of, labels_of, rules_match
from policyd.jobs.integrations import Integrations
from policyd.registration.configurations import exempt_groups
from policyd.registration.webhook_rules import DerivedWebhook, derive_webhook_rules

MOST_NAMED: Final = 5
"""Policies that the message to the user names."""

HEAD_BYTES: Final = 64 * 1024
"""How much is kept of a review that is not read whole."""

AnswerUnevaluated = Callable[[bytes, str, UnevaluatedCause], bytes]
"""Answers a review that is not evaluated, given its first bytes (all of it, or `HEAD_BYTES` at
least), the reason, and the kind of it. Raises ReviewError if these do not identify the review."""


def refuse(head: bytes, reason: str, cause: UnevaluatedCause) -> bytes:
    """Deny the request of a review, whichever policies concern it.

    Raises:
        ReviewError: If the review has no uid.
    """
    uid = read_head(head[:HEAD_BYTES]).request.uid
    message = f"policyd could not evaluate this: {reason}; {cause.advice}"
    status = RefusalStatus(code=403, reason="Forbidden", message=message)
    response = AdmissionResponse(uid=uid, allowed=False, status=status)
    return AnsweredReview.encoded(response)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnevaluatedReviews:
    """The policies and the queue, which may concern a request.

    Attributes:
        policies: Returns the policies in force.
        namespaces: Finds the Namespace object of a request's namespace.
        own_namespace: Where policyd runs.
        queue: The kinds of jobs that are held; None if jobs do not queue.
        gives_queue: Tells whether a namespace has a queue for jobs that name none.
        count: Counts such answers, by path and outcome.
    """

    policies: Callable[[], PolicySet]
    namespaces: NamespaceLookup
    own_namespace: str
    queue: Integrations | None
    count: Callable[[str, str], None]
    gives_queue: Callable[[str], bool] = nowhere

    def answers(self, phase: Phase) -> AnswerUnevaluated:
        """Return the function that answers unevaluated reviews of one phase."""
        held = self._held(phase)

        def answer(text: bytes, reason: str, cause: UnevaluatedCause) -> bytes:
            head = read_head(text[:HEAD_BYTES])
            found = unevaluated_policies(self.policies(), head, phase)
            why = f"policyd could not evaluate this: {reason}"
            queues = self._may_queue(head, held, text)
            response = self._respond(head, found, why, cause, queues=queues)
            outcome = "allowed" if response.allowed else "denied"
            self.count(f"/{phase}", outcome)
            return AnsweredReview.encoded(response)

        return answer

    def _held(self, phase: Phase) -> tuple[DerivedWebhook, ...]:
        """Return the webhooks that the queue requires, for any version."""
        if self.queue is None:
            return ()
        calls = derive_webhook_rules((), queue=self.queue)
        return tuple(
            replace(call, rules=tuple(map(_of_any_version, call.rules)))
            for call in (calls.mutate if phase == "mutate" else calls.validate)
            if call.failure_policy == "Fail"
        )

    def _respond(
        self,
        head: Head,
        found: UnevaluatedPolicies,
        why: str,
        cause: UnevaluatedCause,
        *,
        queues: bool,
    ) -> AdmissionResponse:
        uid = head.request.uid
        if self._is_exempt(head.request) or is_policy(head.request.resource):
            return AdmissionResponse(uid=uid, allowed=True)
        refusing = [f"policy `{name}`" for name in found.refusing] + [f"the {SPEAKER}"] * queues
        if refusing:
            advice = cause.advice if queues else _advice(cause, found.refusing)
            message = f"{why}; {_joined(refusing)} must not be bypassed: {advice}"
            status = RefusalStatus(code=403, reason="Forbidden", message=message)
            return AdmissionResponse(uid=uid, allowed=False, status=status)
        ignored = [f"policy `{name}`" for name in found.ignored]
        warnings = (f"{why}; not asked: {_joined(ignored)}",) if ignored else ()
        return AdmissionResponse(uid=uid, allowed=True, warnings=warnings)

    def _is_exempt(self, request: AdmissionRequest) -> bool:
        exempt = {*SYSTEM_NAMESPACES, self.own_namespace}
        groups = exempt_groups(self.own_namespace)
        return request.namespace in exempt or not groups.isdisjoint(request.user_info.groups)

    def _may_queue(self, head: Head, held: tuple[DerivedWebhook, ...], text: bytes) -> bool:
        """Tell whether the queue may have something to do with a request."""
        if self.queue is None or not head.whole:
            return self.queue is not None
        attributes, name = attributes_of(head.request), head.request.namespace
        concerned = any(
            rules_match(call.rules, (), attributes) and self._selects(call, name) for call in held
        )
        everything = self.queue.manages_all or self.gives_queue(name)
        return concerned and (everything or _may_name_a_queue(text))

    def _selects(self, call: DerivedWebhook, name: str) -> bool:
        namespace = self.namespaces(name) if name else None
        selector = LabelSelector(match_expressions=tuple(call.namespaces))
        return namespace is None or selector.matches(labels_of(namespace))


def _advice(cause: UnevaluatedCause, policies: tuple[str, ...]) -> str:
    """Say what can help where nothing but policies denies a request."""
    if not cause.lasts:
        return cause.advice
    owner = "the owner of the policy" if len(policies) == 1 else "the owners of these policies"
    return f"{cause.advice}, or ask {owner} to exclude it"


def _of_any_version(rule: Rule) -> Rule:
    return msgspec.structs.replace(rule, api_versions=("*",))


def _may_name_a_queue(text: bytes) -> bool:
    """Tell whether an object may name a queue: not if it is complete, and names none."""
    if len(text) >= HEAD_BYTES or QUEUE_WORDS in text:
        return True
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return True
    return False


def _joined(words: list[str]) -> str:
    shown = words[:MOST_NAMED] + ([f"{len(words) - MOST_NAMED} more"] * (len(words) > MOST_NAMED))
    *first, last = shown
    return f"{', '.join(first)} and {last}" if first else last

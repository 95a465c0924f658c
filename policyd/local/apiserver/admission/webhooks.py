"""Webhooks: which are called, in which order, and the effect of their responses."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import structlog

from policyd.engine.objects.match import UnknownNamespaceError
from policyd.local.apiserver.admission.attributes import WriteAttributes
from policyd.local.apiserver.admission.caller import CallError, WebhookCaller
from policyd.local.apiserver.admission.review import (
    InvalidAnswerError,
    WebhookVerdict,
    denial,
    encode_review,
    read_verdict,
    review_request,
)
from policyd.local.apiserver.admission.webhook import (
    ConfiguredWebhook,
    conditions_hold,
    matching_version,
    may_concern,
    read_webhooks,
    selects,
)
from policyd.local.apiserver.conversion import to_served, to_stored
from policyd.local.apiserver.registry import Registry, Served
from policyd.local.apiserver.status import Object, internal_error, not_found
from policyd.local.apiserver.store import Store, StoreEvent
from policyd.local.apiserver.writing.metadata import own_copy
from policyd.patch.json_patch import apply_json_patch
from policyd.patch.operations import PatchError

MUTATING = "mutatingwebhookconfigurations.admissionregistration.k8s.io"
VALIDATING = "validatingwebhookconfigurations.admissionregistration.k8s.io"

Reshape = Callable[[Object, Served], Object]
"""Gives an object that a webhook has patched the fields and defaults of its kind."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Round:
    """The result of calling all mutating webhooks once."""

    changed: bool = False
    asked: set[ConfiguredWebhook] = field(default_factory=set)
    """Those that were asked, and may be asked again."""
    again: set[ConfiguredWebhook] = field(default_factory=set)
    """Those among them after which another webhook changed something."""


class Webhooks:
    """Calls the webhooks that the stored configurations name."""

    def __init__(
        self, store: Store, registry: Registry, caller: WebhookCaller, *, reshape: Reshape
    ) -> None:
        self._store = store
        self._registry = registry
        self._caller = caller
        self._reshape = reshape
        self._read: dict[tuple[str, str], tuple[Object, list[ConfiguredWebhook]]] = {}
        self._concerned: dict[tuple[str, ...], Sequence[ConfiguredWebhook]] = {}
        self._revision = registry.revision
        for resource in (MUTATING, VALIDATING):
            store.listen(self._note_change, resource)

    async def mutate(self, attributes: WriteAttributes) -> Round:
        """Ask the mutating webhooks one after another.

        Raises:
            StatusError: If one refuses, or cannot be asked and fails closed.
        """
        found = Round()
        for webhook in self._registered(MUTATING, attributes):
            outcome = await self._ask_mutating(webhook, attributes)
            if outcome:
                found.changed = True
                found.again |= found.asked
            if outcome is not None and webhook.reinvocation == "IfNeeded":
                found.asked.add(webhook)
        return found

    async def mutate_again(
        self, attributes: WriteAttributes, again: set[ConfiguredWebhook]
    ) -> None:
        """Ask some of the mutating webhooks a second and last time.

        Raises:
            StatusError: If one refuses, or cannot be asked and fails closed.
        """
        for webhook in self._registered(MUTATING, attributes):
            if webhook in again:
                await self._ask_mutating(webhook, attributes)

    async def validate(self, attributes: WriteAttributes) -> None:
        """Ask the validating webhooks, all at once; the first refusal in their order counts.

        Raises:
            StatusError: If one refuses, or cannot be asked and fails closed.
        """
        registered = self._registered(VALIDATING, attributes)
        questions = [(w, q) for w in registered if (q := self._question(w, attributes))]
        answers = await asyncio.gather(
            *(self._ask(webhook, question, attributes) for webhook, question in questions),
            return_exceptions=True,
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer

    async def _ask_mutating(
        self, webhook: ConfiguredWebhook, attributes: WriteAttributes
    ) -> bool | None:
        """Ask one webhook; tell whether it changed the object, None if it is not concerned."""
        question = self._question(webhook, attributes)
        if question is None:
            return None
        verdict = await self._ask(webhook, question, attributes)
        if verdict is None or not verdict.operations or attributes.object is None:
            return False
        before = attributes.object
        shown = question["object"]
        try:
            patched = apply_json_patch(shown, verdict.operations)
        except PatchError as error:
            raise internal_error(str(error)) from error
        asked = to_served(attributes.served, own_copy(patched))
        reshaped = self._reshape(asked, attributes.served)
        attributes.object = to_stored(attributes.served, reshaped)
        return attributes.object != before

    def _question(self, webhook: ConfiguredWebhook, attributes: WriteAttributes) -> Object | None:
        """Return the review's request for a webhook; None if the write does not concern it."""
        served = matching_version(webhook, attributes, self._registry)
        if served is None:
            return None
        try:
            if not selects(webhook, attributes, self._namespace):
                return None
        except UnknownNamespaceError:
            raise not_found("namespaces", attributes.namespace) from None
        question = review_request(attributes, served)
        return question if conditions_hold(webhook, attributes, question) else None

    def _namespace(self, name: str) -> Object | None:
        return self._store.get("namespaces", "", name)

    async def _ask(
        self, webhook: ConfiguredWebhook, question: Object, attributes: WriteAttributes
    ) -> WebhookVerdict | None:
        """Ask one webhook; None if it cannot be asked and fails open.

        Raises:
            StatusError: If it refuses, or cannot be asked and fails closed.
        """
        try:
            body = await self._caller.call(webhook, encode_review(question))
            mutating = webhook.reinvocation is not None
            verdict = read_verdict(body, question["uid"], mutating=mutating)
        except (CallError, InvalidAnswerError) as error:
            called = "failed to call webhook: " if isinstance(error, CallError) else ""
            text = f'failed calling webhook "{webhook.name}": {called}{error}'
            log.warning("webhook_failed", webhook=webhook.name, why=str(error))
            if webhook.failure_policy == "Fail":
                raise internal_error(text) from error
            return None
        response = verdict.response
        for warning in response.warnings:
            attributes.warn(warning)
        for key, value in response.audit_annotations.items():
            log.info("webhook_annotated", annotation=f"{webhook.name}/{key}", value=value)
        if not response.allowed:
            raise denial(webhook.name, response)
        return verdict

    def _note_change(self, _event: StoreEvent) -> None:
        self._concerned.clear()

    def _registered(
        self, resource: str, attributes: WriteAttributes
    ) -> Sequence[ConfiguredWebhook]:
        """Return the webhooks with a rule that names a write's resource: most have none."""
        if self._revision != self._registry.revision:
            self._revision = self._registry.revision
            self._concerned.clear()
        asked = attributes.served.resource, attributes.subresource, attributes.operation
        found = self._concerned.get((resource, *asked))
        if found is None:
            versions = self._registry.versions(attributes.served.resource)
            found = [
                webhook
                for _, stored in self._store.items(resource)
                for webhook in self._webhooks(resource, stored)
                if may_concern(webhook, versions, attributes)
            ]
            self._concerned[resource, *asked] = found
        return found

    def _webhooks(self, resource: str, stored: Object) -> Iterator[ConfiguredWebhook]:
        key = (resource, stored["metadata"]["name"])
        known = self._read.get(key)
        if known is None or known[0] is not stored:
            known = (stored, list(read_webhooks(stored)))
            self._read[key] = known
        yield from known[1]
